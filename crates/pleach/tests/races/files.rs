//! Races of the close of a store's files with calls that open one.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::spawn;

use pleach::env::failpoint::hold;
use pleach::env::{BoundedEnv, Env, File, OpenOptions, SimEnv};

use crate::race;

const FILE: &str = "/d/file";

/// Runs a call that opens a file or a directory, has the store's files closed before the call has listed what it opened, and
/// returns the call's answer. Nothing may be open then.
fn beside_a_close<T: Send + 'static>(
    call: impl FnOnce(&BoundedEnv) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let env = SimEnv::new(1);
    env.create_dir_all(Path::new("/d")).unwrap();
    env.create_file(Path::new(FILE)).unwrap().write_all_at(b"bytes", 0).unwrap();
    let bounded = Arc::new(BoundedEnv::new(env.clone()));
    let opened = hold("files.opened");
    let caller = spawn({
        let bounded = Arc::clone(&bounded);
        move || call(&bounded)
    });
    opened.wait_for(1);
    assert_eq!(env.handle_count(), 1);
    bounded.close_files();
    opened.release();
    let answer = caller.join().unwrap();
    assert_eq!(env.handle_count(), 0);
    answer
}

fn read(file: &dyn File) -> io::Result<()> {
    file.read_exact_at(&mut [0; 5], 0)
}

#[test]
fn what_is_opened_beside_a_close_does_not_stay_open() {
    race(|| {
        let sst = beside_a_close(|env| env.open_stable_file(Path::new(FILE), false)).unwrap();
        assert!(read(&*sst).is_err());
        assert!(beside_a_close(|env| env.open_file(Path::new(FILE), OpenOptions::default())).is_err());
        assert!(beside_a_close(|env| env.create_file(Path::new("/d/new"))).is_err());
        beside_a_close(|env| env.sync_dir(Path::new("/d"), "test")).unwrap();
    });
}

/// The SST was closed for others, so a read opens it again.
#[test]
fn an_sst_that_is_opened_again_beside_a_close_does_not_stay_open() {
    race(|| {
        let env = SimEnv::new(1);
        env.create_dir_all(Path::new("/d")).unwrap();
        let path = |number: usize| format!("/d/{number}");
        for number in 0..5 {
            env.create_file(Path::new(&path(number))).unwrap().write_all_at(b"bytes", 0).unwrap();
        }
        // Four SSTs can be open.
        env.set_handle_limit(Some(8));
        let bounded = BoundedEnv::new(env.clone());
        let mut ssts =
            (0..5).map(|number| bounded.open_stable_file(Path::new(&path(number)), false).unwrap());
        let first = ssts.next().unwrap();
        let others: Vec<_> = ssts.collect();
        for other in &others {
            read(&**other).unwrap();
        }
        let opens = env.open_count();
        let opened = hold("files.opened");
        let reader = spawn({
            let first = Arc::clone(&first);
            move || read(&*first)
        });
        opened.wait_for(1);
        assert_eq!(env.open_count(), opens + 1);
        bounded.close_files();
        opened.release();
        reader.join().unwrap().unwrap();
        assert_eq!(env.handle_count(), 0);
        assert!(read(&*first).is_err());
    });
}
