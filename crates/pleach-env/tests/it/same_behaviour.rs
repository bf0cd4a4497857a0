//! One suite, all machines: what the layers above may rely on holds on the real one, in memory and in the simulator.

use std::io::{ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pleach_env::{BoundedEnv, Env, File, JobStep, LockMode, MemEnv, OpenOptions, RealEnv, SimEnv};

type Machine = (&'static str, fn() -> Arc<dyn Env>);

/// Runs one case on all machines, and as a store sees them, each with an empty directory.
fn on_all(case: impl Fn(&dyn Env, &Path) -> Result<()>) {
    let machines: [Machine; 3] = [
        ("the real machine", || Arc::new(RealEnv::new())),
        ("the memory", || Arc::new(MemEnv::new())),
        ("the simulator", || SimEnv::new(1)),
    ];
    for (name, machine) in machines {
        for is_bounded in [false, true] {
            let temporary = tempfile::tempdir().expect("a temporary directory");
            let mut env = machine();
            if is_bounded {
                env = Arc::new(BoundedEnv::new(env));
            }
            let dir = if name == "the real machine" { temporary.path() } else { Path::new("/d") };
            env.create_dir_all(dir).expect("a directory");
            case(&*env, dir).unwrap_or_else(|e| panic!("{name}, bounded: {is_bounded}: {e}"));
        }
    }
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

fn contents(file: &dyn File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.len()?).expect("a short file")];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

const READ: OpenOptions = OpenOptions { write: false, direct: false };
const WRITE: OpenOptions = OpenOptions { write: true, direct: false };

#[test]
fn writes_are_read_back_and_holes_are_zeros() {
    on_all(|env, dir| {
        let file = env.create_file(&dir.join("f"))?;
        assert!(file.is_empty()?);
        file.write_all_at(b"world", 5000)?;
        file.write_all_at(b"hello", 0)?;
        file.write_all_at(b"", 9000)?;
        assert_eq!(file.len()?, 5005);
        file.sync("test.file")?;
        env.sync_dir(dir, "test.dir")?;
        let again = env.open_file(&dir.join("f"), READ)?;
        let bytes = contents(&*again)?;
        assert_eq!((&bytes[..5], &bytes[5000..]), (&b"hello"[..], &b"world"[..]));
        assert!(bytes[5..5000].iter().all(|b| *b == 0));
        Ok(())
    });
}

#[test]
fn reads_stop_at_the_end() {
    on_all(|env, dir| {
        let file = env.create_file(&dir.join("f"))?;
        file.write_all_at(b"12345", 0)?;
        let mut buf = [0; 8];
        assert_eq!(file.read_at(&mut buf, 3)?, 2);
        assert_eq!(&buf[..2], b"45");
        assert_eq!(file.read_at(&mut buf, 5)?, 0);
        assert_eq!(file.read_at(&mut buf, 1 << 40)?, 0);
        assert_eq!(file.read_at(&mut [], 0)?, 0);
        assert_eq!(kind(file.read_exact_at(&mut buf, 0)), Some(ErrorKind::UnexpectedEof));
        Ok(())
    });
}

#[test]
fn lengths_shrink_grow_and_are_allocated() {
    on_all(|env, dir| {
        let file = env.create_file(&dir.join("f"))?;
        file.write_all_at(&[1; 5000], 0)?;
        file.set_len(10)?;
        file.set_len(20)?;
        assert_eq!(contents(&*file)?, [[1; 10], [0; 10]].concat());
        file.allocate(10_000)?;
        file.allocate(5)?;
        file.allocate(0)?;
        assert_eq!(file.len()?, 10_000);
        assert_eq!(contents(&*file)?[..20], [[1; 10], [0; 10]].concat());
        assert!(contents(&*file)?[20..].iter().all(|b| *b == 0));
        file.forget(0, 10_000);
        file.sync("test.file")
    });
}

#[test]
fn a_name_is_created_once_and_opened_only_if_there() {
    on_all(|env, dir| {
        let path = dir.join("f");
        assert_eq!(kind(env.open_file(&path, READ)), Some(ErrorKind::NotFound));
        assert_eq!(env.metadata(&path)?, None);
        env.create_file(&path)?;
        assert_eq!(kind(env.create_file(&path)), Some(ErrorKind::AlreadyExists));
        assert_eq!(kind(env.create_file(dir)), Some(ErrorKind::AlreadyExists));
        assert_eq!(kind(env.create_file(&dir.join("none/f"))), Some(ErrorKind::NotFound));
        assert!(env.open_file(dir, READ).is_err() && env.open_file(dir, WRITE).is_err());
        let metadata = env.metadata(&path)?.expect("just created");
        assert_eq!((metadata.len, metadata.is_file), (0, true));
        assert!(!env.metadata(dir)?.expect("it exists").is_file);
        Ok(())
    });
}

#[test]
fn a_handle_opened_for_reading_refuses_changes() {
    on_all(|env, dir| {
        env.create_file(&dir.join("f"))?.write_all_at(b"bytes", 0)?;
        let file = env.open_file(&dir.join("f"), READ)?;
        assert!(file.write_all_at(b"x", 0).is_err());
        assert!(file.set_len(0).is_err());
        assert_eq!(contents(&*file)?, b"bytes");
        env.open_file(&dir.join("f"), WRITE)?.write_all_at(b"B", 0)?;
        assert_eq!(contents(&*file)?, b"Bytes", "handles share the file");
        Ok(())
    });
}

#[test]
fn renames_replace_and_removed_files_stay_readable() {
    on_all(|env, dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        let replaced = env.create_file(&b)?;
        replaced.write_all_at(b"old", 0)?;
        let file = env.create_file(&a)?;
        file.write_all_at(b"new", 0)?;
        env.rename(&a, &b)?;
        env.rename(&b, &b)?;
        assert_eq!(kind(env.rename(&a, &b)), Some(ErrorKind::NotFound));
        assert_eq!(env.metadata(&a)?, None);
        assert_eq!(contents(&*env.open_file(&b, READ)?)?, b"new");
        assert_eq!(contents(&*replaced)?, b"old");
        env.remove_file(&b)?;
        assert_eq!(kind(env.remove_file(&b)), Some(ErrorKind::NotFound));
        env.sync_dir(dir, "test.dir")?;
        assert_eq!(contents(&*file)?, b"new");
        assert_eq!(env.list_dir(dir)?, []);
        Ok(())
    });
}

#[test]
fn directories_nest_and_list_their_names_in_order() {
    on_all(|env, dir| {
        let deep = dir.join("x/y");
        env.create_dir_all(&deep)?;
        env.create_dir_all(&deep)?;
        for name in ["b", "a", "c"] {
            env.create_file(&deep.join(name))?.write_all_at(name.repeat(3).as_bytes(), 0)?;
        }
        let names = |path: &Path| -> Result<Vec<_>> {
            let names = env.list_dir(path)?.into_iter();
            Ok(names.map(|(name, m)| (name, m.is_file.then_some(m.len))).collect())
        };
        assert_eq!(names(&deep)?, ["a", "b", "c"].map(|n| (n.to_owned(), Some(3))));
        assert_eq!(names(dir)?, [("x".to_owned(), None)]);
        assert_eq!(kind(env.list_dir(&dir.join("none"))), Some(ErrorKind::NotFound));
        assert_eq!(kind(env.sync_dir(&dir.join("none"), "test.dir")), Some(ErrorKind::NotFound));
        assert_eq!(kind(env.list_dir(&deep.join("a"))), Some(ErrorKind::NotADirectory));
        assert!(env.create_dir_all(&deep.join("a/z")).is_err());
        assert!(env.remove_file(&deep).is_err());
        Ok(())
    });
}

#[test]
fn locks_exclude_until_dropped_and_leave_their_file() {
    on_all(|env, dir| {
        let path = dir.join("LOCK");
        let lock = env.lock_file(&path, LockMode::Exclusive)?.expect("nobody holds it");
        assert!(env.lock_file(&path, LockMode::Exclusive)?.is_none());
        assert!(env.lock_file(&path, LockMode::Shared)?.is_none());
        let other = env.lock_file(&dir.join("OTHER"), LockMode::Exclusive)?;
        assert!(other.is_some());
        drop(lock);
        assert!(env.lock_file(&path, LockMode::Exclusive)?.is_some());
        assert!(env.metadata(&path)?.is_some());
        Ok(())
    });
}

#[test]
fn readers_share_a_lock_create_nothing_and_exclude_a_writer() {
    on_all(|env, dir| {
        for name in ["MISSING", "LOCK"] {
            let path = dir.join(name);
            if name == "LOCK" {
                drop(env.lock_file(&path, LockMode::Exclusive)?);
            }
            let first = env.lock_file(&path, LockMode::Shared)?.expect("nobody holds it");
            let second = env.lock_file(&path, LockMode::Shared)?.expect("only a reader holds it");
            assert_eq!(env.metadata(&path)?.is_some(), name == "LOCK");
            drop(first);
            assert!(env.lock_file(&path, LockMode::Exclusive)?.is_none(), "{name}: one reader is left");
            drop(second);
            assert!(env.lock_file(&path, LockMode::Exclusive)?.is_some(), "{name}: no reader is left");
        }
        Ok(())
    });
}

#[test]
fn space_time_and_numbers_make_sense() {
    on_all(|env, dir| {
        assert!(env.available_space(dir)? > 0);
        let before = env.now();
        env.sleep(Duration::from_millis(1));
        assert!(env.now() >= before + Duration::from_millis(1));
        assert_ne!(env.random_u64(), env.random_u64());
        Ok(())
    });
}

#[test]
fn a_woken_job_steps_until_idle_and_a_waiter_sees_it() {
    on_all(|env, _| {
        let (count, waiter) = (Arc::new(Mutex::new(0)), Arc::new(env.waiter()));
        let (shared, signal) = (Arc::clone(&count), Arc::clone(&waiter));
        let job = move || {
            let mut count = shared.lock();
            *count += 1;
            signal.notify_all();
            if *count % 10 == 0 { JobStep::Idle } else { JobStep::Again }
        };
        let handle = env.spawn_job("test-counts", Box::new(job)).unwrap();
        for round in 1..=3 {
            handle.waker().wake();
            let mut guard = count.lock();
            while *guard < round * 10 {
                waiter.wait(&mut guard);
            }
            assert_eq!(*guard, round * 10);
        }
        Ok(())
    });
}

#[test]
fn dropping_a_handle_drops_the_job() {
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    on_all(|env, _| {
        let drops = Arc::new(AtomicU32::new(0));
        let token = Dropped(Arc::clone(&drops));
        let job = move || {
            let _ = &token;
            JobStep::Idle
        };
        let handle = env.spawn_job("test-drops", Box::new(job)).unwrap();
        let waker = handle.waker();
        waker.wake();
        drop(handle);
        waker.wake();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        Ok(())
    });
}

#[test]
fn direct_reads_of_aligned_buffers_work() {
    on_all(|env, dir| {
        let file = env.create_file(&dir.join("f"))?;
        file.write_all_at(&[9; 8192], 0)?;
        file.sync("test.file")?;
        let direct = env.open_file(&dir.join("f"), OpenOptions { write: false, direct: true })?;
        let mut space = vec![0; 2 * 4096];
        let start = space.as_ptr().align_offset(4096);
        direct.read_exact_at(&mut space[start..start + 4096], 4096)?;
        assert_eq!(space[start..start + 4096], [9; 4096]);
        Ok(())
    });
}

#[test]
fn unaligned_direct_reads_are_refused_in_the_simulator() {
    let env = SimEnv::new(1);
    env.write_file(Path::new("/f"), &[9; 8192]);
    let direct =
        env.open_file(Path::new("/f"), OpenOptions { write: false, direct: true }).expect("it exists");
    let mut space = vec![0; 2 * 4096];
    let start = space.as_ptr().align_offset(4096);
    assert!(direct.read_at(&mut space[start..start + 4096], 512).is_err());
    assert!(direct.read_at(&mut space[start..start + 512], 0).is_err());
    assert!(direct.read_at(&mut space[start + 1..start + 4097], 0).is_err());
}

#[test]
fn a_punched_range_reads_as_zeros_and_keeps_the_length() {
    on_all(|env, dir| {
        let file = env.create_file(&dir.join("f"))?;
        file.write_all_at(&[7; 3 * 4096 + 5], 0)?;
        file.sync("test.file")?;
        file.punch(4096, 4096)?;
        let bytes = contents(&*file)?;
        assert_eq!(bytes.len(), 3 * 4096 + 5);
        assert!(bytes[4096..8192].iter().all(|b| *b == 0));
        assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|b| *b == 7));
        file.write_all_at(b"again", 5000)?;
        assert_eq!(&contents(&*file)?[5000..5005], b"again");
        assert_eq!(kind(file.punch(1, 4096)), Some(ErrorKind::InvalidInput));
        Ok(())
    });
}

#[test]
fn a_stable_file_is_read_again_and_again() {
    on_all(|env, dir| {
        env.create_file(&dir.join("f"))?.write_all_at(b"bytes", 0)?;
        let file = env.open_stable_file(&dir.join("f"), false)?;
        file.expect_random_reads();
        file.prefetch(0, 5);
        file.forget(0, 5);
        for _ in 0..3 {
            assert_eq!(contents(&*file)?, b"bytes");
        }
        let mut buf = [0; 9];
        assert!(!file.read_resident_at(&mut buf, 0), "the file is shorter");
        if file.read_resident_at(&mut buf[..5], 0) {
            assert_eq!(&buf[..5], b"bytes");
        }
        assert!(file.write_all_at(b"x", 0).is_err());
        env.open_dir(dir)?.sync("test.dir")
    });
}
