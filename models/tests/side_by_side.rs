//! Numbers are given once, inserts come in their order, and whoever needs the whole memtable has it.

use std::sync::Arc;

use loom::thread;
use pleach_models::explore;
use pleach_models::side_by_side::SideBySide;

/// Runs the calls in a thread each, and a reader beside them; then all writes are visible.
fn run(preemptions: usize, calls: &'static [fn(&SideBySide)]) {
    explore(preemptions, || {
        let path = Arc::new(SideBySide::new());
        let threads: Vec<_> = calls
            .iter()
            .map(|call| {
                let path = Arc::clone(&path);
                thread::spawn(move || call(&path))
            })
            .collect();
        path.read();
        for thread in threads {
            thread.join().unwrap();
        }
        path.read();
    });
}

#[test]
fn two_writers_side_by_side() {
    run(3, &[SideBySide::write, SideBySide::write]);
}

#[test]
fn a_writer_beside_a_leader() {
    run(3, &[SideBySide::write, SideBySide::write_as_leader]);
}

#[test]
fn two_writers_beside_a_leader() {
    run(1, &[SideBySide::write, SideBySide::write, SideBySide::write_as_leader]);
}
