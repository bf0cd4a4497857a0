//! Limits of keys, values and batches. They are part of the format: a file that exceeds one is damaged.

/// Longest user key in bytes: 1 MiB. The shortest is empty. A key has its place in indexes, filters and the manifest, so
/// long ones make a store slow; what is long belongs in values.
pub const KEY_LEN_MAX: usize = 1 << 20;

/// Longest value in bytes: 512 MiB.
///
/// Copies of a large value in memory: two in a put (the caller's, the memtable's), two in a recovery (the log record's, the
/// memtable's), one in a flush (the memtable's).
pub const VALUE_LEN_MAX: usize = 512 << 20;

/// Largest write batch in bytes, keys and values and their headers together: 1 GiB. Packed values count with what they take in
/// the log, and their raw bytes have the same limit for themselves.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Longest partition name in bytes of UTF-8.
pub const PARTITION_NAME_LEN_MAX: usize = 255;

/// Partitions that a store can create in its life, dropped ones included: 2^28. Arbitrary: the table of partitions takes
/// memory for the live ones only.
pub const PARTITIONS_MAX: u32 = 1 << 28;

/// Highest "next" file or run number. It leaves a margin against overflow.
pub(crate) const NEXT_ID_MAX: u64 = 1 << 60;

/// A partition key is a partition's number in front of a user key.
pub(crate) const PARTITION_KEY_LEN_MAX: usize = KEY_LEN_MAX + crate::keys::PARTITION_PREFIX_LEN;

const _: () = assert!(BATCH_BYTES_MAX < u32::MAX as usize, "a batch's length is a u32 in the log");
const _: () = assert!(VALUE_LEN_MAX + KEY_LEN_MAX < BATCH_BYTES_MAX, "any single entry fits in a batch");

/// Fewest bytes of an operation in a batch: the kind, the partition and the length of an empty key that is deleted.
const OPERATION_LEN_MIN: usize = 3;

/// Most operations of a batch.
pub(crate) const OPERATIONS_MAX: usize = BATCH_BYTES_MAX / OPERATION_LEN_MIN;

const _: () =
    assert!(OPERATIONS_MAX < u32::MAX as usize, "the number of a batch's operations is a u32 in the log");

/// Highest stage of a run: the bottom's.
pub(crate) const STAGE_MAX: u8 = 60;
