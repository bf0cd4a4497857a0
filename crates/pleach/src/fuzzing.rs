//! Entry points for fuzz targets of private decoders: each takes any bytes and panics if a decoder breaks its contract.
//!
//! They are behind the feature `fuzzing`, are not part of the interface, and may change at any time.

use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, FileId, SimEnv, failpoint};
use pleach_log::{Append, RecordBuf, RecordWriter};
use pleach_table::ValueKind;

use crate::manifest;
use crate::operations::{Operation, Operations};
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

/// A batch: encoding and decoding gives it back.
pub fn batch(bytes: &[u8]) {
    let note = |op: &Operation<'_>| (op.kind, op.partition, op.user_key.to_vec(), op.value.to_vec());
    let (mut again, mut first, mut second) = (Operations::default(), Vec::new(), Vec::new());
    let decoded = Operations::decode(bytes, &mut |op| {
        let value = (op.kind == ValueKind::Put).then_some(op.value);
        again.push(op.partition, op.user_key, value, usize::MAX).expect("what decodes is within the limits");
        first.push(note(&op));
    });
    if decoded.is_err() {
        return;
    }
    again.for_each(&mut |op| second.push(note(&op)));
    assert_eq!(first, second, "a batch comes back");
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
