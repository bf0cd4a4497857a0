//! Flat combining: requests of threads that wait are done together by one of them, the leader.
//!
//! A thread that finds no leader leads: it does its own request and those of all who wait. Those who come meanwhile gather in the
//! next group. There is no timer, so a lone thread never waits.
//!
//! Behind a *quick* group the lead is free. Its leader wakes the first thread of the next group, but whoever comes before that
//! one is awake leads, with the next group's requests. To wake up takes some 10 us, so this is up to 1.7 times as fast as to hand
//! the lead over. Behind a *slow* group the lead goes to the next one, and those who come meanwhile join it: there large groups
//! count more than an early start.
//!
//! `CommitQueue` in `pleach-log` always hands the lead over, and does requests in the order of arrival.
//!
//! # Invariants
//! 1. *One leader.* `combine` never runs twice at a time. Guarded by `has_leader`.
//! 2. *No request is lost.* While requests wait, there is a leader, or the first thread of their group was told that it may lead.
//!
//! # Cost
//! A lone thread: the lock, twice. A group: a few allocations and one for each request, and two calls of the system that wake
//! threads.

use std::sync::Arc;
use std::time::Duration;

use super::{Gate, Mutex, OnceLock};

/// States of a gate.
const SHUT: u32 = 0;
const OPEN: u32 = 1;

/// See the module's text. `R` is a request, `O` the outcome of a group, which each of its threads gets.
///
/// # Example
/// ```
/// use pleach_env::sync::{Combiner, Pace};
///
/// let sums = Combiner::default();
/// let (request, sum) = sums.submit(20, |group| (group.iter().copied().sum::<u64>(), Pace::Quick));
/// assert_eq!((request, sum), (20, Some(20)));
/// ```
pub struct Combiner<R, O>(Mutex<Queue<R, O>>);

/// How long a group took, compared with the 10 us that a thread takes to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Not much longer.
    Quick,
    /// Much longer.
    Slow,
}

impl Pace {
    /// The pace of a group that took so long.
    pub fn of(took: Duration) -> Self {
        if took > SLOW { Self::Slow } else { Self::Quick }
    }
}

/// Groups that took longer are slow. Chosen by measurement: without a sync, LMDB and WiredTiger commit in 20 to 30 us, redb in
/// more; a sync takes 120 or more.
const SLOW: Duration = Duration::from_micros(35);

struct Queue<R, O> {
    /// Whether a thread leads, or the first of `next` is going to and nobody else.
    has_leader: bool,
    /// Those who came while there was a leader.
    next: Option<Waiting<R, O>>,
}

/// A group that waits to be done.
struct Waiting<R, O> {
    requests: Vec<Arc<R>>,
    shared: Arc<Shared<O>>,
}

/// What the threads of a group share.
struct Shared<O> {
    /// Where the first of them waits. Open when that thread may lead the group, or the group is done.
    first: Gate,
    /// Where the others wait, so that one call of the system wakes them. Open when the group is done.
    end: Gate,
    /// `None` if the leader panicked.
    outcome: OnceLock<Option<O>>,
}

impl<R, O> Default for Combiner<R, O> {
    fn default() -> Self {
        Self(Mutex::new(Queue { has_leader: false, next: None }))
    }
}

impl<R, O: Clone> Combiner<R, O> {
    /// Has a request done, by this thread or another one, which calls its `combine` for a group of requests. Gives the request
    /// back, and the group's outcome: `None` if its leader panicked. That panic goes on in the leader's thread.
    ///
    /// What a thread did before its call happens before `combine`, and that before the threads of the group return.
    ///
    /// Requires: `combine` does not submit to the same combiner, and keeps no request.
    pub fn submit(&self, request: R, combine: impl FnOnce(&[&R]) -> (O, Pace)) -> (R, Option<O>) {
        let mut queue = self.0.lock();
        if !queue.has_leader {
            queue.has_leader = true;
            let others = queue.next.take();
            drop(queue);
            let outcome = Lead { combiner: self, led: others, outcome: None, pace: Pace::Quick }
                .run(Some(&request), combine);
            return (request, Some(outcome));
        }
        let own = Arc::new(request);
        let waiting = queue.next.get_or_insert_with(Waiting::new);
        let is_first = waiting.requests.is_empty();
        waiting.requests.push(Arc::clone(&own));
        let shared = Arc::clone(&waiting.shared);
        drop(queue);
        if is_first {
            self.wait_as_first(&shared, combine);
        } else {
            shared.end.wait_while(SHUT, 0);
        }
        let outcome = shared.outcome.get().expect("a group that is done has an outcome").clone();
        (Arc::into_inner(own).expect("a leader gives requests back before it ends"), outcome)
    }

    /// Waits until another thread has done the group's requests, or does them.
    fn wait_as_first(&self, shared: &Arc<Shared<O>>, combine: impl FnOnce(&[&R]) -> (O, Pace)) {
        shared.first.wait_while(SHUT, 0);
        let mut queue = self.0.lock();
        if let Some(group) = queue.next.take_if(|next| Arc::ptr_eq(&next.shared, shared)) {
            queue.has_leader = true;
            drop(queue);
            Lead { combiner: self, led: Some(group), outcome: None, pace: Pace::Quick }.run(None, combine);
        } else {
            drop(queue);
            shared.end.wait_while(SHUT, 0);
        }
    }
}

impl<R, O> Waiting<R, O> {
    fn new() -> Self {
        let shared = Shared { first: Gate::new(SHUT), end: Gate::new(SHUT), outcome: OnceLock::new() };
        Self { requests: Vec::new(), shared: Arc::new(shared) }
    }
}

/// The lead. It ends when it is dropped, also by a panic.
struct Lead<'a, R, O> {
    combiner: &'a Combiner<R, O>,
    led: Option<Waiting<R, O>>,
    outcome: Option<O>,
    pace: Pace,
}

impl<R, O: Clone> Lead<'_, R, O> {
    fn run(mut self, own: Option<&R>, combine: impl FnOnce(&[&R]) -> (O, Pace)) -> O {
        let (outcome, pace) = match (own, &self.led) {
            (Some(own), None) => combine(&[own]),
            (own, led) => {
                let others = led.iter().flat_map(|led| &led.requests);
                let group: Vec<&R> = own.into_iter().chain(others.map(|request| &**request)).collect();
                combine(&group)
            }
        };
        self.outcome = Some(outcome.clone());
        self.pace = pace;
        outcome
    }
}

impl<R, O> Lead<'_, R, O> {
    /// Wakes the threads of the group.
    fn end_group(&mut self) {
        if let Some(Waiting { requests, shared }) = self.led.take() {
            drop(requests);
            assert!(shared.outcome.set(self.outcome.take()).is_ok(), "a group is done once");
            shared.end.open(OPEN);
            // The thread that is to open this one may not have come to it yet.
            shared.first.open(OPEN);
        }
    }
}

impl<R, O> Drop for Lead<'_, R, O> {
    fn drop(&mut self) {
        if self.pace == Pace::Slow {
            // Those who come back meanwhile are in the next group.
            self.end_group();
        }
        let next = {
            let mut queue = self.combiner.0.lock();
            queue.has_leader = self.pace == Pace::Slow && queue.next.is_some();
            queue.next.as_ref().map(|next| Arc::clone(&next.shared))
        };
        self.end_group();
        // Behind a quick group another thread may lead the next one already, or have done it.
        if let Some(next) = next {
            next.first.open(OPEN);
        }
    }
}

impl<R, O> std::fmt::Debug for Combiner<R, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.0.lock().next.as_ref().map_or(0, |next| next.requests.len());
        f.debug_struct("Combiner").field("waiting", &waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::{panic, thread};

    use super::*;

    #[test]
    fn each_request_is_done_once_and_some_together() {
        const THREADS: u64 = 8;
        const EACH: u64 = 500;
        let (combiner, groups, done) = (Combiner::default(), AtomicUsize::new(0), Mutex::new(Vec::new()));
        let combine = |group: &[&u64]| {
            groups.fetch_add(1, Ordering::Relaxed);
            (0..20).for_each(|_| thread::yield_now());
            done.lock().extend(group.iter().map(|request| **request));
            (group.len(), if group.len() > 2 { Pace::Slow } else { Pace::Quick })
        };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (combiner, done, combine) = (&combiner, &done, &combine);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let request = thread * EACH + number;
                        let (back, len) = combiner.submit(request, combine);
                        assert_eq!(back, request);
                        assert!((1..=THREADS).contains(&(len.unwrap() as u64)));
                        assert!(done.lock().iter().rev().any(|done| *done == request));
                    }
                });
            }
        });
        let mut done = done.into_inner();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..THREADS * EACH));
        assert!(groups.into_inner() < (THREADS * EACH / 2) as usize);
    }

    #[test]
    fn a_panic_reaches_its_leader_and_those_it_led() {
        let (combiner, led) = (Combiner::default(), Barrier::new(2));
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                combiner.submit(1, |_| {
                    led.wait();
                    while combiner.0.lock().next.as_ref().is_none_or(|next| next.requests.len() < 2) {
                        thread::yield_now();
                    }
                    ((), Pace::Quick)
                })
            });
            led.wait();
            let others = [2, 3].map(|request| {
                let combiner = &combiner;
                scope.spawn(move || {
                    combiner.submit(request, |_| panic::resume_unwind(Box::new("a leader panics")))
                })
            });
            assert_eq!(first.join().unwrap(), (1, Some(())));
            let (panicked, told): (Vec<_>, Vec<_>) =
                others.map(thread::ScopedJoinHandle::join).into_iter().partition(Result::is_err);
            assert_eq!(panicked.len(), 1);
            assert_eq!(told.into_iter().map(|done| done.unwrap().1).collect::<Vec<_>>(), [None]);
        });
        assert_eq!(combiner.submit(4, |group| (assert_eq!(group, [&4]), Pace::Slow)), (4, Some(())));
    }
}
