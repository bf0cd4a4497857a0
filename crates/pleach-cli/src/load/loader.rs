//! The loader: collects records into write batches and commits them.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Instant;

use indicatif::ProgressBar;
use pleach::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use pleach::{Db, Durability, Partition, WriteBatch};
use pleach_command::Interrupt;

use super::outcome::LoadOutcome;
use super::record::{Found, Record, Records};
use super::{LoadArgs, worse_of};
use crate::failure::{Failure, Result};
use crate::output::{count, entries, per_second};

/// A batch of so many bytes is full for any `--batch`: large enough to spread the cost of a commit.
const BATCH_BYTES: usize = 1 << 20;

/// Repeated keys are counted up to so many keys: about 64 MiB of hashes.
const REPEATS_KEYS_MAX: usize = 4_000_000;

pub(super) struct Loader<'a> {
    db: &'a Db,
    partition: &'a Partition,
    args: &'a LoadArgs,
    bar: ProgressBar,
    started: Instant,
    batch: WriteBatch,
    /// Bytes of keys and values in `batch`.
    batch_bytes: u64,
    repeats: Repeats,
    outcome: LoadOutcome,
}

impl<'a> Loader<'a> {
    pub(super) fn new(db: &'a Db, partition: &'a Partition, args: &'a LoadArgs, bar: ProgressBar) -> Self {
        Self {
            db,
            partition,
            args,
            bar,
            started: Instant::now(),
            batch: db.batch(),
            batch_bytes: 0,
            repeats: Repeats::default(),
            outcome: LoadOutcome::of(partition.name()),
        }
    }

    /// Reads all records and commits them. After an error the records before it are committed.
    pub(super) fn load(
        &mut self,
        first: First,
        records: &mut dyn Records,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let read = self.read(first, records, interrupt);
        let committed = self.commit();
        worse_of(read, committed)
    }

    fn read(&mut self, first: First, records: &mut dyn Records, interrupt: &Interrupt) -> Result<()> {
        let First { mut record, found } = first;
        let mut found = Ok(found);
        loop {
            // The last record of an interrupted producer may be incomplete, so it is not taken.
            interrupt.check()?;
            match found? {
                Found::End => return Ok(()),
                Found::Malformed(reason) => self.malformed(record.line, &reason)?,
                Found::Entry => self.add(&record)?,
            }
            found = next(records, &mut record, self.args);
        }
    }

    fn malformed(&mut self, line: u64, reason: &str) -> Result<()> {
        if self.args.skip_malformed {
            self.outcome.skip(line);
            return Ok(());
        }
        Err(malformed(self.args, line, reason))
    }

    fn add(&mut self, record: &Record) -> Result<()> {
        self.repeats.see(&record.key);
        self.batch.put(self.partition, &record.key, &record.value);
        self.batch_bytes += (record.key.len() + record.value.len()) as u64;
        let is_full = self.batch.len() as u64 >= self.args.batch || self.batch.bytes() >= BATCH_BYTES;
        if is_full { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<()> {
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        let (entries_in_batch, bytes) = (batch.len() as u64, std::mem::take(&mut self.batch_bytes));
        if batch.is_empty() {
            return Ok(());
        }
        batch.commit(if self.args.sync { Durability::Sync } else { Durability::Buffered })?;
        self.outcome.entries += entries_in_batch;
        self.outcome.bytes += bytes;
        let (done, seconds) = (self.outcome.entries, self.started.elapsed().as_secs_f64());
        self.bar.set_message(format!("{}, {}/s", entries(done), count(per_second(done, seconds))));
        Ok(())
    }

    /// The work that was done.
    pub(super) fn finish(mut self) -> LoadOutcome {
        self.bar.finish_and_clear();
        self.outcome.seconds = self.started.elapsed().as_secs_f64();
        self.outcome.repeated_keys = self.repeats.count();
        self.outcome
    }
}

/// The first record, read before a store is created for it.
pub(super) struct First {
    record: Record,
    found: Found,
}

impl First {
    /// An error if it is malformed, unless malformed records are skipped.
    pub(super) fn read(records: &mut dyn Records, args: &LoadArgs) -> Result<Self> {
        let mut record = Record::default();
        let found = next(records, &mut record, args)?;
        match found {
            Found::Malformed(reason) if !args.skip_malformed => Err(malformed(args, record.line, &reason)),
            found => Ok(Self { record, found }),
        }
    }
}

/// The next record; one that the engine would refuse is malformed.
fn next(records: &mut dyn Records, record: &mut Record, args: &LoadArgs) -> Result<Found> {
    let found = records.next(record).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData => Failure::usage(format!("{}: {e}", args.input_name().display())),
        _ => Failure::io("read", args.input_name(), &e),
    })?;
    Ok(match (found, refusal(record)) {
        (Found::Entry, Some(reason)) => Found::Malformed(reason),
        (found, _) => found,
    })
}

fn malformed(args: &LoadArgs, line: u64, reason: &str) -> Failure {
    Failure::usage(format!("{}, line {line}: {reason}", args.input_name().display()))
        .hint("correct the input, or use --skip-malformed to skip and count malformed entries")
}

/// Why the engine would refuse a record.
fn refusal(record: &Record) -> Option<String> {
    let (key, value) = (record.key.len(), record.value.len());
    if key > KEY_LEN_MAX {
        Some(format!("the key has {key} bytes; at most {KEY_LEN_MAX} are possible"))
    } else if value > VALUE_LEN_MAX {
        Some(format!("the value has {value} bytes; at most {VALUE_LEN_MAX} are possible"))
    } else {
        None
    }
}

/// Counts repeated keys of one load by their 64-bit hashes, up to a limit of keys.
#[derive(Default)]
struct Repeats {
    hasher: RandomState,
    seen: HashSet<u64>,
    repeated: u64,
    given_up: bool,
}

impl Repeats {
    fn see(&mut self, key: &[u8]) {
        if self.given_up {
            return;
        }
        self.repeated += u64::from(!self.seen.insert(self.hasher.hash_one(key)));
        if self.seen.len() > REPEATS_KEYS_MAX {
            (self.given_up, self.seen) = (true, HashSet::new());
        }
    }

    fn count(&self) -> Option<u64> {
        (!self.given_up).then_some(self.repeated)
    }
}
