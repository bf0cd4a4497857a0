//! Faults, capacity and power.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use super::*;
use crate::job::JobStep;

fn next(env: &SimEnv, kind: FaultKind) -> Fault {
    Fault { at_op: env.op_count(), kind }
}

#[test]
fn a_failed_sync_loses_what_was_pending_for_good() {
    for kind in [FaultKind::SyncFails, FaultKind::Eio, FaultKind::NoSpace] {
        let env = machine(1);
        let file = put_durably(&env, "f", &[1; 1024]);
        file.write_all_at(&[2; 1024], 0).unwrap();
        env.set_fault(Some(next(&env, kind)));
        assert!(file.sync("test.file").is_err());
        file.sync("test.file").expect("the retry lies");
        assert_eq!(read(&env, "f").unwrap(), [2; 1024], "still readable");
        for policy in CrashPolicy::ALL {
            let image = env.crash_image(policy, 1).crash_image(CrashPolicy::Everything, 1);
            assert_eq!(read(&image, "f").unwrap(), [1; 1024], "{policy:?} after {kind:?}");
        }
        let killed = env.crash_image(CrashPolicy::ProcessKill, 1);
        assert_eq!(read(&killed, "f").unwrap(), [2; 1024], "the page cache survives a kill");

        file.write_all_at(&[3; 512], 0).unwrap();
        file.sync("test.file").unwrap();
        let kept = read(&env.crash_image(CrashPolicy::DurableOnly, 1), "f").unwrap();
        assert_eq!(
            (&kept[..512], &kept[512..]),
            (&[3; 512][..], &[1; 512][..]),
            "only what was written again"
        );
    }
}

#[test]
fn a_fault_strikes_its_call_and_no_other() {
    for at in 0..4 {
        for kind in [FaultKind::Eio, FaultKind::NoSpace] {
            let env = machine(1);
            let start = env.op_count();
            env.set_fault(Some(Fault { at_op: start + at, kind }));
            let file = env.create_file(&path("f"));
            let created = file.is_ok();
            let file = file.or_else(|_| env.create_file(&path("f"))).unwrap();
            let calls = [
                created,
                file.set_len(10).is_ok(),
                env.rename(&path("f"), &path("g")).is_ok(),
                env.sync_dir(Path::new("/d"), "test.dir").is_ok(),
            ];
            let offset = u64::from(!created);
            for (i, ok) in (0..).zip(calls) {
                let number = if i == 0 { i } else { i + offset };
                assert_eq!(ok, number != at, "call {i} with {kind:?} at {at}");
            }
            assert_eq!(env.faults_struck(), 1);
        }
    }
}

#[test]
fn struck_writes_are_short_or_fail_and_leave_a_prefix() {
    let mut lens = BTreeSet::new();
    for seed in 0..SEEDS {
        let env = machine(seed);
        let file = put_durably(&env, "f", b"");
        env.set_fault(Some(next(&env, FaultKind::ShortWrite)));
        let written = file.write_at(b"12345", 0).unwrap();
        assert!((1..5).contains(&written));
        assert_eq!(read(&env, "f").unwrap(), b"12345"[..written]);
        lens.insert(written);
        env.set_fault(Some(next(&env, FaultKind::ShortWrite)));
        file.write_all_at(b"12345", 0).unwrap();
        assert_eq!(read(&env, "f").unwrap(), b"12345");

        let other = put(&env, "g", b"");
        env.set_fault(Some(next(&env, FaultKind::Eio)));
        assert!(other.write_at(b"12345", 0).is_err());
        assert!(b"12345".starts_with(&read(&env, "g").unwrap()));
    }
    assert_eq!(lens.len(), 4);
}

#[test]
fn reads_have_their_own_counter_and_fault() {
    let env = machine(1);
    let file = put(&env, "f", b"12345");
    let ops = env.op_count();
    env.set_fault(Some(Fault { at_op: 1, kind: FaultKind::ReadEio }));
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, 0).unwrap(), 1);
    assert!(file.read_at(&mut byte, 0).is_err());
    assert_eq!(file.read_at(&mut byte, 0).unwrap(), 1);
    assert_eq!((env.read_count(), env.op_count()), (3, ops));
}

#[test]
fn a_full_disk_stays_full_until_cleared_but_can_be_overwritten_and_emptied() {
    let env = machine(1);
    let file = put_durably(&env, "f", &[1; 5000]);
    file.allocate(3 * 4096).unwrap();
    env.set_fault(Some(next(&env, FaultKind::NoSpaceFrom)));
    env.remove_file(&path("f")).unwrap();
    for _ in 0..2 {
        assert_eq!(env.create_file(&path("g")).err().map(|e| e.kind()), Some(ErrorKind::StorageFull));
        let beyond = file.write_at(&[2; 10], 3 * 4096).map_err(|e| e.kind());
        assert_eq!(beyond, Err(ErrorKind::StorageFull));
        assert_eq!(file.allocate(5 * 4096).map_err(|e| e.kind()), Err(ErrorKind::StorageFull));
        assert_eq!(env.available_space(Path::new("/d")).unwrap(), 0);
    }
    assert_eq!(file.write_at(&[2; 100], 3 * 4096 - 60).unwrap(), 60, "as much as is allocated");
    file.sync("test.file").unwrap();
    sync_dir(&env);
    env.clear_faults();
    env.create_file(&path("g")).unwrap();
}

#[test]
fn capacity_counts_blocks_and_freed_space_can_be_used_again() {
    let env = machine(1);
    env.set_capacity(4 * 4096);
    let space = || env.available_space(Path::new("/d")).unwrap();
    let file = put(&env, "f", &[1; 4097]);
    file.write_all_at(&[2; 4097], 0).unwrap();
    assert_eq!((space(), env.used_space()), (2 * 4096, 2 * 4096));
    let more = put(&env, "g", &[1; 2 * 4096]);
    assert_eq!(space(), 0);
    assert!(more.write_at(b"x", 2 * 4096).is_err());
    file.set_len(1).unwrap();
    assert_eq!(space(), 4096);
    assert_eq!(more.write_at(&[1; 8192], 2 * 4096).unwrap(), 4096, "as much as fits");
    file.allocate(4096).unwrap();
    assert_eq!(env.used_space(), 4 * 4096);
    drop(file);
    env.remove_file(&path("f")).unwrap();
    assert_eq!(space(), 4096);
    more.set_len(0).unwrap();
    more.allocate(3 * 4096).unwrap();
    assert_eq!(space(), 4096);
    more.set_len(4096).unwrap();
    assert_eq!(space(), 3 * 4096, "truncation gives back what was allocated");
    more.allocate(3 * 4096).unwrap();
    let image = env.crash_image(CrashPolicy::Everything, 1);
    assert_eq!(image.available_space(Path::new("/d")).unwrap(), 4096, "the limit is the disk's");
}

#[test]
fn without_power_every_call_fails() {
    let env = machine(1);
    let file = put_durably(&env, "f", b"bytes");
    let ops = env.op_count();
    env.power_off();
    let dir = Path::new("/d");
    let results = [
        file.read_at(&mut [0], 0).err(),
        file.write_at(b"x", 0).err(),
        file.sync("test.file").err(),
        file.len().err(),
        file.set_len(0).err(),
        file.allocate(0).err(),
        env.create_dir_all(Path::new("/e")).err(),
        env.list_dir(dir).err(),
        env.sync_dir(dir, "test.dir").err(),
        env.create_file(&path("g")).err(),
        env.open_file(&path("f"), OpenOptions::default()).err(),
        env.metadata(dir).err(),
        env.rename(&path("f"), &path("g")).err(),
        env.remove_file(&path("f")).err(),
        env.lock_file(&path("LOCK"), LockMode::Exclusive).err(),
        env.available_space(dir).err(),
    ];
    for error in results {
        assert_eq!(error.expect("it failed").to_string(), "simulated power off");
    }
    assert_eq!(env.op_count(), ops);
    drop(file);
    assert_eq!(read(&env.crash_image(CrashPolicy::DurableOnly, 1), "f").unwrap(), b"bytes");
}

#[test]
fn a_call_can_fail_although_it_was_done() {
    let env = machine(1);
    let file = put_durably(&env, "f", b"bytes");
    let strike = || env.set_fault(Some(next(&env, FaultKind::FailsYetDone)));
    let durable = |name: &str| read(&env.crash_image(CrashPolicy::DurableOnly, 1), name);

    strike();
    assert_eq!(file.write_at(b"B", 0).unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert_eq!(durable("f").unwrap(), b"Bytes");
    file.write_all_at(b"Y", 1).unwrap();
    strike();
    assert!(file.sync("test.file").is_err());
    assert_eq!(durable("f").unwrap(), b"BYtes");

    strike();
    assert!(env.create_file(&path("g")).is_err());
    assert!(env.metadata(&path("g")).unwrap().is_some());
    assert_eq!(durable("g"), None, "names wait for their barrier");
    strike();
    assert!(env.sync_dir(Path::new("/d"), "test.dir").is_err());
    assert_eq!(durable("g").unwrap(), b"");
    strike();
    assert!(env.rename(&path("g"), &path("h")).is_err());
    assert!(env.metadata(&path("h")).unwrap().is_some());
    strike();
    assert!(env.remove_file(&path("h")).is_err());
    assert!(env.metadata(&path("h")).unwrap().is_none());
}

#[test]
fn handles_are_limited_and_opens_have_a_counter_of_their_own() {
    let is_too_many =
        |error: Option<io::Error>| error.and_then(|e| e.raw_os_error()) == Some(Errno::MFILE.raw_os_error());
    let env = machine(1);
    let dir = Path::new("/d");
    let file = put_durably(&env, "f", b"bytes");
    env.set_handle_limit(Some(2));
    let lock = env.lock_file(&path("LOCK"), LockMode::Exclusive).unwrap();
    assert_eq!(env.handle_count(), 2);
    assert!(is_too_many(env.create_file(&path("g")).err()));
    assert!(is_too_many(env.open_file(&path("f"), OpenOptions::default()).err()));
    assert!(is_too_many(env.list_dir(dir).err()));
    assert!(is_too_many(env.sync_dir(dir, "test.dir").err()));
    assert!(is_too_many(env.lock_file(&path("OTHER"), LockMode::Shared).err()));
    assert_eq!(env.metadata(&path("g")).unwrap(), None);
    file.write_all_at(b"B", 0).unwrap();
    drop(lock);
    env.sync_dir(dir, "test.dir").unwrap();
    env.set_handle_limit(None);

    env.set_fault(Some(next(&env, FaultKind::TooManyFiles)));
    assert!(is_too_many(env.create_file(&path("g")).err()));
    env.set_fault(Some(next(&env, FaultKind::TooManyFiles)));
    file.write_all_at(b"b", 0).unwrap();
    env.set_fault(Some(Fault { at_op: env.open_count() + 1, kind: FaultKind::OpenTooManyFiles }));
    env.open_file(&path("f"), OpenOptions::default()).unwrap();
    assert!(is_too_many(env.open_file(&path("f"), OpenOptions::default()).err()));
    env.open_file(&path("f"), OpenOptions::default()).unwrap();
}

#[test]
fn a_planted_panic_strikes_only_a_job() {
    let env = machine(1);
    env.set_fault(Some(next(&env, FaultKind::JobPanics)));
    put(&env, "f", b"");
    let weak = Arc::downgrade(&env);
    let caught: Arc<Mutex<Option<String>>> = Arc::default();
    let message = Arc::clone(&caught);
    let job = move || {
        let env = weak.upgrade().expect("the machine steps this job");
        let panic = catch_unwind(AssertUnwindSafe(|| drop(env.create_file(&path("g")))));
        *message.lock() = panic.err().and_then(|payload| payload.downcast_ref::<String>().cloned());
        JobStep::Idle
    };
    let handle = env.spawn_job("test", Box::new(job)).unwrap();
    env.set_fault(Some(next(&env, FaultKind::JobPanics)));
    handle.waker().wake();
    env.run_jobs();
    let message = caught.lock().take().expect("the call of the job panicked");
    assert!(message.starts_with(JOB_PANIC), "{message}");
    assert!(env.metadata(&path("g")).unwrap().is_none());
}

#[test]
fn a_read_only_disk_can_be_read_and_shared_and_nothing_else() {
    let env = machine(1);
    let file = put_durably(&env, "f", b"bytes");
    env.set_read_only(true);
    let dir = Path::new("/d");
    let refused = [
        file.write_at(b"x", 0).err(),
        file.sync("test.file").err(),
        file.set_len(0).err(),
        file.allocate(0).err(),
        env.create_dir_all(Path::new("/e")).err(),
        env.sync_dir(dir, "test.dir").err(),
        env.create_file(&path("g")).err(),
        env.open_file(&path("f"), OpenOptions { write: true, direct: false }).err(),
        env.rename(&path("f"), &path("g")).err(),
        env.remove_file(&path("f")).err(),
        env.lock_file(&path("LOCK"), LockMode::Exclusive).err(),
    ];
    for error in refused {
        assert_eq!(error.expect("it failed").kind(), ErrorKind::ReadOnlyFilesystem);
    }
    let _lock = env.lock_file(&path("LOCK"), LockMode::Shared).unwrap().expect("nobody holds it");
    env.create_dir_all(dir).unwrap();
    assert_eq!(env.list_dir(dir).unwrap().len(), 1);
    file.read_exact_at(&mut [0; 5], 0).unwrap();
    env.open_file(&path("f"), OpenOptions::default()).unwrap();
    env.set_read_only(false);
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(read(&env, "f").unwrap(), b"xytes");
}

#[test]
fn crash_after_lets_its_call_succeed_and_no_other() {
    let env = machine(1);
    let file = put_durably(&env, "f", b"");
    env.set_fault(Some(next(&env, FaultKind::CrashAfter)));
    assert!(!env.is_powered_off());
    file.write_all_at(b"x", 0).unwrap();
    assert!(env.is_powered_off());
    env.clear_faults();
    assert!(file.read_at(&mut [0], 0).is_err());
    assert_eq!(read(&env.crash_image(CrashPolicy::Everything, 1), "f").unwrap(), b"x");
}

#[test]
fn a_hook_may_call_the_machine_and_cut_its_power() {
    let env = machine(1);
    let last = env.op_count() + 1;
    let this = Arc::downgrade(&env);
    env.on_op(Box::new(move |number, _| {
        let env = this.upgrade().expect("the machine is calling");
        assert_eq!(env.op_count(), number + 1);
        env.metadata(Path::new("/d")).unwrap();
        if number == last {
            env.power_off();
        }
    }));
    let file = env.create_file(&path("f")).unwrap();
    assert!(file.write_at(b"x", 0).is_err());
    assert_eq!(read(&env, "f").unwrap(), b"");
}

#[test]
fn damage_is_durable_at_once_and_not_counted() {
    let env = machine(1);
    let file = put(&env, "f", b"bytes");
    let ops = env.op_count();
    env.write_file(&path("f"), b"damage");
    env.write_file(&path("new/g"), b"more");
    assert_eq!(env.op_count(), ops);
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"damage", "open handles see it");
    let image = env.crash_image(CrashPolicy::DurableOnly, 1);
    assert_eq!(read(&image, "f").unwrap(), b"damage");
    assert_eq!(image.file_names(&path("new")), ["g"]);
    assert_eq!(image.file_names(Path::new("/d")), ["f"]);
    assert!(image.file_names(Path::new("/nowhere")).is_empty());
}

#[test]
fn unreadable_bytes_fail_the_reads_of_them_and_no_other() {
    let env = machine(1);
    let file = put_durably(&env, "f", &[1; 4096]);
    put_durably(&env, "g", &[2; 4096]);
    env.add_unreadable(&path("f"), 1000..1010);
    let before = env.read_bytes();
    for (bytes, is_readable) in [(0..1000, true), (1010..4096, true), (990..1001, false), (1009..1011, false)]
    {
        let mut buf = vec![0; usize::try_from(bytes.end - bytes.start).unwrap()];
        let read = file.read_exact_at(&mut buf, bytes.start);
        assert_eq!(
            read.err().and_then(|e| e.raw_os_error()),
            (!is_readable).then(|| Errno::IO.raw_os_error())
        );
    }
    assert_eq!(env.read_bytes() - before, 1000 + 3086 + 11 + 2);
    assert!(read(&env, "g").is_some());
    assert!(read(&env.crash_image(CrashPolicy::Everything, 1), "f").is_some());
    env.clear_faults();
    assert!(read(&env, "f").is_some());
}
