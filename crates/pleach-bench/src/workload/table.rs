//! The table of workloads.

use super::mix::Mix;
use super::shape::{ScanLen, Shape};
use crate::data::Distribution;

/// A workload by its usual name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) shape: Shape,
    /// Scan lengths where the workload, not the command line, defines them.
    pub(crate) scan_len: Option<ScanLen>,
}

impl Workload {
    /// Whether it does nothing but reads that can be futures: gets of one key, or scans.
    pub(crate) fn is_futures(&self) -> bool {
        match self.shape {
            Shape::Mix { mix, many, .. } => matches!(mix, Mix::GETS | Mix::SCANS) && !many,
            Shape::ReadWhileWriting | Shape::ReadWhileConverting => true,
            _ => false,
        }
    }
}

const fn mix(mix: Mix, distribution: Option<Distribution>) -> Shape {
    Shape::Mix { mix, distribution, missing: false, many: false }
}

const fn workload(name: &'static str, about: &'static str, shape: Shape) -> Workload {
    Workload { name, about, shape, scan_len: None }
}

/// YCSB's shares: reads, updates, inserts, scans, read-modify-writes.
const fn ycsb(name: &'static str, about: &'static str, shares: [u8; 5], latest: bool) -> Workload {
    let [get, put, insert, scan, read_modify_write] = shares;
    let distribution = if latest { Distribution::Latest } else { Distribution::Zipfian };
    let shape = mix(Mix { get, put, insert, scan, read_modify_write }, Some(distribution));
    Workload { name, about, shape, scan_len: Some(ScanLen::UpTo(100)) }
}

/// So many percent gets, the rest puts.
const fn read_update(name: &'static str, about: &'static str, get: u8) -> Workload {
    workload(name, about, mix(Mix { get, put: 100 - get, ..Mix::NOTHING }, None))
}

const MIXGRAPH: Mix = Mix { get: 83, put: 14, insert: 0, scan: 3, read_modify_write: 0 };

/// All workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload(
        "fillseq",
        "put every key once, in key order, into an empty store",
        Shape::Fill { sorted: true },
    ),
    workload(
        "fillrandom",
        "put every key once, in random order, into an empty store",
        Shape::Fill { sorted: false },
    ),
    workload("overwrite", "put existing keys again", mix(Mix::PUTS, None)),
    workload(
        "overwriteonce",
        "put every existing key again once, in random order, or those between --loaded-after and --loaded-before",
        Shape::FillAgain,
    ),
    workload("readrandom", "get existing keys", mix(Mix::GETS, None)),
    workload(
        "readmissing",
        "get keys that are not there but lie among those that are",
        Shape::Mix { mix: Mix::GETS, distribution: None, missing: true, many: false },
    ),
    workload("readseq", "read all entries in key order, again and again", Shape::ReadAll { reverse: false }),
    workload("readreverse", "read all entries in reverse key order", Shape::ReadAll { reverse: true }),
    workload(
        "seekrandom",
        "seek an existing key and read --scan-len entries from there",
        mix(Mix::SCANS, None),
    ),
    workload(
        "multireadrandom",
        "get --multi existing keys in one call",
        Shape::Mix { mix: Mix::GETS, distribution: None, missing: false, many: true },
    ),
    workload(
        "readwhilewriting",
        "get existing keys while one more thread overwrites at --write-rate",
        Shape::ReadWhileWriting,
    ),
    workload(
        "readwhileconverting",
        "get existing keys while one more thread overwrites at --write-rate and the engine converts everything over and over",
        Shape::ReadWhileConverting,
    ),
    workload(
        "readwhilecompacting",
        "get existing keys while the engine merges them all with overwrites of a tenth, and in quiet before that",
        Shape::ReadWhileCompacting,
    ),
    workload("deleterandom", "delete half of the keys in random order", Shape::Delete),
    Workload {
        name: "mixgraph",
        about: "83 % gets, 14 % puts, 3 % scans over hot key ranges, after RocksDB's mixgraph",
        shape: mix(MIXGRAPH, Some(Distribution::Mixgraph)),
        scan_len: Some(ScanLen::Mixgraph),
    },
    ycsb("ycsb-a", "50 % gets, 50 % puts, Zipfian", [50, 50, 0, 0, 0], false),
    ycsb("ycsb-b", "95 % gets, 5 % puts, Zipfian", [95, 5, 0, 0, 0], false),
    ycsb("ycsb-c", "gets, Zipfian", [100, 0, 0, 0, 0], false),
    ycsb("ycsb-d", "95 % gets of the latest keys, 5 % inserts", [95, 0, 5, 0, 0], true),
    ycsb("ycsb-e", "95 % scans of 1 to 100 entries, 5 % inserts, Zipfian", [0, 0, 5, 95, 0], false),
    ycsb("ycsb-f", "50 % gets, 50 % read-modify-writes, Zipfian", [50, 0, 0, 0, 50], false),
    read_update("readupdate70", "70 % gets, 30 % puts of existing keys", 70),
    read_update("readupdate50", "50 % gets, 50 % puts of existing keys", 50),
    read_update("readupdate30", "30 % gets, 70 % puts of existing keys", 30),
    workload(
        "fillstages",
        "ten times: put a tenth of the keys in random order, then get as many of those that are there",
        Shape::FillStages,
    ),
    workload(
        "convert",
        "bring everything into the form that is read best, by the engine's own call",
        Shape::Convert,
    ),
    workload("delete_partition", "drop five of ten partitions, one by one", Shape::DropPartitions),
    workload(
        "readafterdelete",
        "get keys of five partitions right after five others were dropped",
        Shape::ReadAfterDrop,
    ),
    workload("queue", "append to a queue and take its first entry, in turn", Shape::Queue),
];

/// The workload called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}
