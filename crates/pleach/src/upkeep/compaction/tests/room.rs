//! Room of conversions: no conversion waits for ever, and nothing stays wanted.

use super::*;

fn tight(env: &Arc<SimEnv>, k: usize) -> Options {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(8 << 20).memtable_bytes(64 << 10);
    options.sst_bytes(4 << 10).runs_per_stage(k).compaction_threads(1).separate_at(100).space_target(1.3)
}

fn pay(db: &Db, partition: PartitionId) {
    db.inner().version_set.state.load().version.tree(partition).unwrap().reads.note_values(1 << 50);
}

/// All its values are deleted while its conversion waits for room.
#[test]
fn a_partition_that_loses_its_values_waits_no_more() {
    let env = SimEnv::new(1);
    let db = tight(&env, 64).open(DIR).unwrap();
    let partition = db.default_partition();
    for number in (0..400u32).map(|number| number * 787 % 400) {
        partition.put(format!("{number:05}"), [1; 300]).unwrap();
    }
    db.flush().unwrap();
    for number in 0..400u32 {
        partition.delete(format!("{number:05}")).unwrap();
    }
    db.flush().unwrap();
    drop((partition, db));
    let db = tight(&env, 2).open(DIR).unwrap();
    pay(&db, DEFAULT);
    env.sleep(Duration::from_secs(60));
    let compactions = Arc::new(Compactions::new(Arc::clone(&db.inner().upkeep)));
    let mut worker = Worker(Arc::clone(&compactions));
    let mut waited = false;
    for _ in 0..200 {
        worker.step();
        waited |= !compactions.list.lock().waiting_for_room.is_empty();
    }
    assert!(waited);
    env.run_jobs();
    for _ in 0..10 {
        worker.step();
    }
    assert!(compactions.list.lock().waiting_for_room.is_empty(), "it waits for ever");
    assert_eq!(db.inner().upkeep.wanted_for_conversions(), 0);
}

/// A conversion waits for room, and then somebody requests a merge, or drops the partition meanwhile.
#[test]
fn a_request_leaves_no_space_wanted() {
    for drops in [true, false] {
        let env = SimEnv::new(1);
        let db = tight(&env, 64).space_target(4.0).open(DIR).unwrap();
        let partition = db.partition("other").unwrap();
        let id = PartitionId(1);
        for round in 0..2u8 {
            for number in (0..2000u32).map(|number| number * 787 % 2000) {
                partition.put(format!("{number:05}"), [round; 300]).unwrap();
            }
            db.flush().unwrap();
        }
        env.set_capacity(env.used_space() + (200 << 10));
        pay(&db, id);
        env.sleep(Duration::from_secs(60));
        let upkeep = &db.inner().upkeep;
        let compactions = Arc::new(Compactions::new(Arc::clone(upkeep)));
        let mut worker = Worker(Arc::clone(&compactions));
        if drops {
            worker.step();
            assert!(upkeep.wanted_for_conversions() > 0);
        }
        upkeep.background.lock().begin_wait(id, false);
        if drops {
            db.drop_partition(partition).unwrap();
        }
        let mut steps = 0;
        while upkeep.background.lock().to_compact.contains(id) {
            worker.step();
            steps += 1;
            assert!(steps < 1000);
            if steps == 3 {
                // There is room while the request is being fulfilled.
                env.set_capacity(1 << 30);
            }
        }
        upkeep.background.lock().end_wait(id);
        for _ in 0..100 {
            worker.step();
        }
        assert!(compactions.list.lock().waiting_for_room.is_empty());
        assert_eq!(upkeep.wanted_for_conversions(), 0, "nobody waits, drops: {drops}");
    }
}

/// A store whose partition 1 has values in no order, and scans have paid for a conversion for which the disk has no room.
fn paid_without_room(env: &Arc<SimEnv>) -> Db {
    let db = tight(env, 64).space_target(4.0).open(DIR).unwrap();
    let partition = db.partition("other").unwrap();
    for round in 0..2u8 {
        for number in (0..2000u32).map(|number| number * 787 % 2000) {
            partition.put(format!("{number:05}"), [round; 300]).unwrap();
            db.default_partition().put(format!("{round}{number:05}"), [round; 90]).unwrap();
        }
        db.flush().unwrap();
    }
    env.set_capacity(env.used_space() + (200 << 10));
    pay(&db, PartitionId(1));
    env.sleep(Duration::from_secs(60));
    db
}

/// Relocation cannot free enough, so the conversion gives up.
#[test]
fn a_conversion_that_gives_up_leaves_no_space_wanted() {
    let env = SimEnv::new(1);
    let db = paid_without_room(&env);
    let upkeep = &db.inner().upkeep;
    let compactions = Arc::new(Compactions::new(Arc::clone(upkeep)));
    let mut worker = Worker(Arc::clone(&compactions));
    worker.step();
    assert!(upkeep.wanted_for_conversions() > 0, "it waits");
    env.run_jobs();
    for _ in 0..10 {
        worker.step();
    }
    assert_eq!(db.stats().values_converted, 0, "it has given up");
    assert!(compactions.list.lock().waiting_for_room.is_empty());
    assert_eq!(upkeep.wanted_for_conversions(), 0, "nobody waits");
}

/// The disk gets room, and the conversion begins.
#[test]
fn a_conversion_that_begins_leaves_no_space_wanted() {
    let env = SimEnv::new(1);
    let db = paid_without_room(&env);
    let upkeep = &db.inner().upkeep;
    let mut worker = Worker(Arc::new(Compactions::new(Arc::clone(upkeep))));
    worker.step();
    assert!(upkeep.wanted_for_conversions() > 0, "it waits");
    env.set_capacity(1 << 30);
    let mut steps = 0;
    while db.stats().values_converted == 0 {
        worker.step();
        steps += 1;
        assert!(steps < 1000);
    }
    assert_eq!(upkeep.wanted_for_conversions(), 0, "nobody waits");
}

/// A request has to wait for a worker. Its merge would convert too, if there were room. It wants no space meanwhile: each
/// step of the workers would ask for it once more, and relocation would mark all values each time.
#[test]
fn a_request_that_waits_for_a_worker_wants_no_space() {
    let env = SimEnv::new(1);
    let db = paid_without_room(&env);
    let upkeep = &db.inner().upkeep;
    let mut worker = Worker(Arc::new(Compactions::new(Arc::clone(upkeep))));
    upkeep.background.lock().begin_wait(DEFAULT, false);
    // Only the requested merge begins: nothing else is due before scans are looked at.
    db.inner().version_set.state.load().version.tree(PartitionId(1)).unwrap().reads.reset_values();
    worker.step();
    assert_eq!((sums(upkeep).0, upkeep.wanted_for_conversions()), (1, 0), "the only worker is busy");
    pay(&db, PartitionId(1));
    upkeep.background.lock().begin_wait(PartitionId(1), false);
    let mut steps = 0;
    while sums(upkeep).0 == 1 {
        assert_eq!(upkeep.wanted_for_conversions(), 0, "step {steps}");
        worker.step();
        steps += 1;
        assert!(steps < 1000);
    }
    assert!(steps > 5, "{steps} steps");
}

/// Many partitions wait for room. Another one has a merge to do.
#[test]
fn partitions_that_wait_for_room_hold_up_no_merge() {
    for waiting in [100, 300] {
        let env = SimEnv::new(1);
        let db = tight(&env, 64).memtable_bytes(2 << 20).open(DIR).unwrap();
        let names: Vec<_> = (0..waiting).map(|number| format!("p{number:03}")).collect();
        let partitions = db.create_partitions(&names).unwrap();
        let bulk = db.partition("bulk").unwrap();
        let mut rng = fastrand::Rng::with_seed(5);
        for partition in &partitions {
            for _ in 0..20 {
                partition.put(format!("{:05}", rng.u32(..100_000)), [1; 110]).unwrap();
            }
        }
        db.flush().unwrap();
        for round in 0..8u8 {
            for number in 0..500u32 {
                bulk.put(format!("{number:05}"), [round; 300]).unwrap();
            }
            db.flush().unwrap();
        }
        drop((partitions, bulk, db));
        let db = tight(&env, 2).memtable_bytes(2 << 20).open(DIR).unwrap();
        let state = db.inner().version_set.state.load_full();
        let ids: Vec<_> = state.version.partitions().map(|(id, p)| (id, p.name.to_string())).collect();
        drop(state);
        for (id, name) in &ids {
            if name.starts_with('p') {
                pay(&db, *id);
            }
        }
        env.sleep(Duration::from_secs(60));
        let mut worker = Worker(Arc::new(Compactions::new(Arc::clone(&db.inner().upkeep))));
        let bulk = ids.iter().find(|(_, name)| name == "bulk").unwrap().0;
        let runs = || db.inner().version_set.state.load().version.tree(bulk).unwrap().runs.len();
        let before = runs();
        let mut steps = 0;
        while matches!(worker.step(), JobStep::Again) {
            steps += 1;
            assert!(steps < 10_000);
        }
        assert!(runs() < before, "{waiting}: it was never merged");
    }
}
