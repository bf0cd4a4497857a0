//! The baton of a simulated machine: only the thread that holds it runs, and the seed decides which one is next.
//!
//! [`SimEnv::run_clients`](crate::SimEnv::run_clients) gives each client, and each runner of background jobs, a thread.
//! The holder offers the baton at *points*: before each counted call and each read of the environment, before each lock
//! of `sync`, at each `failpoint::reached`, in waits and sleeps. So calls of different clients interleave. Between two
//! points a thread runs alone, and only the seed chooses the next thread, so one seed repeats everything.
//!
//! # Invariants
//! 1. *One at a time*: a thread of the baton runs only while `holder` names it.
//! 2. *No spurious wakes*: a thread that waits without a timeout gets the baton only after a notification. So a
//!    notification that the engine forgets is a deadlock.
//! 3. *Deadlocks fail*: when no thread can go on, or one blocks where the baton does not see it, the run fails and names
//!    the place where each thread waits. Its threads stay behind, asleep.
//!
//! # Concurrency
//! `table` is held for moments, and nothing but the list of jobs is locked below it.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Longest time without any change of holder. Arbitrary: on a busy machine a step between two points takes far less.
const STILL_MAX: Duration = Duration::from_secs(60);

/// Changes of holder after which a run is given up. Arbitrary, a hundred times what long histories need.
const SWITCHES_MAX: u64 = 50_000_000;

/// A key that threads wait for, identified by its address. It has a size, so that two addresses differ.
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

/// The state of a thread that does not hold the baton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It can go on.
    Ready,
    /// It found a lock taken after this many steps. It tries again after another step.
    Locked(u64),
    /// It waits for a notification of the key; with a timeout it can go on without one.
    Waits(usize, bool),
    /// A runner without a job: it can go on when a job is ready, or when the clients have ended.
    Rests,
    Ended,
}

struct Member {
    name: String,
    is_client: bool,
    state: State,
    /// The point where it gave the baton away.
    place: Option<&'static Location<'static>>,
    wakes: Arc<Condvar>,
    /// Whether the wait ended with a notification.
    notified: bool,
}

struct Table {
    members: Vec<Member>,
    holder: Option<usize>,
    rng: Rng,
    /// At a point where the holder can go on, the baton passes on once in this many times.
    pass_every: u32,
    /// Steps from point to point, failed tries of locks apart.
    steps: u64,
    switches: u64,
    /// Why the run cannot go on.
    stuck: Option<String>,
    /// Message of the first client or runner that panicked.
    panic: Option<String>,
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
    /// For the many threads that belong to none.
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

/// Takes a lock by `try_lock`, with points before each try; `None` on a thread without a baton.
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

/// Waits with the guard released until `key` is notified, or until the scheduler says that the timeout is over; then
/// `timed_out` is called. `false` on a thread without a baton.
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
            // The guard is taken back without the baton's knowledge.
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

/// Passes the baton on until `is_over`.
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
        let mut rng = Rng::with_seed(seed);
        // From always to rarely: some mistakes need many changes in a row, others a long run without one.
        let pass_every = [1, 2, 4, 16, 64][rng.usize(..5)];
        let table = Table {
            members: Vec::new(),
            holder: None,
            rng,
            pass_every,
            steps: 0,
            switches: 0,
            stuck: None,
            panic: None,
        };
        Arc::new(Self { table: Mutex::new(table), ended: Condvar::new(), has_work })
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
        let first = self.choose(&mut table);
        hand_over(&mut table, first);
        let mut switches = 0;
        while table.stuck.is_none() && table.members.iter().any(|m| m.state != State::Ended) {
            let timed_out = self.ended.wait_for(&mut table, STILL_MAX).timed_out();
            if timed_out && table.switches == switches {
                let name = table.holder.map_or("nobody", |number| &table.members[number].name);
                table.stuck = Some(format!("{name} holds the baton and blocks; {}", describe(&table)));
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
        let next = self.choose(&mut table);
        hand_over(&mut table, next);
        self.ended.notify_one();
    }

    /// Gives the baton away in this state, and comes back with it.
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
        let next = self.choose(&mut table);
        if next != Some(me) {
            hand_over(&mut table, next);
            if next.is_none() {
                self.ended.notify_one();
            }
            wait_for_turn(&mut table, me);
        }
        table.members[me].state = State::Ready;
    }

    /// A random thread that can go on. Notes that the run is stuck if there is none.
    fn choose(&self, table: &mut Table) -> Option<usize> {
        let is_over = table.members.iter().all(|m| !m.is_client || m.state == State::Ended);
        let has_work = is_over || (self.has_work)();
        let can_go_on = |member: &Member| match member.state {
            State::Ready | State::Waits(_, true) => true,
            State::Locked(tried_at) => table.steps > tried_at,
            State::Rests => has_work,
            State::Waits(_, false) | State::Ended => false,
        };
        let ready: Vec<usize> = (0..table.members.len()).filter(|n| can_go_on(&table.members[*n])).collect();
        let next = table.rng.choice(&ready).copied();
        table.switches += 1;
        let all_ended = table.members.iter().all(|m| m.state == State::Ended);
        if next.is_none() && !all_ended {
            table.stuck.get_or_insert(format!("simulated deadlock: {}", describe(table)));
        } else if table.switches > SWITCHES_MAX {
            table.stuck.get_or_insert(format!("simulated livelock: {}", describe(table)));
            return None;
        }
        next
    }

    /// Whether all clients have ended. For runners, which then end too.
    fn clients_have_ended(&self) -> bool {
        self.table.lock().members.iter().all(|m| !m.is_client || m.state == State::Ended)
    }
}

/// The loop of a runner: steps of jobs while there are clients.
#[track_caller]
pub(crate) fn run_jobs(step: impl Fn()) {
    let place = Location::caller();
    with_member(|baton, me| {
        loop {
            baton.give(me, State::Rests, place);
            if baton.clients_have_ended() {
                return;
            }
            step();
        }
    });
}

fn wait_for_turn(table: &mut MutexGuard<'_, Table>, me: usize) {
    let wakes = Arc::clone(&table.members[me].wakes);
    while table.holder != Some(me) {
        wakes.wait(table);
    }
}

fn hand_over(table: &mut Table, next: Option<usize>) {
    table.holder = next;
    if let Some(next) = next {
        table.members[next].wakes.notify_one();
    }
}

/// For messages: the state and the place of each thread.
fn describe(table: &Table) -> String {
    let state = |member: &Member| match member.state {
        State::Ready => "can go on from",
        State::Locked(_) => "wants the lock at",
        State::Waits(..) => "waits at",
        State::Rests => "rests at",
        State::Ended => "has ended after",
    };
    let place = |member: &Member| member.place.map_or_else(|| "the start".to_owned(), ToString::to_string);
    let members: Vec<_> =
        table.members.iter().map(|m| format!("{} {} {}", m.name, state(m), place(m))).collect();
    members.join(", ")
}
