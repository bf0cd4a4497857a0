//! Errors as LevelDB tells them: a kind and a message in one string, for instance `Corruption: bad block`.

use std::fmt;

use libc::c_char;
use pleach::{Error, ErrorKind};
use pleach_ffi::copy_string;

pub(crate) type Result<T> = std::result::Result<T, Status>;

/// LevelDB's kinds, but for `NotFound`, which functions of the C interface never return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Corruption,
    NotSupported,
    InvalidArgument,
    Io,
}

#[derive(Clone, Debug)]
pub(crate) struct Status {
    kind: Kind,
    message: String,
}

impl Status {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Corruption => "Corruption",
            Kind::NotSupported => "Not implemented",
            Kind::InvalidArgument => "Invalid argument",
            Kind::Io => "IO error",
        };
        write!(f, "{kind}: {}", self.message)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Corruption => Kind::Corruption,
            ErrorKind::Unsupported => Kind::NotSupported,
            ErrorKind::InvalidArgument | ErrorKind::NotFound => Kind::InvalidArgument,
            _ => Kind::Io,
        };
        let text = error.to_string();
        // The kind of LevelDB's says the same; other kinds of Pleach's tell more than `IO error`.
        let says_the_same = matches!(
            error.kind(),
            ErrorKind::Corruption | ErrorKind::Unsupported | ErrorKind::InvalidArgument | ErrorKind::Io
        );
        let rest = text.strip_prefix(&format!("{}: ", error.kind())).filter(|_| says_the_same);
        Self::new(kind, rest.unwrap_or(&text))
    }
}

/// Runs `work`; a panic is an error.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    pleach_ffi::caught(work).unwrap_or_else(|message| Err(Status::new(Kind::Io, message)))
}

/// Where a function of the C interface puts its error: null, or a string that the caller frees.
pub type ErrorSlot<'a> = Option<&'a mut *mut c_char>;

/// Runs `work`. An error, and a panic, goes to `slot`.
pub(crate) fn report<T>(slot: ErrorSlot<'_>, work: impl FnOnce() -> Result<T>) -> Option<T> {
    caught(work).map_err(|status| set_error(slot, &status)).ok()
}

/// Puts an error where the caller wants it. An earlier one there is freed, as by LevelDB.
pub(crate) fn set_error(slot: ErrorSlot<'_>, status: &Status) {
    let Some(slot) = slot else { return };
    // SAFETY: by the contract of c.h the slot is null or has a string from `malloc`.
    unsafe { libc::free((*slot).cast()) };
    *slot = copy_string(status.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use pleach::{Error, ErrorKind};

    use super::Status;

    #[test]
    fn a_message_names_its_kind_once() {
        for (error, text) in [
            (Error::invalid("the key is too long"), "Invalid argument: the key is too long"),
            (Error::new(ErrorKind::Corruption, "a block"), "Corruption: a block"),
            (Error::new(ErrorKind::Conflict, "the store is open"), "IO error: conflict: the store is open"),
        ] {
            assert_eq!(Status::from(error).to_string(), text);
        }
    }
}
