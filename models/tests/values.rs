//! A reader that finds a cached value reads that value, however items and slots are reused.

use std::sync::Arc;

use loom::thread;
use pleach_models::explore;
use pleach_models::values::Values;

fn spawn<T: 'static>(values: &Arc<Values>, run: impl Fn(&Values) -> T + 'static) -> thread::JoinHandle<T> {
    let values = Arc::clone(values);
    thread::spawn(move || run(&values))
}

#[test]
fn a_reader_never_sees_the_bytes_of_another_value() {
    explore(4, || {
        let values = Arc::new(Values::new(1, 1));
        assert!(values.admit(0, 0, 7));
        let reader = spawn(&values, |values| values.read(7));
        let evicted = values.evict(0);
        let admitted = evicted && values.admit(0, 0, 8);
        let found = reader.join().unwrap();
        assert!(evicted || found, "only a pin keeps the writer away");
        assert_eq!(values.read(8), admitted);
        assert_eq!(values.read(7), !evicted);
    });
}

#[test]
fn the_item_of_an_evicted_value_is_given_to_another_slot() {
    explore(4, || {
        let values = Arc::new(Values::new(2, 1));
        assert!(values.admit(0, 0, 7));
        let first = spawn(&values, |values| values.read(7));
        let second = spawn(&values, |values| values.read(8));
        let admitted = values.evict(0) && values.admit(1, 0, 8);
        first.join().unwrap();
        assert!(admitted || !second.join().unwrap());
        assert_eq!(values.read(8), admitted);
    });
}

#[test]
fn a_value_that_moves_is_read_whole() {
    explore(4, || {
        let values = Arc::new(Values::new(2, 2));
        assert!(values.admit(0, 1, 7));
        let reader = spawn(&values, |values| values.read(7));
        if values.move_item(0, 0) {
            // Another value takes the lines.
            assert!(values.admit(1, 1, 8));
        }
        reader.join().unwrap();
        assert!(values.read(7));
    });
}
