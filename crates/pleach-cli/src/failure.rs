//! The failure of a command: an exit code, a message, and often a hint.
//!
//! All errors become failures here, so this is the one place that must agree with the table of exit codes in `pleach help`.

use std::fmt::Display;
use std::io;
use std::path::Path;

use pleach::{Error, ErrorKind};
use pleach_command::{CannotListen, Interrupted};

/// Result of every command and its parts.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command ends; the numbers are its exit codes and part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The reader of the output has gone away; the command succeeds.
    OutputClosed = 0,
    NotFound = 1,
    Damage = 2,
    Usage = 3,
    Io = 4,
    Busy = 5,
    Interrupted = 130,
}

/// The failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty if the messages were printed before.
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    /// Ends with `exit`; the messages were printed before.
    pub(crate) fn quiet(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn not_found(message: impl Display) -> Self {
        Self::new(Exit::NotFound, message)
    }

    /// A check of the command failed: the store is damaged.
    pub(crate) fn damage(message: impl Display) -> Self {
        Self::new(Exit::Damage, message)
    }

    /// The system refused `action` (an infinitive phrase) on `path`.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        let failure = Self::new(Exit::Io, format!("cannot {action} {}: {error}", path.display()));
        match io_hint(error).filter(|hint| [FULL, FILES].contains(hint)) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// The failure of a command that writes: the hint does not suggest `--read-only`.
    pub(crate) fn without_read_only(mut self) -> Self {
        for (with, without) in [(REFUSED, REFUSED_TO_WRITE), (MOUNTED_READ_ONLY, MOUNTED_READ_ONLY_TO_WRITE)]
        {
            if self.hint.as_deref() == Some(with) {
                self.hint = Some(without.to_owned());
            }
        }
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

const FULL: &str = "the disk is full, or nearly so; what was written before is intact: free some space on that file system, then run \
     the command again";
const KEPT_FREE: &str = "the store keeps space free, so that flushes and merges never run out of it; what was written before is \
     intact: free some space on that file system, or try less memory, for which less is kept, such as --memory 64M";
const POISONED: &str = "the store refuses writes since the failure that the message names; when its cause is gone, run the command again";
const DAMAGED: &str = "nothing was changed; `pleach verify` lists all damage; restore the file from a backup, or salvage \
     the rest: pleach repair --into NEW";
const POISONED_BY_DAMAGE: &str = "the store refuses writes, because a merge has met damage; what was written before is intact: `pleach \
     verify` lists all damage; restore the file from a backup, or salvage the rest: pleach repair --into NEW";
const UNSUPPORTED: &str =
    "another version of pleach wrote the store; the message says whether a newer or an older one reads it";
const REFUSED: &str = "opening a store writes to its directory, even for reading (recovery): check owner and permissions with \
     `ls -ld`, or add --read-only to read the store without changing it";
const MOUNTED_READ_ONLY: &str = "the file system is mounted read-only: add --read-only to read the store; to change it, mount the \
     file system for writing";
const REFUSED_TO_WRITE: &str =
    "the command writes to the store's directory and its files: check owner and permissions with `ls -la`";
const MOUNTED_READ_ONLY_TO_WRITE: &str =
    "the file system is mounted read-only: mount it for writing, or copy the store to another one";
pub(crate) const BUSY: &str = "close it there and try again; several processes can have a store open at the same time only if all \
     of them use --read-only";
const FILES: &str =
    "too many files are open, nothing else is wrong: raise the limit with `ulimit -n 4096` and try again";
const MEMORY: &str = "the system gave no more memory: try again with less, such as --memory 64M";
const DEVICE: &str = "the device failed to read or write: look at `dmesg`, copy the store to another device, and salvage what \
     can be read: pleach repair --into NEW";

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let of = |exit| Self::new(exit, &error);
        match error.kind() {
            ErrorKind::NotFound => of(Exit::NotFound),
            ErrorKind::Corruption => of(Exit::Damage).hint(DAMAGED),
            ErrorKind::InvalidArgument | ErrorKind::Closed => of(Exit::Usage),
            ErrorKind::Unsupported => of(Exit::Usage).hint(UNSUPPORTED),
            ErrorKind::Conflict => of(Exit::Busy).hint(BUSY),
            // The cause is the first failure, which says more than that writes are refused.
            ErrorKind::Poisoned => {
                let cause = error.cause().unwrap_or(&error);
                if cause.kind() == ErrorKind::Corruption {
                    return of(Exit::Damage).hint(POISONED_BY_DAMAGE);
                }
                of(Exit::Io).hint(cause.io_error().and_then(io_hint).unwrap_or(POISONED))
            }
            _ => match error.io_error().and_then(io_hint) {
                Some(hint) => of(Exit::Io).hint(hint),
                None => of(Exit::Io),
            },
        }
    }
}

/// `EMFILE`, `ENFILE` and `EIO`, which have no kind of their own.
const TOO_MANY_FILES: [i32; 2] = [24, 23];
const DEVICE_FAILED: i32 = 5;

/// Whether the user lacks permission.
pub(crate) fn is_refused(error: &Error) -> bool {
    error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The hint for an error of the operating system.
fn io_hint(error: &io::Error) -> Option<&'static str> {
    match (error.kind(), error.raw_os_error()) {
        // The store refused the write, not the system.
        (io::ErrorKind::StorageFull, None) => Some(KEPT_FREE),
        (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, _) => Some(FULL),
        (io::ErrorKind::PermissionDenied, _) => Some(REFUSED),
        (io::ErrorKind::ReadOnlyFilesystem, _) => Some(MOUNTED_READ_ONLY),
        (io::ErrorKind::OutOfMemory, _) => Some(MEMORY),
        (_, Some(code)) if TOO_MANY_FILES.contains(&code) => Some(FILES),
        (_, Some(DEVICE_FAILED)) => Some(DEVICE),
        _ => None,
    }
}

impl From<Interrupted> for Failure {
    fn from(interrupted: Interrupted) -> Self {
        Self::new(Exit::Interrupted, interrupted)
    }
}

impl From<CannotListen> for Failure {
    fn from(error: CannotListen) -> Self {
        Self::new(Exit::Io, error)
    }
}

/// Writing the output failed. Input errors name their file and go through [`Failure::io`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::quiet(Exit::OutputClosed),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::new(Exit::Io, format!("cannot write the output: {error}"))
                    .hint("the disk that the output goes to is full")
            }
            _ => Self::new(Exit::Io, format!("cannot write the output: {error}")),
        }
    }
}

impl From<csv::Error> for Failure {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => error.into(),
            kind => Self::new(Exit::Io, format!("cannot write the output as CSV: {kind:?}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_exit_code_and_hint() {
        for (kind, exit, hint) in [
            (ErrorKind::Corruption, Exit::Damage, Some("pleach repair")),
            (ErrorKind::InvalidArgument, Exit::Usage, None),
            (ErrorKind::NotFound, Exit::NotFound, None),
            (ErrorKind::Unsupported, Exit::Usage, Some("a newer or an older one")),
            (ErrorKind::Conflict, Exit::Busy, Some("close it there")),
            (ErrorKind::Closed, Exit::Usage, None),
            (ErrorKind::Poisoned, Exit::Io, Some("refuses writes")),
            (ErrorKind::Io, Exit::Io, None),
        ] {
            let failure = Failure::from(Error::new(kind, "message"));
            assert_eq!(failure.exit, exit, "{kind:?}");
            let found = failure.hint.unwrap_or_default();
            assert!(hint.map_or(found.is_empty(), |hint| found.contains(hint)), "{kind:?}: {found}");
        }
    }

    #[test]
    fn a_poisoned_store_has_the_code_and_hint_of_its_first_failure() {
        let damage = Error::corruption(Path::new("7.sst"), 3, "message");
        let device =
            Error::io("sync the log", Path::new("7.log"), io::Error::from_raw_os_error(DEVICE_FAILED));
        for (cause, exit, hint) in
            [(damage, Exit::Damage, "repair --into"), (device, Exit::Io, "look at `dmesg`")]
        {
            let failure = Failure::from(Error::poisoned(&cause, "refused"));
            assert_eq!(failure.exit, exit);
            assert!(failure.hint.as_deref().is_some_and(|found| found.contains(hint)), "{failure:?}");
        }
    }

    #[test]
    fn every_refusal_of_the_system_has_a_hint_that_fits() {
        for (code, hint) in [
            (28, "free some space"),
            (122, "free some space"),
            (13, "ls -ld"),
            (30, "mounted read-only: add --read-only"),
            (24, "ulimit -n"),
            (23, "ulimit -n"),
            (12, "--memory"),
            (5, "dmesg"),
        ] {
            let refused = io::Error::from_raw_os_error(code);
            let failure = Failure::from(Error::io("sync the log segment", Path::new("x"), refused));
            let found = failure.hint.unwrap_or_default();
            assert!(failure.exit == Exit::Io && found.contains(hint), "{code}: {found}");
            assert!(!found.contains("sync failed"), "{code}: {found}");
        }
        let kept = io::Error::new(io::ErrorKind::StorageFull, "5 MiB are free");
        let hint = Failure::from(Error::io("write", Path::new("x"), kept)).hint.unwrap_or_default();
        assert!(hint.contains("--memory 64M"), "{hint}");
        let absent = Error::io("open", Path::new("x"), io::Error::from_raw_os_error(2));
        assert_eq!(Failure::from(absent).hint, None);
    }

    #[test]
    fn commands_that_write_are_not_led_to_an_option_that_they_refuse() {
        for code in [13, 30] {
            let refused = Error::io("lock", Path::new("x"), io::Error::from_raw_os_error(code));
            let hint = Failure::from(refused).without_read_only().hint.unwrap();
            assert!(!hint.contains("--read-only"), "{hint}");
        }
        assert_eq!(Failure::usage("message").hint(BUSY).without_read_only().hint.as_deref(), Some(BUSY));
    }

    #[test]
    fn inputs_and_outputs_get_hints_about_space_and_files_only() {
        let of = |code| Failure::io("open", Path::new("in.csv"), &io::Error::from_raw_os_error(code)).hint;
        assert!(of(28).is_some_and(|hint| hint.contains("full")));
        assert!(of(24).is_some_and(|hint| hint.contains("ulimit")));
        assert_eq!((of(13), of(2)), (None, None));
    }
}
