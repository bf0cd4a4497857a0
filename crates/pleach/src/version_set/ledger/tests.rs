//! Tests of the ledger: the sums and work lists that edits update equal those counted from the version.

use std::sync::Arc;

use pleach_env::{Env, SimEnv};

use super::*;
use crate::state::State;
use crate::{Db, Shape};

fn open(env: &Arc<SimEnv>) -> Db {
    Options::new().env(Arc::<SimEnv>::clone(env)).memory(4 << 20).runs_per_stage(4).open("/store").unwrap()
}

/// The ledger equals a new one of the same version.
fn check(db: &Db) {
    let inner = db.inner();
    let state: Arc<State> = inner.version_set.state.load_full();
    let ledger = inner.version_set.ledger.lock();
    let again = Ledger::new(&inner.ctx.options, &state.version, ledger.now);
    assert_eq!((&ledger.due, &ledger.at_work), (&again.due, &again.at_work));
    assert_eq!((&ledger.recheck, &ledger.steps), (&again.recheck, &again.steps));
    assert_eq!((&ledger.run_debts, &ledger.garbage_debts), (&again.run_debts, &again.garbage_debts));
    assert_eq!(ledger.shared_files, again.shared_files);
}

#[test]
fn a_change_costs_what_it_changes_however_many_partitions_there_are() {
    const PARTITIONS: u64 = 500;
    let env = SimEnv::new(1);
    let db = open(&env);
    let names: Vec<_> = (0..PARTITIONS).map(|i| format!("p{i}")).collect();
    let partitions = db.create_partitions(&names).unwrap();
    let looked_at = || db.inner().version_set.ledger.lock().looked_at;
    for round in 0..2 {
        for partition in &partitions {
            partition.put("key", [round; 50]).unwrap();
        }
        db.flush().unwrap();
    }
    check(&db);
    let before = looked_at();
    partitions[7].put("key", "value").unwrap();
    db.flush().unwrap();
    assert!(looked_at() - before <= 2, "a flush of one partition");
    let before = looked_at();
    db.drop_partition(partitions[9].clone()).unwrap();
    assert!(looked_at() - before <= 2, "a drop");
    let before = looked_at();
    db.settle().unwrap();
    assert!(looked_at() - before <= PARTITIONS + 10, "a settled store is looked at once");
    check(&db);
}

/// More partitions than are looked at in a row.
#[test]
fn a_refresh_looks_at_all_partitions_in_steps() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let names: Vec<_> = (0..600).map(|i| format!("p{i}")).collect();
    let partitions = db.create_partitions(&names).unwrap();
    for round in 0..2 {
        for partition in &partitions {
            partition.put("key", [round; 50]).unwrap();
        }
        db.flush().unwrap();
    }
    env.sleep(std::time::Duration::from_secs(10_000));
    let rechecked = {
        let ledger = db.inner().version_set.ledger.lock();
        assert_eq!(ledger.recheck_after(Bound::Unbounded, 7).len(), 7);
        assert!(ledger.recheck.len() >= 600, "{}", ledger.recheck.len());
        ledger.recheck.len() as u64
    };
    let before = db.inner().version_set.ledger.lock().looked_at;
    db.inner().version_set.refresh_ledger_once(db.inner().upkeep.compaction_clock());
    let ledger = db.inner().version_set.ledger.lock();
    assert_eq!(ledger.looked_at - before, rechecked);
    assert_eq!((ledger.now, ledger.refreshed_at), (db.inner().upkeep.compaction_clock(), ledger.now));
    drop(ledger);
    check(&db);
}

#[test]
fn the_ledger_follows_merges_and_drops() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let names: Vec<_> = (0..20).map(|i| format!("p{i}")).collect();
    let partitions = db.create_partitions(&names).unwrap();
    for round in 0..9_u8 {
        for (i, partition) in partitions.iter().enumerate().filter(|(i, _)| i % 3 != usize::from(round % 3)) {
            (0..20).for_each(|key| partition.put(format!("{key:03}"), [round; 100]).unwrap());
            if i % 5 == 0 {
                partition.delete("003").unwrap();
            }
        }
        db.flush().unwrap();
        check(&db);
    }
    db.settle().unwrap();
    check(&db);
    for partition in partitions.into_iter().skip(4) {
        db.drop_partition(partition).unwrap();
        check(&db);
    }
    db.settle().unwrap();
    check(&db);
    assert!(!db.inner().version_set.ledger.lock().is_busy());
}

#[test]
fn partitions_take_turns() {
    let env = SimEnv::new(1);
    let opened = |k| {
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(4 << 20).runs_per_stage(k);
        options.shape(Shape::Forest).open("/store").unwrap()
    };
    let db = opened(8);
    let names: Vec<_> = (0..20).map(|i| format!("p{i}")).collect();
    let partitions = db.create_partitions(&names).unwrap();
    for round in 0..2 {
        for partition in &partitions {
            partition.put("key", [round; 50]).unwrap();
        }
        db.flush().unwrap();
    }
    drop(partitions);
    db.close().unwrap();
    let db = opened(2);
    let ledger = db.inner().version_set.ledger.lock();
    let due = |last| ledger.due(true, PartitionId(last)).into_iter().map(|id| id.0).collect::<Vec<_>>();
    let first = due(0)[0];
    assert!(due(0).iter().copied().eq(first..first + 20), "each is due: {:?}", due(0));
    let rotated = (first + 8..first + 20).chain(first..=first + 7);
    assert!(due(first + 7).iter().copied().eq(rotated), "{:?}", due(first + 7));
}

/// Before a stage, the stages come in order, and in each stage the partitions take turns.
#[test]
fn merges_before_a_stage_are_due_by_stage_and_in_turn() {
    let env = SimEnv::new(1);
    let db = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(4 << 20).open("/store").unwrap();
    let mut ledger = db.inner().version_set.ledger.lock();
    for (id, stage) in [(1, 1), (2, 2), (3, 1), (4, 255), (5, 1), (6, 2), (7, 3)] {
        ledger.set_due(PartitionId(id), [Some(stage); 2]);
    }
    let due = |last, before, order| {
        let due = ledger.due_before(false, PartitionId(last), (before, order));
        due.into_iter().map(|id| id.0).collect::<Vec<_>>()
    };
    let (upper, lowest) = (StageOrder::UppermostFirst, StageOrder::LowestFirst);
    assert_eq!(due(0, 3, upper), [1, 3, 5, 2, 6]);
    assert_eq!(due(1, 3, upper), [3, 5, 1, 2, 6]);
    assert_eq!(due(5, 3, upper), [1, 3, 5, 6, 2]);
    assert_eq!(due(3, 3, lowest), [6, 2, 5, 1, 3]);
    assert_eq!(due(u32::MAX, 4, lowest), [7, 2, 6, 1, 3, 5]);
    assert_eq!(due(0, 255, lowest).len(), 6);
    assert_eq!(due(0, 1, upper), [0; 0]);
}
