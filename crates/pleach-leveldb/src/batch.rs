//! Write batches, in the representation that LevelDB writes to its log: 8 bytes of sequence number, 4 of count, and the records.
//!
//! A record is a kind (1: put, 0: delete), the key, and for a put the value, each behind its length as a varint of 32 bits.

use std::ffi::c_void;

use libc::c_char;
use pleach_ffi::bytes;
use smallvec::SmallVec;

use crate::status::{Kind, Result, Status};

const HEADER_LEN: usize = 12;
const COUNT: std::ops::Range<usize> = 8..12;
const PUT: u8 = 1;
const DELETE: u8 = 0;
/// Records for which memory is allocated ahead (arbitrary).
const RECORDS_EXPECTED_MAX: usize = 4096;

/// `leveldb_writebatch_t`.
pub struct Batch {
    data: Vec<u8>,
}

const _: () = pleach_ffi::assert_shared::<Batch>();

/// A record: a key, and the value of a put.
pub(crate) type Record<'a> = (&'a [u8], Option<&'a [u8]>);

impl Default for Batch {
    fn default() -> Self {
        Self { data: vec![0; HEADER_LEN] }
    }
}

impl Batch {
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    fn push(&mut self, (key, value): Record<'_>) {
        self.data.push(if value.is_some() { PUT } else { DELETE });
        for part in std::iter::once(key).chain(value) {
            push_varint(&mut self.data, part.len());
            self.data.extend_from_slice(part);
        }
        self.add_to_count(1);
    }

    fn count(&self) -> u32 {
        count_of(&self.data).unwrap_or(0)
    }

    fn add_to_count(&mut self, more: u32) {
        let count = self.count().wrapping_add(more);
        self.data[COUNT].copy_from_slice(&count.to_le_bytes());
    }
}

/// Appends a length. Of one from 4 to 32 GiB the reader sees the lower 32 bits alone, as in LevelDB's batches.
#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn push_varint(to: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn count_of(data: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(COUNT)?.try_into().ok()?))
}

/// The records of a batch in LevelDB's representation.
///
/// # Errors
/// `Corruption`, with LevelDB's words, if it is none.
pub(crate) fn decode(data: &[u8]) -> Result<SmallVec<[Record<'_>; 1]>> {
    let corrupt = |message: &str| Status::new(Kind::Corruption, message);
    let count = count_of(data).ok_or_else(|| corrupt("malformed WriteBatch (too small)"))?;
    let mut rest = &data[HEADER_LEN..];
    // A count of bytes that are not ours is believed only so far.
    let mut records = SmallVec::with_capacity((count as usize).min(RECORDS_EXPECTED_MAX));
    while let Some((&kind, behind)) = rest.split_first() {
        rest = behind;
        let record = match kind {
            PUT => take(&mut rest).and_then(|key| Some((key, Some(take(&mut rest)?)))),
            DELETE => take(&mut rest).map(|key| (key, None)),
            _ => return Err(corrupt("unknown WriteBatch tag")),
        };
        let name = if kind == PUT { "Put" } else { "Delete" };
        records.push(record.ok_or_else(|| corrupt(&format!("bad WriteBatch {name}")))?);
    }
    if records.len() != count as usize {
        return Err(corrupt("WriteBatch has wrong count"));
    }
    Ok(records)
}

/// Takes bytes behind their length.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut len = 0_u32;
    for shift in (0..35).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        len |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            let (taken, behind) = rest.split_at_checked(len as usize)?;
            *rest = behind;
            return Some(taken);
        }
    }
    None
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> Box<Batch> {
    Box::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_destroy(_: Option<Box<Batch>>) {}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_clear(batch: &mut Batch) {
    batch.data.clear();
    batch.data.resize(HEADER_LEN, 0);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: &mut Batch,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
) {
    // SAFETY: by the contract of c.h.
    let (key, value) = unsafe { (bytes(key, key_len), bytes(value, value_len)) };
    batch.push((key, Some(value)));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(batch: &mut Batch, key: *const c_char, key_len: usize) {
    // SAFETY: by the contract of c.h.
    batch.push((unsafe { bytes(key, key_len) }, None));
}

pub type PutVisitor = unsafe extern "C" fn(
    state: *mut c_void,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    value_len: usize,
);
pub type DeleteVisitor = unsafe extern "C" fn(state: *mut c_void, key: *const c_char, key_len: usize);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: &Batch,
    state: *mut c_void,
    put: PutVisitor,
    delete: DeleteVisitor,
) {
    // A batch of ours is well formed.
    for (key, value) in decode(&batch.data).unwrap_or_default() {
        let (start, len) = (key.as_ptr().cast(), key.len());
        // SAFETY: the caller gave the functions for this state; key and value are there during the call.
        unsafe {
            match value {
                Some(value) => put(state, start, len, value.as_ptr().cast(), value.len()),
                None => delete(state, start, len),
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_append(destination: *mut Batch, source: *const Batch) {
    // SAFETY: by the contract of c.h both are there. They may be the same, so no references are made of both at once.
    let (added, count) = unsafe { ((&(*source).data)[HEADER_LEN..].to_vec(), (*source).count()) };
    // SAFETY: as above.
    let destination = unsafe { &mut *destination };
    destination.data.extend_from_slice(&added);
    destination.add_to_count(count);
}
