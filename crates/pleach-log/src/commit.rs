//! Group commit without timers: a thread that finds no leader becomes the leader.
//!
//! The engine's writers submit their batches here. The leader logs its group with one write (and one sync at most),
//! gives it sequence numbers and stores each request's result in the request. Meanwhile the next group gathers. There is no
//! delay to tune: a lone thread never waits, and the slower the log, the larger the groups.
//!
//! # Invariants
//! 1. *One leader.* `lead` never runs twice at a time. Guarded by `lead_state`.
//! 2. *Order.* Groups take requests in the order of arrival. The leader's own is the first, because it arrived first.
//! 3. *No request is lost.* Every submit returns its request, also when a leader panics.
//! 4. *Waiting implies contended.* While `waiting` is not empty, a leader is at work and `lead_state` is `CONTENDED`,
//!    so the leader passes the lead on when it leaves.
//!
//! # Concurrency
//! Lock order: `waiting`, then a ticket's `place`. `lead` runs without any lock of the queue.
//!
//! # Cost
//! A lone thread: two atomic exchanges, no allocation. A waiting thread: one small allocation and one wake-up; it spins for
//! a few microseconds before it sleeps, unless its request is slow.

use std::collections::VecDeque;
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use pleach_env::sync::{Condvar, Mutex};

/// Most requests in a group besides the leader's own. Arbitrary: among so many the cost of the write call hardly counts.
const GROUP_REQUESTS_MAX: usize = 128;

/// Most bytes in a group besides the leader's own request: copy and write then stay below a millisecond. If the leader's own
/// request is larger than this, the excess counts too, because a group is copied and a single request is not.
const GROUP_COST_MAX: usize = 1 << 20;

/// Rounds of spinning before sleeping. A round is one `pause`, 10 to 50 ns; all rounds take a few microseconds, about as long
/// as sleeping and waking.
const SPIN_ROUNDS: u32 = 100;

/// States of the leadership.
const IDLE: u8 = 0;
const LEADING: u8 = 1;
const CONTENDED: u8 = 2;
const POISONED: u8 = 3;

/// States of a ticket.
const WAITS: u8 = 0;
const LEADS: u8 = 1;
const DONE: u8 = 2;

/// Gathers requests of many threads into groups. `R` carries a request in and its result out.
///
/// # Panics in `lead`
/// If `lead` panics, the panic goes on in the leader's thread and the queue is poisoned. The others of the group get their
/// requests back as `lead` left them; waiting and later submits get theirs back unchanged. A request without a result may or
/// may not have been logged, so callers treat it as a poisoned log.
///
/// # Example
/// ```
/// let queue = pleach_log::CommitQueue::new(|request: &(u64, Option<u64>)| 8, |_| false);
/// let (_, result) = queue.submit((20, None), |group| {
///     for (argument, result) in group {
///         *result = Some(*argument + 1);
///     }
/// });
/// assert_eq!(result, Some(21));
/// ```
pub struct CommitQueue<R> {
    /// Cost of a request, in bytes.
    cost: fn(&R) -> usize,
    /// Whether a group with this request waits for the device.
    is_slow: fn(&R) -> bool,
    /// Who leads. Acquire when taking the lead and release when leaving it: a leader sees what the one before did.
    lead_state: AtomicU8,
    /// Requests that arrived while there was a leader, oldest first.
    waiting: Mutex<VecDeque<Arc<Ticket<R>>>>,
}

/// A waiting request.
struct Ticket<R> {
    /// What its owner does next. Written under `place`, so that no wake-up is lost. Release and acquire: a spinning owner sees
    /// the request that it got back.
    state: AtomicU8,
    /// The request, except while a leader has it.
    place: Mutex<Option<R>>,
    changed: Condvar,
}

impl<R: Send> CommitQueue<R> {
    /// An idle queue. `cost` is the size of a request in bytes; a group gathers up to 1 MiB. `is_slow` tells that a group with
    /// the request waits for the device: the next group should be large rather than early, and its thread sleeps at once.
    pub fn new(cost: fn(&R) -> usize, is_slow: fn(&R) -> bool) -> Self {
        Self { cost, is_slow, lead_state: AtomicU8::new(IDLE), waiting: Mutex::new(VecDeque::new()) }
    }

    /// Submits a request. Returns it after a leader, maybe this thread, has run `lead` on a group that contains it.
    ///
    /// Requires: `lead` does not submit to the same queue.
    pub fn submit(&self, request: R, lead: impl FnOnce(&mut [R])) -> R {
        if self.try_lead() { self.lead_alone(request, lead) } else { self.submit_contended(request, lead) }
    }

    /// Whether a leader panicked.
    pub fn is_poisoned(&self) -> bool {
        self.lead_state.load(Ordering::Relaxed) == POISONED
    }

    fn try_lead(&self) -> bool {
        self.lead_state.compare_exchange(IDLE, LEADING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Requires: this thread has taken the lead.
    fn lead_alone(&self, mut request: R, lead: impl FnOnce(&mut [R])) -> R {
        let leadership = Leadership::new(self);
        lead(std::slice::from_mut(&mut request));
        leadership.pass_on();
        request
    }

    #[cold]
    fn submit_contended(&self, request: R, lead: impl FnOnce(&mut [R])) -> R {
        let (ticket, rounds) = {
            let mut waiting = self.waiting.lock();
            match self.contend() {
                LEADING => {
                    drop(waiting);
                    return self.lead_alone(request, lead);
                }
                POISONED => return request,
                _ => {
                    // The device takes longer than to sleep and wake up, and the processor is for the others of the group.
                    let rounds = if (self.is_slow)(&request) { 0 } else { SPIN_ROUNDS };
                    let ticket = Arc::new(Ticket::new(request));
                    waiting.push_back(Arc::clone(&ticket));
                    (ticket, rounds)
                }
            }
        };
        if ticket.wait(rounds) == LEADS {
            let mut leadership = self.gather(&ticket);
            lead(&mut leadership.group);
            leadership.pass_on();
        }
        let request = ticket.place.lock().take();
        request.expect("the thread that ended the wait has put the request back")
    }

    /// Takes the lead if nobody has it (`LEADING`). Otherwise makes the leader pass it on (`CONTENDED`).
    /// Requires: `waiting` is locked.
    fn contend(&self) -> u8 {
        loop {
            if self.try_lead() {
                return LEADING;
            }
            match self.lead_state.compare_exchange(LEADING, CONTENDED, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) | Err(CONTENDED) => return CONTENDED,
                Err(POISONED) => return POISONED,
                // The leader left in between.
                Err(_) => {}
            }
        }
    }

    /// Makes the group of the new leader: its own request and waiting ones, up to the limits.
    fn gather(&self, own: &Arc<Ticket<R>>) -> Leadership<'_, R> {
        let mut leadership = Leadership::new(self);
        let own_cost = own.place.lock().as_ref().map_or(0, self.cost);
        leadership.take(Arc::clone(own));
        let mut waiting = self.waiting.lock();
        let mut cost = own_cost.saturating_sub(GROUP_COST_MAX);
        while leadership.group.len() <= GROUP_REQUESTS_MAX
            && let Some(next) = waiting.front()
        {
            cost += next.place.lock().as_ref().map_or(0, self.cost);
            if cost > GROUP_COST_MAX {
                break;
            }
            if let Some(next) = waiting.pop_front() {
                leadership.take(next);
            }
        }
        if waiting.is_empty() {
            // `waiting` is locked, so no request arrives now. Relaxed: the leader's release on leaving is what others acquire.
            self.lead_state.store(LEADING, Ordering::Relaxed);
        }
        leadership
    }
}

impl<R> Ticket<R> {
    fn new(request: R) -> Self {
        Self { state: AtomicU8::new(WAITS), place: Mutex::new(Some(request)), changed: Condvar::new() }
    }

    /// Waits until the owner must lead or can take its request back. Spins so many rounds before it sleeps.
    fn wait(&self, rounds: u32) -> u8 {
        for _ in 0..rounds {
            let state = self.state.load(Ordering::Acquire);
            if state != WAITS {
                return state;
            }
            hint::spin_loop();
        }
        let mut place = self.place.lock();
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state != WAITS {
                return state;
            }
            self.changed.wait(&mut place);
        }
    }

    /// Ends the wait; puts the request back if it is given.
    fn end_wait(&self, state: u8, request: Option<R>) {
        let mut place = self.place.lock();
        if request.is_some() {
            *place = request;
        }
        self.state.store(state, Ordering::Release);
        // The owner saw the old state under the lock, or will see the new one. Woken behind the lock, it need not wait for it.
        drop(place);
        self.changed.notify_one();
    }
}

/// The lead, with the group if it was gathered from waiting requests. If a panic drops it before [`Leadership::pass_on`], it
/// poisons the queue.
struct Leadership<'q, R> {
    queue: &'q CommitQueue<R>,
    /// The requests, the leader's own first. Empty if the leader never waited.
    group: Vec<R>,
    /// Their tickets, in the same order.
    tickets: Vec<Arc<Ticket<R>>>,
    passed_on: bool,
}

impl<'q, R> Leadership<'q, R> {
    fn new(queue: &'q CommitQueue<R>) -> Self {
        Self { queue, group: Vec::new(), tickets: Vec::new(), passed_on: false }
    }

    fn take(&mut self, ticket: Arc<Ticket<R>>) {
        let request = ticket.place.lock().take();
        self.group.push(request.expect("a waiting ticket holds its request"));
        self.tickets.push(ticket);
    }

    /// Wakes the next leader first, so that it works while the others of this group wake up. Behind a slow group it wakes the
    /// others first, so that their next requests are in the next group.
    fn pass_on(mut self) {
        if self.group.iter().any(self.queue.is_slow) {
            self.hand_back();
        }
        let state = &self.queue.lead_state;
        if state.compare_exchange(LEADING, IDLE, Ordering::Release, Ordering::Relaxed).is_err() {
            let next = self.queue.waiting.lock().pop_front();
            next.expect("CONTENDED means that a request waits").end_wait(LEADS, None);
        }
        self.passed_on = true;
        self.hand_back();
    }

    fn hand_back(&mut self) {
        for (ticket, request) in self.tickets.drain(..).zip(self.group.drain(..)) {
            ticket.end_wait(DONE, Some(request));
        }
    }
}

impl<R> Drop for Leadership<'_, R> {
    fn drop(&mut self) {
        if self.passed_on {
            return;
        }
        let waiting = {
            let mut waiting = self.queue.waiting.lock();
            self.queue.lead_state.store(POISONED, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        self.hand_back();
        for ticket in waiting {
            ticket.end_wait(DONE, None);
        }
    }
}

impl<R> std::fmt::Debug for CommitQueue<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitQueue").field("waiting", &self.waiting.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
