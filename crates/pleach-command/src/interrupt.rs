//! Ctrl-C: a flag that a command looks at between two steps, so that it closes what it has opened.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit code of a process that the second signal ends: what shells give for Ctrl-C.
const EXIT_CODE: i32 = 130;

/// Whether somebody wants the command to stop. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    /// Set in the signal handler. Relaxed: nothing else is handed over with it.
    asked: Arc<AtomicBool>,
}

/// The effect of the second signal. The first one asks the command to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondSignal {
    /// It ends the process at once, for people who do not want to wait.
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

/// The system does not let the process take over its signals.
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
    /// Takes over SIGINT and SIGTERM for the rest of the process.
    pub fn install(second: SecondSignal) -> Result<Self, CannotListen> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            interrupt.listen(signal, second).map_err(CannotListen)?;
        }
        Ok(interrupt)
    }

    fn listen(&self, signal: i32, second: SecondSignal) -> io::Result<()> {
        // First: the handler that ends the process looks at the flag before the other one sets it.
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

    /// An error when it is time to stop.
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
