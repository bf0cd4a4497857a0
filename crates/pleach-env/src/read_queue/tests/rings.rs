//! A ring without its queue: what it owes to its thread, its alarm and the kernel.

use super::*;

fn slot_of(file: &Arc<dyn File>, offset: u64) -> Slot<Vec<u8>> {
    let source = Source::Descriptor(file.descriptor().unwrap().expect("a file of the system"));
    Slot { source, buffer: vec![0; 100], offset, filled: 0, needed: 100, tag: 0 }
}

fn rings() -> impl Iterator<Item = ReadDriver> {
    drivers().into_iter().filter(|driver| driver.is_ring())
}

/// Reads through the ring. A device that is not polled refuses.
fn read_once(ring: &mut Ring, file: &Arc<dyn File>) {
    let mut slot = slot_of(file, 300);
    ring.push(7, &mut slot);
    loop {
        match ring.next().unwrap() {
            Event::Read(number, result) => {
                assert_eq!(number, 7);
                assert!(result.as_ref().is_ok_and(|n| *n == 100) || is_refusal(&result.unwrap_err()));
                return;
            }
            Event::Alarm => {}
        }
    }
}

#[test]
fn an_alarm_that_rings_after_its_ring_was_given_back_disturbs_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of(&RealEnv::new(), dir.path(), 2000);
    for driver in rings() {
        for rings_before in [false, true] {
            let (mut ring, alarm) = Ring::of_thread(driver, 1).unwrap().with_alarm().unwrap();
            read_once(&mut ring, &file);
            if rings_before {
                alarm.ring();
            }
            drop(ring);
            alarm.ring();
            let mut ring = Ring::of_thread(driver, 1).unwrap();
            (0..10).for_each(|_| read_once(&mut ring, &file));
        }
    }
}

#[test]
fn an_alarm_ends_a_wait_and_a_read_does_not_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of(&RealEnv::new(), dir.path(), 2000);
    for driver in rings() {
        let (mut ring, alarm) = Ring::of_thread(driver, 1).unwrap().with_alarm().unwrap();
        for _ in 0..3 {
            read_once(&mut ring, &file);
            let waits = std::thread::scope(|scope| {
                scope.spawn(|| alarm.ring());
                ring.next()
            });
            assert!(matches!(waits, Ok(Event::Alarm)), "{driver}");
        }
    }
}

#[test]
fn a_thread_of_the_kernel_may_take_what_a_failed_ring_has_queued() {
    let _turn = ring_failures::TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let file = file_of(&RealEnv::new(), dir.path(), 2000);
    for driver in rings() {
        let mut ring = Ring::of_thread(driver, 2).unwrap();
        // A second one would be submitted with it.
        let mut slot = slot_of(&file, 500);
        ring.push(1, &mut slot);
        let untaken = if driver == ReadDriver::KernelPolled { vec![] } else { vec![1] };
        assert_eq!(ring.give_up(), untaken, "{driver}");
        mem::forget(slot);
        ring::forget_failures();
    }
}

/// The thread of the kernel frees places only after it has begun all entries that it has taken.
#[test]
fn a_ring_polled_by_the_kernel_has_two_places_for_each_read() {
    if drivers().contains(&ReadDriver::KernelPolled) {
        let ring = Ring::of_thread(ReadDriver::KernelPolled, 1).unwrap();
        assert_eq!(ring.places(), 2 * ring::ENTRIES);
    }
}
