//! Queries: reads of all kinds, with their expected answers.

use std::ops::Bound;
use std::sync::Arc;

use fastrand::Rng;
use pleach::{Cursor, Db, Partition, Range, Snapshot, Value};

use super::plan::Plan;
use super::world::{Entries, NAMES, World};

type Key = Arc<[u8]>;
type Bounds = (Bound<Key>, Bound<Key>);

/// One read.
#[derive(Clone, Debug)]
pub(crate) enum Query {
    Get(usize, Key),
    GetMany(usize, Vec<Key>),
    /// Up to `limit` entries, taken at random from the front or the back.
    Range {
        slot: usize,
        bounds: Bounds,
        limit: usize,
        coins: u64,
    },
    Prefix {
        slot: usize,
        prefix: Vec<u8>,
        limit: usize,
        coins: u64,
    },
    Cursor(usize, Vec<Move>),
}

/// A move of a cursor.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    First,
    Last,
    Seek(Key),
    SeekForPrev(Key),
    Next,
    Prev,
}

/// Keys and values in the order in which the read returned them; an absent value is `None`.
pub(crate) type Answer = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The target of a read.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Newest(&'a Db),
    /// Handles that were taken earlier.
    Handles(&'a [(usize, Partition)]),
    Snapshot(&'a Snapshot, &'a [(usize, Partition)]),
}

impl Source<'_> {
    /// Whether it has a handle of this partition.
    pub(crate) fn has(self, slot: usize) -> bool {
        match self {
            Source::Newest(db) => db.find_partition(NAMES[slot]).is_some(),
            Source::Handles(handles) | Source::Snapshot(_, handles) => {
                handles.iter().any(|(s, _)| *s == slot)
            }
        }
    }
}

impl Query {
    /// All entries of a partition.
    pub(crate) fn all_of(slot: usize) -> Self {
        let bounds = (Bound::Unbounded, Bound::Unbounded);
        Self::Range { slot, bounds, limit: usize::MAX, coins: 0 }
    }

    /// The partition that it reads.
    pub(crate) fn slot(&self) -> usize {
        match self {
            Query::Get(slot, _)
            | Query::GetMany(slot, _)
            | Query::Range { slot, .. }
            | Query::Prefix { slot, .. }
            | Query::Cursor(slot, _) => *slot,
        }
    }

    pub(crate) fn random(plan: &mut Plan, world: &World) -> Self {
        let slot = plan.slot(world);
        let kind = plan.rng.u8(..12);
        let limit = if plan.rng.bool() { usize::MAX } else { plan.rng.usize(..20) };
        let coins = match plan.rng.u8(..3) {
            0 => 0,
            1 => u64::MAX,
            _ => plan.rng.u64(..),
        };
        match kind {
            0..5 => Self::Get(slot, plan.key(slot)),
            5 => {
                let count = plan.rng.usize(..12);
                Self::GetMany(slot, (0..count).map(|_| plan.key(slot)).collect())
            }
            6..9 => Self::Range { slot, bounds: (bound(plan, slot), bound(plan, slot)), limit, coins },
            9 => Self::Cursor(slot, moves(plan, slot)),
            _ => {
                let key = plan.key(slot);
                let prefix = key[..plan.rng.usize(..=key.len())].to_vec();
                Self::Prefix { slot, prefix, limit, coins }
            }
        }
    }

    /// The store's answer.
    pub(crate) fn ask(&self, source: Source<'_>) -> pleach::Result<Answer> {
        let partition = |slot: usize| match source {
            Source::Newest(db) => {
                db.find_partition(NAMES[slot]).expect("queries name partitions that are there")
            }
            Source::Handles(handles) | Source::Snapshot(_, handles) => {
                let (_, handle) = handles.iter().find(|(s, _)| *s == slot).expect("as above");
                handle.clone()
            }
        };
        let get = |slot: usize, key: &Key| -> pleach::Result<_> {
            let value = match source {
                Source::Newest(_) | Source::Handles(_) => partition(slot).get(key),
                Source::Snapshot(snapshot, _) => snapshot.get(&partition(slot), key),
            };
            Ok((key.to_vec(), value?.map(Value::into_vec)))
        };
        match self {
            Query::Get(slot, key) => Ok(vec![get(*slot, key)?]),
            Query::GetMany(slot, keys) => {
                let values = match source {
                    Source::Newest(_) | Source::Handles(_) => partition(*slot).get_many(keys.iter())?,
                    Source::Snapshot(snapshot, _) => snapshot.get_many(&partition(*slot), keys.iter())?,
                };
                let values = values.into_iter().map(|value| value.map(Value::into_vec));
                Ok(keys.iter().map(|key| key.to_vec()).zip(values).collect())
            }
            Query::Range { slot, bounds, limit, coins } => {
                let range = match source {
                    Source::Newest(_) | Source::Handles(_) => partition(*slot).range(bounds.clone()),
                    Source::Snapshot(snapshot, _) => snapshot.range(&partition(*slot), bounds.clone()),
                };
                walk(range, *limit, *coins)
            }
            Query::Prefix { slot, prefix, limit, coins } => {
                let range = match source {
                    Source::Newest(_) | Source::Handles(_) => partition(*slot).prefix(prefix),
                    Source::Snapshot(snapshot, _) => snapshot.prefix(&partition(*slot), prefix),
                };
                walk(range, *limit, *coins)
            }
            Query::Cursor(slot, moves) => {
                let cursor = match source {
                    Source::Newest(_) | Source::Handles(_) => partition(*slot).cursor()?,
                    Source::Snapshot(snapshot, _) => snapshot.cursor(&partition(*slot))?,
                };
                follow(cursor, moves)
            }
        }
    }

    /// The right answer.
    pub(crate) fn expected(&self, world: &World) -> Answer {
        let get = |slot: usize, key: &Key| (key.to_vec(), world.entries(slot).get(key).map(|v| v.to_vec()));
        match self {
            Query::Get(slot, key) => vec![get(*slot, key)],
            Query::GetMany(slot, keys) => keys.iter().map(|key| get(*slot, key)).collect(),
            Query::Range { slot, bounds, limit, coins } => {
                let inside = |key: &Key| std::ops::RangeBounds::contains(bounds, key);
                expected_walk(world.entries(*slot), inside, *limit, *coins)
            }
            Query::Prefix { slot, prefix, limit, coins } => {
                expected_walk(world.entries(*slot), |key| key.starts_with(prefix), *limit, *coins)
            }
            Query::Cursor(slot, moves) => expected_moves(world.entries(*slot), moves),
        }
    }
}

/// Moves in short and long walks, which turn, with seeks between them.
fn moves(plan: &mut Plan, slot: usize) -> Vec<Move> {
    let mut moves = Vec::new();
    for _ in 0..plan.rng.usize(1..6) {
        moves.push(match plan.rng.u8(..6) {
            0 => Move::First,
            1 => Move::Last,
            2 | 3 => Move::Seek(plan.key(slot)),
            _ => Move::SeekForPrev(plan.key(slot)),
        });
        for _ in 0..plan.rng.usize(..8) {
            let forwards = plan.rng.bool();
            let steps = if plan.rng.u8(..4) == 0 { plan.rng.usize(..12) } else { plan.rng.usize(..3) };
            moves.extend((0..steps).map(|_| if forwards { Move::Next } else { Move::Prev }));
        }
    }
    moves
}

/// The bounds may be in the wrong order; such a range is empty.
fn bound(plan: &mut Plan, slot: usize) -> Bound<Key> {
    let key = plan.key(slot);
    match plan.rng.u8(..6) {
        0 | 1 => Bound::Unbounded,
        2 | 3 => Bound::Included(key),
        4 => Bound::Excluded(key),
        _ => Bound::Included(near(&mut plan.rng, &key)),
    }
}

/// A key near a present one, most likely absent.
fn near(rng: &mut Rng, key: &[u8]) -> Key {
    let mut key = key.to_vec();
    match rng.u8(..3) {
        0 => key.push(0),
        1 if key.len() > 1 => drop(key.pop()),
        _ => match key.last_mut() {
            Some(last) => *last = last.wrapping_add(1),
            None => key.push(255),
        },
    }
    key.into()
}

fn walk(mut range: Range, limit: usize, coins: u64) -> pleach::Result<Answer> {
    let mut answer = Vec::new();
    for step in 0..limit {
        let back = is_back(coins, step);
        // Every third entry is lent.
        let entry = if step % 3 == 1 {
            let lent = if back { range.next_back_entry()? } else { range.next_entry()? };
            lent.map(|(key, value)| (key.to_vec(), value.to_vec()))
        } else {
            let owned = if back { range.next_back() } else { range.next() }.transpose()?;
            owned.map(|(key, value)| (key.into_vec(), value.into_vec()))
        };
        let Some((key, value)) = entry else { break };
        answer.push((key, Some(value)));
    }
    Ok(answer)
}

/// The entry behind each move.
fn follow(mut cursor: Cursor, moves: &[Move]) -> pleach::Result<Answer> {
    let mut answer = Vec::new();
    for step in moves {
        let found = match step {
            Move::First => cursor.first(),
            Move::Last => cursor.last(),
            Move::Seek(key) => cursor.seek(key),
            Move::SeekForPrev(key) => cursor.seek_for_prev(key),
            Move::Next => cursor.next(),
            Move::Prev => cursor.prev(),
        }?;
        assert_eq!(found, cursor.is_valid());
        let key = cursor.key().unwrap_or_default().to_vec();
        answer.push((key, cursor.value()?.map(<[u8]>::to_vec)));
    }
    Ok(answer)
}

fn expected_moves(entries: &Entries, moves: &[Move]) -> Answer {
    let mut on: Option<Key> = None;
    let mut answer = Vec::new();
    for step in moves {
        let above = |bound| entries.range::<Key, _>((bound, Bound::Unbounded)).next();
        let below = |bound| entries.range::<Key, _>((Bound::Unbounded, bound)).next_back();
        let found = match (step, on.take()) {
            (Move::First, _) => above(Bound::Unbounded),
            (Move::Last, _) => below(Bound::Unbounded),
            (Move::Seek(key), _) => above(Bound::Included(key)),
            (Move::SeekForPrev(key), _) => below(Bound::Included(key)),
            (Move::Next, Some(key)) => above(Bound::Excluded(&key)),
            (Move::Prev, Some(key)) => below(Bound::Excluded(&key)),
            (Move::Next | Move::Prev, None) => None,
        };
        on = found.map(|(key, _)| Arc::clone(key));
        let entry = found.map(|(key, value)| (key.to_vec(), Some(value.to_vec())));
        answer.push(entry.unwrap_or_default());
    }
    answer
}

fn expected_walk(entries: &Entries, inside: impl Fn(&Key) -> bool, limit: usize, coins: u64) -> Answer {
    let mut range = entries.iter().filter(|(key, _)| inside(key));
    let mut answer = Vec::new();
    for step in 0..limit {
        let entry = if is_back(coins, step) { range.next_back() } else { range.next() };
        let Some((key, value)) = entry else { break };
        answer.push((key.to_vec(), Some(value.to_vec())));
    }
    answer
}

fn is_back(coins: u64, step: usize) -> bool {
    coins >> (step % 64) & 1 == 1
}
