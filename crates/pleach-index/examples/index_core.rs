//! Sizes and search times of both kinds of index, over generated key sets.
//!
//! Blocks of 4 KiB with values of 100 bytes are simulated. The keys are those of one SST out of a run 16 times as large.
//!
//! ```sh
//! cargo run --release -p pleach-index --example index_core
//! ```

#![expect(clippy::print_stdout, reason = "it prints a table")]
#![expect(clippy::disallowed_methods, reason = "it measures on the real machine")]
#![expect(clippy::cast_precision_loss, reason = "figures of a few digits")]
#![expect(clippy::indexing_slicing, reason = "places are computed from lengths")]

#[path = "../../pleach-table/examples/index_table/data.rs"]
mod data;

#[path = "simulated/blocks.rs"]
mod blocks;

use std::hint::black_box;
use std::time::Instant;

use blocks::{VALUE_LEN, pack};
use data::{KeySet, Part, mix64};
use pleach_index::{Index, IndexBuilder, IndexChoice};

const PROBES: usize = 1024;
const BUILDS: usize = 20;
const SEARCHES: usize = 1 << 21;

/// The index, and the nanoseconds of an entry that it took: the least of some builds, because the first ones wait for the keys.
fn build(keys: &[Vec<u8>], counts: &[usize], choice: IndexChoice) -> (Index, f64) {
    let mut end = 0;
    let ends = counts[..counts.len() - 1].iter().map(|count| {
        end += count;
        end
    });
    let boundaries: Vec<_> = ends.map(|end| [keys[end - 1].clone(), keys[end].clone()]).collect();
    let build = || {
        let start = Instant::now();
        let mut builder = IndexBuilder::learning();
        for [last, first] in &boundaries {
            builder.boundary(last, first);
        }
        let (index, _) = builder.finish_as(choice);
        (index, start.elapsed().as_nanos() as f64 / keys.len() as f64)
    };
    let builds = (0..BUILDS).map(|_| build());
    builds.min_by(|a, b| a.1.total_cmp(&b.1)).expect("at least one build")
}

/// Nanoseconds of a search that waits for the one before; half of the keys are absent. The best of five rounds.
fn search_ns(index: &Index, present: &[Vec<u8>], absent: &[Vec<u8>]) -> f64 {
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    for i in 0..PROBES {
        let from = if i % 2 == 0 || absent.is_empty() { present } else { absent };
        let key = &from[usize::try_from(mix64(i as u64)).expect("64 bits") % from.len()];
        places.push((bytes.len(), key.len()));
        bytes.extend_from_slice(key);
    }
    let round = || {
        let start = Instant::now();
        let mut at = 0_usize;
        for i in 0..SEARCHES {
            let (from, len) = places[at];
            let found = index.find(&bytes[from..from + len]) as usize;
            at = (i.wrapping_mul(0x9e37_79b9) + found) % PROBES;
        }
        black_box(at);
        start.elapsed().as_nanos() as f64 / SEARCHES as f64
    };
    (0..5).map(|_| round()).fold(f64::MAX, f64::min)
}

fn check(index: &Index, keys: &[Vec<u8>], counts: &[usize], absent: &[Vec<u8>]) {
    let mut at = 0;
    for (block, count) in (0..).zip(counts) {
        assert!(keys[at..at + count].iter().all(|key| index.find(key) == block), "a key is not found");
        at += count;
    }
    let mut ends: Vec<usize> = counts
        .iter()
        .scan(0, |at, count| {
            *at += count;
            Some(*at)
        })
        .collect();
    ends.insert(0, 0);
    for key in absent {
        let found = index.find(key) as usize;
        assert!(found == 0 || keys[ends[found] - 1] < *key);
        assert!(found + 1 == counts.len() || *key < keys[ends[found + 1]]);
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "set        cuts     pages%  separators: stored resident  ns | learned: stored resident shared  ns  segments train-ns/key | chosen"
    );
    for set in KeySet::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == set.description().0) {
            continue;
        }
        let Part { name: set_name, keys, missing: absent } = Part::of_run(set);
        let greedy = pack(&keys, VALUE_LEN, false);
        for (name, counts) in [("greedy", greedy.clone()), ("advised", pack(&keys, VALUE_LEN, true))] {
            let blocks = counts.len() as f64;
            let (separators, _) = build(&keys, &counts, IndexChoice::Separators);
            let (learned, train_ns) = build(&keys, &counts, IndexChoice::Learned);
            let (chosen, _) = build(&keys, &counts, IndexChoice::Smallest);
            check(&learned, &keys, &counts, &absent);
            let stored = |index: &Index| {
                let mut bytes = Vec::new();
                index.encode(&mut bytes);
                bytes.len() as f64 / blocks
            };
            println!(
                "{:10} {name:8} {:+6.2}             {:7.2} {:8.2} {:5.1} |        {:7.3} {:8.3} {:6.3} {:5.1} {:8} {:8.2} | {:?}",
                set_name,
                (blocks / greedy.len() as f64 - 1.0) * 100.0,
                stored(&separators),
                separators.memory() as f64 / blocks,
                search_ns(&separators, &keys, &absent),
                stored(&learned),
                learned.memory() as f64 / blocks,
                learned.shareable_memory() as f64 / blocks,
                search_ns(&learned, &keys, &absent),
                learned.segments(),
                train_ns,
                chosen.kind(),
            );
        }
    }
}
