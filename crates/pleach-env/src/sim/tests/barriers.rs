//! The outcomes that each barrier excludes, and that each missing barrier allows.

use super::*;

fn exists(env: &SimEnv, name: &str) -> bool {
    read(env, name).is_some()
}

#[test]
fn nothing_is_durable_without_barriers_and_everything_survives_a_kill() {
    let env = machine(1);
    put(&env, "f", b"bytes");
    assert_eq!(read(&env.crash_image(CrashPolicy::DurableOnly, 1), "f"), None);
    for policy in [CrashPolicy::Everything, CrashPolicy::ProcessKill] {
        assert_eq!(read(&env.crash_image(policy, 1), "f").as_deref(), Some(&b"bytes"[..]));
    }
    let killed = env.crash_image(CrashPolicy::ProcessKill, 1);
    assert_eq!(
        read(&killed.crash_image(CrashPolicy::DurableOnly, 1), "f"),
        None,
        "a kill makes nothing durable"
    );
    let cut = env.crash_image(CrashPolicy::Everything, 1);
    assert!(exists(&cut.crash_image(CrashPolicy::DurableOnly, 1), "f"));
}

#[test]
fn a_synced_file_without_synced_name_may_vanish_and_keeps_its_bytes_otherwise() {
    let env = machine(1);
    put(&env, "f", b"bytes").sync("test.file").unwrap();
    let seen = outcomes(&env, CrashPolicy::Random, |e| read(e, "f"));
    assert_eq!(seen, BTreeSet::from([None, Some(b"bytes".to_vec())]));
}

#[test]
fn what_both_barriers_secured_survives_every_crash() {
    let env = machine(1);
    put_durably(&env, "f", &[7; 10_000]);
    for policy in CrashPolicy::ALL {
        assert_eq!(outcomes(&env, policy, |e| read(e, "f")), BTreeSet::from([Some(vec![7; 10_000])]));
    }
}

#[test]
fn length_without_data_reads_zeros_and_data_without_length_is_cut() {
    let env = machine(1);
    let file = put_durably(&env, "f", b"");
    file.write_all_at(&[5; 512], 0).unwrap();
    let seen = outcomes(&env, CrashPolicy::Random, |e| read(e, "f").expect("its name is durable"));
    assert_eq!(seen, BTreeSet::from([vec![], vec![0; 512], vec![5; 512]]));
    let early = outcomes(&env, CrashPolicy::Adversarial, |e| read(e, "f").expect("its name is durable"));
    assert!(early.contains(&vec![0; 512]), "metadata first");
    let late = outcomes(&env, CrashPolicy::DataFirst, |e| read(e, "f").expect("its name is durable"));
    assert!(late.contains(&vec![]), "data first");
}

#[test]
fn an_input_may_be_removed_before_the_output_is_durable() {
    let env = machine(1);
    put_durably(&env, "input", &[1; 4096]);
    put_durably(&env, "other", b"");
    let output = put(&env, "output", &[1; 4096]);
    env.remove_file(&path("input")).unwrap();
    let other = env.open_file(&path("other"), OpenOptions { write: true, direct: false }).unwrap();
    other.write_all_at(b"x", 0).unwrap();
    other.sync("test.other").unwrap();

    let whole = |e: &SimEnv, name| read(e, name).is_some_and(|bytes| bytes == [1; 4096]);
    let look = |e: &SimEnv| (exists(e, "input"), exists(e, "output"), whole(e, "output"));
    let all = BTreeSet::from([
        (false, false, false),
        (false, true, false),
        (false, true, true),
        (true, false, false),
        (true, true, false),
        (true, true, true),
    ]);
    assert_eq!(outcomes(&env, CrashPolicy::Random, look), all);
    let early = outcomes(&env, CrashPolicy::Adversarial, look);
    assert!(early.contains(&(false, false, false)) && early.contains(&(false, true, false)), "both are lost");

    output.sync("test.output").unwrap();
    sync_dir(&env);
    for policy in CrashPolicy::ALL {
        assert_eq!(outcomes(&env, policy, look), BTreeSet::from([(false, true, true)]));
    }
}

#[test]
fn a_removal_without_barrier_may_come_late() {
    let env = machine(1);
    put_durably(&env, "f", b"old");
    env.remove_file(&path("f")).unwrap();
    assert!(!exists(&env, "f"));
    let seen = outcomes(&env, CrashPolicy::Random, |e| read(e, "f"));
    assert_eq!(seen, BTreeSet::from([None, Some(b"old".to_vec())]));
    sync_dir(&env);
    assert_eq!(outcomes(&env, CrashPolicy::Random, |e| exists(e, "f")), BTreeSet::from([false]));
}

#[test]
fn a_file_created_and_removed_between_barriers_may_come_back() {
    let env = machine(1);
    let file = put(&env, "f", &[1; 512]);
    file.sync("test.file").unwrap();
    env.remove_file(&path("f")).unwrap();
    drop(file); // Its last handle, while a crash could still name it.
    assert_eq!(
        outcomes(&env, CrashPolicy::Random, |e| read(e, "f")),
        BTreeSet::from([None, Some(vec![1; 512])])
    );
    sync_dir(&env);
    assert_eq!(outcomes(&env, CrashPolicy::Random, |e| read(e, "f")), BTreeSet::from([None]));
    assert_eq!(env.machine.lock().disk.inode_count(), 0);
}

#[test]
fn a_rename_is_atomic_but_persists_on_its_own() {
    let env = machine(1);
    put(&env, "tmp", b"new").sync("test.file").unwrap();
    env.rename(&path("tmp"), &path("target")).unwrap();
    let both = |e: &SimEnv| (read(e, "tmp"), read(e, "target"));
    let new = Some(b"new".to_vec());
    let seen = outcomes(&env, CrashPolicy::Random, both);
    assert_eq!(seen, BTreeSet::from([(None, None), (new.clone(), None), (None, new.clone())]));

    let env = machine(1);
    let old = Some(b"old".to_vec());
    put_durably(&env, "target", b"old");
    put_durably(&env, "tmp", b"new");
    env.rename(&path("tmp"), &path("target")).unwrap();
    let seen = outcomes(&env, CrashPolicy::Random, both);
    assert_eq!(seen, BTreeSet::from([(new.clone(), old), (None, new.clone())]));
    sync_dir(&env);
    assert_eq!(outcomes(&env, CrashPolicy::Random, both), BTreeSet::from([(None, new)]));
}

#[test]
fn a_removal_acts_only_on_the_file_it_meant() {
    let env = machine(1);
    put_durably(&env, "target", b"old");
    put_durably(&env, "tmp", b"new");
    env.rename(&path("tmp"), &path("target")).unwrap();
    env.remove_file(&path("target")).unwrap();
    let seen = outcomes(&env, CrashPolicy::Random, |e| (read(e, "tmp"), read(e, "target")));
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    assert_eq!(seen, BTreeSet::from([(new.clone(), old), (None, new), (None, None)]));
}

#[test]
fn the_biased_policies_mostly_do_what_they_say() {
    let env = machine(1);
    let file = put_durably(&env, "f", &[1; 512]);
    put_durably(&env, "g", b"");
    file.write_all_at(&[2; 512], 0).unwrap();
    env.remove_file(&path("g")).unwrap();
    let share = |policy, outcome: (u8, bool)| {
        let look = |seed| {
            let image = env.crash_image(policy, seed);
            (read(&image, "f").expect("durable")[0], exists(&image, "g"))
        };
        (0..SEEDS).filter(|seed| look(*seed) == outcome).count() * 100 / usize::try_from(SEEDS).unwrap()
    };
    assert!(share(CrashPolicy::Adversarial, (1, false)) > 70);
    assert!(share(CrashPolicy::DataFirst, (2, true)) > 70);
    for outcome in [(1, false), (1, true), (2, false), (2, true)] {
        assert!(share(CrashPolicy::Random, outcome) > 10);
    }
    file.write_all_at(&[3; 512], 0).unwrap();
    assert!(share(CrashPolicy::Between, (2, false)) > 60);
    assert!(share(CrashPolicy::Between, (3, false)) > 10);
}

#[test]
fn a_rename_over_a_file_may_precede_the_new_bytes() {
    let env = machine(1);
    put_durably(&env, "target", &[1; 512]);
    put(&env, "tmp", &[2; 512]);
    env.rename(&path("tmp"), &path("target")).unwrap();
    let seen =
        outcomes(&env, CrashPolicy::Random, |e| read(e, "target").expect("old or new, but always there"));
    assert_eq!(seen, BTreeSet::from([vec![], vec![0; 512], vec![1; 512], vec![2; 512]]));
}

#[test]
fn sectors_tear_but_never_within() {
    let env = machine(1);
    let file = put_durably(&env, "f", &[1; 2048]);
    file.write_all_at(&[2; 2048], 0).unwrap();
    file.write_all_at(&[3; 1024], 0).unwrap();
    let seen = outcomes(&env, CrashPolicy::Random, |e| {
        let bytes = read(e, "f").expect("its name is durable");
        let sectors = bytes.chunks(512).map(|sector| {
            assert!(sector.iter().all(|b| *b == sector[0]), "torn within a sector");
            sector[0]
        });
        sectors.collect::<Vec<_>>()
    });
    assert!(seen.contains(&vec![1, 1, 1, 1]) && seen.contains(&vec![3, 3, 2, 2]));
    assert!(seen.iter().any(|s| s[0] != s[1]) && seen.iter().any(|s| s[2] != s[3]), "mixed: {seen:?}");
    assert!(seen.iter().any(|s| s[0] == 2), "a version in between");
    assert!(seen.iter().all(|s| s[2] != 3));
}

#[test]
fn truncation_and_allocation_wait_for_the_sync() {
    let env = machine(1);
    let file = put_durably(&env, "f", &[1; 8192]);
    file.set_len(100).unwrap();
    file.set_len(8192).unwrap();
    assert_eq!(read(&env, "f").unwrap()[100..], [0; 8092]);
    let lens = outcomes(&env, CrashPolicy::Random, |e| read(e, "f").expect("durable").len());
    assert_eq!(lens, BTreeSet::from([100, 8192]));
    let tails = outcomes(&env, CrashPolicy::Random, |e| read(e, "f").expect("durable").get(5000).copied());
    assert_eq!(tails, BTreeSet::from([None, Some(0), Some(1)]));
    file.sync("test.file").unwrap();
    file.allocate(20_000).unwrap();
    file.allocate(10).unwrap();
    let lens = outcomes(&env, CrashPolicy::Random, |e| read(e, "f").expect("durable").len());
    assert_eq!(lens, BTreeSet::from([8192, 20_000]));
    file.sync("test.file").unwrap();
    assert_eq!(read(&env.crash_image(CrashPolicy::DurableOnly, 1), "f").unwrap().len(), 20_000);
}

#[test]
fn an_open_file_outlives_its_name_but_not_a_crash() {
    let env = machine(1);
    let file = put_durably(&env, "f", b"bytes");
    env.remove_file(&path("f")).unwrap();
    sync_dir(&env);
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"bytes");
    assert_eq!(env.used_space(), 4096);
    let held = env.capture();
    drop(file);
    assert_eq!(env.used_space(), 0);
    assert_eq!(env.machine.lock().disk.inode_count(), 0);
    assert!(!exists(&held.crash_image(CrashPolicy::Everything, 1), "f"));
}

#[test]
fn a_skipped_barrier_secures_nothing_but_keeps_its_number() {
    let env = machine(1);
    let file = put(&env, "f", b"bytes");
    let before = env.op_count();
    file.sync("test.file").unwrap();
    sync_dir(&env);
    assert_eq!(env.op_count(), before + 2);
    #[cfg(feature = "failpoints")]
    {
        let env = machine(1);
        let file = put(&env, "f", b"bytes");
        failpoint::with_skipped("test.dir", || sync_dir(&env));
        assert!(!exists(&env.crash_image(CrashPolicy::DurableOnly, 1), "f"));
        failpoint::with_skipped("test.file", || file.sync("test.file")).unwrap();
        sync_dir(&env);
        assert_eq!(read(&env.crash_image(CrashPolicy::DurableOnly, 1), "f").unwrap(), b"");
        assert_eq!(env.op_count(), before + 3);
    }
}

#[test]
fn captures_hold_the_moment_before_their_call() {
    let env = machine(1);
    let file = put_durably(&env, "f", b"");
    let start = env.op_count();
    env.capture_at(&(start..start + 6).collect::<Vec<_>>());
    let noted: Arc<Mutex<Vec<(u64, &str)>>> = Arc::default();
    let notes = Arc::clone(&noted);
    env.on_op(Box::new(move |number, name| notes.lock().push((number, name))));
    for byte in 1..=3 {
        file.write_all_at(&[byte; 512], 0).unwrap();
        file.sync("test.file").unwrap();
    }
    let captured = env.captured();
    let names = noted.lock().clone();
    assert_eq!(captured.len(), 6);
    for (i, (number, capture)) in captured.iter().enumerate() {
        let expected = (start + i as u64, ["write_at", "sync"][i % 2]);
        assert_eq!((*number, names[i]), (expected.0, expected));
        let synced = vec![u8::try_from(i / 2).unwrap(); if i < 2 { 0 } else { 512 }];
        assert_eq!(read(&capture.crash_image(CrashPolicy::DurableOnly, 1), "f").unwrap(), synced);
        let written = i.div_ceil(2);
        let all = read(&capture.crash_image(CrashPolicy::Everything, 1), "f").unwrap();
        assert_eq!(all, vec![u8::try_from(written).unwrap(); if written == 0 { 0 } else { 512 }]);
    }
}

#[test]
fn a_crash_image_starts_afresh_and_leaves_the_old_machine_alone() {
    let env = machine(1);
    put(&env, "f", b"bytes");
    let _lock = env.lock_file(&path("LOCK"), LockMode::Exclusive).unwrap().expect("nobody holds it");
    env.set_fault(Some(Fault { at_op: 0, kind: FaultKind::Eio }));
    let image = env.crash_image(CrashPolicy::Everything, 9);
    assert_eq!((image.op_count(), image.read_count()), (0, 0));
    assert!(image.lock_file(&path("LOCK"), LockMode::Exclusive).unwrap().is_some(), "locks do not survive");
    image.clear_faults();
    image.remove_file(&path("f")).unwrap();
    sync_dir(&image);
    assert!(exists(&env, "f"));
    assert_eq!(image.random_u64(), env.crash_image(CrashPolicy::Everything, 9).random_u64());
}

#[test]
fn a_punch_persists_early_or_late_and_surely_after_a_sync() {
    let env = machine(1);
    let file = put_durably(&env, "f", &[7; 8192]);
    file.punch(4096, 4096).unwrap();
    let is_hole = |e: &SimEnv| read(e, "f").expect("its name is durable")[4096..].iter().all(|b| *b == 0);
    let unsynced = outcomes(&env, CrashPolicy::Random, is_hole);
    assert_eq!(unsynced.len(), 2, "both the bytes and the hole are legal");
    file.sync("test.file").unwrap();
    assert_eq!(outcomes(&env, CrashPolicy::Random, is_hole), [true].into());
}
