//! Reads of pointers that lead nowhere.

use std::sync::Arc;

use pleach_env::{ErrorKind, FileId, SimEnv};

use super::{ReadBuffers, read_movable_values, read_values};
use crate::value::Value;
use crate::values::ValuePointer;
use crate::{Db, Options};

fn open(env: &Arc<SimEnv>) -> Db {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(8 << 20).separate_at(100);
    options.memtable_bytes(64 << 10).compaction_threads(1).open("/store").unwrap()
}

/// A conversion meets pointers that a newer entry hides, and whose values were cleaned away.
#[test]
fn values_that_are_gone_are_left_as_pointers() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let partition = db.default_partition();
    for number in 0..300 {
        partition.put(format!("{number:04}"), [7; 500]).unwrap();
    }
    db.flush().unwrap();
    let state = db.inner().version_set.state.load_full();
    let segment = state.version.values.iter().next().unwrap().id;
    let mut bytes = Vec::new();
    for (segment, offset) in [(segment, 70_000), (segment, 1 << 30), (FileId(900_000), 100)] {
        bytes.clear();
        ValuePointer { segment, offset, len: 500 }.encode(&mut bytes);
        let ctx = &db.inner().ctx;
        let (segments, id) = (&state.version.values, partition.id());
        let mut value = Value::pointer(&bytes);
        let unreadable = read_movable_values(ctx, segments, id, [(&b"0001"[..], &mut value)].into_iter());
        assert!(unreadable.unwrap().is_empty(), "a hidden pointer is no damage");
        assert!(value.is_pointer(), "it is left");
        let read = read_values(
            ctx,
            &mut ReadBuffers::default(),
            segments,
            id,
            [(&b"0001"[..], &mut value)].into_iter(),
            false,
        );
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Corruption);
    }
}
