//! Examination: opens a store that may be damaged, reads all of it, and judges the answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{Db, Error, ErrorKind, Partition};

use crate::fixture::{DIR, Entries, Fixture};

/// The verdict on a store. Each of these is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every answer was right, and nothing was reported.
    Intact,
    /// It did not open.
    Refused(ErrorKind),
    /// It opened and returned errors and right answers.
    Noticed,
}

/// The answers that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Right answers and errors.
    Full,
    /// Right answers and errors, with the named check switched off: a test of the test.
    FullWithout(&'static str),
    /// Any answers, because the named check was forged. The store must not panic, hang or exceed its memory.
    Forged(&'static str),
}

/// Opens and reads the store on `env`. The error describes the violation.
pub(crate) fn examine(
    fixture: &Fixture,
    env: &Arc<SimEnv>,
    trust: Trust,
    settles: bool,
) -> Result<Verdict, String> {
    let db = match fixture.options(env).open(DIR) {
        Ok(db) => db,
        Err(error) => return check_error(&error).map(|()| Verdict::Refused(error.kind())),
    };
    let mut examination = Examination { fixture, trust, errors: 0 };
    examination.read(&db)?;
    if settles {
        // A failed compaction may poison the store. The answers must still be right.
        if let Err(error) = db.settle() {
            examination.take_error(&error, &[ErrorKind::Poisoned])?;
        }
        examination.read(&db)?;
    }
    drop(db);
    Ok(if examination.errors == 0 { Verdict::Intact } else { Verdict::Noticed })
}

/// Checks an error that damage may cause: it must be of a fitting kind and name the file.
fn check_error(error: &Error) -> Result<(), String> {
    let allowed = [ErrorKind::Corruption, ErrorKind::Unsupported, ErrorKind::Io].contains(&error.kind());
    if allowed && error.path().is_some() { Ok(()) } else { Err(format!("not an error for damage: {error}")) }
}

struct Examination<'f> {
    fixture: &'f Fixture,
    trust: Trust,
    errors: u64,
}

impl Examination<'_> {
    fn take_error(&mut self, error: &Error, also_allowed: &[ErrorKind]) -> Result<(), String> {
        self.errors += 1;
        if also_allowed.contains(&error.kind()) { Ok(()) } else { check_error(error) }
    }

    /// `message` as an error, unless wrong answers are allowed.
    fn wrong(&self, message: impl FnOnce() -> String) -> Result<(), String> {
        match self.trust {
            Trust::Full | Trust::FullWithout(_) => Err(message()),
            Trust::Forged(_) => Ok(()),
        }
    }

    fn read(&mut self, db: &Db) -> Result<(), String> {
        let expected: Vec<_> = self.fixture.truth.keys().cloned().collect();
        if db.partitions() != expected {
            self.wrong(|| format!("the partitions are {:?}", db.partitions()))?;
        }
        for (name, entries) in &self.fixture.truth {
            if let Some(partition) = db.find_partition(name) {
                self.gets(&partition, entries)?;
                self.scans(&partition, entries)?;
            }
        }
        match db.verify() {
            Ok(_) => Ok(()),
            Err(error) => self.take_error(&error, &[]),
        }
    }

    fn gets(&mut self, partition: &Partition, entries: &Entries) -> Result<(), String> {
        let name = partition.name();
        let missing = (0..400u32).step_by(7).map(|i| format!("{name}-{i:04}").into_bytes());
        let keys: BTreeSet<_> = entries.keys().cloned().chain(missing).collect();
        for key in &keys {
            match partition.get(key) {
                Ok(value) if value.as_deref() == entries.get(key).map(Vec::as_slice) => {}
                Ok(value) => self.wrong(|| {
                    let (found, expected) =
                        (value.as_deref().map(<[u8]>::len), entries.get(key).map(Vec::len));
                    format!("get {} found {found:?}, expected {expected:?} bytes", key.escape_ascii())
                })?,
                Err(error) => self.take_error(&error, &[])?,
            }
        }
        Ok(())
    }

    fn scans(&mut self, partition: &Partition, entries: &Entries) -> Result<(), String> {
        self.scan(partition, partition.iter(), entries.iter(), "scan")?;
        self.scan(partition, partition.iter().rev(), entries.iter().rev(), "reverse scan")
    }

    fn scan<'e>(
        &mut self,
        partition: &Partition,
        found: impl Iterator<Item = pleach::Result<(pleach::Key, pleach::Value)>>,
        mut expected: impl Iterator<Item = (&'e Vec<u8>, &'e Vec<u8>)>,
        what: &str,
    ) -> Result<(), String> {
        let mut steps = 0;
        let mut failed = false;
        for entry in found {
            if failed {
                return Err(format!("{what} of {} goes on after an error", partition.name()));
            }
            steps += 1;
            if steps > 100_000 {
                return Err(format!("{what} of {} does not end", partition.name()));
            }
            match entry {
                Ok((key, value))
                    if expected.next().is_some_and(|e| (&e.0[..], &e.1[..]) == (&key[..], &value[..])) => {}
                Ok((key, _)) => {
                    self.wrong(|| format!("{what} of {} found {}", partition.name(), key.escape_ascii()))?;
                }
                Err(error) => {
                    failed = true;
                    self.take_error(&error, &[])?;
                }
            }
        }
        match expected.next() {
            Some((key, _)) if !failed => {
                self.wrong(|| format!("{what} of {} ends before {}", partition.name(), key.escape_ascii()))
            }
            _ => Ok(()),
        }
    }
}
