//! A reader that finds a block reads that block, however frames change their owners.

use std::sync::Arc;

use loom::thread;
use pleach_models::explore;
use pleach_models::frame::Cache;

fn spawn<T: 'static>(cache: &Arc<Cache>, run: impl Fn(&Cache) -> T + 'static) -> thread::JoinHandle<T> {
    let cache = Arc::clone(cache);
    thread::spawn(move || run(&cache))
}

#[test]
fn a_reader_never_sees_the_bytes_of_another_block() {
    explore(4, || {
        let cache = Arc::new(Cache::new(1, 2));
        assert!(cache.admit(0, 0, 0));
        let reader = spawn(&cache, |cache| cache.read(0));
        let admitted = cache.admit(0, 0, 1);
        let found = reader.join().unwrap();
        assert!(admitted || found, "only a pin keeps the writer away");
        assert_eq!(cache.read(1), admitted);
        assert_eq!(cache.read(0), !admitted);
    });
}

#[test]
fn a_block_that_moves_is_found_whole_or_not_at_all() {
    explore(3, || {
        let cache = Arc::new(Cache::new(2, 2));
        assert!(cache.admit(0, 0, 0));
        let reader = spawn(&cache, |cache| cache.read(0));
        // Another block takes its frame, and it comes back into another one.
        let admitted = cache.admit(0, 0, 1);
        assert!(cache.admit(1, 1, 0));
        reader.join().unwrap();
        assert!(cache.read(0));
        assert_eq!(cache.read(1), admitted);
    });
}

#[test]
fn two_writers_never_have_one_frame() {
    explore(3, || {
        let cache = Arc::new(Cache::new(1, 3));
        assert!(cache.admit(0, 0, 0));
        let writer = spawn(&cache, |cache| cache.admit(0, 0, 1));
        cache.lock_for_a_moment(0);
        let reader = spawn(&cache, |cache| cache.read(1));
        let admitted = writer.join().unwrap();
        let found = reader.join().unwrap();
        assert!(admitted || !found);
        assert_eq!(cache.read(1), admitted);
    });
}

#[test]
fn a_pin_that_outlives_the_cache_keeps_its_bytes() {
    explore(4, || {
        let cache = Cache::new(1, 1);
        assert!(cache.admit(0, 0, 0));
        let pin = cache.pinned(0).expect("nobody locks the frame");
        let reader = thread::spawn(move || {
            let second = pin.clone();
            drop(pin);
            second.is_whole()
        });
        drop(cache);
        assert!(reader.join().unwrap());
    });
}
