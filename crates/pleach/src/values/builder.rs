//! Builders of value files: values that a flush or a conversion copies, and values that are left of other homes.
//!
//! # On disk
//! Layout: docs/format/values.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_coding::put_varint;
use pleach_env::{Env, Error, File, FileId, Result, Site};

use super::file::{Anchor, HEADER_LEN_U32, MOVED_MAGIC, encode_header, table_checksum};
use super::home::HomeKind;
use super::pointer::ValuePointer;
use super::stored::CHECKSUM_LEN;
use crate::file_names::values_path;

/// Bytes that are written with one call.
const BUFFER_LEN: usize = 1 << 20;

/// Bytes of a group of moved values, but for the last value, at most: as much as a device reads in one piece.
const GROUP_LEN: usize = 4 << 10;

/// Bytes in front of a moved value at most: two varints.
const HEAD_LEN_MAX: u64 = 10;

/// Bytes of a value file at most: offsets in tables have 32 bits.
const FILE_LEN_MAX: u64 = 1 << 31;

/// A file being written, from its beginning on.
struct Writer {
    env: Arc<dyn Env>,
    file: Arc<dyn File>,
    path: PathBuf,
    id: FileId,
    buffer: Vec<u8>,
    written: u64,
}

impl Writer {
    fn create(env: &Arc<dyn Env>, dir: &Path, id: FileId, kind: HomeKind) -> Result<Self> {
        let path = values_path(dir, id);
        let file = env.create_file(&path).map_err(|e| Error::io("create the file of values", &path, e))?;
        let buffer = encode_header(id, kind).to_vec();
        Ok(Self { env: Arc::clone(env), file, path, id, buffer, written: 0 })
    }

    /// Bytes of the file, if it ended here.
    fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends pieces.
    fn append(&mut self, pieces: [&[u8]; 2]) -> Result<()> {
        for piece in pieces {
            if piece.len() >= BUFFER_LEN {
                self.flush()?;
                self.write(piece)?;
            } else {
                self.buffer.extend_from_slice(piece);
            }
        }
        if self.buffer.len() >= BUFFER_LEN { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let written = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, self.written);
        written.map_err(|e| Error::io("write the values", &self.path, e))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file's bytes durable; its name is the caller's. Returns its length.
    fn finish(mut self, site: Site) -> Result<u64> {
        self.flush()?;
        self.file.sync(site).map_err(|e| Error::io("sync the values", &self.path, e))?;
        Ok(self.written)
    }

    /// Removes the unfinished file. Best effort: the next open removes what is left.
    fn abandon(self) {
        drop(self.file);
        let _left_for_the_next_open = self.env.remove_file(&self.path);
    }
}

/// A file of copied values being written.
pub(crate) struct ValueFileBuilder(Writer);

impl ValueFileBuilder {
    /// Creates value file `id` in `dir`.
    pub(crate) fn create(env: &Arc<dyn Env>, dir: &Path, id: FileId) -> Result<Self> {
        Writer::create(env, dir, id, HomeKind::Values).map(Self)
    }

    /// Its number, which pointers to its values have.
    pub(crate) fn id(&self) -> FileId {
        self.0.id
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether another file should be begun.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= FILE_LEN_MAX
    }

    /// Appends a stored value: its checksum and its bytes. Returns the pointer to it.
    pub(crate) fn add(&mut self, checksum: &[u8], stored: &[u8]) -> Result<ValuePointer> {
        debug_assert_eq!(checksum.len(), CHECKSUM_LEN);
        let offset = self.0.len();
        self.0.append([checksum, stored])?;
        let len = u32::try_from(stored.len()).expect("values are at most VALUE_LEN_MAX");
        Ok(ValuePointer { segment: self.0.id, offset, len })
    }

    /// Makes the file durable, but for its name. Returns its length.
    pub(crate) fn finish(self, site: Site) -> Result<u64> {
        self.0.finish(site)
    }

    /// Removes the unfinished file.
    pub(crate) fn abandon(self) {
        self.0.abandon();
    }
}

/// A file of moved values being written.
pub(crate) struct MovedFileBuilder {
    writer: Writer,
    /// Segments, ascending, with their anchors.
    parts: Vec<(FileId, Vec<Anchor>)>,
    /// The old place of the value before.
    last_old: u64,
    entry: Vec<u8>,
}

impl MovedFileBuilder {
    /// Creates value file `id` in `dir`.
    pub(crate) fn create(env: &Arc<dyn Env>, dir: &Path, id: FileId) -> Result<Self> {
        let writer = Writer::create(env, dir, id, HomeKind::Moved)?;
        Ok(Self { writer, parts: Vec::new(), last_old: 0, entry: Vec::new() })
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.writer.len()
    }

    /// Whether a value of this length, with its checksum, can be added: places in the table have 32 bits. Honest values have
    /// room, because their own files are not that long.
    pub(crate) fn has_room(&self, stored_len: usize) -> bool {
        u32::try_from(self.writer.len() + HEAD_LEN_MAX + stored_len as u64).is_ok()
    }

    /// Appends a value with its checksum, `stored`, which was at `pointer`.
    ///
    /// Requires: pointers ascend, by segment and then by offset, and their values do not overlap. There is room.
    pub(crate) fn add(&mut self, pointer: ValuePointer, stored: &[u8]) -> Result<()> {
        debug_assert_eq!(stored.len() as u64, pointer.bytes(), "checksum and value");
        let new = self.writer.len();
        let small = |number: u64| u32::try_from(number).expect("there is room, and pointers have 32 bits");
        let anchor = Anchor { old: small(pointer.offset), new: small(new) };
        let is_new = self.parts.last().is_none_or(|(segment, _)| *segment != pointer.segment);
        if is_new {
            self.parts.push((pointer.segment, Vec::new()));
        }
        let (_, anchors) = self.parts.last_mut().expect("pushed above");
        let begins = anchors
            .last()
            .is_none_or(|last| new - u64::from(last.new) + stored.len() as u64 > GROUP_LEN as u64);
        if begins {
            anchors.push(anchor);
            self.last_old = pointer.offset;
        }
        self.entry.clear();
        put_varint(&mut self.entry, pointer.offset - self.last_old);
        put_varint(&mut self.entry, (stored.len() - CHECKSUM_LEN) as u64);
        self.last_old = pointer.offset;
        self.writer.append([&self.entry, stored])
    }

    /// Makes the file durable, but for its name. Returns its length.
    ///
    /// Requires: it has a value.
    pub(crate) fn finish(mut self, site: Site) -> Result<u64> {
        let mut table = Vec::new();
        let mut new = HEADER_LEN_U32;
        for (segment, anchors) in &self.parts {
            put_varint(&mut table, segment.0);
            put_varint(&mut table, anchors.len() as u64);
            let mut old = 0;
            for anchor in anchors {
                put_varint(&mut table, (anchor.old - old).into());
                put_varint(&mut table, (anchor.new - new).into());
                (old, new) = (anchor.old, anchor.new);
            }
        }
        let len = u32::try_from(table.len()).expect("a table is shorter than its file");
        let crc = table_checksum(self.writer.id, &table);
        table.extend_from_slice(&len.to_le_bytes());
        table.extend_from_slice(&crc.to_le_bytes());
        self.writer.append([&table, &MOVED_MAGIC])?;
        self.writer.finish(site)
    }

    /// Removes the unfinished file.
    pub(crate) fn abandon(self) {
        self.writer.abandon();
    }
}

#[cfg(test)]
mod tests {
    use pleach_env::SimEnv;

    use super::*;

    #[test]
    fn a_file_of_moved_values_ends_where_its_table_can_lead() {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let mut builder = MovedFileBuilder::create(&env, Path::new("/"), FileId(7)).unwrap();
        assert!(builder.has_room(1 << 29));
        // Bytes of values that nobody has written.
        builder.writer.written = u64::from(u32::MAX) - builder.writer.buffer.len() as u64 - 110;
        assert!(builder.has_room(100) && !builder.has_room(101));
        let pointer = ValuePointer { segment: FileId(3), offset: u64::from(u32::MAX), len: 96 };
        builder.add(pointer, &[0; 100]).unwrap();
        assert!(!builder.has_room(CHECKSUM_LEN));
        builder.abandon();
    }
}
