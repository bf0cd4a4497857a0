//! Errors: a code, a message and whether the cause can pass; and what runs each function that can fail.

use std::ffi::{CStr, CString, c_char};

use pleach::ErrorKind;
use pleach_ffi::{caught, guard};

/// What an error is, and so what to do about it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PleachCode {
    /// No error: the code of a null pointer.
    None = 0,
    /// Bytes on disk are damaged; the message names file and offset. The store is not changed: restore the file, or salvage what
    /// can be read with `pleach_repair`.
    Corruption = 1,
    /// The operating system refused: no space, no permission, a device error.
    Io = 2,
    /// An argument is null, unknown or out of its range. Nothing was done.
    InvalidArgument = 3,
    /// There is no store in the directory, and the caller did not ask to create one.
    NotFound = 4,
    /// The files are of a format, or use a feature, that this version does not know.
    Unsupported = 5,
    /// Another holder excludes the caller: another process has the store open. Try again later.
    Conflict = 6,
    /// The store or the partition was closed or dropped.
    Closed = 7,
    /// An earlier failure stopped all writes: a failed sync, another I/O error of the log, the manifest or background work
    /// that is no shortage, damage that background work met, or a panic. Reads go on; writes are refused until the store is
    /// opened again.
    Poisoned = 8,
    /// The device did not answer in time.
    TimedOut = 9,
    /// A bug in Pleach. The handles that were used can still be freed.
    Internal = 10,
    /// Any other failure.
    Other = 11,
}

/// An error: a code for programs and a message for people. The caller of the function that returned it owns it.
///
/// Thread safety: it does not change, so any number of threads may read it.
#[derive(Clone, Debug)]
pub struct ErrorHandle {
    code: PleachCode,
    message: CString,
    is_shortage: bool,
}

const _: () = pleach_ffi::assert_shared::<ErrorHandle>();

pub(crate) type Result<T, E = Box<ErrorHandle>> = std::result::Result<T, E>;

impl ErrorHandle {
    fn new(code: PleachCode, message: &str, is_shortage: bool) -> Box<Self> {
        // A path may have any bytes; those of a string of C end at a zero.
        let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        Box::new(Self { code, message, is_shortage })
    }

    pub(crate) fn invalid(message: &str) -> Box<Self> {
        Self::new(PleachCode::InvalidArgument, &format!("invalid argument: {message}"), false)
    }

    pub(crate) fn internal(message: &str) -> Box<Self> {
        Self::new(PleachCode::Internal, message, false)
    }

    /// The code.
    pub fn code(&self) -> PleachCode {
        self.code
    }

    /// The message.
    pub fn message(&self) -> &CStr {
        &self.message
    }
}

impl From<pleach::Error> for Box<ErrorHandle> {
    #[cold]
    fn from(error: pleach::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Corruption => PleachCode::Corruption,
            ErrorKind::Io => PleachCode::Io,
            ErrorKind::InvalidArgument => PleachCode::InvalidArgument,
            ErrorKind::NotFound => PleachCode::NotFound,
            ErrorKind::Unsupported => PleachCode::Unsupported,
            ErrorKind::Conflict => PleachCode::Conflict,
            ErrorKind::Closed => PleachCode::Closed,
            ErrorKind::Poisoned => PleachCode::Poisoned,
            ErrorKind::TimedOut => PleachCode::TimedOut,
            _ => PleachCode::Other,
        };
        ErrorHandle::new(code, &error.to_string(), error.is_shortage())
    }
}

/// Runs `work`; a panic is an error.
#[inline]
pub(crate) fn attempt<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work).unwrap_or_else(|message| Err(ErrorHandle::internal(&message)))
}

/// Runs `work` and returns its error, or that of its panic.
#[inline]
pub(crate) fn report(work: impl FnOnce() -> Result<()>) -> Option<Box<ErrorHandle>> {
    attempt(work).err()
}

/// The version of the library, for instance "0.1.0". The string is constant.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Frees memory that a function returned as a `char *`, or as an array. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_free(memory: *mut std::ffi::c_void) {
    // SAFETY: such memory comes from `malloc`.
    unsafe { libc::free(memory) }
}

/// The code of an error; `PLEACH_CODE_NONE` for null.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_error_code(error: Option<&ErrorHandle>) -> PleachCode {
    error.map_or(PleachCode::None, ErrorHandle::code)
}

/// The message of an error, for people, as UTF-8. It lives as long as the error.
/// An empty string for null.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_error_message(error: Option<&ErrorHandle>) -> *const c_char {
    error.map_or(c"", ErrorHandle::message).as_ptr()
}

/// Whether the cause is a shortage that can pass: a full disk, no descriptor or no memory left. The call has had no effect and
/// can be tried again, unless it was a sync. False for null.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_error_is_shortage(error: Option<&ErrorHandle>) -> bool {
    error.is_some_and(|error| error.is_shortage)
}

/// Frees an error. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_error_free(error: Option<Box<ErrorHandle>>) {
    guard((), || drop(error));
}
