//! Races of drops and creations of partitions with readers and writers.

use std::thread::spawn;

use pleach::env::failpoint::hold;
use pleach::{Db, Durability, ErrorKind, Options, Partition, Result, Shape, Snapshot};

use crate::race;

/// Runs `read` while the partition, with flushed and unflushed entries, is dropped, just before it looks at the state.
fn beside_a_drop<T: Send + 'static>(
    read: impl FnOnce(&Partition) -> Result<T> + Send + 'static,
) -> Result<T> {
    let dir = tempfile::tempdir().expect("there is room for a store");
    let db = Db::open(dir.path())?;
    let partition = db.partition("p")?;
    partition.put("flushed", "1")?;
    db.flush()?;
    partition.put("new", "2")?;
    let held = hold("partition.read");
    let reader = spawn({
        let partition = partition.clone();
        move || read(&partition)
    });
    held.wait_for(1);
    db.drop_partition(partition)?;
    held.release();
    reader.join().expect("a read does not panic")
}

#[test]
fn a_read_beside_a_drop_is_closed_rather_than_empty() {
    race(|| {
        let kinds = [
            beside_a_drop(|p| p.get("flushed")).map(|_| ()),
            beside_a_drop(|p| p.get("new")).map(|_| ()),
            beside_a_drop(|p| p.contains("flushed")).map(|_| ()),
            beside_a_drop(|p| p.get_many(["flushed", "new"])).map(|_| ()),
            beside_a_drop(|p| p.iter().collect::<Result<Vec<_>>>()).map(|_| ()),
            beside_a_drop(|p| p.range("a".."z").collect::<Result<Vec<_>>>()).map(|_| ()),
            beside_a_drop(|p| p.prefix("n").rev().collect::<Result<Vec<_>>>()).map(|_| ()),
            beside_a_drop(Partition::stats).map(|_| ()),
        ];
        for (read, answer) in kinds.into_iter().enumerate() {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed, "read {read}");
        }
    });
}

/// Begins to take a snapshot, which is held when it knows how far it sees, but not what there is. The call ends it.
fn held_snapshot(db: &Db) -> impl FnOnce() -> Snapshot {
    let held = hold("read_view.visible");
    let reader = spawn({
        let db = db.clone();
        move || db.snapshot()
    });
    held.wait_for(1);
    move || {
        held.release();
        reader.join().unwrap()
    }
}

/// A put, then a drop, both while a snapshot is being taken: if it has the drop, it has the put.
#[test]
fn a_snapshot_that_misses_a_dropped_partition_has_what_was_put_before_the_drop() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let (kept, gone) = (db.default_partition(), db.partition("gone").unwrap());
        gone.put("key", "value").unwrap();
        let snapshot = held_snapshot(&db);
        // What was in the one partition moves to the other, in one batch.
        let mut batch = db.batch();
        batch.put(&kept, "key", "value");
        batch.delete(&gone, "key");
        batch.commit(Durability::Buffered).unwrap();
        db.drop_partition(gone.clone()).unwrap();
        let snapshot = snapshot();
        let is_moved = snapshot.get(&kept, "key").unwrap().is_some();
        match snapshot.get(&gone, "key") {
            Ok(value) => assert_ne!(value.is_some(), is_moved, "the batch is seen whole or not at all"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed);
                assert!(is_moved, "the drop is seen, but not the put before it");
            }
        }
    });
}

/// A drop, then a put, both while a snapshot is being taken: if it has the put, it has the drop.
#[test]
fn a_snapshot_that_has_what_was_put_after_a_drop_has_the_drop() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let (kept, gone) = (db.default_partition(), db.partition("gone").unwrap());
        gone.put("key", "value").unwrap();
        let snapshot = held_snapshot(&db);
        db.drop_partition(gone.clone()).unwrap();
        kept.put("after", "value").unwrap();
        let snapshot = snapshot();
        if snapshot.get(&kept, "after").unwrap().is_some() {
            assert_eq!(snapshot.get(&gone, "key").unwrap_err().kind(), ErrorKind::Closed);
        } else {
            // The view may be of any moment since the call began.
            assert!(
                snapshot.get(&gone, "key").map_or_else(|e| e.kind() == ErrorKind::Closed, |v| v.is_some())
            );
        }
    });
}

/// The same with a creation.
#[test]
fn a_snapshot_that_has_a_new_partition_has_what_was_put_before_its_creation() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let snapshot = held_snapshot(&db);
        db.default_partition().put("key", "value").unwrap();
        let created = db.partition("created").unwrap();
        created.put("key", "value").unwrap();
        let snapshot = snapshot();
        if snapshot.get(&created, "key").is_ok() {
            assert!(snapshot.get(&db.default_partition(), "key").unwrap().is_some());
        }
    });
}

/// While a drop is being made durable no write becomes visible: it would come behind a drop that a snapshot with it does
/// not have.
#[test]
fn no_write_overtakes_a_drop() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let (kept, gone) = (db.default_partition(), db.partition("gone").unwrap());
        let held = hold("edit.applied");
        let dropper = spawn({
            let (db, gone) = (db.clone(), gone.clone());
            move || db.drop_partition(gone)
        });
        held.wait_for(1);
        let spanning = spawn({
            let (db, kept, gone) = (db.clone(), kept.clone(), gone.clone());
            move || {
                let mut batch = db.batch();
                batch.put(&kept, "spanning", "value");
                batch.put(&gone, "spanning", "value");
                batch.commit(Durability::Buffered)
            }
        });
        let writer = spawn({
            let kept = kept.clone();
            move || kept.put("other", "value")
        });
        // Names are found meanwhile.
        assert!(db.find_partition("gone").is_some());
        std::thread::sleep(std::time::Duration::from_millis(50));
        let before = db.snapshot();
        assert!(before.get(&gone, "spanning").unwrap().is_none(), "it is still there");
        assert!(before.get(&kept, "other").unwrap().is_none());
        held.release();
        dropper.join().unwrap().unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(spanning.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert!(kept.get("spanning").unwrap().is_none(), "no half of a batch");
        assert!(kept.get("other").unwrap().is_some());
    });
}

#[test]
fn partitions_created_at_once_by_many_are_the_same() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let names = ["a", "b", "a", "default", "c"];
        let creators = [0, 1].map(|_| {
            let db = db.clone();
            spawn(move || {
                db.create_partitions(names).map(|made| made.iter().map(Partition::id).collect::<Vec<_>>())
            })
        });
        let [one, other] = creators.map(|creator| creator.join().unwrap().unwrap());
        assert_eq!(one, other);
        assert_eq!(one[0], one[2]);
        assert_eq!(db.partitions(), ["a", "b", "c", "default"]);
        assert_eq!(db.create_partitions(["d", ""]).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(db.partitions().len(), 4, "all or none");
        let next = db.partition("next").unwrap();
        assert_eq!(next.id().to_string(), "4", "no name has used up two numbers");
    });
}

/// It once dropped the partition of this store that had the same number.
#[test]
fn a_partition_of_another_store_is_refused() {
    race(|| {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (Db::open(one.path()).unwrap(), Db::open(other.path()).unwrap());
        let kept = one.partition("kept").unwrap();
        kept.put("key", "value").unwrap();
        let foreign = other.partition("foreign").unwrap();
        assert_eq!(kept.id(), foreign.id());
        assert_eq!(one.drop_partition(foreign.clone()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(kept.get("key").unwrap().is_some());
        foreign.put("key", "value").unwrap();
        // Nor is it read or written.
        let mut batch = one.batch();
        batch.put(&kept, "other", "value");
        batch.delete(&foreign, "key");
        assert_eq!(batch.commit(Durability::Sync).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(kept.get("other").unwrap().is_none() && kept.get("key").unwrap().is_some());
        assert_eq!(one.snapshot().get(&foreign, "key").unwrap_err().kind(), ErrorKind::InvalidArgument);
    });
}

/// The edit of a merge whose partition was dropped while it was written says nothing about that partition.
#[test]
fn a_drop_beside_the_commit_of_a_merge_poisons_nothing() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().memory(16 << 20).memtable_bytes(64 << 10).sst_bytes(16 << 10);
        let db = options.shape(Shape::Leveled).open(dir.path()).unwrap();
        let gone = db.partition("gone").unwrap();
        let held = hold("compaction.partial_commit");
        let writer = spawn({
            let gone = gone.clone();
            move || (0..4000_u32).try_for_each(|key| gone.put((key * 7919 % 4000).to_string(), [1; 300]))
        });
        held.wait_for(1);
        // The merge is finished; now, before its edit is made, its partition goes.
        db.drop_partition(gone).unwrap();
        held.release();
        if let Err(error) = writer.join().unwrap() {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
        db.settle().unwrap();
        assert_eq!(db.poisoned().map(|error| error.to_string()), None);
        assert_eq!(db.verify().unwrap().ssts, 0);
        db.default_partition().put("key", "value").unwrap();
        db.close().unwrap();
    });
}
