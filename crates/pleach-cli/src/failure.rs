//! What makes a command end without success: an exit code, a message, and a hint where one helps.
//!
//! Everything that can go wrong comes together here, so that the table of exit codes in `pleach help` has one place
//! that makes it true.

use std::fmt::Display;
use std::io;
use std::path::Path;

use pleach::{Error, ErrorKind};

/// Result of every command and its parts.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command ends; the numbers are its exit codes and part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Whoever read the output has had enough: not a failure at all.
    OutputClosed = 0,
    NotFound = 1,
    Damage = 2,
    Usage = 3,
    Io = 4,
    Busy = 5,
    Interrupted = 130,
}

/// The end of a command that did not do all it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty when everything worth saying has been said.
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    /// Ends with `exit`; the messages are out already.
    pub(crate) fn quiet(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn not_found(message: impl Display) -> Self {
        Self::new(Exit::NotFound, message)
    }

    /// A check of ours failed: the store is not as it must be.
    pub(crate) fn damage(message: impl Display) -> Self {
        Self::new(Exit::Damage, message)
    }

    /// The system refused `action` (an infinitive phrase) on `path`.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        let failure = Self::new(Exit::Io, format!("cannot {action} {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => failure.hint(FULL),
            _ => failure,
        }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

const FULL: &str = "the disk is full; what was written before is intact: free some space and try again";
const POISONED: &str =
    "an earlier sync failed, so no more can be promised; check the device, then open the store again";
const DAMAGED: &str =
    "nothing was changed; restore the file from a backup, `pleach verify` checks the whole store";
const UNSUPPORTED: &str =
    "another version of pleach wrote the store; the message says whether a newer or an older one reads it";
const REFUSED: &str =
    "opening a store writes to its directory, even for reading (recovery); it must be writable";

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let of = |exit| Self::new(exit, &error);
        match error.kind() {
            ErrorKind::NotFound => of(Exit::NotFound),
            ErrorKind::Corruption => of(Exit::Damage).hint(DAMAGED),
            ErrorKind::InvalidArgument | ErrorKind::Closed => of(Exit::Usage),
            ErrorKind::Unsupported => of(Exit::Usage).hint(UNSUPPORTED),
            ErrorKind::Conflict => of(Exit::Busy),
            ErrorKind::Poisoned => of(Exit::Io).hint(POISONED),
            _ if error.is_out_of_space() => of(Exit::Io).hint(FULL),
            _ => match error.io_error().map(io::Error::kind) {
                Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                    of(Exit::Io).hint(REFUSED)
                }
                _ => of(Exit::Io),
            },
        }
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
