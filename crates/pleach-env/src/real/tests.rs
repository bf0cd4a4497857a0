//! Tests of what only the real machine has: permissions, threads, the operating system's locks.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use super::*;
use crate::job::JobStep;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).expect("the path exists").permissions().mode() & 0o777
}

/// The process's umask. The system call that returns it also changes it, so it is read from `/proc`.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:")).expect("Linux tells it");
    u32::from_str_radix(line.trim(), 8).expect("it is octal")
}

#[test]
fn files_and_directories_obey_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let nested = dir.path().join("a/b/c");
    env.create_dir_all(&nested).unwrap();
    env.create_dir_all(&nested).unwrap();
    env.create_file(&nested.join("f")).unwrap();
    env.lock_file(&nested.join("LOCK"), LockMode::Exclusive).unwrap().expect("nobody holds it");
    let umask = umask();
    assert_eq!(mode_of(&dir.path().join("a")), 0o777 & !umask);
    assert_eq!(mode_of(&nested), 0o777 & !umask);
    assert_eq!(mode_of(&nested.join("f")), 0o666 & !umask);
    assert_eq!(mode_of(&nested.join("LOCK")), 0o666 & !umask);
}

#[test]
fn symbolic_links_and_directories_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    env.create_file(&dir.path().join("target")).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("target"), &link).unwrap();
    for write in [false, true] {
        assert!(env.open_file(&link, OpenOptions { write, direct: false }).is_err());
        assert!(env.open_file(dir.path(), OpenOptions { write, direct: false }).is_err());
    }
    assert!(env.lock_file(&link, LockMode::Exclusive).is_err());
    assert!(env.lock_file(&link, LockMode::Shared).is_err());
    assert!(!env.metadata(&link).unwrap().expect("the link exists").is_file);
    assert!(env.create_dir_all(&dir.path().join("target/below")).is_err());
}

#[test]
fn lock_excludes_a_second_one_in_the_same_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let env = RealEnv::new();
    let lock = env.lock_file(&path, LockMode::Exclusive).unwrap().expect("nobody holds it");
    assert!(env.lock_file(&path, LockMode::Exclusive).unwrap().is_none());
    assert!(RealEnv::new().lock_file(&path, LockMode::Exclusive).unwrap().is_none());
    drop(lock);
    assert!(env.lock_file(&path, LockMode::Exclusive).unwrap().is_some());
    assert!(path.exists(), "the lock file is never removed");
}

#[test]
fn readers_of_a_store_without_a_lock_file_exclude_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let env = RealEnv::new();
    let readers = [(); 2].map(|()| env.lock_file(&path, LockMode::Shared).unwrap().expect("no writer"));
    assert!(!path.exists(), "a reader creates nothing");
    assert!(env.lock_file(&path, LockMode::Exclusive).unwrap().is_none());
    assert!(path.exists(), "the writer does");
    assert!(env.lock_file(&path, LockMode::Exclusive).unwrap().is_none(), "the readers are still there");
    let late = env.lock_file(&path, LockMode::Shared).unwrap().expect("the writer went away");
    drop(readers);
    assert!(env.lock_file(&path, LockMode::Exclusive).unwrap().is_none());
    drop(late);
    assert!(env.lock_file(&path, LockMode::Exclusive).unwrap().is_some());
}

#[test]
fn a_shared_lock_needs_no_permission_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let env = RealEnv::new();
    drop(env.lock_file(&path, LockMode::Exclusive).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    assert!(env.lock_file(&path, LockMode::Shared).unwrap().is_some());
    assert!(env.lock_file(&dir.path().join("none"), LockMode::Shared).unwrap().is_some());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!dir.path().join("none").exists());
}

#[test]
fn direct_open_reads_what_was_written_or_falls_back() {
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let path = dir.path().join("f");
    let file = env.create_file(&path).unwrap();
    file.write_all_at(&[7; 8192], 0).unwrap();
    file.sync("test").unwrap();
    file.forget(0, 8192);
    file.forget(0, 0);
    let direct = env.open_file(&path, OpenOptions { write: false, direct: true }).unwrap();
    let mut space = vec![0u8; 3 * 4096];
    let start = space.as_ptr().align_offset(4096);
    direct.read_exact_at(&mut space[start..start + 4096], 4096).unwrap();
    assert_eq!(space[start..start + 4096], [7; 4096]);
}

#[test]
fn every_wake_is_followed_by_a_step() {
    let env = RealEnv::new();
    let (request, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let job = {
        let (request, seen) = (Arc::clone(&request), Arc::clone(&seen));
        move || {
            seen.store(request.load(Ordering::SeqCst), Ordering::SeqCst);
            JobStep::Idle
        }
    };
    let handle = env.spawn_job("test-wakes", Box::new(job)).unwrap();
    let waker = handle.waker();
    for round in 1..=20_000 {
        request.store(round, Ordering::SeqCst);
        waker.wake();
        while round % 7 == 0 && seen.load(Ordering::SeqCst) != round {
            std::thread::yield_now();
        }
    }
    while seen.load(Ordering::SeqCst) != 20_000 {
        std::thread::yield_now();
    }
}

#[test]
fn a_job_sleeps_until_woken_and_stops_with_its_handle() {
    let env = RealEnv::new();
    let (send, receive) = mpsc::channel();
    let mut left = 3;
    let job = move || {
        left -= 1;
        send.send(left).expect("the test listens");
        if left == 0 { JobStep::Idle } else { JobStep::Again }
    };
    let handle = env.spawn_job("test-sleeps", Box::new(job)).unwrap();
    assert!(receive.recv_timeout(Duration::from_millis(20)).is_err());
    handle.waker().wake();
    assert_eq!(receive.iter().take(3).collect::<Vec<_>>(), [2, 1, 0]);
    let waker = handle.waker();
    drop(handle);
    waker.wake();
    assert!(receive.recv().is_err(), "the job is dropped with its handle");
}

#[test]
fn a_job_that_is_idle_for_a_time_steps_again() {
    let env = RealEnv::new();
    let steps = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&steps);
    let job = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        JobStep::IdleFor(Duration::from_millis(1))
    };
    let handle = env.spawn_job("test-times", Box::new(job)).unwrap();
    handle.waker().wake();
    while steps.load(Ordering::SeqCst) < 5 {
        std::thread::yield_now();
    }
}

#[test]
fn a_busy_job_stops_and_a_job_may_drop_its_own_handle() {
    let env = RealEnv::new();
    let busy = env.spawn_job("test-busy", Box::new(|| JobStep::Again)).unwrap();
    busy.waker().wake();
    drop(busy);

    let slot: Arc<parking_lot::Mutex<Option<JobHandle>>> = Arc::default();
    let (send, receive) = mpsc::channel();
    let own = Arc::clone(&slot);
    let job = move || {
        drop(own.lock().take());
        send.send(()).expect("the test listens");
        JobStep::Again
    };
    let handle = env.spawn_job("test-self", Box::new(job)).unwrap();
    let waker = handle.waker();
    *slot.lock() = Some(handle);
    waker.wake();
    receive.recv().unwrap();
    assert!(receive.recv().is_err(), "it ends after the step that dropped the handle");
}

#[test]
fn dropping_the_handle_of_a_panicked_job_is_quiet() {
    let env = RealEnv::new();
    let handle = env.spawn_job("test-panics", Box::new(|| panic!("intended by the test"))).unwrap();
    handle.waker().wake();
    drop(handle);
}

#[test]
fn clock_is_monotonic_and_random_numbers_differ() {
    let env = RealEnv::new();
    let before = env.now();
    env.sleep(Duration::from_millis(2));
    assert!(env.now() >= before + Duration::from_millis(2));
    assert_ne!(env.random_u64(), env.random_u64());
}

/// A file whose first mebibyte is mapped; `None` where the file system cannot.
fn mapped(dir: &Path) -> Option<Arc<dyn File>> {
    let file = RealEnv::new().create_file(&dir.join("mapped")).unwrap();
    file.allocate(1 << 20).unwrap();
    let is_mapped = file.expect_small_writes(0..1 << 20);
    if !is_mapped {
        println!("skipped: {} is on a file system that maps nothing", dir.display());
    }
    is_mapped.then_some(file)
}

#[test]
fn stores_and_calls_write_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = mapped(dir.path()) else { return };
    let mut expected = vec![0; 1 << 20];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut at = 0;
    while at < expected.len() {
        // Now and then a long one, and one at the beginning, as of a stamp.
        let len = if rng.u8(..20) == 0 { rng.usize(..100_000) } else { rng.usize(1..300) };
        let bytes: Vec<u8> =
            std::iter::repeat_with(|| rng.u8(..)).take(len.min(expected.len() - at)).collect();
        for offset in [at, rng.usize(..100)] {
            file.write_all_at(&bytes[..bytes.len().min(expected.len() - offset)], offset as u64).unwrap();
            let end = expected.len().min(offset + bytes.len());
            expected[offset..end].copy_from_slice(&bytes[..end - offset]);
        }
        at += bytes.len();
    }
    file.sync("test.sync").unwrap();
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == expected, "the file holds other bytes");
    // Behind the mapped range, and where nothing is mapped any more.
    file.write_all_at(b"behind", 1 << 20).unwrap();
    file.expect_small_writes(0..0);
    file.write_all_at(b"again", 0).unwrap();
    assert_eq!(file.len().unwrap(), (1 << 20) + 6);
}

/// One thread writes and maps the next range, as the log does; another asks for pages all the time, also while nothing is mapped.
#[test]
fn pages_are_asked_for_while_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = mapped(dir.path()) else { return };
    let done = AtomicBool::new(false);
    let (record, mut at) = ([7; 150], 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                file.prepare_small_writes();
            }
        });
        for mebibyte in 1..=8u64 {
            let end = mebibyte << 20;
            file.allocate(end).unwrap();
            if mebibyte % 3 == 0 {
                file.expect_small_writes(0..0);
            } else {
                assert!(file.expect_small_writes(end - (1 << 20)..end), "as the first range");
            }
            while at + record.len() as u64 <= end {
                file.write_all_at(&record, at).unwrap();
                at += record.len() as u64;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let mut found = vec![0; usize::try_from(at).unwrap()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found.iter().all(|&byte| byte == 7), "a record is missing");
}

#[test]
fn what_is_not_reserved_is_not_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let file = RealEnv::new().create_file(&dir.path().join("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    assert!(!file.expect_small_writes(0..1 << 20), "a hole has no space of its own");
    file.allocate(8192).unwrap();
    if !file.expect_small_writes(0..1 << 20) {
        return; // The file system maps nothing.
    }
    file.allocate(1 << 20).unwrap();
    file.punch(0, 4096).unwrap();
    file.write_all_at(&[7; 100], 0).expect("by a call, which takes new space");
}

#[test]
fn a_store_into_a_file_that_was_cut_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = mapped(dir.path()) else { return };
    file.write_all_at(&[7; 100], 4000).unwrap();
    // By another program.
    let options = OpenOptions { write: true, direct: false };
    RealEnv::new().open_file(&dir.path().join("mapped"), options).unwrap().set_len(10).unwrap();
    let error = file.write_all_at(&[7; 100], 5000).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    file.write_all_at(&[7; 100], 5000).expect("from now on by calls");
    assert_eq!(file.len().unwrap(), 5100);
}

/// A file of 256 KiB with other bytes in each page, whose reads are copies; and its bytes.
fn mapped_for_reads(dir: &Path) -> (Arc<dyn File>, Vec<u8>) {
    let path = dir.join("read");
    let mut rng = fastrand::Rng::with_seed(1);
    let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(1..)).take(256 << 10).collect();
    let file = RealEnv::new().create_file(&path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    let file = RealEnv::new().with_mapped_reads().open_file(&path, OpenOptions::default()).unwrap();
    file.expect_random_reads();
    (file, bytes)
}

#[test]
fn copies_and_calls_read_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (file, bytes) = mapped_for_reads(dir.path());
    let mut rng = fastrand::Rng::with_seed(2);
    for _ in 0..2000 {
        let at = rng.usize(..bytes.len());
        let len_max = if rng.bool() { 5000 } else { 100_000 };
        let len = rng.usize(..len_max);
        let mut found = vec![0; len];
        let read = file.read_at(&mut found, at as u64).unwrap();
        assert_eq!(read, len.min(bytes.len() - at), "{len} bytes at {at}");
        assert_eq!(found[..read], bytes[at..at + read], "{len} bytes at {at}");
    }
    assert_eq!(file.read_at(&mut [0; 10], bytes.len() as u64).unwrap(), 0);
}

#[test]
fn a_mapped_file_that_is_to_be_forgotten_leaves_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let (mapped, bytes) = mapped_for_reads(dir.path());
    let options = OpenOptions { write: true, direct: false };
    let other = RealEnv::new().open_file(&dir.path().join("read"), options).unwrap();
    other.sync("test.sync").unwrap();
    let is_resident = || other.read_resident_at(&mut [0; 4096], 64 << 10);
    other.forget(0, bytes.len() as u64);
    if is_resident() {
        return println!("skipped: {} is on a file system that forgets nothing", dir.path().display());
    }
    for at in (0..bytes.len() as u64).step_by(4096) {
        mapped.read_exact_at(&mut [0; 4096], at).unwrap();
    }
    assert!(is_resident());
    mapped.forget(4096, bytes.len() as u64);
    assert!(!is_resident());
    let mut found = vec![0; 4096];
    mapped.read_exact_at(&mut found, 64 << 10).unwrap();
    assert_eq!(found, bytes[64 << 10..(64 << 10) + 4096]);
}

/// By another program, while threads read: each read has the right bytes or is short, and none ends the process.
#[test]
fn a_mapped_file_that_is_cut_is_read_by_calls() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..10 {
        let (file, bytes) = mapped_for_reads(dir.path());
        let path = dir.path().join("read");
        let kept: usize = 40 << 10;
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (file, bytes) = (&file, &bytes);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(round * 3 + thread);
                    for _ in 0..3000 {
                        let at = rng.usize(..kept - 4096);
                        let mut found = [0; 4096];
                        assert_eq!(file.read_at(&mut found, at as u64).unwrap(), 4096);
                        assert_eq!(found, bytes[at..at + 4096]);
                        let behind = kept + 4096 * rng.usize(..50);
                        let read = file.read_at(&mut found, behind as u64).unwrap();
                        assert_eq!(found[..read], bytes[behind..behind + read]);
                    }
                });
            }
            // The handler meets places that others take and leave.
            scope.spawn(|| {
                for _ in 0..300 {
                    let other = RealEnv::new().with_mapped_reads();
                    other.open_file(&path, OpenOptions::default()).unwrap().expect_random_reads();
                }
            });
            let options = OpenOptions { write: true, direct: false };
            let cut = RealEnv::new().open_file(&path, options).unwrap();
            cut.set_len(kept as u64).unwrap();
        });
        assert_eq!(file.read_at(&mut [0; 10], kept as u64).unwrap(), 0);
        RealEnv::new().remove_file(&path).unwrap();
    }
}

/// Variable of the child process below.
const DIES: &str = "PLEACH_TEST_DIES_OF_SIGBUS";

#[test]
#[expect(unsafe_code, reason = "a mapping that is not the environment's")]
fn a_bus_error_elsewhere_still_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().unwrap();
    if mapped(dir.path()).is_none() {
        return;
    }
    if std::env::var_os(DIES).is_some() {
        let file = fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.path().join("other"))
            .unwrap();
        file.set_len(4096).unwrap();
        let flags = rustix::mm::MapFlags::SHARED;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), 4096, rustix::mm::ProtFlags::READ, flags, &file, 0)
        };
        file.set_len(0).unwrap();
        // SAFETY: the address is mapped; that the read fails is what is tested.
        let byte = unsafe { start.unwrap().cast::<u8>().read_volatile() };
        unreachable!("read {byte}");
    }
    let name = "real::tests::a_bus_error_elsewhere_still_ends_the_process";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name]).env(DIES, "1").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
}
