//! Performs one operation on a session and checks its result.

use crate::data::has_tag;
use crate::engine::{Direction, Result, Scan, Session, Write};
use crate::workload::{Op, OpKind, QUEUE_KEY_LEN};

/// Counts of operations and bytes, as the user sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Operations; a call on many keys counts as many.
    pub(crate) ops: u64,
    /// Values that were read; entries of scans count.
    pub(crate) found: u64,
    /// Keys that were not there.
    pub(crate) missed: u64,
    /// Wrong results.
    pub(crate) wrong: u64,
    /// Bytes of keys and values that were read.
    pub(crate) read_bytes: u64,
    /// Bytes of keys and values that were written; a delete counts its key.
    pub(crate) written_bytes: u64,
    /// Change of the bytes of live keys and values.
    pub(crate) live_bytes: i64,
    /// New keys put.
    pub(crate) inserted: u64,
}

impl Tally {
    pub(crate) fn join(&mut self, other: Self) {
        self.ops += other.ops;
        self.found += other.found;
        self.missed += other.missed;
        self.wrong += other.wrong;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.live_bytes += other.live_bytes;
        self.inserted += other.inserted;
    }

    pub(super) fn saw(&mut self, key_len: usize, value: &[u8], index: u64) {
        self.found += 1;
        self.read_bytes += (key_len + value.len()) as u64;
        touch(value);
        self.wrong += u64::from(!has_tag(value, index));
    }

    /// Sees an entry of a scan; the first one must have the key and the index of the operation.
    pub(super) fn scanned(&mut self, first: Option<(&[u8], u64)>, key: &[u8], value: &[u8]) {
        if let Some((op_key, index)) = first {
            self.wrong += u64::from(key != op_key || !has_tag(value, index));
        }
        touch(key);
        touch(value);
        self.found += 1;
        self.read_bytes += (key.len() + value.len()) as u64;
    }

    fn wrote(&mut self, key_len: usize, value_len: usize, fresh: bool) {
        let bytes = (key_len + value_len) as u64;
        self.written_bytes += bytes;
        if fresh {
            self.live_bytes += bytes.cast_signed();
            self.inserted += 1;
        }
    }
}

/// Reads both ends of a value, so that an engine that maps files must load them.
#[inline]
pub(super) fn touch(bytes: &[u8]) {
    if let (Some(first), Some(last)) = (bytes.first(), bytes.last()) {
        std::hint::black_box(*first ^ *last);
    }
}

/// Performs `op` and adds to `tally`. Returns the number of operations that it counts as.
#[inline]
pub(crate) fn execute(session: &mut dyn Session, op: &Op, tally: &mut Tally) -> Result<u64> {
    let ops = match op.kind {
        OpKind::Get => {
            get(session, op, tally)?;
            1
        }
        OpKind::Put => {
            session.put(op.partition, &op.key, &op.value)?;
            tally.wrote(op.key.len(), op.value.len(), op.fresh);
            1
        }
        OpKind::ReadModifyWrite => {
            get(session, op, tally)?;
            session.put(op.partition, &op.key, &op.value)?;
            tally.wrote(op.key.len(), op.value.len(), false);
            1
        }
        OpKind::GetMany => get_many(session, op, tally)?,
        OpKind::PutMany => put_many(session, op, tally)?,
        OpKind::Delete => {
            session.delete(op.partition, &op.key)?;
            tally.written_bytes += op.key.len() as u64;
            1
        }
        OpKind::Scan => {
            scan(session, op, tally)?;
            1
        }
        OpKind::Turn => {
            turn(session, op, tally)?;
            1
        }
        OpKind::Next | OpKind::DropPartition | OpKind::Convert => unreachable!("no stream gives these"),
    };
    tally.ops += ops;
    Ok(ops)
}

fn get(session: &mut dyn Session, op: &Op, tally: &mut Tally) -> Result<()> {
    let found = session.get(op.partition, &op.key, &mut |value| tally.saw(op.key.len(), value, op.index))?;
    tally.missed += u64::from(!found);
    Ok(())
}

fn get_many(session: &mut dyn Session, op: &Op, tally: &mut Tally) -> Result<u64> {
    let entries = op.entries();
    let keys: Vec<&[u8]> = entries.iter().map(|entry| &entry.key[..]).collect();
    let found_before = tally.found;
    session.get_many(op.partition, &keys, &mut |at, value| {
        tally.saw(entries[at].key.len(), value, entries[at].index);
    })?;
    tally.missed += entries.len() as u64 - (tally.found - found_before);
    Ok(entries.len() as u64)
}

fn put_many(session: &mut dyn Session, op: &Op, tally: &mut Tally) -> Result<u64> {
    let entries = op.entries();
    let write = |entry| -> Write<'_> {
        let entry: &crate::workload::Entry = entry;
        Write { partition: op.partition, key: &entry.key, value: Some(&entry.value) }
    };
    let writes: Vec<Write<'_>> = entries.iter().map(write).collect();
    session.write(&writes)?;
    for entry in entries {
        tally.wrote(entry.key.len(), entry.value.len(), op.fresh);
    }
    Ok(entries.len() as u64)
}

/// Scans start at an existing key, and the first entry must have that key.
fn scan(session: &mut dyn Session, op: &Op, tally: &mut Tally) -> Result<()> {
    let scan =
        Scan { partition: op.partition, from: Some(&op.key), direction: Direction::Forward, limit: op.limit };
    let mut seen = 0;
    session.scan(&scan, &mut |key, value| {
        tally.scanned((seen == 0).then_some((&op.key, op.index)), key, value);
        seen += 1;
        true
    })?;
    tally.missed += u64::from(seen == 0);
    Ok(())
}

/// Appends the operation's key and takes the queue's first entry, which must be the oldest.
fn turn(session: &mut dyn Session, op: &Op, tally: &mut Tally) -> Result<()> {
    session.put(op.partition, &op.key, &op.value)?;
    tally.written_bytes += (op.key.len() + op.value.len()) as u64;
    let prefix = &op.key[..QUEUE_KEY_LEN - size_of::<u64>()];
    let scan = Scan { partition: op.partition, from: Some(prefix), direction: Direction::Forward, limit: 1 };
    let mut first = [0; QUEUE_KEY_LEN];
    let mut found = false;
    session.scan(&scan, &mut |key, value| {
        if key.len() == QUEUE_KEY_LEN {
            first.copy_from_slice(key);
            found = true;
        }
        tally.read_bytes += (key.len() + value.len()) as u64;
        false
    })?;
    let mut oldest = op.key.clone();
    let position = op.index - op.limit as u64;
    oldest[QUEUE_KEY_LEN - size_of::<u64>()..].copy_from_slice(&position.swap_bytes().to_le_bytes());
    tally.found += u64::from(found);
    tally.missed += u64::from(!found);
    tally.wrong += u64::from(found && first[..] != oldest[..]);
    if found {
        session.delete(op.partition, &first)?;
        tally.written_bytes += QUEUE_KEY_LEN as u64;
    }
    Ok(())
}
