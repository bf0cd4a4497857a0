//! Races of commits with readers.

use pleach::Db;
use pleach::env::failpoint::hold;

use crate::race;

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    race(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let partition = db.default_partition();
        let held = hold("commit.inserted");
        let writer = std::thread::spawn({
            let (db, partition) = (db.clone(), partition.clone());
            move || {
                let mut batch = db.batch();
                batch.put(&partition, b"a", b"1");
                batch.put(&partition, b"b", b"2");
                batch.commit(pleach::Durability::Buffered).unwrap();
            }
        });
        held.wait_for(1);
        let before = db.snapshot();
        assert_eq!(partition.get(b"a").unwrap(), None);
        assert_eq!(partition.iter().count(), 0);
        held.release();
        writer.join().unwrap();
        assert_eq!(before.get(&partition, b"b").unwrap(), None);
        assert_eq!(partition.iter().count(), 2);
    });
}
