//! A state that many threads wait to see changed. On Linux one call of the system wakes all of them.
//!
//! `parking_lot`'s condition variable wakes one thread, which wakes the next one when it leaves the lock, and so on.

use super::atomic::{AtomicU32, Ordering};

/// See the module's text.
#[derive(Debug)]
pub struct Gate {
    state: AtomicU32,
    /// Threads that sleep, or are about to.
    sleepers: AtomicU32,
    #[cfg(not(target_os = "linux"))]
    bed: (parking_lot::Mutex<()>, parking_lot::Condvar),
}

impl Gate {
    /// A gate in a state.
    pub fn new(state: u32) -> Self {
        Self {
            state: AtomicU32::new(state),
            sleepers: AtomicU32::new(0),
            #[cfg(not(target_os = "linux"))]
            bed: (parking_lot::Mutex::new(()), parking_lot::Condvar::new()),
        }
    }

    /// Waits while the gate is in `state`, and returns the next one. Spins `rounds` times before it sleeps.
    ///
    /// What happened before the call of [`Gate::open`] is visible behind it.
    #[cfg_attr(feature = "failpoints", track_caller)]
    pub fn wait_while(&self, state: u32, rounds: u32) -> u32 {
        let next = || Some(self.state.load(Ordering::SeqCst)).filter(|now| *now != state);
        #[cfg(feature = "failpoints")]
        if let Some(next) = crate::baton::take(next) {
            return next;
        }
        for _ in 0..rounds {
            if let Some(next) = next() {
                return next;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        loop {
            if let Some(next) = next() {
                self.sleepers.fetch_sub(1, Ordering::Relaxed);
                return next;
            }
            self.sleep(state);
        }
    }

    /// Changes the state and wakes all threads that sleep.
    pub fn open(&self, state: u32) {
        // All of these are SeqCst: either this thread sees the sleeper, or that one sees the state before it sleeps.
        self.state.swap(state, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
    }

    /// Sleeps if the gate is in `state`. May return early.
    #[cfg(target_os = "linux")]
    fn sleep(&self, state: u32) {
        use rustix::thread::futex;
        // It compares the state under a lock that the waking call takes. Errors: another state, or a signal.
        let _looks_again = futex::wait(&self.state, futex::Flags::PRIVATE, state, None);
    }

    #[cfg(target_os = "linux")]
    #[cold]
    fn wake_all(&self) {
        use rustix::thread::futex;
        let count = futex::wake(&self.state, futex::Flags::PRIVATE, i32::MAX as u32);
        debug_assert!(count.is_ok(), "the address is that of a live gate: {count:?}");
    }

    #[cfg(not(target_os = "linux"))]
    fn sleep(&self, state: u32) {
        let (lock, changed) = &self.bed;
        let mut lock = lock.lock();
        if self.state.load(Ordering::SeqCst) == state {
            changed.wait(&mut lock);
        }
    }

    #[cfg(not(target_os = "linux"))]
    #[cold]
    fn wake_all(&self) {
        let (lock, changed) = &self.bed;
        let _no_thread_is_between_look_and_sleep = lock.lock();
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a thread that is not woken would hold up a scope")]
    fn all_threads_see_each_change() {
        const THREADS: usize = 8;
        for rounds in [0, 100] {
            let gates: Arc<[Gate]> = (0..2000).map(|_| Gate::new(0)).collect();
            let together = Arc::new(Barrier::new(THREADS + 1));
            let (done, is_done) = mpsc::channel();
            for _ in 0..THREADS {
                let (gates, together, done) = (Arc::clone(&gates), Arc::clone(&together), done.clone());
                thread::spawn(move || {
                    for (number, gate) in (1..).zip(&*gates) {
                        together.wait();
                        assert_eq!(gate.wait_while(0, rounds), number);
                    }
                    done.send(()).unwrap();
                });
            }
            let opened = Arc::clone(&gates);
            thread::spawn(move || {
                for (number, gate) in (1..).zip(&*opened) {
                    together.wait();
                    gate.open(number);
                }
            });
            for _ in 0..THREADS {
                let ended = is_done.recv_timeout(Duration::from_secs(30));
                assert!(ended.is_ok(), "a thread was not woken");
            }
            assert!(gates.iter().all(|gate| gate.sleepers.load(Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn an_open_gate_is_not_waited_at() {
        let gate = Gate::new(1);
        assert_eq!(gate.wait_while(0, 0), 1);
        gate.open(2);
        assert_eq!(gate.wait_while(1, 0), 2);
    }
}
