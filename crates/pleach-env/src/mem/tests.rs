//! Tests of what only the environment in memory promises; `tests/it/same_behaviour.rs` has the rest.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::{Env, MemEnv, OpenOptions, ReadDriver, ReadQueue, ReadRequest};

#[test]
fn every_spelling_of_a_path_names_one_file() {
    let env = MemEnv::new();
    env.create_dir_all(Path::new("a/b")).unwrap();
    env.create_file(Path::new("a/b/f")).unwrap();
    for path in ["/a/b/f", "a//b/./f", "/a/b/../b/f", "/../a/b/f", "./a/b/f"] {
        assert!(env.metadata(Path::new(path)).unwrap().is_some(), "{path}");
        assert_eq!(env.absolute(Path::new(path)).unwrap(), Path::new("/a/b/f"));
    }
    assert!(env.metadata(Path::new("/")).unwrap().is_some_and(|metadata| !metadata.is_file));
    assert_eq!(env.list_dir(Path::new("")).unwrap().len(), 1);
}

#[test]
fn the_root_is_no_file() {
    let env = MemEnv::new();
    let root = Path::new("/");
    assert!(env.create_file(root).is_err() && env.open_file(root, OpenOptions::default()).is_err());
    assert!(env.remove_file(root).is_err() && env.rename(root, Path::new("/x")).is_err());
    env.sync_dir(root, "test.dir").unwrap();
}

#[test]
fn a_rename_leaves_directories_alone() {
    let env = MemEnv::new();
    env.create_dir_all(Path::new("/d")).unwrap();
    env.create_file(Path::new("/f")).unwrap();
    let renamed = env.rename(Path::new("/f"), Path::new("/d"));
    assert_eq!(renamed.unwrap_err().kind(), ErrorKind::IsADirectory);
    assert!(env.rename(Path::new("/d"), Path::new("/e")).is_err());
    assert!(env.rename(Path::new("/f"), Path::new("/none/f")).is_err());
    assert_eq!(env.list_dir(Path::new("/")).unwrap().len(), 2);
}

#[test]
fn the_memory_of_a_file_ends_with_its_name_and_its_handles() {
    let env = MemEnv::new();
    let path = Path::new("/f");
    let before = env.available_space(path).unwrap();
    let file = env.create_file(path).unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    assert_eq!(env.used_bytes(), 1 << 20);
    assert!(env.available_space(path).unwrap() <= before - (1 << 20));
    let again = env.open_file(path, OpenOptions::default()).unwrap();
    env.remove_file(path).unwrap();
    drop(file);
    assert_eq!(env.used_bytes(), 1 << 20);
    drop(again);
    assert_eq!(env.used_bytes(), 0);
}

#[test]
fn a_queue_answers_reads_at_once_and_a_ring_is_refused() {
    let env = MemEnv::new();
    let file = env.create_file(Path::new("/f")).unwrap();
    file.write_all_at(&[1, 2, 3, 4], 0).unwrap();
    for driver in [env.read_driver(), ReadDriver::Threads] {
        let mut queue = ReadQueue::new(&env, driver, 4).unwrap();
        for tag in 0..4 {
            let buffer = vec![0];
            queue.push(ReadRequest { file: &file, offset: tag, buffer, needed: 1, tag }).unwrap();
        }
        for _ in 0..4 {
            let done = queue.next().unwrap();
            assert_eq!(done.result.unwrap(), [u8::try_from(done.tag).unwrap() + 1]);
        }
    }
    let chosen = ReadDriver::choose(&env, None, Path::new("/f"), OpenOptions::default()).unwrap();
    assert_eq!(chosen, ReadDriver::Blocking);
    assert!(
        ReadDriver::choose(&env, Some(ReadDriver::Ring), Path::new("/f"), OpenOptions::default()).is_err()
    );
}

#[test]
fn threads_read_while_a_file_grows() {
    let env = Arc::new(MemEnv::new());
    let file = env.create_file(Path::new("/f")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut byte = [0];
                loop {
                    let len = file.len().unwrap();
                    if len > 0 {
                        file.read_exact_at(&mut byte, len - 1).unwrap();
                        assert_eq!(byte, [7]);
                    }
                    if len == 200_000 {
                        break;
                    }
                }
            });
        }
        for part in 0..2000 {
            file.write_all_at(&[7; 100], part * 100).unwrap();
        }
    });
}
