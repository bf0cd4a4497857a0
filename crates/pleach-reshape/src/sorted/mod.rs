//! Sorted rows: the rows that a generation leaves behind, in the order of their keys, by an external sort.
//!
//! A recluster of all keys wants rows in the order of keys, and they lie in the order of ids. Where both orders differ, each page
//! of the old tables would be read again and again. So the tables are read once, in the order of ids (`collect`). Whenever the
//! memory of a move is full, the rows in it are sorted and written to a temporary file as a *run*. The runs are merged while
//! the rows move (`merge`). What has been merged is punched out of the file, so that the file and the new tables together take
//! little more space than the rows.
//!
//! The moves ask for rows by key and id, as the map names them, in the order of keys. So the file is only a faster way to
//! read: a row that it lacks is read from the store, and after any failure of the file all others are. A row of the generation
//! before never changes while it is there (`write_path`), so a copy under the right id has the right value.
//!
//! # On disk
//! The file is `MOVES` in the map's directory. It is removed as soon as it is created, so the system frees it when it is closed
//! or the process ends. A crash between the two calls leaves an empty file, which the next open removes. Nothing else outlives
//! the process, so the layout has no version: ids of 8 bytes, lengths of 4 bytes, and rows with their checksums.
//!
//! # Cost
//! Each row is written and read once more than it moves, and twice more for each time that the runs are too many to be merged at
//! once (`READ_BYTES_MIN`). Memory: `Options::moves`.

mod collect;
mod file;
mod merge;

pub(crate) use collect::sort_rows;
pub(crate) use file::remove_leftover;
pub(crate) use merge::SortedRows;

use pleach_coding::{u32_at, u64_at};

use crate::ids::Id;

/// Least bytes of a run that are read at a time, so that a merge takes as many runs as its memory has room for. Arbitrary: a
/// disk that reads 10,000 times a second reads 160 MB a second then.
const READ_BYTES_MIN: usize = 16 << 10;

/// Bytes before a row in a run: id and length.
const HEADER_LEN: usize = 12;

/// A part of the file with rows in the order of keys, then ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    end: u64,
}

/// Appends a row and what stands before it.
fn put_record(out: &mut Vec<u8>, id: Id, row: &[u8]) {
    out.extend_from_slice(&id.0.to_le_bytes());
    out.extend_from_slice(&u32::try_from(row.len()).expect("values have limits").to_le_bytes());
    out.extend_from_slice(row);
}

/// The id in a header.
fn id_of(header: &[u8]) -> Id {
    Id(u64_at(header, 0))
}

/// Bytes of the row behind a header.
fn row_len(header: &[u8]) -> usize {
    u32_at(header, 8) as usize
}
