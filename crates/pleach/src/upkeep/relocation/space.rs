//! Estimates of the space that files of values take, and of what of it is live.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleach_env::FileId;

use crate::picker::value_files::{ValueFileState, ValueSpace};
use crate::values::{SegmentUse, ValueHome};
use crate::version::size::AboveClips;
use crate::version::{SubTree, Version};

/// The states of all files of values, with `live` bytes.
pub(super) fn states_of(
    version: &Version,
    live: impl Fn(&ValueHome, SegmentUse) -> u64,
) -> Vec<ValueFileState> {
    let mut newest: BTreeMap<FileId, FileId> = BTreeMap::new();
    for segment in version.values.iter() {
        let newest = newest.entry(segment.home.file).or_insert(segment.id);
        *newest = (*newest).max(segment.id);
    }
    let state = |(file, (home, used)): (FileId, (Arc<ValueHome>, SegmentUse))| ValueFileState {
        file,
        len: home.len,
        live: live(&home, used),
        newest: newest.get(&file).copied().unwrap_or(file),
    };
    version.values.homes().into_iter().map(state).collect()
}

/// About the bytes that values take in a file of moved values: with the heads of entries, and the table.
pub(super) fn moved_len(used: SegmentUse) -> u64 {
    const HEAD: u64 = 5;
    const FILE: u64 = 100;
    if used.values == 0 { 0 } else { used.bytes + HEAD * used.values + FILE }
}

/// Bytes of all values to which entries refer, hidden ones too.
pub(super) fn sum_of_references(version: &Version) -> u64 {
    version.values.iter().map(|segment| segment.live.bytes).fold(0, u64::saturating_add)
}

/// About the bytes of values whose entries are hidden by newer ones: in each partition as large a share as of its entries.
pub(super) fn hidden_estimate(version: &Version) -> u64 {
    let hidden = |partition, tree: &SubTree| {
        let AboveClips { entries, overwrites, .. } = AboveClips::of(tree, partition);
        let values = tree.sum(|run| run.totals.value_bytes);
        scaled(values, ratio(overwrites.min(entries), entries))
    };
    version.partitions().map(|(id, partition)| hidden(id, &partition.tree)).fold(0, u64::saturating_add)
}

/// Bytes of the SSTs that a marking reads: those of partitions with separated values.
pub(super) fn marked_bytes(version: &Version) -> u64 {
    let trees = version.partitions().map(|(_, partition)| &partition.tree);
    let with_values = trees.filter(|tree| tree.sum(|run| run.totals.value_bytes) > 0);
    with_values.map(|tree| tree.sum(|run| run.totals.bytes)).fold(0, u64::saturating_add)
}

/// The space of a version, of whose values `hidden` bytes are hidden by newer entries.
pub(super) fn space_of(version: &Version, hidden: u64) -> ValueSpace {
    let (mut ssts, mut live_ssts) = (0u64, 0u64);
    for (id, partition) in version.partitions() {
        let AboveClips { entries, bytes, garbage, .. } = AboveClips::of(&partition.tree, id);
        let live = entries.saturating_sub(garbage);
        ssts = ssts.saturating_add(partition.tree.sum(|run| run.totals.bytes));
        live_ssts = live_ssts.saturating_add(scaled(bytes, ratio(live, entries)));
    }
    ValueSpace {
        files: version.values.homes().values().map(|(home, _)| home.len).fold(0, u64::saturating_add),
        ssts,
        live_ssts,
        marked: marked_bytes(version),
        wanted: 0,
        live: sum_of_references(version).saturating_sub(hidden),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(super) fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 1.0 } else { part as f64 / of as f64 }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, not below 0"
)]
pub(super) fn scaled(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor.max(0.0)) as u64
}
