//! Group commit without timers: a thread that finds no leader becomes the leader.
//!
//! The engine's writers submit their batches here. The leader logs its group with one write (and one sync at most),
//! gives it sequence numbers and stores each request's result in the request. Meanwhile the next group gathers. There is no
//! delay to tune: a lone thread never waits, and the slower the log, the larger the groups.
//!
//! # Invariants
//! 1. *One leader.* `lead` never runs twice at a time. Guarded by `lead_state`.
//! 2. *Order.* Groups have requests in the order of arrival. The leader's own is the first, because it arrived first.
//! 3. *No request is lost.* Every submit returns its request, also when a leader panics.
//! 4. *Waiting implies contended.* While `waiting` is not empty, a thread leads, or was given the lead, and `lead_state` is
//!    `CONTENDED`, so the leader passes the lead on when it leaves.
//!
//! # Concurrency
//! `lead` runs without any lock of the queue. A thread that waits sleeps at a [`Gate`] of its group, so that the others of a
//! group are woken by one call of the system: woken one by one, they set the leader aside for 5 us each.
//!
//! # Cost
//! A lone thread: two atomic exchanges, no allocation. A group: four allocations or more, and at most two wake-ups. A waiting
//! thread spins for a few microseconds before it sleeps, unless its request is slow.

use std::collections::VecDeque;
use std::sync::Arc;

use pleach_env::sync::atomic::{AtomicU8, Ordering};
use pleach_env::sync::{Gate, Mutex, OnceLock, SPIN_ROUNDS};

/// Most requests in a group besides the leader's own. Arbitrary: among so many the cost of the write call hardly counts.
const GROUP_REQUESTS_MAX: usize = 128;

/// Requests for which a group has room at first (arbitrary).
const GROUP_REQUESTS_FIRST: usize = 16;

/// Most bytes in a group besides the leader's own request: copy and write then stay below a millisecond. If the leader's own
/// request is larger than this, the excess counts too, because a group is copied and a single request is not.
const GROUP_COST_MAX: usize = 1 << 20;

/// States of the leadership.
const IDLE: u8 = 0;
const LEADING: u8 = 1;
const CONTENDED: u8 = 2;
const POISONED: u8 = 3;

/// States of a group's gates.
const WAITS: u32 = 0;
const LEADS: u32 = 1;
const DONE: u32 = 2;

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
    /// Groups of requests that arrived while there was a leader, oldest first. Requests join the last one while it has room.
    waiting: Mutex<VecDeque<Gathering<R>>>,
}

/// A group that waits for its turn.
struct Gathering<R> {
    group: Arc<Group<R>>,
    /// The requests, that of the thread that will lead it first.
    requests: Vec<R>,
    /// What counts towards [`GROUP_COST_MAX`].
    cost: usize,
}

/// What the threads of a group share.
struct Group<R> {
    /// Where the thread of the first request waits until it leads.
    turn: Gate,
    /// Where the others wait until they can take their requests back.
    end: Gate,
    /// The requests, when they can be taken back.
    back: OnceLock<Vec<Mutex<Option<R>>>>,
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
        let leadership = Leadership::alone(self);
        lead(std::slice::from_mut(&mut request));
        leadership.pass_on();
        request
    }

    #[cold]
    fn submit_contended(&self, request: R, lead: impl FnOnce(&mut [R])) -> R {
        // The device takes longer than to sleep and wake up, and the processor is for the others of the group.
        let rounds = if (self.is_slow)(&request) { 0 } else { SPIN_ROUNDS };
        let (group, place) = {
            let mut waiting = self.waiting.lock();
            match self.contend() {
                LEADING => {
                    drop(waiting);
                    return self.lead_alone(request, lead);
                }
                POISONED => return request,
                _ => self.join(&mut waiting, request),
            }
        };
        if place > 0 {
            group.end.wait_while(WAITS, rounds);
        } else if group.turn.wait_while(WAITS, rounds) == LEADS {
            let mut leadership = self.take_lead();
            lead(&mut leadership.requests);
            leadership.pass_on();
        }
        group.take_back(place)
    }

    /// Adds a request to the group that gathers, or begins one. Returns the group, and the request's place in it.
    fn join(&self, waiting: &mut VecDeque<Gathering<R>>, request: R) -> (Arc<Group<R>>, usize) {
        let cost = (self.cost)(&request);
        if let Some(last) = waiting.back_mut()
            && last.requests.len() <= GROUP_REQUESTS_MAX
            && last.cost.saturating_add(cost) <= GROUP_COST_MAX
        {
            last.cost += cost;
            last.requests.push(request);
            return (Arc::clone(&last.group), last.requests.len() - 1);
        }
        let group = Arc::new(Group { turn: Gate::new(WAITS), end: Gate::new(WAITS), back: OnceLock::new() });
        let cost = cost.saturating_sub(GROUP_COST_MAX);
        let mut requests = Vec::with_capacity(GROUP_REQUESTS_FIRST);
        requests.push(request);
        waiting.push_back(Gathering { group: Arc::clone(&group), requests, cost });
        (group, 0)
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

    /// Takes the oldest group off the queue.
    /// Requires: this thread is that of its first request, and the lead was passed to it.
    fn take_lead(&self) -> Leadership<'_, R> {
        let mut waiting = self.waiting.lock();
        let Gathering { group, requests, .. } =
            waiting.pop_front().expect("the group whose turn it is waits");
        if waiting.is_empty() {
            // `waiting` is locked, so no request arrives now. Relaxed: the leader's release on leaving is what others acquire.
            self.lead_state.store(LEADING, Ordering::Relaxed);
        }
        Leadership { queue: self, group: Some(group), requests, passed_on: false }
    }
}

impl<R> Group<R> {
    /// Lets all threads take their requests back.
    fn end(&self, requests: Vec<R>) {
        let back = requests.into_iter().map(|request| Mutex::new(Some(request))).collect();
        assert!(self.back.set(back).is_ok(), "a group ends once");
        self.turn.open(DONE);
        self.end.open(DONE);
    }

    /// Requires: the group has ended.
    fn take_back(&self, place: usize) -> R {
        let back = self.back.get().and_then(|back| back.get(place)?.lock().take());
        back.expect("the thread that ended the group has put the request back")
    }
}

/// The lead, with the group if it has waited. If a panic drops it before [`Leadership::pass_on`], it poisons the queue.
struct Leadership<'q, R> {
    queue: &'q CommitQueue<R>,
    /// `None` if the leader never waited.
    group: Option<Arc<Group<R>>>,
    /// The group's requests.
    requests: Vec<R>,
    passed_on: bool,
}

impl<'q, R> Leadership<'q, R> {
    fn alone(queue: &'q CommitQueue<R>) -> Self {
        Self { queue, group: None, requests: Vec::new(), passed_on: false }
    }

    /// Wakes the next leader first, so that it works while the others of this group wake up. Behind a slow group it wakes the
    /// others first, so that their next requests are in the next group.
    fn pass_on(mut self) {
        if self.requests.iter().any(self.queue.is_slow) {
            self.hand_back();
        }
        let state = &self.queue.lead_state;
        if state.compare_exchange(LEADING, IDLE, Ordering::Release, Ordering::Relaxed).is_err() {
            let next = self.queue.waiting.lock().front().map(|next| Arc::clone(&next.group));
            next.expect("CONTENDED means that a request waits").turn.open(LEADS);
        }
        self.passed_on = true;
        self.hand_back();
    }

    fn hand_back(&mut self) {
        if let Some(group) = self.group.take() {
            group.end(std::mem::take(&mut self.requests));
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
        for Gathering { group, requests, .. } in waiting {
            group.end(requests);
        }
    }
}

impl<R> std::fmt::Debug for CommitQueue<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitQueue").field("groups", &self.waiting.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
