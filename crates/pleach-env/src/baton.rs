//! The baton of a simulated machine: only the thread that holds it runs, and the seed decides which one is next.
//!
//! [`SimEnv::run_clients`](crate::SimEnv::run_clients) gives each client, and each runner of background jobs, a thread.
//! The holder may lose the baton at *points*: before each counted call and each read of the environment, before each lock
//! of `sync`, at each `failpoint::reached`, in waits and sleeps. So calls of different clients interleave. Between two
//! points a thread runs alone, and only the seed chooses the next thread. So the same seed repeats the whole run.
//!
//! # Invariants
//! 1. *One at a time*: a thread of the baton runs only while `holder` names it.
//! 2. *No spurious wakes*: a thread that waits without a timeout gets the baton only after a notification. So a
//!    missing notification in the engine is a deadlock.
//! 3. *Deadlocks fail*: if no thread can go on, or one blocks outside the baton's points, the run fails and names the place
//!    where each thread waits. The threads stay asleep.
//!
//! # Concurrency
//! Only the list of jobs is locked while `table` is locked.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use table::{Member, State, Table, wait_for_turn};

mod table;

/// Longest time without a change of holder. Arbitrary: even on a busy machine a step takes far less.
const STILL_MAX: Duration = Duration::from_secs(60);

/// A key that threads wait for, identified by its address. It has a size, so that two keys have different addresses.
#[derive(Debug, Default)]
pub(crate) struct Key(#[expect(dead_code, reason = "only the address counts")] u8);

impl Key {
    pub(crate) const fn new() -> Self {
        Self(0)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// The baton of one run.
pub(crate) struct Baton {
    table: Mutex<Table>,
    /// Wakes the thread that waits for the end of the run.
    ended: Condvar,
    /// Whether a job is ready.
    has_work: Box<dyn Fn() -> bool + Send + Sync>,
}

thread_local! {
    /// The run that this thread belongs to, and its number there.
    static MEMBER: RefCell<Option<(Arc<Baton>, usize)>> = const { RefCell::new(None) };
    /// Whether `MEMBER` is set: a quick check for the many threads outside a run.
    static IS_MEMBER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs under a baton.
pub(crate) fn is_held() -> bool {
    IS_MEMBER.get()
}

fn with_member<T>(body: impl FnOnce(&Arc<Baton>, usize) -> T) -> Option<T> {
    if !is_held() {
        return None;
    }
    let member = MEMBER.with_borrow(Clone::clone);
    member.map(|(baton, number)| body(&baton, number))
}

/// A point: the baton may go to another thread here.
#[track_caller]
pub(crate) fn pass() {
    let place = Location::caller();
    with_member(|baton, me| baton.give(me, State::Ready, place));
}

/// Takes a lock by `try_lock`, with a point before each try. `None` on a thread without a baton.
#[track_caller]
pub(crate) fn take<G>(mut try_lock: impl FnMut() -> Option<G>) -> Option<G> {
    if !is_held() {
        return None;
    }
    let place = Location::caller();
    with_member(|baton, me| {
        baton.give(me, State::Ready, place);
        loop {
            if let Some(guard) = try_lock() {
                return guard;
            }
            let tried_at = baton.table.lock().steps;
            baton.give(me, State::Locked(tried_at), place);
        }
    })
}

/// Waits with the guard released until `key` is notified or the scheduler decides that the timeout is over. In the second
/// case it calls `timed_out`. Returns `false` on a thread without a baton.
#[track_caller]
pub(crate) fn wait<T>(key: &Key, guard: &mut MutexGuard<'_, T>, timed_out: Option<&dyn Fn()>) -> bool {
    if !is_held() {
        return false;
    }
    let place = Location::caller();
    let mutex = MutexGuard::mutex(guard);
    with_member(|baton, me| {
        MutexGuard::unlocked(guard, || {
            baton.give(me, State::Waits(key.address(), timed_out.is_some()), place);
            let was_notified = std::mem::take(&mut baton.table.lock().members[me].notified);
            if let Some(timed_out) = timed_out.filter(|_| !was_notified) {
                timed_out();
            }
            // `unlocked` takes the mutex again by itself, so wait until it is free.
            while mutex.is_locked() {
                let tried_at = baton.table.lock().steps;
                baton.give(me, State::Locked(tried_at), place);
            }
        });
    });
    true
}

/// Lets `count` of the threads that wait for `key` go on.
pub(crate) fn notify(key: &Key, count: usize) {
    with_member(|baton, _| {
        let mut table = baton.table.lock();
        let waits = |member: &&mut Member| matches!(member.state, State::Waits(k, _) if k == key.address());
        for member in table.members.iter_mut().filter(waits).take(count) {
            member.state = State::Ready;
            member.notified = true;
        }
    });
}

/// Passes the baton on until `is_over` returns `true`.
#[track_caller]
pub(crate) fn pass_until(is_over: impl Fn() -> bool) {
    let place = Location::caller();
    with_member(|baton, me| {
        while !is_over() {
            let tried_at = baton.table.lock().steps;
            baton.give(me, State::Locked(tried_at), place);
        }
    });
}

/// A body of a thread.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

impl Baton {
    pub(crate) fn new(seed: u64, has_work: Box<dyn Fn() -> bool + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { table: Mutex::new(Table::new(seed)), ended: Condvar::new(), has_work })
    }

    /// Adds a thread, which waits until [`Baton::run`].
    pub(crate) fn add(self: &Arc<Self>, name: String, is_client: bool, body: Body) {
        let number = {
            let mut table = self.table.lock();
            let state = if is_client { State::Ready } else { State::Rests };
            let wakes = Arc::new(Condvar::new());
            let name = name.clone();
            table.members.push(Member { name, is_client, state, place: None, wakes, notified: false });
            table.members.len() - 1
        };
        let baton = Arc::clone(self);
        let thread = std::thread::Builder::new().name(name);
        let spawned = thread.spawn(move || baton.be_member(number, body));
        spawned.expect("a test can start a few threads");
    }

    /// Gives the baton to one of the threads and waits until all have ended.
    ///
    /// # Panics
    /// When a thread has panicked, or when they cannot go on.
    pub(crate) fn run(&self) {
        let mut table = self.table.lock();
        let first = table.choose(&*self.has_work);
        table.hand_over(first);
        let mut switches = 0;
        while table.stuck.is_none() && !table.all_have_ended() {
            let timed_out = self.ended.wait_for(&mut table, STILL_MAX).timed_out();
            if timed_out && table.switches == switches {
                let name = table.holder.map_or("nobody", |number| &table.members[number].name);
                table.stuck = Some(format!("{name} holds the baton and blocks; {}", table.describe()));
            }
            switches = table.switches;
        }
        let failure = table.panic.clone().or_else(|| table.stuck.clone());
        drop(table);
        if let Some(failure) = failure {
            panic!("{failure}");
        }
    }

    fn be_member(self: Arc<Self>, number: usize, body: Body) {
        wait_for_turn(&mut self.table.lock(), number);
        MEMBER.set(Some((Arc::clone(&self), number)));
        IS_MEMBER.set(true);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        IS_MEMBER.set(false);
        MEMBER.set(None);
        let mut table = self.table.lock();
        if let Err(panic) = result {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            let message = format!("{} panicked: {text}", table.members[number].name);
            table.panic.get_or_insert(message);
        }
        table.members[number].state = State::Ended;
        table.steps += 1;
        let next = table.choose(&*self.has_work);
        table.hand_over(next);
        self.ended.notify_one();
    }

    /// Passes the baton on in this state; returns when this thread has it again.
    fn give(&self, me: usize, state: State, place: &'static Location<'static>) {
        let mut table = self.table.lock();
        if !matches!(state, State::Locked(_)) {
            table.steps += 1;
        }
        if state == State::Ready {
            let every = table.pass_every;
            if table.rng.u32(..every) != 0 {
                return;
            }
        }
        table.members[me].state = state;
        table.members[me].place = Some(place);
        let next = table.choose(&*self.has_work);
        if next != Some(me) {
            table.hand_over(next);
            if next.is_none() {
                self.ended.notify_one();
            }
            wait_for_turn(&mut table, me);
        }
        table.members[me].state = State::Ready;
    }
}

/// The loop of a runner: steps of jobs while there are clients.
#[track_caller]
pub(crate) fn run_jobs(step: impl Fn()) {
    let place = Location::caller();
    with_member(|baton, me| {
        loop {
            baton.give(me, State::Rests, place);
            if baton.table.lock().clients_have_ended() {
                return;
            }
            step();
        }
    });
}
