//! The threads of a baton: their states, and the choice of the next one.

use std::panic::Location;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::{Condvar, MutexGuard};

/// Changes of holder after which a run is given up. Arbitrary, a hundred times what long histories need.
const SWITCHES_MAX: u64 = 50_000_000;

/// The state of a thread that does not hold the baton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It can go on.
    Ready,
    /// It found a lock taken after this many steps. It tries again after another step.
    Locked(u64),
    /// It waits for a notification of the key; with a timeout it can go on without one.
    Waits(usize, bool),
    /// A runner without a job. It can go on when a job is ready, or when the clients have ended.
    Rests,
    Ended,
}

/// A thread of the run.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) is_client: bool,
    pub(super) state: State,
    /// The point where it gave the baton away.
    pub(super) place: Option<&'static Location<'static>>,
    pub(super) wakes: Arc<Condvar>,
    /// Whether the wait ended with a notification.
    pub(super) notified: bool,
}

/// All threads of the run.
pub(super) struct Table {
    pub(super) members: Vec<Member>,
    pub(super) holder: Option<usize>,
    pub(super) rng: Rng,
    /// At a point where the holder can go on, the baton passes on once in this many times.
    pub(super) pass_every: u32,
    /// Steps from point to point, failed tries of locks apart.
    pub(super) steps: u64,
    pub(super) switches: u64,
    /// Why the run cannot go on.
    pub(super) stuck: Option<String>,
    /// Message of the first client or runner that panicked.
    pub(super) panic: Option<String>,
}

impl Table {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // From always to rarely: some bugs need many changes of holder in a row, others a long run without one.
        let pass_every = [1, 2, 4, 16, 64][rng.usize(..5)];
        Self {
            members: Vec::new(),
            holder: None,
            rng,
            pass_every,
            steps: 0,
            switches: 0,
            stuck: None,
            panic: None,
        }
    }

    /// Whether all clients have ended.
    pub(super) fn clients_have_ended(&self) -> bool {
        self.members.iter().all(|m| !m.is_client || m.state == State::Ended)
    }

    /// Whether all threads have ended.
    pub(super) fn all_have_ended(&self) -> bool {
        self.members.iter().all(|m| m.state == State::Ended)
    }

    /// A random thread that can go on. Notes that the run is stuck if there is none.
    pub(super) fn choose(&mut self, has_work: impl Fn() -> bool) -> Option<usize> {
        let has_work = self.clients_have_ended() || has_work();
        let can_go_on = |member: &Member| match member.state {
            State::Ready | State::Waits(_, true) => true,
            State::Locked(tried_at) => self.steps > tried_at,
            State::Rests => has_work,
            State::Waits(_, false) | State::Ended => false,
        };
        let ready: Vec<usize> = (0..self.members.len()).filter(|n| can_go_on(&self.members[*n])).collect();
        let next = self.rng.choice(&ready).copied();
        self.switches += 1;
        if next.is_none() && !self.all_have_ended() {
            let message = format!("simulated deadlock: {}", self.describe());
            self.stuck.get_or_insert(message);
        } else if self.switches > SWITCHES_MAX {
            let message = format!("simulated livelock: {}", self.describe());
            self.stuck.get_or_insert(message);
            return None;
        }
        next
    }

    /// Makes `next` the holder and wakes it.
    pub(super) fn hand_over(&mut self, next: Option<usize>) {
        self.holder = next;
        if let Some(next) = next {
            self.members[next].wakes.notify_one();
        }
    }

    /// For messages: the state and the place of each thread.
    pub(super) fn describe(&self) -> String {
        let state = |member: &Member| match member.state {
            State::Ready => "can go on from",
            State::Locked(_) => "wants the lock at",
            State::Waits(..) => "waits at",
            State::Rests => "rests at",
            State::Ended => "has ended after",
        };
        let place =
            |member: &Member| member.place.map_or_else(|| "the start".to_owned(), ToString::to_string);
        let members: Vec<_> =
            self.members.iter().map(|m| format!("{} {} {}", m.name, state(m), place(m))).collect();
        members.join(", ")
    }
}

/// Waits until thread `me` holds the baton.
pub(super) fn wait_for_turn(table: &mut MutexGuard<'_, Table>, me: usize) {
    let wakes = Arc::clone(&table.members[me].wakes);
    while table.holder != Some(me) {
        wakes.wait(table);
    }
}
