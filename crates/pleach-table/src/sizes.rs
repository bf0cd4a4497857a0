//! Sizes that the format fixes or bounds: docs/format/sst.md.

/// Longest key: a user key of 1 MiB behind a partition number of 4 bytes.
pub const KEY_LEN_MAX: usize = (1 << 20) + 4;
/// Longest value: 512 MiB.
pub const VALUE_LEN_MAX: usize = 512 << 20;

/// Longest note that a writer leaves in an SST. Arbitrary.
pub const NOTE_LEN_MAX: usize = 64;

/// The alignment of block offsets and lengths of an uncompressed SST, and the unit of memory of the frame cache.
pub(crate) const PAGE: usize = 4096;
/// Largest block of more than one entry, header included; larger blocks hold a single entry.
pub(crate) const BLOCK_LEN_MAX: usize = 4 * PAGE;
/// Bytes of a block's header.
pub(crate) const HEADER_LEN: usize = 16;
/// Bytes of the footer.
pub(crate) const FOOTER_LEN: usize = 64;
/// Longest tail (index, filter, properties, footer) that is written or read.
pub(crate) const TAIL_LEN_MAX: usize = 64 << 20;
/// Longest filter. A filter that would be longer gets fewer bits per key.
pub(crate) const FILTER_LEN_MAX: usize = 32 << 20;
/// Length of an index from which on an SST must end: the longest filter, two keys and the longest separator have room behind it.
pub(crate) const INDEX_LEN_FULL: usize = TAIL_LEN_MAX - FILTER_LEN_MAX - (5 << 20);
/// Longest SST.
pub(crate) const FILE_LEN_MAX: u64 = u32::MAX as u64;
/// Any compressed block may decompress to so many bytes.
const RAW_LEN_FREE: usize = 1 << 20;
/// No compressed block may decompress to more bytes.
pub(crate) const RAW_LEN_MAX: usize = 64 << 20;

/// Whether a compressed block of `stored` bytes may decompress to `raw` bytes. Bounds the memory that a hostile file takes.
pub(crate) fn may_decompress_to(stored: usize, raw: usize) -> bool {
    raw <= RAW_LEN_FREE || (raw <= RAW_LEN_MAX && raw / 4 <= stored)
}

const _: () = assert!(BLOCK_LEN_MAX <= u16::MAX as usize, "offsets inside a block are 16 bits");
const _: () = assert!(TAIL_LEN_MAX - FILTER_LEN_MAX - INDEX_LEN_FULL > 4 * KEY_LEN_MAX);
