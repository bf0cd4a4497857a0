//! A block in flight is read once, each read ends, and a failure is not kept.

use std::sync::Arc;

use loom::thread;
use pleach_models::loads::Store;
use pleach_models::{ErrorKind, explore};

/// What a thread does with the store.
type Step = fn(&Store) -> Result<(), ErrorKind>;

/// Runs the steps on a thread each, the last one on this thread; what they returned.
fn together<const N: usize>(store: &Arc<Store>, steps: [Step; N]) -> Vec<Result<(), ErrorKind>> {
    let (last, others) = steps.split_last().expect("steps");
    let threads: Vec<_> = others
        .iter()
        .map(|&step| {
            let store = Arc::clone(store);
            thread::spawn(move || step(&store))
        })
        .collect();
    let last = last(store);
    threads.into_iter().map(|thread| thread.join().unwrap()).chain([last]).collect()
}

const READ: Step = |store| store.read();
const FUTURE: Step = |store| store.read_as_future();
const DROPPED: Step = |store| {
    store.begin_and_drop();
    Ok(())
};
const CLOSE: Step = |store| {
    store.close();
    Ok(())
};

#[test]
fn a_block_is_read_once_however_many_want_it() {
    for steps in [[READ, READ], [READ, FUTURE], [FUTURE, FUTURE]] {
        explore(3, move || {
            let store = Store::new(0);
            assert_eq!(together(&store, steps), [Ok(()), Ok(())]);
            assert_eq!(store.reads(), 1);
        });
    }
    explore(2, || {
        let store = Store::new(0);
        assert_eq!(together(&store, [READ, FUTURE, READ]), [Ok(()); 3]);
        assert_eq!(store.reads(), 1);
    });
}

#[test]
fn a_future_that_is_dropped_keeps_no_other_from_the_block() {
    for step in [READ, FUTURE] {
        explore(3, move || {
            let store = Store::new(0);
            assert_eq!(together(&store, [DROPPED, step]), [Ok(()); 2]);
            assert!(store.reads() <= 2);
            assert_eq!(store.read(), Ok(()));
        });
    }
}

#[test]
fn a_failure_is_for_those_who_waited_and_the_next_read_is_made() {
    for steps in [[READ, READ], [READ, FUTURE], [FUTURE, FUTURE]] {
        explore(3, move || {
            let store = Store::new(1);
            let ended = together(&store, steps);
            assert!(ended.contains(&Err(ErrorKind::Io)));
            assert_eq!(store.read(), Ok(()));
            assert_eq!(store.reads(), 2);
        });
    }
}

#[test]
fn a_close_ends_each_future() {
    explore(3, || {
        let store = Store::new(0);
        let ended = together(&store, [FUTURE, CLOSE]);
        for ended in [ended[0], store.read_as_future()] {
            assert!(matches!(ended, Ok(()) | Err(ErrorKind::Closed)));
        }
    });
}
