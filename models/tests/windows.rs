//! A scan that waits for a window is woken, whoever reads it.

use std::sync::Arc;

use loom::thread;
use pleach_models::windows::Scans;
use pleach_models::{ReadDriver, explore};

/// Runs `step` on another thread.
fn beside<T: 'static>(scans: &Arc<Scans>, step: impl FnOnce(&Scans) -> T + 'static) -> thread::JoinHandle<T> {
    let scans = Arc::clone(scans);
    thread::spawn(move || step(&scans))
}

#[test]
fn a_scan_is_woken_by_the_thread_that_reads_its_window() {
    for as_task in [true, false] {
        explore(4, move || {
            let scans = Scans::new(ReadDriver::Threads);
            let begun = scans.begin(7);
            let reader = beside(&scans, Scans::make_one);
            let found = if as_task { scans.wait_as_task(begun) } else { scans.wait(begun) };
            assert_eq!(found, Some(7));
            assert!(reader.join().unwrap());
        });
    }
}

#[test]
fn a_task_that_has_polled_before_is_woken_by_its_last_waker() {
    explore(4, || {
        let scans = Scans::new(ReadDriver::Threads);
        let begun = scans.begin(7);
        let reader = beside(&scans, Scans::make_one);
        if !scans.poll_once(&begun) {
            assert_eq!(scans.wait_as_task(begun), Some(7));
        }
        assert!(reader.join().unwrap());
    });
}

/// Each may read the window of the other.
#[test]
fn scans_that_read_for_each_other_all_end() {
    for (first, second) in [(true, true), (true, false), (false, false)] {
        explore(3, move || {
            let scans = Scans::new(ReadDriver::Blocking);
            let wait = |as_task, begun| {
                move |scans: &Scans| if as_task { scans.wait_as_task(begun) } else { scans.wait(begun) }
            };
            let (one, two) = (scans.begin(1), scans.begin(2));
            let other = beside(&scans, wait(first, one));
            assert_eq!(wait(second, two)(&scans), Some(2));
            assert_eq!(other.join().unwrap(), Some(1));
        });
    }
}

#[test]
fn a_scan_that_is_dropped_keeps_no_other_from_its_window() {
    explore(3, || {
        let scans = Scans::new(ReadDriver::Blocking);
        let (dropped, begun) = (scans.begin(1), scans.begin(2));
        let other = beside(&scans, move |scans| {
            let _there = scans.poll_once(&dropped);
            scans.abandon(&dropped);
        });
        assert_eq!(scans.wait_as_task(begun), Some(2));
        other.join().unwrap();
    });
}

#[test]
fn a_close_ends_each_scan_that_waits() {
    for driver in [ReadDriver::Threads, ReadDriver::Blocking] {
        explore(3, move || {
            let scans = Scans::new(driver);
            let begun = scans.begin(7);
            let closing = beside(&scans, Scans::close);
            assert_eq!(scans.wait_as_task(begun), Some(7));
            closing.join().unwrap();
            assert_eq!(scans.wait_as_task(scans.begin(8)), None);
        });
    }
}
