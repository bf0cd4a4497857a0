//! Operations: one call, or a few, on an engine's session.

use serde::{Deserialize, Serialize};

/// What an operation does. Latencies are kept apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OpKind {
    Get,
    /// Many reads in one call.
    GetMany,
    /// A write to a key, there before or not.
    Put,
    /// Many writes in one call.
    PutMany,
    Delete,
    /// A seek and the entries after it.
    Scan,
    /// One step of a scan through everything.
    Next,
    /// A read and a write of the same key.
    ReadModifyWrite,
    /// A queue's turn: append one, find the first, remove it.
    Turn,
    DropPartition,
    /// The engine's conversion of everything.
    Convert,
}

impl OpKind {
    pub(crate) const ALL: [Self; 11] = [
        Self::Get,
        Self::GetMany,
        Self::Put,
        Self::PutMany,
        Self::Delete,
        Self::Scan,
        Self::Next,
        Self::ReadModifyWrite,
        Self::Turn,
        Self::DropPartition,
        Self::Convert,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetMany => "get_many",
            Self::Put => "put",
            Self::PutMany => "put_many",
            Self::Delete => "delete",
            Self::Scan => "scan",
            Self::Next => "next",
            Self::ReadModifyWrite => "read_modify_write",
            Self::Turn => "turn",
            Self::DropPartition => "drop_partition",
            Self::Convert => "convert",
        }
    }
}

/// A key of an operation on many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) index: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// One operation. A stream fills the same one again and again, so that nothing is allocated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Op {
    pub(crate) kind: OpKind,
    pub(crate) partition: usize,
    /// The key's index: values are checked against it.
    pub(crate) index: u64,
    pub(crate) key: Vec<u8>,
    /// What to write.
    pub(crate) value: Vec<u8>,
    /// The key was not there before.
    pub(crate) fresh: bool,
    /// Entries of a scan.
    pub(crate) limit: usize,
    /// For operations on many; the first [`Op::count`] are in use.
    pub(crate) entries: Vec<Entry>,
    pub(crate) count: usize,
}

impl std::hash::Hash for OpKind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl Op {
    pub(crate) fn new() -> Self {
        Self {
            kind: OpKind::Get,
            partition: 0,
            index: 0,
            key: Vec::new(),
            value: Vec::new(),
            fresh: false,
            limit: 0,
            entries: Vec::new(),
            count: 0,
        }
    }

    /// Makes `count` entries, which the stream then fills.
    pub(crate) fn entries_mut(&mut self, count: usize) -> &mut [Entry] {
        if self.entries.len() < count {
            self.entries.resize_with(count, Entry::default);
        }
        self.count = count;
        &mut self.entries[..count]
    }

    /// As how many operations it counts.
    pub(crate) fn ops(&self) -> u64 {
        match self.kind {
            OpKind::GetMany | OpKind::PutMany => self.count as u64,
            _ => 1,
        }
    }

    /// The entries in use.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[..self.count]
    }
}

/// A thread's operations.
pub(crate) trait OpStream: Send {
    /// Puts the next one into `op`; false when there are no more.
    fn next(&mut self, op: &mut Op) -> bool;
}
