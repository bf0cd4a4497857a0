//! The batches of a writer, generated from the seed and their number, and the resulting state.

use std::collections::BTreeMap;

use fastrand::Rng;
use pleach::{Durability, Options};

/// Partitions that batches write to. The last is dropped and created again at times.
pub(crate) const PARTITIONS: [&str; 4] = ["default", "users", "orders", "scratch"];

/// The partition in which each batch notes how many batches of each writer had been acknowledged before it. The model lacks it.
pub(crate) const SEEN: &str = "seen";

/// Every so many batches, the writer drops its scratch partition first.
const DROP_EVERY: u64 = 60;

/// Threads that write. Each has keys and a scratch partition of its own.
pub(crate) const WRITERS: u64 = 4;

/// A number for each writer.
pub(crate) type PerWriter = [u64; 4];

/// The store's options: everything small, so that flushes and compactions never end.
pub(crate) fn options() -> Options {
    Options::new()
        .memory(1 << 20)
        .memtable_bytes(32 << 10)
        .sst_bytes(16 << 10)
        .clean_every(1)
        .runs_per_stage(2)
}

/// One put or delete.
pub(crate) struct Operation {
    pub(crate) partition: String,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

/// Batch number `number` of `writer`.
pub(crate) struct Batch {
    pub(crate) drops_scratch: bool,
    pub(crate) operations: Vec<Operation>,
    pub(crate) durability: Durability,
}

/// Where a writer notes, in each batch, how many batches it has written: in the default partition.
pub(crate) fn counter_key(writer: u64) -> Vec<u8> {
    format!("count of writer {writer}").into_bytes()
}

/// The name of a partition as one writer uses it.
pub(crate) fn partition_name(writer: u64, partition: &str) -> String {
    if partition == "scratch" { format!("scratch {writer}") } else { partition.to_owned() }
}

impl Batch {
    pub(crate) fn new(seed: u64, writer: u64, number: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ (number * WRITERS + writer).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let count = if rng.u8(..20) == 0 { rng.usize(50..200) } else { rng.usize(1..10) };
        let mut operations: Vec<_> = (0..count).map(|_| Operation::random(&mut rng, writer)).collect();
        operations.push(Operation {
            partition: "default".to_owned(),
            key: counter_key(writer),
            value: Some((number + 1).to_le_bytes().to_vec()),
        });
        let durability = if rng.u8(..16) == 0 { Durability::Sync } else { Durability::Buffered };
        Self { drops_scratch: number % DROP_EVERY == DROP_EVERY - 1, operations, durability }
    }
}

impl Operation {
    fn random(rng: &mut Rng, writer: u64) -> Self {
        let partition = PARTITIONS[rng.usize(..PARTITIONS.len())];
        let key = format!("{writer}/{:05}", rng.u32(..3000)).into_bytes();
        let value =
            (rng.u8(..5) > 0).then(|| format!("{:016x}", rng.u64(..)).repeat(rng.usize(..16)).into_bytes());
        Self { partition: partition_name(writer, partition), key, value }
    }
}

/// The content of all partitions, by partition and key.
pub(crate) type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The state after so many batches of each writer.
pub(crate) struct Model {
    seed: u64,
    pub(crate) counts: PerWriter,
    pub(crate) contents: Contents,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, counts: PerWriter::default(), contents: Contents::new() }
    }

    /// Applies the batches of `writer` up to `count`.
    pub(crate) fn advance(&mut self, writer: u64, count: u64) {
        let from = &mut self.counts[usize::try_from(writer).expect("few writers")];
        for number in *from..count {
            let batch = Batch::new(self.seed, writer, number);
            if batch.drops_scratch {
                self.contents.remove(&partition_name(writer, "scratch"));
            }
            for Operation { partition, key, value } in batch.operations {
                let entries = self.contents.entry(partition).or_default();
                match value {
                    Some(value) => entries.insert(key, value),
                    None => entries.remove(&key),
                };
            }
        }
        *from = (*from).max(count);
    }
}
