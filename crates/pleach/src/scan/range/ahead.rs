//! Entries ahead: what an end of a range has gathered in front of its walk, so that their separated values are read together.
//!
//! When a walk comes to a separated value, it takes the entries behind it too: as many as the range expects, or a few that
//! double with each batch. One call then reads all their values. The range hands the entries out one by one.
//!
//! # Invariants
//! 1. *One end*: only one end has entries ahead. A step of the other end, or a seek, discards them; the end then seeks again
//!    behind the entry that was returned last.
//! 2. *Errors in order*: the end of the walk, or its error, comes after the entries that were gathered before it. A value that
//!    could not be read with the others is read again when its entry is next. Only that read can fail the range.
//!
//! # Cost
//! Up to [`ENTRIES_MAX`] entries and about [`BYTES_MAX`] bytes of stored values in memory. Packed ones take more.

use std::collections::VecDeque;

use pleach_env::{Error, Result};
use pleach_table::ValueKind;

use super::{Bound, Direction, Range};
use crate::keys::Key;
use crate::value::Value;
use crate::value_reads::{ReadBuffers, get_value, read_values};

/// Entries of the first batch of a scan of unknown length (arbitrary): a short scan reads little that it does not want.
const ENTRIES_MIN: usize = 4;

/// Entries of a batch at most: twice the reads that are in flight at once.
const ENTRIES_MAX: usize = 256;

/// Bytes of the stored values of a batch at most, but for its first value (arbitrary).
const BYTES_MAX: usize = 1 << 20;

/// See the module's text. A range without separated values has none.
pub(super) struct Ahead {
    direction: Direction,
    /// In the order of the walk.
    entries: VecDeque<(Key, Value)>,
    behind: Behind,
    /// Key of the entry that was returned last. Valid while [`Ahead::is_in_front`].
    last: Key,
    /// Value of the entry that was lent last.
    lent: Option<Value>,
    buffers: ReadBuffers,
    /// Entries of the next batch that is not expected.
    next_len: usize,
}

/// Where the merge is behind the entries that were gathered.
enum Behind {
    /// On the last one.
    Entry,
    /// On its way to the next entry: it waits for a block.
    Waiting,
    /// It found no other entry, or failed.
    End(Result<bool>),
}

impl Ahead {
    /// Whether the merge is in front of the entry that was returned last.
    fn is_in_front(&self) -> bool {
        !self.entries.is_empty() || !matches!(self.behind, Behind::Entry)
    }
}

/// A step of a range with separated values.
enum Stepped {
    /// This entry comes next.
    Entry(Key, Value),
    /// The merge stands on the next entry, whose value is not separated.
    InMerge,
    End,
}

impl Range {
    /// As `take_entry`, in a range that has come to a separated value.
    #[cold]
    #[inline(never)]
    pub(super) fn take_ahead(&mut self, direction: Direction) -> Option<Result<(Key, Value)>> {
        let stepped = self.step_ahead(direction);
        self.take_stepped(direction, stepped)
    }

    /// As [`Range::take_ahead`], of the entry that the end stands on.
    #[cold]
    #[inline(never)]
    pub(super) fn take_first_ahead(&mut self, direction: Direction) -> Option<Result<(Key, Value)>> {
        let stepped = self.step_in_merge(direction);
        self.take_stepped(direction, stepped)
    }

    fn take_stepped(
        &mut self,
        direction: Direction,
        stepped: Result<Stepped>,
    ) -> Option<Result<(Key, Value)>> {
        match stepped {
            Ok(Stepped::Entry(key, value)) => {
                if let Some(ahead) = &mut self.ahead {
                    ahead.last.clone_from(&key);
                }
                Some(Ok((key, value)))
            }
            Ok(Stepped::InMerge) => self.copy_entry(direction).map(Ok),
            Ok(Stepped::End) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// As `lend_entry`, in a range that has come to a separated value.
    #[cold]
    #[inline(never)]
    pub(super) fn lend_ahead(&mut self, direction: Direction) -> Result<Option<(&[u8], &[u8])>> {
        if self.is_next_complete(direction) {
            return Ok(self.lend_complete(direction));
        }
        let stepped = self.step_ahead(direction)?;
        Ok(self.lend_stepped(direction, stepped))
    }

    /// Whether the next entry was gathered and has its value.
    fn is_next_complete(&self, direction: Direction) -> bool {
        let ahead = self.ahead.as_ref().filter(|ahead| ahead.direction == direction);
        let next = ahead.and_then(|ahead| ahead.entries.front());
        next.is_some_and(|(_, value)| !value.is_pointer()) && self.view.is_some() && self.is_open()
    }

    /// Lends the next of the entries that were gathered. It moves once: most entries of a scan come by here.
    fn lend_complete(&mut self, direction: Direction) -> Option<(&[u8], &[u8])> {
        let ahead = self.ahead.as_mut()?;
        let (key, value) = ahead.entries.pop_front()?;
        self.ends[direction as usize].taken.entries += 1;
        ahead.last = key;
        Some((&ahead.last, ahead.lent.insert(value)))
    }

    /// As [`Range::lend_ahead`], of the entry that the end stands on.
    #[cold]
    #[inline(never)]
    pub(super) fn lend_first_ahead(&mut self, direction: Direction) -> Result<Option<(&[u8], &[u8])>> {
        let stepped = self.step_in_merge(direction)?;
        Ok(self.lend_stepped(direction, stepped))
    }

    fn lend_stepped(&mut self, direction: Direction, stepped: Stepped) -> Option<(&[u8], &[u8])> {
        match stepped {
            Stepped::Entry(key, value) => self.ahead.as_mut().map(|ahead| {
                ahead.last = key;
                (&ahead.last[..], &ahead.lent.insert(value)[..])
            }),
            Stepped::InMerge => self.entry(direction).map(|(key, source)| (key, source.value_bytes())),
            Stepped::End => None,
        }
    }

    /// As `lend_key`, in a range that has come to a separated value. It gathers nothing.
    #[cold]
    #[inline(never)]
    pub(super) fn lend_key_ahead(&mut self, direction: Direction) -> Result<Option<(&[u8], usize)>> {
        self.discard_other_ahead(direction);
        if let Some((key, value)) = self.pop_ahead(direction) {
            if !self.is_open() {
                return self.finish(Err(Error::closed())).map(|_| None);
            }
            let len = value_len(&value);
            return Ok(self.ahead.as_mut().map(|ahead| {
                ahead.last = key;
                (&ahead.last[..], len)
            }));
        }
        let is_found = self.walk_behind(direction)?;
        Ok(if is_found { self.key_in_merge(direction) } else { None })
    }

    /// Discards what the other end has gathered.
    fn discard_other_ahead(&mut self, direction: Direction) {
        if self.ahead.as_ref().is_some_and(|ahead| ahead.direction != direction) {
            self.discard_ahead();
        }
    }

    fn step_ahead(&mut self, direction: Direction) -> Result<Stepped> {
        self.discard_other_ahead(direction);
        match self.pop_ahead(direction) {
            Some((key, value)) => return self.hand_out(key, value),
            None if !self.walk_behind(direction)? => return Ok(Stepped::End),
            None => {}
        }
        self.step_in_merge(direction)
    }

    /// Hands out the entry that the merge stands on, after gathering those behind it if its value is separated.
    fn step_in_merge(&mut self, direction: Direction) -> Result<Stepped> {
        if !self.entry(direction).is_some_and(|(_, source)| source.kind() == ValueKind::ValuePointer) {
            return Ok(Stepped::InMerge);
        }
        self.gather(direction);
        let Some((key, value)) = self.pop_ahead(direction) else { return Ok(Stepped::End) };
        self.hand_out(key, value)
    }

    /// Walks on behind the entries that were gathered, all of which were returned.
    fn walk_behind(&mut self, direction: Direction) -> Result<bool> {
        let behind = self.ahead.as_mut().map(|ahead| std::mem::replace(&mut ahead.behind, Behind::Entry));
        if let Some(Behind::End(end)) = behind { self.finish(end) } else { self.walk(direction) }
    }

    /// The next of the entries that were gathered.
    fn pop_ahead(&mut self, direction: Direction) -> Option<(Key, Value)> {
        let entry = self.ahead.as_mut()?.entries.pop_front()?;
        self.ends[direction as usize].taken.entries += 1;
        Some(entry)
    }

    /// Completes an entry whose turn has come. After an error the range has ended.
    fn hand_out(&mut self, key: Key, value: Value) -> Result<Stepped> {
        let read = match &self.view {
            Some(view) if self.is_open() => {
                if !value.is_pointer() {
                    return Ok(Stepped::Entry(key, value));
                }
                get_value(
                    &self.ctx,
                    &view.state.version.values,
                    (self.partition, &key),
                    &value,
                    self.fills_cache,
                )
            }
            _ => Err(Error::closed()),
        };
        match read {
            Ok(value) => Ok(Stepped::Entry(key, value)),
            Err(error) => self.finish(Err(error)).map(|_| Stepped::End),
        }
    }

    /// Gathers entries from the one on that the end stands on, and reads their separated values.
    fn gather(&mut self, direction: Direction) {
        let mut ahead = self.ahead.take().unwrap_or_else(|| {
            let (entries, last) = (VecDeque::new(), Key::new(&[]));
            let (next_len, buffers) = (ENTRIES_MIN, ReadBuffers::default());
            Box::new(Ahead { direction, entries, behind: Behind::Entry, last, lent: None, buffers, next_len })
        });
        let len_max = self.batch_len(&mut ahead);
        let (mut fitting, mut bytes) = (0, 0_usize);
        while let Some((key, value)) = self.copy_entry(direction) {
            bytes = bytes.saturating_add(value_len(&value));
            fitting += usize::from(fitting == 0 || bytes <= BYTES_MAX);
            ahead.entries.push_back((key, value));
            if ahead.entries.len() >= len_max || bytes >= BYTES_MAX {
                break;
            }
            ahead.behind = match self.find(direction) {
                Ok(true) => continue,
                Ok(false) if self.is_waiting(direction) => Behind::Waiting,
                end => Behind::End(end),
            };
            break;
        }
        // They count when they are returned.
        self.ends[direction as usize].taken.entries -= ahead.entries.len() as u64;
        if let Some(view) = &self.view {
            let fitting = ahead.entries.iter_mut().take(fitting).map(|(key, value)| (&key[..], value));
            // What could not be read is read again, and fails, when it is next.
            let segments = &view.state.version.values;
            ahead.lent = None;
            let buffers = &mut ahead.buffers;
            let read = read_values(&self.ctx, buffers, segments, self.partition, fitting, self.fills_cache);
            if let (Ok(disorder_ns), Some(tree)) = (read, view.state.version.tree(self.partition)) {
                tree.reads.note_values(disorder_ns);
                self.ctx.look_at_reads(&tree.reads);
            }
        }
        self.ahead = Some(ahead);
    }

    /// How many entries the next batch may have.
    fn batch_len(&self, ahead: &mut Ahead) -> usize {
        let usual = || {
            let tree = self.view.as_ref()?.state.version.tree(self.partition)?;
            Some(tree.scans.usual())
        };
        let expected = match self.expected_entries {
            0 => usual().unwrap_or(0),
            expected => expected,
        };
        // The end stands on an entry, which is counted and not yet returned.
        let returned = self.ends[ahead.direction as usize].taken.entries - 1;
        match usize::try_from(expected.saturating_sub(returned)).unwrap_or(usize::MAX) {
            0 => {
                let len = ahead.next_len;
                ahead.next_len = (2 * len).min(ENTRIES_MAX);
                len
            }
            left => left.min(ENTRIES_MAX),
        }
    }

    /// Discards what was gathered. The end will seek behind the entry that it returned last.
    pub(super) fn discard_ahead(&mut self) {
        let Some(ahead) = self.ahead.take_if(|ahead| ahead.is_in_front()) else {
            self.ahead = None;
            return;
        };
        let end = &mut self.ends[ahead.direction as usize];
        (end.bound, end.must_seek) = (Bound::Excluded(ahead.last.into_vec()), true);
        if matches!(ahead.behind, Behind::End(Err(_))) {
            // A merge must not be used after an error.
            end.merge = None;
        }
        self.returned_by = None;
    }

    /// The key of the entry that an end returned last, if the range has returned none since.
    pub(super) fn returned_key(&self, direction: Direction) -> Option<&[u8]> {
        match &self.ahead {
            Some(ahead) if ahead.is_in_front() => (ahead.direction == direction).then_some(&ahead.last[..]),
            _ if self.returned_by == Some(direction) => self.entry(direction).map(|(key, _)| key),
            _ => None,
        }
    }
}

/// Bytes of a value; the stored ones, if it is still to be read.
fn value_len(value: &Value) -> usize {
    if value.is_pointer() {
        return value.as_pointer().map_or(0, |pointer| pointer.len as usize);
    }
    value.len()
}
