//! Snapshots: consistent views of all partitions.

use pleach::Snapshot;
use pleach_ffi::guard;

/// A consistent view of all partitions at one instant: later writes do not change what is read through it. It keeps the store
/// open, and pins memory and files.
///
/// Thread safety: any number of threads may use it at the same time.
pub struct SnapshotHandle {
    pub(crate) snapshot: Snapshot,
}

const _: () = pleach_ffi::assert_shared::<SnapshotHandle>();

/// The number of the last write that the snapshot sees. Each put and delete has one more than the one before. 0 for null.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_snapshot_sequence_number(snapshot: Option<&SnapshotHandle>) -> u64 {
    guard(0, || snapshot.map_or(0, |snapshot| snapshot.snapshot.last_sequence_number()))
}

/// Frees a snapshot. Cursors and values that were read through it stay valid. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_snapshot_free(snapshot: Option<Box<SnapshotHandle>>) {
    guard((), || drop(snapshot));
}
