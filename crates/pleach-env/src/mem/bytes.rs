//! Bytes of a file in memory: pieces of 64 KiB, of which only those take memory that were written.
//!
//! # Invariants
//! 1. A piece is no longer than [`PIECE_LEN`]. What a piece, or the list of pieces, lacks below `len` reads as zeros.
//! 2. No piece has bytes at or beyond `len`.
//! 3. `used` counts the capacity of all pieces.
//!
//! # Concurrency
//! A file's lock guards its bytes, see [`MemFile`](super::file::MemFile).
//!
//! # Cost
//! A write copies its own bytes. Only a piece that grows to 64 KiB is copied, and the list of pieces: 24 bytes for each.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// Length of a piece. Small enough that the last one is copied while it grows, large enough that their list stays short.
const PIECE_LEN: usize = 64 << 10;

/// Longest file, as on most file systems.
const FILE_LEN_MAX: u64 = i64::MAX.cast_unsigned();

/// Memory that the files of an environment take. Relaxed: it orders no other memory.
pub(super) type UsedBytes = Arc<AtomicU64>;

/// A file without its name.
pub(super) struct Bytes {
    pieces: Vec<Vec<u8>>,
    len: u64,
    used: UsedBytes,
}

impl Bytes {
    /// No bytes.
    pub(super) fn new(used: UsedBytes) -> Self {
        Self { pieces: Vec::new(), len: 0, used }
    }

    /// Length of the file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` from `offset` on, as far as the file goes. Returns the number of bytes.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = left.min(buf.len());
        for part in parts(offset, len) {
            let target = &mut buf[part.buffer];
            let piece = self.pieces.get(part.piece).map_or(&[][..], |piece| piece);
            let found = piece.get(part.start..).unwrap_or_default();
            let (there, zeros) = target.split_at_mut(found.len().min(target.len()));
            there.copy_from_slice(&found[..there.len()]);
            zeros.fill(0);
        }
        len
    }

    /// Writes `bytes` at `offset`, or as many as memory is found for. An error if there is none for the first of them.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        if end > FILE_LEN_MAX {
            return Err(Errno::FBIG.into());
        }
        for part in parts(offset, bytes.len()) {
            let source = &bytes[part.buffer.clone()];
            match self.grow(part.piece, part.start + source.len()) {
                Ok(piece) => piece[part.start..][..source.len()].copy_from_slice(source),
                Err(error) if part.buffer.start == 0 => return Err(error),
                Err(_) => {
                    self.len = self.len.max(offset + part.buffer.start as u64);
                    return Ok(part.buffer.start);
                }
            }
        }
        if !bytes.is_empty() {
            self.len = self.len.max(end);
        }
        Ok(bytes.len())
    }

    /// The piece with this number, with at least `len` bytes.
    fn grow(&mut self, number: usize, len: usize) -> io::Result<&mut Vec<u8>> {
        if self.pieces.len() <= number {
            self.pieces.try_reserve(number + 1 - self.pieces.len()).map_err(|_| Errno::NOMEM)?;
            self.pieces.resize_with(number + 1, Vec::new);
        }
        let piece = &mut self.pieces[number];
        if piece.len() < len {
            let before = piece.capacity();
            if before < len {
                let capacity = len.next_power_of_two().min(PIECE_LEN);
                piece.try_reserve_exact(capacity - piece.len()).map_err(|_| Errno::NOMEM)?;
                self.used.fetch_add((piece.capacity() - before) as u64, Ordering::Relaxed);
            }
            piece.resize(len, 0);
        }
        Ok(piece)
    }

    /// Cuts the file, or extends it by zeros, which take no memory.
    pub(super) fn set_len(&mut self, len: u64) -> io::Result<()> {
        if len > FILE_LEN_MAX {
            return Err(Errno::FBIG.into());
        }
        if len < self.len {
            let (last, rest) = locate(len);
            for number in last..self.pieces.len() {
                self.cut(number, if number == last { rest } else { 0 });
            }
            self.pieces.truncate(last + usize::from(rest > 0));
        }
        self.len = len;
        Ok(())
    }

    /// Drops the bytes of a piece from `len` on.
    fn cut(&mut self, number: usize, len: usize) {
        let piece = &mut self.pieces[number];
        if len == 0 {
            let freed = std::mem::take(piece).capacity();
            self.used.fetch_sub(freed as u64, Ordering::Relaxed);
        } else {
            piece.truncate(len);
        }
    }

    /// Makes a range zeros. Frees the pieces of which nothing is left.
    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len);
        let len = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        for part in parts(offset, len) {
            let Some(piece) = self.pieces.get_mut(part.piece) else { break };
            let end = part.start + part.buffer.len();
            if end < piece.len() {
                piece[part.start..end].fill(0);
            } else if part.start < piece.len() {
                self.cut(part.piece, part.start);
            }
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let bytes: usize = self.pieces.iter().map(Vec::capacity).sum();
        self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// The part of a transfer that falls into one piece.
struct Part {
    piece: usize,
    start: usize,
    buffer: Range<usize>,
}

fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let (piece, start) = locate(offset + done as u64);
        let end = len.min(done + PIECE_LEN - start);
        let part = Part { piece, start, buffer: done..end };
        done = end;
        Some(part)
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a rest of a piece is short, and a far piece is not in the list"
)]
fn locate(offset: u64) -> (usize, usize) {
    let piece = usize::try_from(offset / PIECE_LEN as u64).unwrap_or(usize::MAX);
    (piece, (offset % PIECE_LEN as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = PIECE_LEN as u64;

    fn used(bytes: &Bytes) -> u64 {
        bytes.used.load(Ordering::Relaxed)
    }

    fn all(bytes: &Bytes) -> Vec<u8> {
        let mut all = vec![1; usize::try_from(bytes.len()).unwrap() + 9];
        let len = bytes.read(&mut all, 0);
        all.truncate(len);
        all
    }

    #[test]
    fn random_changes_leave_what_they_leave_in_a_vector() {
        let mut random = fastrand::Rng::with_seed(7);
        let used_bytes = UsedBytes::default();
        let (mut bytes, mut model) = (Bytes::new(Arc::clone(&used_bytes)), Vec::new());
        for round in 0..3000_u32 {
            let offset = random.usize(..4 * PIECE_LEN);
            match random.u8(..10) {
                0 => {
                    bytes.set_len(offset as u64).unwrap();
                    model.resize(offset, 0);
                }
                1 => {
                    let (from, len) = (offset / 4096 * 4096, random.usize(..40) * 4096);
                    bytes.punch(from as u64, len as u64);
                    let end = (from + len).min(model.len());
                    model[from.min(end)..end].fill(0);
                }
                _ => {
                    let data = vec![round.to_le_bytes()[0] | 1; random.usize(..2 * PIECE_LEN)];
                    assert_eq!(bytes.write(&data, offset as u64).unwrap(), data.len());
                    if !data.is_empty() {
                        model.resize(model.len().max(offset + data.len()), 0);
                        model[offset..offset + data.len()].copy_from_slice(&data);
                    }
                }
            }
            if round % 16 == 0 {
                assert!(all(&bytes) == model, "round {round}");
            }
            assert_eq!(used(&bytes), bytes.pieces.iter().map(|piece| piece.capacity() as u64).sum::<u64>());
        }
        drop(bytes);
        assert_eq!(used_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn zeros_take_no_memory() {
        let mut bytes = Bytes::new(UsedBytes::default());
        bytes.set_len(1 << 60).unwrap();
        assert_eq!(used(&bytes), 0);
        bytes.write(b"far", 3 * PIECE).unwrap();
        assert!(used(&bytes) < 100);
        let mut buf = [7; 4];
        assert_eq!(bytes.read(&mut buf, (1 << 60) - 2), 2);
        assert_eq!(buf, [0, 0, 7, 7]);
        bytes.punch(3 * PIECE, 4096);
        assert_eq!((used(&bytes), bytes.len()), (0, 1 << 60));
    }

    #[test]
    fn bytes_that_no_file_has_are_refused() {
        let mut bytes = Bytes::new(UsedBytes::default());
        for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64] {
            assert_eq!(bytes.write(b"word", offset).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        }
        assert!(bytes.set_len(u64::MAX).is_err());
        // The list of its pieces would be longer than the memory.
        assert_eq!(bytes.write(b"word", 1 << 62).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(bytes.len(), 0);
    }
}
