//! Iterators: `leveldb_iterator_t`.

use std::sync::OnceLock;

use libc::c_char;
use pleach::{Cursor, Partition, Snapshot, Value};
use pleach_ffi::{bytes, guard};

use crate::database::Database;
use crate::key_form::{KeyForm, ReversedWalk};
use crate::options::ReadOptionsHandle;
use crate::ordered::{OrderedKey, View};
use crate::process::Process;
use crate::status::{ErrorSlot, Kind, Result, Status, caught, set_error};

/// `leveldb_iterator_t`.
pub struct IteratorHandle {
    walk: Walk,
    /// The error of the last move. An iterator that has failed is on no entry until it is sought again.
    error: Option<Status>,
    /// The first error of a value that was asked for since the last seek. The walk goes on behind it, so it stays: programs look
    /// for errors at the end of a walk.
    value_error: OnceLock<Status>,
    made_in: Process,
}

const _: () = pleach_ffi::assert_shared::<IteratorHandle>();

#[expect(clippy::large_enum_variant, reason = "nearly all iterators are the large one")]
enum Walk {
    Bytewise(Cursor),
    Reversed(Box<ReversedWalk>),
    Ordered(Box<OrderedWalk>),
    /// The iterator could not be made.
    Failed,
}

/// A walk over the keys of a comparator's view. Each value is read by its key.
struct OrderedWalk {
    view: View,
    snapshot: Snapshot,
    partition: Partition,
    at: Option<(OrderedKey, Value)>,
}

#[derive(Clone, Copy)]
enum Move<'a> {
    First,
    Last,
    Seek(&'a [u8]),
    Next,
    Prev,
}

impl Move<'_> {
    #[inline]
    fn of_cursor(self, cursor: &mut Cursor) -> pleach::Result<bool> {
        match self {
            Move::First => cursor.first(),
            Move::Last => cursor.last(),
            Move::Seek(key) => cursor.seek(key),
            Move::Next => cursor.next(),
            Move::Prev => cursor.prev(),
        }
    }
}

impl OrderedWalk {
    fn go(&mut self, to: Move<'_>) -> Result<()> {
        let at = self.at.take();
        let at = at.as_ref().map(|(key, _)| key);
        let key = match to {
            Move::First => self.view.first(),
            Move::Last => self.view.last(),
            Move::Seek(key) => self.view.at_or_above(key),
            Move::Next => at.and_then(|at| self.view.above(at)),
            Move::Prev => at.and_then(|at| self.view.below(at)),
        };
        if let Some(key) = key {
            let value = self.snapshot.get(&self.partition, &key.bytes)?;
            // View and snapshot agree, unless a write failed half-way. To end the walk here would hide the entries behind.
            let value = value.ok_or_else(|| Status::new(Kind::Corruption, "a live key has no value"))?;
            self.at = Some((key.clone(), value));
        }
        Ok(())
    }
}

impl IteratorHandle {
    fn new(made: Result<Walk>) -> Box<Self> {
        Box::new(match made {
            Ok(walk) => Self::with(walk, None),
            Err(error) => Self::with(Walk::Failed, Some(error)),
        })
    }

    fn with(walk: Walk, error: Option<Status>) -> Self {
        Self { walk, error, value_error: OnceLock::new(), made_in: Process::this() }
    }

    #[inline]
    fn go(&mut self, to: Move<'_>) {
        if self.value_error.get().is_some() && !matches!(to, Move::Next | Move::Prev) {
            self.value_error = OnceLock::new();
        }
        if matches!(self.walk, Walk::Failed) {
            return;
        }
        match pleach_ffi::caught(|| self.walk.go(to)) {
            Ok(Ok(())) => {
                if self.error.is_some() {
                    self.error = None;
                }
            }
            Ok(Err(error)) => self.error = Some(error),
            // Nobody knows where a walk is that has panicked.
            Err(panic) => {
                self.walk = Walk::Failed;
                self.error = Some(Status::new(Kind::Io, panic));
            }
        }
    }

    fn is_valid(&self) -> bool {
        match &self.walk {
            Walk::Bytewise(cursor) => cursor.is_valid(),
            Walk::Reversed(walk) => walk.key().is_some(),
            Walk::Ordered(walk) => walk.at.is_some(),
            Walk::Failed => false,
        }
    }

    fn key(&self) -> Option<&[u8]> {
        match &self.walk {
            Walk::Bytewise(cursor) => cursor.key(),
            Walk::Reversed(walk) => walk.key(),
            Walk::Ordered(walk) => walk.at.as_ref().map(|(key, _)| &*key.bytes),
            Walk::Failed => None,
        }
    }

    fn value(&self) -> Option<&[u8]> {
        let value = match &self.walk {
            // A separated value is read now.
            Walk::Bytewise(cursor) => caught(|| Ok(cursor.value()?)),
            Walk::Reversed(walk) => caught(|| Ok(walk.value()?)),
            Walk::Ordered(walk) => Ok(walk.at.as_ref().map(|(_, value)| &**value)),
            Walk::Failed => Ok(None),
        };
        value.unwrap_or_else(|error| {
            let _the_first_one_stays = self.value_error.set(error);
            None
        })
    }
}

impl Walk {
    #[inline]
    fn go(&mut self, to: Move<'_>) -> Result<()> {
        match self {
            Walk::Bytewise(cursor) => {
                to.of_cursor(cursor)?;
                Ok(())
            }
            Walk::Reversed(walk) => {
                let form;
                let to = if let Move::Seek(key) = to {
                    form = KeyForm::Reversed.encode(key);
                    Move::Seek(&form)
                } else {
                    to
                };
                walk.go(|cursor| to.of_cursor(cursor))
            }
            Walk::Ordered(walk) => walk.go(to),
            Walk::Failed => Ok(()),
        }
    }
}

impl Database {
    fn walk(&self, options: &ReadOptionsHandle) -> Result<Walk> {
        if let Some(ordered) = &self.ordered {
            let (view, snapshot) =
                match options.snapshot().map(|snapshot| (&snapshot.view, &snapshot.snapshot)) {
                    Some((Some(view), snapshot)) => (view.clone(), snapshot.clone()),
                    _ => ordered.snapshot(&self.db),
                };
            let partition = self.partition.clone();
            return Ok(Walk::Ordered(Box::new(OrderedWalk { view, snapshot, partition, at: None })));
        }
        let cursor = match options.snapshot() {
            Some(snapshot) => snapshot.snapshot.cursor(&self.partition)?,
            None => self.partition.cursor()?,
        };
        Ok(match self.key_form {
            KeyForm::Plain => Walk::Bytewise(cursor),
            KeyForm::Reversed => Walk::Reversed(Box::new(ReversedWalk::new(cursor))),
        })
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_iterator(db: &Database, options: &ReadOptionsHandle) -> Box<IteratorHandle> {
    IteratorHandle::new(caught(|| db.walk(options)))
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_destroy(iterator: Option<Box<IteratorHandle>>) {
    guard((), || {
        if let Some(iterator) = iterator {
            iterator.made_in.drop_here(iterator);
        }
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_valid(iterator: &IteratorHandle) -> u8 {
    iterator.is_valid().into()
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_first(iterator: &mut IteratorHandle) {
    iterator.go(Move::First);
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_last(iterator: &mut IteratorHandle) {
    iterator.go(Move::Last);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(
    iterator: &mut IteratorHandle,
    key: *const c_char,
    key_len: usize,
) {
    // SAFETY: by the contract of c.h.
    iterator.go(Move::Seek(unsafe { bytes(key, key_len) }));
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_next(iterator: &mut IteratorHandle) {
    iterator.go(Move::Next);
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_prev(iterator: &mut IteratorHandle) {
    iterator.go(Move::Prev);
}

/// The key, until the next move. On no entry, where LevelDB's behaviour is undefined, it is empty.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_key(iterator: &IteratorHandle, len: &mut usize) -> *const c_char {
    lend(guard(None, || iterator.key()), len)
}

/// As [`leveldb_iter_key`].
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_value(iterator: &IteratorHandle, len: &mut usize) -> *const c_char {
    lend(guard(None, || iterator.value()), len)
}

fn lend(bytes: Option<&[u8]>, len: &mut usize) -> *const c_char {
    let bytes = bytes.unwrap_or(&[]);
    *len = bytes.len();
    bytes.as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_get_error(iterator: &IteratorHandle, error: ErrorSlot<'_>) {
    if let Some(status) = iterator.error.as_ref().or_else(|| iterator.value_error.get()) {
        set_error(error, status);
    }
}
