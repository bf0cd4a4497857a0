//! A safe, thin cover over the shim: a connection, and sessions that hold one cursor for each table.
//!
//! # Concurrency
//! A connection takes calls from all threads. A session and its cursors belong to one thread at a time; a [`Session`] may go to
//! another thread, and hands out neither.

#![expect(unsafe_code, reason = "WiredTiger is called through a shim in C")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use pleach_reshape::store::Result;

use crate::ffi;
pub use crate::ffi::Statistic;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key up.
    Forward,
    /// From the largest key down.
    Reverse,
}

/// An open database. Clones share it; the last one that is dropped, or the last session, closes it.
#[derive(Clone, Debug)]
pub struct Connection {
    handle: Arc<Handle>,
}

/// # Invariants
/// 1. Live: the pointer comes from opening and is closed once. Sessions share the handle, so none is left then.
#[derive(Debug)]
struct Handle {
    raw: NonNull<ffi::Connection>,
}

// SAFETY: WiredTiger's connection handle may be used by any thread, and by several at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// The library's version: major, minor, patch.
pub fn version() -> [c_int; 3] {
    let mut version = [0; 3];
    let [major, minor, patch] = &mut version;
    // SAFETY: it writes three numbers.
    unsafe { ffi::wiredtiger_version(major, minor, patch) };
    version
}

impl Connection {
    /// Opens the database in a folder. The configuration is in WiredTiger's own syntax.
    pub fn open(folder: &Path, config: &str) -> Result<Self> {
        let (home, config) = (CString::new(folder.as_os_str().as_bytes())?, CString::new(config)?);
        let mut raw = ptr::null_mut();
        // SAFETY: both strings end with a zero; the pointer is written.
        let error = unsafe { ffi::shim_open(home.as_ptr(), config.as_ptr(), &raw mut raw) };
        if error == ffi::BUSY {
            return Err(format!("the store in {} is in use", folder.display()).into());
        }
        checked(error)?;
        Ok(Self { handle: Arc::new(Handle { raw: opened(raw) }) })
    }

    /// A session.
    pub fn session(&self) -> Result<Session> {
        self.session_as(c"")
    }

    /// As [`session`](Self::session). A change outside of a transaction, too, is in conflict with one that it does not see; then
    /// WiredTiger tries it again.
    ///
    /// # Errors
    /// Those of [`session`](Self::session).
    pub fn isolated_session(&self) -> Result<Session> {
        self.session_as(c"isolation=snapshot")
    }

    fn session_as(&self, config: &CStr) -> Result<Session> {
        let mut raw = ptr::null_mut();
        // SAFETY: invariant 1; the string ends with a zero, and the pointer is written.
        checked(unsafe { ffi::shim_open_session(self.handle.raw.as_ptr(), config.as_ptr(), &raw mut raw) })?;
        Ok(Session { raw: opened(raw), cursors: Vec::new(), _handle: Arc::clone(&self.handle) })
    }

    /// Closes it and tells whether that went well.
    ///
    /// # Errors
    /// If something else holds it: a session or a clone.
    pub fn close(self) -> Result<()> {
        let handle = Arc::into_inner(self.handle).ok_or("the connection is in use")?;
        let raw = handle.raw.as_ptr();
        std::mem::forget(handle);
        // SAFETY: invariant 1; `drop` does not run.
        checked(unsafe { ffi::shim_close(raw) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        let _nobody_to_tell = unsafe { ffi::shim_close(self.raw.as_ptr()) };
    }
}

/// A thread's way in, with a cursor for each table it has used. A table goes by a number of the caller's choice, always the same
/// for the same name; numbers should be small.
///
/// # Invariants
/// 1. Live: the session and its cursors were opened and not closed; cursors end with the session.
/// 2. Unpositioned: between calls no cursor has a position, nor a key or value that points into the caller's memory.
#[derive(Debug)]
pub struct Session {
    raw: NonNull<ffi::Session>,
    cursors: Vec<Option<NonNull<ffi::Cursor>>>,
    _handle: Arc<Handle>,
}

// SAFETY: a session and its cursors may be used by any thread, by one at a time, to which `&mut` and the absence of `Sync` see.
unsafe impl Send for Session {}

impl Session {
    /// Makes a table, unless it is there.
    pub fn create(&self, table: &CStr, config: &str) -> Result<()> {
        let config = CString::new(config)?;
        // SAFETY: invariant 1, here and below; strings end with a zero.
        checked(unsafe { ffi::shim_create(self.raw.as_ptr(), table.as_ptr(), config.as_ptr()) })
    }

    /// Removes a table; false while it is still in use.
    pub fn drop_table(&self, table: &CStr) -> Result<bool> {
        // SAFETY: as above.
        let error = unsafe { ffi::shim_drop(self.raw.as_ptr(), table.as_ptr()) };
        if error == ffi::BUSY { Ok(false) } else { checked(error).map(|()| true) }
    }

    /// Makes everything that is committed durable, without the log.
    pub fn checkpoint(&self) -> Result<()> {
        // SAFETY: as above.
        checked(unsafe { ffi::shim_checkpoint(self.raw.as_ptr()) })
    }

    /// Makes everything that is committed durable, by the log.
    pub fn flush_log(&self) -> Result<()> {
        // SAFETY: as above.
        checked(unsafe { ffi::shim_flush_log(self.raw.as_ptr()) })
    }

    /// Names of all tables.
    pub fn tables(&self) -> Result<Vec<String>> {
        let cursor = self.new_cursor(c"metadata:")?.as_ptr();
        let mut names = Vec::new();
        // SAFETY: the cursor is live until it is closed; the name is a string that stays until the cursor moves.
        unsafe {
            while found(ffi::shim_next(cursor))? {
                let mut name = ptr::null();
                checked(ffi::shim_name(cursor, &raw mut name))?;
                names.push(CStr::from_ptr(name).to_string_lossy().into_owned());
            }
            checked(ffi::shim_close_cursor(cursor))?;
        }
        names.retain(|name| name.starts_with("table:"));
        Ok(names)
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> Result<()> {
        self.begin_as(c"")
    }

    /// Begins a transaction that sees what is committed now, whatever is committed later.
    pub fn begin_snapshot(&mut self) -> Result<()> {
        self.begin_as(c"isolation=snapshot")
    }

    fn begin_as(&mut self, config: &CStr) -> Result<()> {
        // SAFETY: as above; the string ends with a zero.
        checked(unsafe { ffi::shim_begin(self.raw.as_ptr(), config.as_ptr()) })
    }

    /// Commits the transaction. After an error it is rolled back.
    pub fn commit(&mut self) -> Result<()> {
        // SAFETY: as above.
        checked(unsafe { ffi::shim_commit(self.raw.as_ptr()) })
    }

    /// Ends the transaction and undoes its changes.
    pub fn roll_back(&mut self) -> Result<()> {
        // SAFETY: as above.
        checked(unsafe { ffi::shim_roll_back(self.raw.as_ptr()) })
    }

    /// A statistic of the connection.
    pub fn statistic(&mut self, statistic: Statistic) -> Result<u64> {
        let (mut cursor, mut value) = (ptr::null_mut(), 0);
        // SAFETY: as above; the cursor is written before it is used and ends with the session.
        unsafe {
            checked(ffi::shim_open_cursor(self.raw.as_ptr(), c"statistics:".as_ptr(), &raw mut cursor))?;
            checked(ffi::shim_statistic(cursor, statistic as c_int, &raw mut value))?;
            checked(ffi::shim_close_cursor(cursor))?;
        }
        Ok(value)
    }

    /// The cursor on a table of the number `at` and the name `table`, opened on first use.
    fn cursor(&mut self, at: usize, table: &CStr) -> Result<NonNull<ffi::Cursor>> {
        if let Some(cursor) = self.cursors.get(at).copied().flatten() {
            return Ok(cursor);
        }
        let cursor = self.new_cursor(table)?;
        self.cursors.resize(self.cursors.len().max(at + 1), None);
        self.cursors[at] = Some(cursor);
        Ok(cursor)
    }

    /// Closes all cursors, so that none keeps a table from being removed. WiredTiger makes it cheap to open one again.
    pub fn close_cursors(&mut self) -> Result<()> {
        for cursor in self.cursors.drain(..).flatten() {
            // SAFETY: invariant 1; the cursor is in no list any more.
            checked(unsafe { ffi::shim_close_cursor(cursor.as_ptr()) })?;
        }
        Ok(())
    }

    fn new_cursor(&self, table: &CStr) -> Result<NonNull<ffi::Cursor>> {
        let mut cursor = ptr::null_mut();
        // SAFETY: invariant 1; the pointer is written.
        checked(unsafe { ffi::shim_open_cursor(self.raw.as_ptr(), table.as_ptr(), &raw mut cursor) })?;
        Ok(opened(cursor))
    }

    /// Puts a value; false on a conflict with another transaction.
    pub fn insert(&mut self, at: usize, table: &CStr, key: &[u8], value: &[u8]) -> Result<bool> {
        let cursor = self.cursor(at, table)?;
        let raw = cursor.as_ptr();
        // SAFETY: invariant 1; key and value are copied during the call.
        let error = unsafe { ffi::shim_insert(raw, key.as_ptr(), key.len(), value.as_ptr(), value.len()) };
        if error != 0 {
            // Only a successful insert leaves the cursor without key, value and position.
            drop(Positioned(cursor));
        }
        written(error)
    }

    /// Removes a key, if it is there; false on a conflict with another transaction.
    pub fn remove(&mut self, at: usize, table: &CStr, key: &[u8]) -> Result<bool> {
        let positioned = Positioned(self.cursor(at, table)?);
        // SAFETY: invariant 1; the key is there for as long as the cursor refers to it.
        written(unsafe { ffi::shim_remove(positioned.raw(), key.as_ptr(), key.len()) })
    }

    /// Shows a value; whether there was one.
    pub fn get(&mut self, at: usize, table: &CStr, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let positioned = Positioned(self.cursor(at, table)?);
        // SAFETY: invariant 1; the key is there for as long as the cursor refers to it.
        let found = found(unsafe { ffi::shim_search(positioned.raw(), key.as_ptr(), key.len()) })?;
        if found {
            read(positioned.value()?);
        }
        Ok(found)
    }

    /// Shows entries from the first one at or beyond `from` in a direction until `visit` returns false.
    pub fn scan(
        &mut self,
        at: usize,
        table: &CStr,
        from: Option<&[u8]>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let mut positioned = Positioned(self.cursor(at, table)?);
        let mut there = match from {
            Some(key) => positioned.seek(key, direction)?,
            None => positioned.step(direction)?,
        };
        while there && visit(positioned.key()?, positioned.value()?) {
            there = positioned.step(direction)?;
        }
        Ok(())
    }

    /// Removes all keys from `lower` up to, not including, `upper`.
    pub fn truncate(&mut self, at: usize, table: &CStr, lower: &[u8], upper: &[u8]) -> Result<()> {
        let mut first = Positioned(self.cursor(at, table)?);
        let mut last = Positioned(self.new_cursor(table)?);
        let mut there = last.seek(upper, Direction::Reverse)?;
        if there && last.key()? == upper {
            there = last.step(Direction::Reverse)?;
        }
        // The first key at or above `lower` may be above the last one below `upper`: then there is nothing between.
        if there && first.seek(lower, Direction::Forward)? && first.key()? <= last.key()? {
            // SAFETY: invariant 1; both cursors have positions in the same table.
            checked(unsafe { ffi::shim_truncate(self.raw.as_ptr(), first.raw(), last.raw()) })?;
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: invariant 1; this closes the cursors too.
        let _nobody_to_tell = unsafe { ffi::shim_close_session(self.raw.as_ptr()) };
    }
}

/// A cursor in use, live and ours alone. It gives up its position, and what it refers to, when this is dropped.
struct Positioned(NonNull<ffi::Cursor>);

impl Positioned {
    fn raw(&self) -> *mut ffi::Cursor {
        self.0.as_ptr()
    }

    /// Goes to the first entry at or beyond a key in a direction; whether there is one.
    fn seek(&mut self, key: &[u8], direction: Direction) -> Result<bool> {
        let mut exact = 0;
        // SAFETY: the cursor is live; once it has found something it refers to that, not to our key.
        let there =
            found(unsafe { ffi::shim_search_near(self.raw(), key.as_ptr(), key.len(), &raw mut exact) })?;
        let short = match direction {
            Direction::Forward => exact < 0,
            Direction::Reverse => exact > 0,
        };
        if there && short { self.step(direction) } else { Ok(there) }
    }

    /// Goes to the next entry in a direction, the first one from nowhere; whether there is one.
    fn step(&mut self, direction: Direction) -> Result<bool> {
        // SAFETY: the cursor is live.
        found(unsafe {
            match direction {
                Direction::Forward => ffi::shim_next(self.raw()),
                Direction::Reverse => ffi::shim_prev(self.raw()),
            }
        })
    }

    /// Requires: the cursor has a position. The bytes stay until it moves.
    fn key(&self) -> Result<&[u8]> {
        let (mut start, mut len) = (ptr::null(), 0);
        // SAFETY: the cursor is live and hands out bytes that stay until it moves, which takes `&mut self`.
        unsafe {
            checked(ffi::shim_key(self.raw(), &raw mut start, &raw mut len))?;
            Ok(bytes(start, len))
        }
    }

    /// Requires: the cursor has a position. The bytes stay until it moves.
    fn value(&self) -> Result<&[u8]> {
        let (mut start, mut len) = (ptr::null(), 0);
        // SAFETY: as in `key`.
        unsafe {
            checked(ffi::shim_value(self.raw(), &raw mut start, &raw mut len))?;
            Ok(bytes(start, len))
        }
    }
}

impl Drop for Positioned {
    fn drop(&mut self) {
        // SAFETY: the cursor is live.
        let _nobody_to_tell = unsafe { ffi::shim_reset(self.raw()) };
    }
}

/// What an open function has written.
fn opened<T>(raw: *mut T) -> NonNull<T> {
    NonNull::new(raw).expect("what is opened without an error is there")
}

/// Bytes at a pointer that may be null where there are none.
///
/// # Safety
/// `len` bytes at `start` stay there, unchanged, for the lifetime.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if start.is_null() { &[] } else { unsafe { slice::from_raw_parts(start, len) } }
}

fn checked(error: c_int) -> Result<()> {
    if error == 0 {
        return Ok(());
    }
    // SAFETY: it returns a string that ends with a zero and stays, for errors without a name until the next such call.
    let words = unsafe { CStr::from_ptr(ffi::wiredtiger_strerror(error).cast::<c_char>()) };
    Err(format!("WiredTiger: {}", words.to_string_lossy()).into())
}

/// Whether something was found.
fn found(error: c_int) -> Result<bool> {
    if error == ffi::NOT_FOUND { Ok(false) } else { checked(error).map(|()| true) }
}

/// Whether something was written and not in conflict.
fn written(error: c_int) -> Result<bool> {
    if error == ffi::ROLLBACK { Ok(false) } else { checked(error).map(|()| true) }
}
