//! Writes into ranges that are mapped: any of their bytes may be there while they are made.

use super::*;

const LEN: usize = 100;

/// A machine that maps, and a file of 4096 reserved bytes of which those from 64 on are mapped.
fn mapped() -> (Arc<SimEnv>, Arc<dyn File>) {
    let env = SimEnv::new(1);
    env.set_maps_files(true);
    env.create_dir_all(Path::new("/d")).unwrap();
    let file = env.create_file(Path::new("/d/f")).unwrap();
    file.allocate(4096).unwrap();
    assert!(file.expect_small_writes(64..4096));
    (env, file)
}

#[test]
fn a_killed_process_leaves_any_bytes_of_a_store() {
    let mut kinds = BTreeSet::new();
    for seed in 0..200 {
        let (env, file) = mapped();
        env.machine.lock().lengths = fastrand::Rng::with_seed(seed);
        let calls = env.op_count();
        env.capture_at(&[calls + 1]);
        file.write_all_at(&[7; LEN], 64).unwrap();
        assert_eq!((env.op_count(), env.store_count()), (calls + 2, 1));
        let (_, captured) = env.captured().pop().expect("there is a call in the middle");
        assert!(captured.is_in_store() && !env.capture().is_in_store());
        let killed = captured.crash_image(CrashPolicy::ProcessKill, 1).read_file(Path::new("/d/f")).unwrap();
        let stored = &killed[64..64 + LEN];
        let count: usize = stored.iter().map(|&b| usize::from(b == 7)).sum();
        let is_prefix = stored[..count].iter().all(|&b| b == 7);
        kinds.insert((count == 0, count == LEN, is_prefix));
        assert_eq!(killed.iter().filter(|&&b| b != 0).count(), count, "no other byte");
        assert_eq!(&env.read_file(Path::new("/d/f")).unwrap()[64..64 + LEN], [7; LEN]);
    }
    for wanted in [(true, false, true), (false, false, true), (false, false, false)] {
        assert!(kinds.contains(&wanted), "{wanted:?} never came up in {kinds:?}");
    }
}

#[test]
fn an_error_of_a_store_ends_the_mapping() {
    for kind in [FaultKind::Eio, FaultKind::NoSpace, FaultKind::FailsYetDone] {
        let (env, file) = mapped();
        env.set_fault(Some(Fault { at_op: env.op_count(), kind }));
        assert!(file.write_all_at(&[7; LEN], 64).is_err());
        file.write_all_at(&[7; LEN], 64).unwrap();
        assert_eq!(env.store_count(), 1, "the second one is a plain write");
    }
}

#[test]
fn what_lies_outside_is_written_by_a_call() {
    let (env, file) = mapped();
    file.write_all_at(&[7; LEN], 0).unwrap();
    file.write_all_at(&[7; LEN], 4096 - 50).unwrap();
    assert_eq!(env.store_count(), 0);
    env.set_maps_files(false);
    assert!(!file.expect_small_writes(0..4096));
}
