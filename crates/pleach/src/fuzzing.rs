//! Entry points for fuzz targets of private decoders: each takes any bytes and panics if a decoder breaks its contract.
//!
//! They are behind the feature `fuzzing`, are not part of the interface, and may change at any time.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, FileId, SimEnv, failpoint};
use pleach_log::{Append, RecordBuf, RecordWriter};
use pleach_table::ValueKind;

use crate::file_names::values_path;
use crate::keys::PartitionId;
use crate::manifest;
use crate::operations::{Operation, Operations};
use crate::options::ValueSizes;
use crate::values::{HomeKind, MovedFileBuilder, ValueHome, ValuePacker, ValuePointer};
use crate::version::edit::Edit;
use crate::version::{FileTable, Version};

/// An edit: encoding and decoding gives it back, and applying it gives an error or a valid version.
pub fn edit(bytes: &[u8]) {
    let Some(edit) = Edit::decode(bytes) else { return };
    let mut encoded = Vec::new();
    edit.encode(&mut encoded);
    assert_eq!(Edit::decode(&encoded).as_ref(), Some(&edit), "an edit comes back");
    let applied =
        |edit: &Edit| Version::empty().apply(edit, &FileTable::default(), &[]).map(|(next, _)| next);
    if let Ok(version) = applied(&edit)
        && version.check_invariants().is_ok()
    {
        assert!(
            applied(&version.as_edit()).is_ok_and(|again| again.as_edit() == version.as_edit()),
            "a version comes back from its edit"
        );
    }
}

/// A batch: encoding and decoding gives it back, also if its separated values are packed.
pub fn batch(bytes: &[u8]) {
    let note = |op: &Operation<'_>| (op.kind, op.partition, op.user_key.to_vec(), op.value.to_vec());
    // No record of so many bytes may unpack to more than this, so a fuzzer does not run out of memory.
    let mut unpacked = 0;
    let is_batch = Operations::decode(bytes, &mut |op| unpacked += op.raw_len());
    assert!(unpacked <= 255 * bytes.len(), "values unpack to what LZ4 can give");
    for packed in [false, true] {
        let (mut again, mut first, mut second) = (Operations::default(), Vec::new(), Vec::new());
        let decoded = Operations::decode_raw(bytes, &mut |op| {
            let value = (op.kind != ValueKind::Tombstone).then_some(op.value);
            let separated = if op.kind == ValueKind::ValuePointer { 0 } else { usize::MAX };
            let sizes = ValueSizes { separated, packed, ..ValueSizes::ALL_SMALL };
            again.push(op.partition, op.user_key, value, sizes).expect("what decodes is within the limits");
            first.push(note(&op));
        });
        if decoded.is_err() {
            return;
        }
        assert!(is_batch.is_ok(), "what unpacks has been decoded");
        again.for_each(&mut |op| second.push(note(&op)));
        assert_eq!(first, second, "a batch comes back");
    }
}

/// `CURRENT`.
pub fn current(bytes: &[u8]) {
    let env = SimEnv::new(1);
    let dir = Path::new("/store");
    env.write_file(&dir.join(manifest::CURRENT), bytes);
    for site in ["", "current.crc"] {
        let _any_answer = failpoint::with_skipped(site, || manifest::read_current(&*env, dir));
    }
}

/// A manifest: edits of any bytes with right checksums, followed by any bytes.
pub fn manifest(edits: &[&[u8]], tail: &[u8]) {
    let env = SimEnv::new(1);
    let (dir, id) = (Path::new("/store"), FileId(1));
    let path = manifest::manifest_path(dir, id);
    env.create_dir_all(dir).expect("the simulator makes directories");
    let options = manifest::record_file_options(id);
    let mut writer = RecordWriter::create(&*env, &path, &options).expect("the simulator takes files");
    for edit in edits {
        let mut record = RecordBuf::new();
        record.bytes_mut().extend_from_slice(edit);
        let first_seq = writer.next_seq();
        writer
            .append([Append { record: &mut record, first_seq, count: 1 }])
            .expect("the simulator takes writes");
    }
    let mut bytes = env.read_file(&path).expect("it was written");
    // Zeros follow: space that is reserved.
    bytes.truncate(usize::try_from(writer.offset()).expect("the file is in memory"));
    bytes.extend_from_slice(tail);
    env.write_file(&path, &bytes);
    let env: Arc<dyn Env> = env;
    for site in ["", "log.record.crc"] {
        let read = || manifest::read_manifest(&env, dir, id, &mut FileTable::default());
        if let Ok((version, end)) = failpoint::with_skipped(site, read) {
            assert!(end <= bytes.len() as u64, "the valid part lies in the file");
            version.check_invariants().expect("recovery checks them");
        }
    }
}

/// A value pointer: encoding and decoding gives it back.
pub fn value_pointer(bytes: &[u8]) {
    let Some(pointer) = ValuePointer::decode(bytes) else { return };
    let mut encoded = Vec::new();
    pointer.encode(&mut encoded);
    assert_eq!(ValuePointer::decode(&encoded), Some(pointer), "a pointer comes back");
    assert!(encoded.len() <= bytes.len(), "it is encoded in the shortest form");
}

/// A file of moved values, some of them packed, changed by `damage`: a value is read right or not at all, also if the table's
/// checksum is right again. Of each value that was moved `lens` has the length, and how far from the one before it was.
pub fn moved_values(lens: &[(u8, u8)], damage: impl FnOnce(&mut Vec<u8>)) {
    let sim = SimEnv::new(1);
    let (env, dir, id): (Arc<dyn Env>, _, _) = (Arc::<SimEnv>::clone(&sim), Path::new("/store"), FileId(99));
    env.create_dir_all(dir).expect("the simulator makes directories");
    let mut builder = MovedFileBuilder::create(&env, dir, id).expect("the simulator takes files");
    let (mut values, mut offset, mut packer) = (Vec::new(), 64, ValuePacker::default());
    for (number, &(len, step)) in (0u64..).zip(lens) {
        let value = vec![len ^ step; 16 * usize::from(len)];
        let packer = step.is_multiple_of(2).then_some(&mut packer);
        let (checksum, stored) = ValuePacker::store(packer, (PartitionId(1), &[len]), &value);
        let len_u32 = u32::try_from(stored.len()).expect("a short value");
        let pointer = ValuePointer { segment: FileId(number / 8), offset, len: len_u32 };
        let stored = [&checksum[..], stored].concat();
        builder.add(pointer, &stored).expect("the simulator takes writes");
        offset += pointer.bytes() + u64::from(step);
        values.push((pointer, len, value));
    }
    if values.is_empty() {
        return;
    }
    builder.finish("moved.sync").expect("the simulator syncs");
    let path = values_path(dir, id);
    let mut bytes = sim.read_file(&path).expect("it was written");
    damage(&mut bytes);
    for is_forged in [false, true] {
        if is_forged {
            forge_table(&mut bytes, id);
        }
        sim.write_file(&path, &bytes);
        let home = ValueHome::new(id, HomeKind::Moved, bytes.len() as u64, Arc::default());
        for (pointer, key, value) in &values {
            let found = home.read(&env, dir, *pointer, (PartitionId(1), &[*key]));
            assert!(
                found.is_err() || found.is_ok_and(|found| *found == **value),
                "a value is right or missing"
            );
        }
        assert!(home.memory() <= 64 * bytes.len(), "memory is in proportion to the file");
    }
}

/// Makes the checksum of a table right, if its length is one.
fn forge_table(bytes: &mut [u8], id: FileId) {
    const TAIL_LEN: usize = 16;
    let Some(tail_at) = bytes.len().checked_sub(TAIL_LEN) else { return };
    let len = pleach_coding::u32_at(bytes, tail_at) as usize;
    let Some(table_at) = tail_at.checked_sub(len) else { return };
    let crc = crc32c::crc32c_append(crc32c::crc32c(&id.0.to_le_bytes()), &bytes[table_at..tail_at]);
    bytes[tail_at + 4..tail_at + 8].copy_from_slice(&crc.to_le_bytes());
}
