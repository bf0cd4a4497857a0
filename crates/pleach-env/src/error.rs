//! The error of every Pleach crate: a kind that tells the caller what to do, a message for people, a source.
//!
//! Absence is `Option`, never an error. Corruption names the file, the offset, what was expected and what was found.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use pleach_coding::Malformed;
use rustix::io::Errno;

/// Result of every fallible Pleach call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an [`Error`]: it tells the caller what to do.
///
/// | kind | what to do |
/// |---|---|
/// | [`NotFound`](Self::NotFound) | check the path, or let the open create a store |
/// | [`InvalidArgument`](Self::InvalidArgument) | correct the call |
/// | [`Unsupported`](Self::Unsupported) | use the build that the message asks for |
/// | [`Conflict`](Self::Conflict), [`TimedOut`](Self::TimedOut) | try again later, or give up |
/// | [`Io`](Self::Io) | if [`Error::is_shortage`], remove the cause and try again; otherwise look at the device |
/// | [`Closed`](Self::Closed) | get a new handle |
/// | [`Poisoned`](Self::Poisoned) | close the store, remove the cause, open it again |
/// | [`Corruption`](Self::Corruption) | restore a backup, or repair |
///
/// ```
/// use pleach_env::{Error, ErrorKind}; // In a program: `use pleach::{Error, ErrorKind}`.
///
/// /// Whether a write that failed with `error` is worth another try.
/// fn may_try_again(error: &Error) -> bool {
///     match error.kind() {
///         ErrorKind::Conflict | ErrorKind::TimedOut => true,
///         ErrorKind::Io => error.is_shortage(),
///         _ => false,
///     }
/// }
///
/// assert!(may_try_again(&Error::new(ErrorKind::Conflict, "the memtables are full")));
/// assert!(!may_try_again(&Error::closed()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes on disk violate the format or their checksum. Pleach does not change the store: restore the file, or
    /// salvage what is left with `pleach::repair`.
    Corruption,
    /// The operating system refused: no space, no permission, a device error. The source is the `io::Error`. Also the error of
    /// writes to a store that is open for reading only.
    Io,
    /// An argument is out of its documented range, or a batch needs more memory than the system gives; nothing was done.
    InvalidArgument,
    /// There is no store in the directory, or no directory, and the caller did not ask to create one.
    NotFound,
    /// The files were written by a format version, or name a feature, that this build does not know. Also the error of a store
    /// that has used up its numbers of partitions: 2^28, dropped ones included.
    Unsupported,
    /// The call would have to wait. Nothing was done; try again later. An open, a repair or a removal would wait for another
    /// holder of the store, in this process or another; `try_put` for a flush or for more than a millisecond of
    /// back-pressure; a task's waker that closes the store for another close.
    Conflict,
    /// The store has been closed, or the partition dropped, or the partition is newer than the snapshot that is read.
    Closed,
    /// An earlier failure stopped all writes. Reads go on; writes are refused until the store is opened again. `Db::poisoned` has
    /// that failure. It is one of these:
    /// - a failed sync;
    /// - another I/O error of the log, of the manifest, or of a background job, such as a flush or a merge, unless it is a
    ///   shortage ([`Error::is_shortage`]);
    /// - damage that a background job met: its kind is then `Corruption`;
    /// - a panic of a background job, or of a thread that was committing.
    Poisoned,
    /// The device did not answer in the time that the caller gave it. Nothing is wrong with the store: try again, or give up.
    TimedOut,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Corruption => "corruption",
            ErrorKind::Io => "input/output error",
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NotFound => "no such store",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Closed => "closed",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::TimedOut => "timed out",
        })
    }
}

/// An error with its kind and message, and with file, offset and cause if there are any.
///
/// The error is one pointer wide, so that `Result`s on the hot path stay small. It can be cloned, because a failed group
/// commit reports it to every waiting writer.
#[derive(Clone)]
pub struct Error(std::sync::Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    source: Option<io::Error>,
    /// The first failure, of a poisoned store.
    cause: Option<Error>,
}

impl Error {
    fn build(
        kind: ErrorKind,
        message: String,
        path: Option<&Path>,
        offset: Option<u64>,
        source: Option<io::Error>,
    ) -> Self {
        Self(std::sync::Arc::new(Inner {
            kind,
            message,
            path: path.map(Path::to_path_buf),
            offset,
            source,
            cause: None,
        }))
    }

    /// The error of a poisoned store; `message` names `cause`, its first failure.
    #[cold]
    pub fn poisoned(cause: &Error, message: impl Into<String>) -> Self {
        let (kind, cause) = (ErrorKind::Poisoned, Some(cause.clone()));
        Self(std::sync::Arc::new(Inner {
            kind,
            message: message.into(),
            path: None,
            offset: None,
            source: None,
            cause,
        }))
    }

    /// An error of `kind` without a file.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::build(kind, message.into(), None, None, None)
    }

    /// Bytes at `offset` of `path` violate the format; `message` says what was expected and found.
    pub fn corruption(path: &Path, offset: u64, message: impl Into<String>) -> Self {
        Self::build(ErrorKind::Corruption, message.into(), Some(path), Some(offset), None)
    }

    /// The `Corruption` of `malformed` bytes in a structure that begins at `offset` of `path`.
    pub fn malformed(path: &Path, offset: u64, malformed: Malformed) -> Self {
        Self::corruption(path, offset + malformed.offset as u64, malformed.to_string())
    }

    /// The operating system refused `action` (an infinitive phrase, "sync the log segment") on `path`.
    pub fn io(action: &str, path: &Path, source: io::Error) -> Self {
        Self::build(ErrorKind::Io, format!("cannot {action}"), Some(path), None, Some(source))
    }

    /// An argument is out of range; `message` says which, what was given and what is allowed.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// The error of calls after the close of the store.
    #[cold]
    pub fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the store has been closed; open it again for new handles")
    }

    /// `path` needs another build; `message` says what was found, what this build knows, and whether a newer or an older
    /// build reads it.
    pub fn unsupported(path: &Path, message: impl Into<String>) -> Self {
        Self::build(ErrorKind::Unsupported, message.into(), Some(path), None, None)
    }

    /// The same error with `path`, unless it has a path.
    #[must_use]
    pub fn at_path(self, path: &Path) -> Self {
        if self.0.path.is_some() {
            return self;
        }
        self.at(Some(path), self.0.offset)
    }

    /// The same error with the `offset` in its file, unless it has an offset.
    #[must_use]
    pub fn at_offset(self, offset: u64) -> Self {
        if self.0.offset.is_some() {
            return self;
        }
        self.at(self.path(), Some(offset))
    }

    /// The same error at another place.
    fn at(&self, path: Option<&Path>, offset: Option<u64>) -> Self {
        let Inner { kind, ref message, ref source, ref cause, .. } = *self.0;
        let (path, source) = (path.map(Path::to_path_buf), source.as_ref().map(copy_io_error));
        Self(std::sync::Arc::new(Inner {
            kind,
            message: message.clone(),
            path,
            offset,
            source,
            cause: cause.clone(),
        }))
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file with the error.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte offset in [`Error::path`] of the damage, or of the read that failed.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The operating system's error, for [`ErrorKind::Io`].
    pub fn io_error(&self) -> Option<&io::Error> {
        self.0.source.as_ref()
    }

    /// The first failure of the store, for [`ErrorKind::Poisoned`]: damage that a merge has found, or what the system refused.
    /// `None` for errors of this kind that are the first failure themselves.
    pub fn cause(&self) -> Option<&Error> {
        self.0.cause.as_ref()
    }

    /// Whether the cause is a shortage that can pass: a full disk, no descriptor or no memory left. The call has had no effect
    /// and can be tried again, unless it was a sync.
    pub fn is_shortage(&self) -> bool {
        let is_out_of_memory = |e: &io::Error| e.kind() == io::ErrorKind::OutOfMemory;
        self.is_out_of_space() || self.is_out_of_files() || self.io_error().is_some_and(is_out_of_memory)
    }

    /// Whether the cause is that the process or the system has too many files open.
    pub fn is_out_of_files(&self) -> bool {
        self.io_error().is_some_and(is_out_of_files)
    }

    /// Whether the cause is a full disk or quota: free some space and try again.
    pub fn is_out_of_space(&self) -> bool {
        self.io_error()
            .is_some_and(|e| matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

/// Whether a call found no descriptor.
pub fn is_out_of_files(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

/// What to do about the system's error; the end of a message.
fn advice(error: &io::Error) -> &'static str {
    if !is_out_of_files(error) {
        ""
    } else if error.raw_os_error() == Some(Errno::NFILE.raw_os_error()) {
        "; the whole system has as many files open as it may: close some, or raise fs.file-max"
    } else {
        "; the process has as many files open as it may: raise the limit (ulimit -n), or let it open fewer"
    }
}

fn copy_io_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(f, "{}: {}", inner.kind, inner.message)?;
        match (&inner.path, inner.offset) {
            (Some(path), Some(offset)) => write!(f, " (file {}, offset {offset})", path.display())?,
            (Some(path), None) => write!(f, " (file {})", path.display())?,
            (None, _) => {}
        }
        match &inner.source {
            Some(source) => write!(f, ": {source}{}", advice(source)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("path", &self.0.path)
            .field("offset", &self.0.offset)
            .field("source", &self.0.source)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.as_ref().map(|e| e as _);
        cause.or_else(|| self.0.source.as_ref().map(|e| e as _))
    }
}
