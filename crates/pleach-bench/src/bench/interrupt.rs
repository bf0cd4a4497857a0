//! Ctrl-C: a flag that threads look at between operations, so that stores are closed and removed and what was measured
//! is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::engine::Result;

/// Whether somebody wants the run to end. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    /// Set in the signal handler. Relaxed: nothing else is handed over with it.
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over SIGINT and SIGTERM for the rest of the process.
    pub(crate) fn install() -> Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&interrupt.asked))?;
        }
        Ok(interrupt)
    }

    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// An error when it is time to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_asked() { Err("interrupted".into()) } else { Ok(()) }
    }

    /// What a signal does.
    #[cfg(test)]
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }
}
