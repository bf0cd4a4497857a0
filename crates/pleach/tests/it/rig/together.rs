//! Together: several clients at the same time on a simulated machine, compared with the oracle.
//!
//! Each client has a list of steps. Events are recorded while the clients run. Afterwards the timeline gets the batches in the
//! order of their sequence numbers, and the creations and drops in theirs. Each read is compared with the states that the store
//! had while the read ran.

use std::sync::{Arc, Mutex};

use pleach::env::{Clients, SimEnv, failpoint};
use pleach::{Db, Durability, Error, ErrorKind, Partition, Snapshot};

use super::action::{Action, Op};
use super::query::{Answer, Query, Source};
use super::timeline::{Life, Timeline, When};
use super::world::NAMES;

/// One step of a client.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A batch, a sync, a flush, a compaction, a creation or a drop.
    Do(Action),
    Ask(Query),
    /// Reads of one snapshot.
    Snapshot(Vec<Query>),
}

/// Steps of clients that run at the same time. No name is both created and dropped.
#[derive(Clone, Debug)]
pub(crate) struct Together {
    pub(crate) seed: u64,
    pub(crate) clients: Vec<Vec<Step>>,
}

/// The recorded outcome of a step.
enum Event {
    Wrote {
        ops: Vec<Op>,
        sync: bool,
        first_seq: u64,
        when: When,
    },
    /// A commit of several batches.
    Led(When),
    Created {
        slot: usize,
        order: u64,
        last_seq: u64,
        when: When,
    },
    Dropped {
        slot: usize,
        order: u64,
        last_seq: u64,
        when: When,
    },
    /// Everything that was visible before is durable.
    Secured {
        seen_seq: u64,
        settles: bool,
        when: When,
    },
    Read {
        query: Query,
        first_seq: u64,
        last_seq: u64,
        answer: pleach::Result<Answer>,
    },
}

/// The notes so far.
#[derive(Default)]
struct Notes {
    events: Vec<Event>,
    errors: Vec<Error>,
}

/// The outcome.
pub(crate) struct Outcome {
    /// Errors that a drop does not explain.
    pub(crate) errors: Vec<Error>,
    /// The violations.
    pub(crate) violation: Option<String>,
}

impl Together {
    /// Runs the clients and brings the timeline up to date.
    pub(crate) fn run(&self, env: &Arc<SimEnv>, db: &Db, timeline: &mut Timeline) -> Outcome {
        let notes: Arc<Mutex<Notes>> = Arc::default();
        let mut clients = Clients::new();
        for (number, steps) in self.clients.iter().enumerate() {
            let client = Client { env: Arc::clone(env), db: db.clone(), notes: Arc::clone(&notes) };
            let steps = steps.clone();
            clients.add(&format!("client {number}"), move || steps.into_iter().for_each(|s| client.step(s)));
        }
        env.run_clients(self.seed, clients);
        let Notes { events, mut errors } = std::mem::take(&mut *notes.lock().unwrap());
        let drops = events.iter().any(|event| matches!(event, Event::Dropped { .. }));
        errors.retain(|error| !(drops && error.kind() == ErrorKind::Closed));
        Outcome { errors, violation: account(events, timeline).err() }
    }
}

struct Client {
    env: Arc<SimEnv>,
    db: Db,
    notes: Arc<Mutex<Notes>>,
}

impl Client {
    fn step(&self, step: Step) {
        match step {
            Step::Do(action) => self.act(action),
            Step::Ask(query) => {
                let handles = self.handles(&[&query]);
                let first_seq = self.db.last_sequence_number();
                self.read(query, Source::Handles(&handles), first_seq, None);
            }
            Step::Snapshot(queries) => {
                let handles = self.handles(&queries.iter().collect::<Vec<_>>());
                let snapshot = self.db.snapshot();
                for query in queries {
                    self.read_snapshot(query, &snapshot, &handles);
                }
            }
        }
    }

    fn handles(&self, queries: &[&Query]) -> Vec<(usize, Partition)> {
        let slots = queries.iter().map(|query| query.slot());
        slots.filter_map(|slot| Some((slot, self.db.find_partition(NAMES[slot])?))).collect()
    }

    fn read_snapshot(&self, query: Query, snapshot: &Snapshot, handles: &[(usize, Partition)]) {
        let seq = snapshot.last_sequence_number();
        self.read(query, Source::Snapshot(snapshot, handles), seq, Some(seq));
    }

    fn read(&self, query: Query, source: Source<'_>, first_seq: u64, last_seq: Option<u64>) {
        if !source.has(query.slot()) {
            return;
        }
        let answer = query.ask(source);
        let last_seq = last_seq.unwrap_or_else(|| self.db.last_sequence_number());
        self.note(Event::Read { query, first_seq, last_seq, answer }, None);
    }

    fn act(&self, action: Action) {
        let (begun, seen_seq) = (self.env.op_count(), self.db.last_sequence_number());
        let when = |done| When { begun, ended: self.env.op_count(), done };
        match action {
            Action::Write { ops, sync } => {
                let (ops, result) = self.write(ops, sync);
                let first_seq = failpoint::take_report("commit.first_seq").unwrap_or(0);
                let when = when(result.is_ok());
                let led = failpoint::take_report("commit.group").filter(|count| *count > 1);
                self.note_some(led.map(|_| Event::Led(when)), None);
                self.note(Event::Wrote { ops, sync, first_seq, when }, result.err());
            }
            Action::Create(slot) => {
                let result = self.db.partition(NAMES[slot]).map(drop);
                let (order, when) = (failpoint::take_report("partition.order"), when(result.is_ok()));
                // There is no order if another client was faster or nothing was attempted.
                let last_seq = failpoint::take_report("partition.last_seq").unwrap_or(0);
                let event = order.map(|order| Event::Created { slot, order, last_seq, when });
                self.note_some(event, result.err());
            }
            Action::Drop(slot) => {
                let Some(partition) = self.db.find_partition(NAMES[slot]) else { return };
                let result = self.db.drop_partition(partition);
                let (order, when) = (failpoint::take_report("partition.order"), when(result.is_ok()));
                let last_seq = failpoint::take_report("partition.last_seq").unwrap_or(0);
                let event = order.map(|order| Event::Dropped { slot, order, last_seq, when });
                self.note_some(event, result.err());
            }
            Action::CompactRange(slot, [lower, upper]) => {
                let Some(partition) = self.db.find_partition(NAMES[slot]) else { return };
                self.note_some(None, partition.compact_range::<&[u8]>(&lower[..]..&upper[..]).err());
            }
            action => {
                let (result, settles) = self.secure(&action);
                let event = Event::Secured { seen_seq, settles, when: when(result.is_ok()) };
                self.note(event, result.err());
            }
        }
    }

    fn secure(&self, action: &Action) -> (pleach::Result<()>, bool) {
        match action {
            Action::Sync => (self.db.sync(), true),
            Action::Flush => (self.db.flush(), false),
            Action::Compact => (self.db.compact(), false),
            Action::Convert => (self.db.convert().map(drop), false),
            Action::Settle => (self.db.settle(), false),
            action => unreachable!("clients are not given {action:?}"),
        }
    }

    /// Writes to the present partitions; returns the written operations.
    fn write(&self, ops: Vec<Op>, sync: bool) -> (Vec<Op>, pleach::Result<()>) {
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        let mut batch = self.db.batch();
        let mut written = Vec::new();
        for op in ops {
            let Some(partition) = self.db.find_partition(NAMES[op.slot]) else { continue };
            match &op.value {
                Some(value) => batch.put(&partition, &op.key, value),
                None => batch.delete(&partition, &op.key),
            }
            written.push(op);
        }
        (written, batch.commit(durability))
    }

    fn note(&self, event: Event, error: Option<Error>) {
        self.note_some(Some(event), error);
    }

    fn note_some(&self, event: Option<Event>, error: Option<Error>) {
        let mut notes = self.notes.lock().unwrap();
        notes.events.extend(event);
        notes.errors.extend(error);
    }
}

/// Brings the timeline up to date. An error is a violation.
fn account(events: Vec<Event>, timeline: &mut Timeline) -> Result<(), String> {
    let before = timeline.names().clone();
    let mut lives: Vec<Option<Life>> = (0..NAMES.len()).map(|slot| before.get(&slot).copied()).collect();
    let (mut writes, mut changes, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Wrote { when, first_seq: 0, ops, .. } if when.done && !ops.is_empty() => {
                return Err("a batch was acknowledged and did not go to the log".to_owned());
            }
            Event::Wrote { first_seq: 0, .. } => {}
            Event::Led(when) => timeline.note_group(when),
            Event::Wrote { ops, sync, first_seq, when } => writes.push((first_seq, ops, sync, when)),
            Event::Created { slot, order, last_seq, when } => {
                changes.push((order, slot, true, last_seq, when));
            }
            Event::Dropped { slot, order, last_seq, when } => {
                changes.push((order, slot, false, last_seq, when));
            }
            Event::Secured { seen_seq, settles, when } if when.done => {
                timeline.mark_durable(when.ended, seen_seq);
                if settles {
                    timeline.settle_failures(when);
                }
            }
            Event::Secured { .. } => {}
            Event::Read { query, first_seq, last_seq, answer } => {
                reads.push((query, first_seq, last_seq, answer));
            }
        }
    }
    changes.sort_by_key(|(order, ..)| *order);
    for (_, slot, creates, needs_seq, when) in changes {
        let life = creates.then(|| *lives[slot].get_or_insert_with(|| timeline.new_life()));
        timeline.add_change(slot, life, needs_seq, when);
        if when.done {
            timeline.mark_durable(when.ended, needs_seq);
            timeline.settle_failures(when);
        }
    }
    writes.sort_by_key(|(first_seq, _, _, when)| (*first_seq, when.done, when.ended));
    for (first_seq, ops, sync, when) in writes {
        let life = |op: &Op| lives[op.slot].expect("what was found was there or was created");
        let ops: Vec<_> = ops.into_iter().map(|op| (life(&op), op)).collect();
        timeline.add_batch(&ops, first_seq, when)?;
        if sync && when.done {
            timeline.mark_durable(when.ended, first_seq + ops.len() as u64 - 1);
        }
    }
    reads.into_iter().try_for_each(|(query, first_seq, last_seq, answer)| {
        let life = lives[query.slot()].expect("what was found was there or was created");
        check_read(timeline, &query, (first_seq, last_seq), life, answer)
    })
}

/// Checks that the answer is right for some state that the store had during the read.
fn check_read(
    timeline: &Timeline,
    query: &Query,
    (first_seq, last_seq): (u64, u64),
    life: Life,
    answer: pleach::Result<Answer>,
) -> Result<(), String> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if error.kind() == ErrorKind::Closed => return Ok(()),
        Err(error) if error.kind() == ErrorKind::Io => return Ok(()), // The fault rig looks after these.
        Err(error) => return Err(format!("{query:?} beside others: {error}")),
    };
    let mut worlds = timeline.worlds_between(first_seq, last_seq, query.slot(), life);
    if worlds.any(|world| query.expected(&world) == answer) {
        return Ok(());
    }
    Err(format!(
        "{query:?} beside others, between {first_seq} and {last_seq}: {} answers of no moment, first {:?}",
        answer.len(),
        answer.first()
    ))
}
