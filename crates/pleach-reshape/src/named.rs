//! Named values: what the layer keeps about itself in the store, beside the rows.
//!
//! # On disk
//! Layout: docs/format/reshaped-rows.md.

use pleach::{Error, ErrorKind, Result};

use crate::ids::{Layout, STRIPES_MAX};
use crate::map::Key;
use crate::numbers::{self, malformed};
use crate::store::{self, Change, Durability, RowStore};

const IDENTITY: &str = "reshape.identity";
const GENERATION: &str = "reshape.generation";
const CEILING: &str = "reshape.ceiling";
const CHECKPOINT: &str = "reshape.checkpoint";
const GARBAGE: &str = "reshape.garbage";
/// The edge of the rows that have moved.
pub(crate) const EDGE: &str = "reshape.edge";

/// Which store it is, and how it lays out its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) number: [u64; 2],
    pub(crate) layout: Layout,
}

/// Which tables have rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) number: u64,
    /// Whether the generation before may have rows too, which are on their way to this one.
    pub(crate) is_draining: bool,
}

/// Which maps are good for the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointNumbers {
    /// That of the newest checkpoint that began.
    pub(crate) newest: u64,
    /// Maps of older checkpoints may name rows of tables that were dropped.
    pub(crate) oldest: u64,
    /// A random number that the map has too. Each rebuilt map gets another one, so that one from before, whose rows
    /// may have been replaced by older ones, is never taken for it.
    pub(crate) map: u64,
}

impl CheckpointNumbers {
    fn encode(self) -> [u64; 3] {
        [self.newest, self.oldest, self.map]
    }
}

/// An error of the store as ours.
pub(crate) fn store_error(action: &str, error: &store::Error) -> Error {
    // A store's error that is ours keeps its kind.
    if let Some(ours) = error.downcast_ref::<Error>() {
        return ours.clone();
    }
    Error::new(ErrorKind::Io, format!("the store of rows cannot {action}: {error}"))
}

fn read(store: &dyn RowStore, name: &str) -> Result<Option<Vec<u64>>> {
    let value = store.meta(name).map_err(|e| store_error("read a named value", &e))?;
    value.map(|bytes| numbers::decode(name, &bytes)).transpose()
}

fn read_some<const N: usize>(store: &dyn RowStore, name: &str) -> Result<Option<[u64; N]>> {
    let numbers = read(store, name)?;
    numbers.map(|numbers| numbers.try_into().map_err(|_| malformed(name))).transpose()
}

/// Writes named values in one transaction.
fn write(store: &dyn RowStore, values: &[(&str, &[u64])], durability: Durability) -> Result<()> {
    let encoded: Vec<_> =
        values.iter().map(|(name, numbers)| (*name, numbers::encode(name, numbers))).collect();
    let changes: Vec<_> = encoded.iter().map(|(name, value)| Change::SetMeta { name, value }).collect();
    store.commit(&changes, durability).map_err(|e| store_error("write a named value", &e))
}

/// `None` if nothing is there: a store that was never reshaped.
pub(crate) fn identity(store: &dyn RowStore) -> Result<Option<Identity>> {
    let Some([stripes, sequence_bits, has_tables, first, second]) = read_some(store, IDENTITY)? else {
        return Ok(None);
    };
    let is_possible = (1..STRIPES_MAX as u64).contains(&stripes) && (1..=56).contains(&sequence_bits);
    if !is_possible || has_tables > 1 {
        return Err(malformed(IDENTITY));
    }
    let stripes = usize::try_from(stripes).map_err(|_| malformed(IDENTITY))?;
    let sequence_bits = u32::try_from(sequence_bits).map_err(|_| malformed(IDENTITY))?;
    let layout = Layout { stripes, sequence_bits, has_tables: has_tables == 1 };
    Ok(Some(Identity { number: [first, second], layout }))
}

/// Makes the store one of ours, durably. Its tables exist.
pub(crate) fn create(store: &dyn RowStore, identity: &Identity) -> Result<()> {
    let Layout { stripes, sequence_bits, has_tables } = identity.layout;
    let [first, second] = identity.number;
    let numbers = [stripes as u64, u64::from(sequence_bits), u64::from(has_tables), first, second];
    let values: [(&str, &[u64]); 2] = [(IDENTITY, &numbers), (GENERATION, &[0, 0])];
    write(store, &values, Durability::Sync)
}

pub(crate) fn generation(store: &dyn RowStore) -> Result<Generation> {
    match read_some(store, GENERATION)? {
        Some([number, is_draining @ 0..=1]) => Ok(Generation { number, is_draining: is_draining == 1 }),
        _ => Err(malformed(GENERATION)),
    }
}

/// Writes the generation; with `numbers` in the same transaction.
pub(crate) fn set_generation(
    store: &dyn RowStore,
    generation: Generation,
    numbers: CheckpointNumbers,
    durability: Durability,
) -> Result<()> {
    let Generation { number, is_draining } = generation;
    let values: [(&str, &[u64]); 2] =
        [(GENERATION, &[number, u64::from(is_draining)]), (CHECKPOINT, &numbers.encode())];
    write(store, &values, durability)
}

/// The greatest key whose row has moved to this generation from the one before, if one has.
pub(crate) fn edge(store: &dyn RowStore, generation: u64) -> Result<Option<Key>> {
    let Some(numbers) = read(store, EDGE)? else { return Ok(None) };
    let (of, key) = numbers.split_first().ok_or_else(|| malformed(EDGE))?;
    let key = numbers::key_of(EDGE, key)?;
    Ok((*of == generation).then_some(key))
}

/// The value of [`EDGE`].
pub(crate) fn encode_edge(generation: u64, key: &[u8]) -> Vec<u8> {
    let numbers: Vec<u64> =
        std::iter::once(generation).chain(key.iter().map(|byte| u64::from(*byte))).collect();
    numbers::encode(EDGE, &numbers)
}

pub(crate) fn ceiling(store: &dyn RowStore) -> Result<u64> {
    Ok(read_some(store, CEILING)?.map_or(0, |[ceiling]| ceiling))
}

pub(crate) fn set_ceiling(store: &dyn RowStore, ceiling: u64) -> Result<()> {
    write(store, &[(CEILING, &[ceiling])], Durability::Buffered)
}

pub(crate) fn checkpoint_numbers(store: &dyn RowStore) -> Result<CheckpointNumbers> {
    let numbers = read_some(store, CHECKPOINT)?;
    let numbers = numbers.map(|[newest, oldest, map]| CheckpointNumbers { newest, oldest, map });
    Ok(numbers.unwrap_or_default())
}

pub(crate) fn set_checkpoint_numbers(store: &dyn RowStore, numbers: CheckpointNumbers) -> Result<()> {
    write(store, &[(CHECKPOINT, &numbers.encode())], Durability::Buffered)
}

/// Whether rows may be there that a later row of their key replaces.
pub(crate) fn has_garbage(store: &dyn RowStore) -> Result<bool> {
    Ok(read_some(store, GARBAGE)?.is_some_and(|[garbage]| garbage != 0))
}

pub(crate) fn set_garbage(store: &dyn RowStore, garbage: bool) -> Result<()> {
    write(store, &[(GARBAGE, &[u64::from(garbage)])], Durability::Buffered)
}
