//! The actions of a rig on a store.

use std::sync::Arc;

use super::together::Together;

/// A put or, with no value, a delete.
#[derive(Clone)]
pub(crate) struct Op {
    pub(crate) slot: usize,
    pub(crate) key: Arc<[u8]>,
    pub(crate) value: Option<Arc<[u8]>>,
}

/// One step of a history.
#[derive(Clone)]
pub(crate) enum Action {
    /// One batch.
    Write {
        ops: Vec<Op>,
        sync: bool,
    },
    /// An action that finds the disk full once, after so many calls.
    OnFullDisk(Box<Action>, u64),
    Sync,
    Create(usize),
    Drop(usize),
    Flush,
    Compact,
    CompactPartition(usize),
    /// Compacts the keys of a partition from the first one up to, but not including, the second one.
    CompactRange(usize, [Arc<[u8]>; 2]),
    /// Compacts, and copies separated values in the order of keys.
    Convert,
    Settle,
    /// So many steps of background jobs.
    Step(u32),
    Reopen,
    /// Several clients at the same time.
    Together(Together),
    /// Takes a snapshot and keeps it.
    Keep,
    /// Reads all of the oldest kept snapshot and drops it.
    Release,
}

impl Action {
    /// The action on a disk that is not full.
    pub(crate) fn itself(&self) -> &Action {
        match self {
            Action::OnFullDisk(action, _) => action.itself(),
            action => action,
        }
    }
}

impl std::fmt::Debug for Action {
    /// Short: prints the length of a value, not its bytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ops = |f: &mut std::fmt::Formatter<'_>, ops: &[Op]| {
            ops.iter().try_for_each(|op| {
                let value =
                    op.value.as_ref().map_or_else(|| "delete".to_owned(), |v| format!("{} B", v.len()));
                let key = &op.key[..op.key.len().min(24)];
                write!(f, " [{} {:?} {value}]", op.slot, key.escape_ascii().to_string())
            })
        };
        match self {
            Action::Write { ops: list, sync } => {
                f.write_str(if *sync { "write and sync" } else { "write" })?;
                ops(f, list)
            }
            Action::OnFullDisk(action, calls) => write!(f, "on a disk full after {calls} calls: {action:?}"),
            Action::Sync => f.write_str("sync"),
            Action::Create(slot) => write!(f, "create {slot}"),
            Action::Drop(slot) => write!(f, "drop {slot}"),
            Action::Flush => f.write_str("flush"),
            Action::Compact => f.write_str("compact"),
            Action::CompactPartition(slot) => write!(f, "compact {slot}"),
            Action::CompactRange(slot, bounds) => {
                let [lower, upper] =
                    bounds.each_ref().map(|key| key[..key.len().min(24)].escape_ascii().to_string());
                write!(f, "compact {slot} {lower:?}..{upper:?}")
            }
            Action::Convert => f.write_str("convert"),
            Action::Settle => f.write_str("settle"),
            Action::Step(count) => write!(f, "step {count}"),
            Action::Reopen => f.write_str("reopen"),
            Action::Together(together) => write!(f, "{together:?}"),
            Action::Keep => f.write_str("keep a snapshot"),
            Action::Release => f.write_str("release a snapshot"),
        }
    }
}
