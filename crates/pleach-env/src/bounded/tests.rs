//! Behaviour of files that share descriptors, in the simulator and between threads.

use super::*;
use crate::{CrashPolicy, Fault, FaultKind, RealEnv, SimEnv};

fn path(number: u64) -> PathBuf {
    PathBuf::from(format!("/d/{number}"))
}

/// A machine with `count` files, each holding its number, opened as stable files.
fn files(count: u64) -> (Arc<SimEnv>, BoundedEnv, Vec<Arc<dyn File>>) {
    let env = SimEnv::new(1);
    env.create_dir_all(Path::new("/d")).unwrap();
    for number in 0..count {
        env.create_file(&path(number)).unwrap().write_all_at(&number.to_le_bytes(), 0).unwrap();
    }
    env.set_handle_limit(Some(20));
    let bounded = BoundedEnv::new(env.clone());
    let files = (0..count).map(|number| bounded.open_stable_file(&path(number), false).unwrap()).collect();
    (env, bounded, files)
}

fn read(file: &dyn File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(u64::from_le_bytes(bytes))
}

#[test]
fn any_number_of_files_share_half_of_the_descriptors() {
    let (env, _, files) = files(100);
    assert_eq!(env.handle_count(), 10);
    for (number, file) in (0..).zip(&files) {
        assert_eq!(read(&**file).unwrap(), number);
        assert_eq!(file.len().unwrap(), 8);
        assert!(env.handle_count() <= 10);
    }
    drop(files);
    assert_eq!((env.handle_count(), env.open_files().len()), (0, 0));
}

#[test]
fn files_that_are_read_stay_open() {
    let (env, _, files) = files(100);
    for file in &files[10..] {
        for favourite in &files[..5] {
            read(&**favourite).unwrap();
        }
        let opens = env.open_count();
        read(&**file).unwrap();
        assert!(env.open_count() <= opens + 1);
    }
    let opens = env.open_count();
    for favourite in &files[..5] {
        read(&**favourite).unwrap();
    }
    assert_eq!(env.open_count(), opens);
}

#[test]
fn a_call_without_a_descriptor_closes_a_stable_file() {
    let (env, bounded, files) = files(100);
    let dir = Path::new("/d");
    bounded.sync_dir(dir, "test.dir").unwrap();
    env.set_other_handles(10);
    assert_eq!(env.create_file(&path(1000)).err().and_then(|e| e.raw_os_error()), Some(24));
    let created: Vec<_> = (1000..1007).map(|number| bounded.create_file(&path(number)).unwrap()).collect();
    bounded.list_dir(dir).unwrap();
    let lock = bounded.lock_file(Path::new("/d/LOCK"), LockMode::Exclusive).unwrap();
    assert_eq!(read(&*files[50]).unwrap(), 50);

    let last = bounded.create_file(&path(1007)).unwrap();
    assert_eq!(bounded.create_file(&path(1008)).err().and_then(|e| e.raw_os_error()), Some(24));
    assert_eq!(read(&*files[51]).err().and_then(|e| e.raw_os_error()), Some(24));
    bounded.sync_dir(dir, "test.dir").unwrap();
    drop((created, lock, last));
    assert_eq!(read(&*files[51]).unwrap(), 51);
}

#[test]
fn a_call_that_is_refused_once_succeeds() {
    let (env, bounded, files) = files(100);
    env.set_fault(Some(Fault { at_op: env.open_count(), kind: FaultKind::OpenTooManyFiles }));
    assert_eq!(read(&*files[3]).unwrap(), 3);
    env.set_fault(Some(Fault { at_op: env.op_count(), kind: FaultKind::TooManyFiles }));
    bounded.create_file(&path(1000)).unwrap();
    assert_eq!(env.faults_struck(), 2);
}

#[test]
fn a_stable_file_cannot_be_written() {
    let (_, _, files) = files(1);
    assert!(
        files[0].write_at(b"x", 0).is_err() && files[0].set_len(0).is_err() && files[0].sync("test").is_err()
    );
}

#[test]
fn threads_read_right_while_files_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let open_files = OpenFiles::for_descriptors(12);
    let open = |number: u64| {
        let path = dir.path().join(number.to_string());
        BoundedFile::open(Arc::clone(&env), Arc::clone(&open_files), Arc::default(), &path, false).unwrap()
    };
    for number in 0..40u64 {
        env.create_file(&dir.path().join(number.to_string()))
            .unwrap()
            .write_all_at(&number.to_le_bytes(), 0)
            .unwrap();
    }
    let files: Vec<_> = (0..40).map(open).collect();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (files, open) = (&files, &open);
            scope.spawn(move || {
                let mut numbers = fastrand::Rng::with_seed(seed);
                for _ in 0..5_000 {
                    let number = numbers.u64(..40);
                    let own = (numbers.u8(..8) == 0).then(|| open(number));
                    let file = own.as_ref().unwrap_or(&files[usize::try_from(number).unwrap()]);
                    assert_eq!(read(&**file).unwrap(), number);
                }
            });
        }
    });
    assert!(open_files.len() <= 6);
    drop(files);
    assert!(open_files.is_empty());
}

/// The directory that stays open is not taken for another.
#[test]
fn each_directory_is_synced_itself() {
    let env = SimEnv::new(1);
    let bounded = BoundedEnv::new(env.clone());
    for dir in ["/one", "/two"] {
        bounded.create_dir_all(Path::new(dir)).unwrap();
        bounded.create_file(&Path::new(dir).join("file")).unwrap();
    }
    for dir in ["/one", "/two", "/one"] {
        bounded.sync_dir(Path::new(dir), "test").unwrap();
    }
    let crashed = env.crash_image(CrashPolicy::DurableOnly, 1);
    for file in ["/one/file", "/two/file"] {
        assert!(crashed.metadata(Path::new(file)).unwrap().is_some(), "{file} has a durable name");
    }
}

#[test]
fn a_close_closes_the_files_of_one_store() {
    let (env, bounded, files) = files(8);
    let other = BoundedEnv::new(env.clone());
    let others: Vec<_> = (0..8).map(|number| other.open_stable_file(&path(number), false).unwrap()).collect();
    let log = bounded.create_file(&path(100)).unwrap();
    drop(bounded.create_file(&path(101)).unwrap());
    bounded.sync_dir(Path::new("/d"), "test").unwrap();
    assert_eq!(env.handle_count(), 10 + 2, "half of the descriptors for stable files");
    bounded.close_files();
    assert!(env.handle_count() <= 8 && env.handle_count() == env.open_files().len());
    for file in files.iter().chain([&log]) {
        assert!(read(&**file).is_err() && file.descriptor().is_err());
    }
    assert!(log.write_all_at(b"late", 0).is_err() && log.sync("test").is_err());
    assert!(bounded.create_file(&path(102)).is_err());
    assert!(bounded.open_stable_file(&path(1), false).is_err());
    bounded.sync_dir(Path::new("/d"), "test").unwrap();
    for (number, file) in (0..).zip(&others) {
        assert_eq!(read(&**file).unwrap(), number);
    }
    drop((files, log, others));
    assert_eq!((env.handle_count(), env.open_files().len()), (0, 0));
}

/// Reads that the system makes hold the descriptor.
#[test]
fn a_close_leaves_descriptors_in_use_open() {
    let dir = tempfile::tempdir().unwrap();
    let bounded = BoundedEnv::new(Arc::new(RealEnv::new()));
    let path = dir.path().join("file");
    let file = bounded.create_file(&path).unwrap();
    file.write_all_at(&7u64.to_le_bytes(), 0).unwrap();
    let stable = bounded.open_stable_file(&path, false).unwrap();
    let files = [file, stable].map(|file| (file.descriptor().unwrap().unwrap(), file));
    bounded.close_files();
    for (descriptor, file) in files {
        assert!(read(&*file).is_err());
        assert_eq!(descriptor.metadata().unwrap().len(), 8);
        assert_eq!(Arc::strong_count(&descriptor), 1);
    }
}

/// A thread that opens a file while the store is closed does not keep it open.
#[test]
fn reads_beside_a_close_leave_nothing_open() {
    for seed in 0..200 {
        let (env, bounded, files) = files(40);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (files, bounded) = (&files, &bounded);
                scope.spawn(move || {
                    let mut numbers = fastrand::Rng::with_seed(seed * 3 + thread);
                    for _ in 0..60 {
                        let number = numbers.u64(..40);
                        let read = read(&*files[usize::try_from(number).unwrap()]);
                        assert!(read.is_err() || read.unwrap() == number);
                        let _refused = bounded.create_file(&path(1000 + thread * 100 + numbers.u64(..100)));
                    }
                });
            }
            std::thread::yield_now();
            bounded.close_files();
        });
        assert_eq!((env.handle_count(), env.open_files().len()), (0, 0));
    }
}
