//! Ctrl-C: a flag that a command checks between two steps, so that it can close the store before it ends.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit code after the second signal; shells use it for Ctrl-C.
const EXIT_CODE: i32 = 130;

/// Whether the command should stop. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    /// Set in the signal handler. Relaxed: no other data depends on it.
    asked: Arc<AtomicBool>,
}

/// The effect of the second signal. The first one asks the command to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondSignal {
    /// It ends the process at once.
    EndsProcess,
    /// It does nothing. For a child process: Ctrl-C reaches it from the terminal and once more from its parent.
    IsIgnored,
}

/// The error of a command that has stopped because it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The system does not let the process handle its signals.
#[derive(Debug)]
pub struct CannotListen(io::Error);

impl fmt::Display for CannotListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen for Ctrl-C: {}", self.0)
    }
}

impl std::error::Error for CannotListen {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl Interrupt {
    /// Handles SIGINT and SIGTERM for the rest of the process.
    pub fn install(second: SecondSignal) -> Result<Self, CannotListen> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            interrupt.listen(signal, second).map_err(CannotListen)?;
        }
        Ok(interrupt)
    }

    fn listen(&self, signal: i32, second: SecondSignal) -> io::Result<()> {
        // Registered first, because it must see the flag before the other handler sets it.
        if second == SecondSignal::EndsProcess {
            flag::register_conditional_shutdown(signal, EXIT_CODE, Arc::clone(&self.asked))?;
        }
        flag::register(signal, Arc::clone(&self.asked))?;
        Ok(())
    }

    /// Whether to stop.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// An error if the command should stop.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_asked() { Err(Interrupted) } else { Ok(()) }
    }

    /// Does what a signal does.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_flag() {
        let interrupt = Interrupt::default();
        let clone = interrupt.clone();
        assert_eq!((clone.is_asked(), clone.check()), (false, Ok(())));
        interrupt.ask();
        assert_eq!((clone.is_asked(), clone.check()), (true, Err(Interrupted)));
    }
}
