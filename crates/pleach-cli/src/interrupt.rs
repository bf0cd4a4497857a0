//! Ctrl-C: the first one asks to stop at the next good moment, the second one ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Exit, Failure, Result};

/// Whether somebody wants the command to stop. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    /// Set in the signal handler. Relaxed: nothing else is handed over with it.
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over SIGINT and SIGTERM for the rest of the process.
    pub(crate) fn install() -> Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the handler that ends the process looks at the flag before the other one sets it.
            flag::register_conditional_shutdown(
                signal,
                Exit::Interrupted as i32,
                Arc::clone(&interrupt.asked),
            )
            .and_then(|_| flag::register(signal, Arc::clone(&interrupt.asked)))
            .map_err(|e| Failure::new(Exit::Io, format!("cannot listen for Ctrl-C: {e}")))?;
        }
        Ok(interrupt)
    }

    /// Whether to stop.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// An error when it is time to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Failure::new(Exit::Interrupted, "interrupted")) } else { Ok(()) }
    }
}
