//! Search of the SST of a key among those of a run: a model of all boundaries beside separators, by the number of SSTs.
//!
//! Each search waits for the one before. The keys that are searched are those at the boundaries.
//!
//! ```sh
//! cargo run --release -p pleach-index --example run_locator [set ...]
//! ```

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement tool")]
#![expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "figures of a few digits")]
#![expect(clippy::indexing_slicing, reason = "places are computed from lengths")]

#[path = "../../pleach-table/examples/index_table/data.rs"]
mod data;

use std::hint::black_box;
use std::time::Instant;

use data::{KeySet, Part, mix64};
use pleach_index::{Index, IndexBuilder, IndexChoice};

/// Numbers of SSTs. A run of pointers to 8 million values of 1 KB has two of 64 MiB, a terabyte in blocks has 16,000.
const SSTS: [usize; 7] = [2, 16, 64, 256, 1024, 4096, 16384];
const SEARCHES: usize = 1 << 16;
/// The fastest counts.
const TURNS: usize = 9;

fn main() {
    let sets: Vec<String> = std::env::args().skip(1).collect();
    println!("ns a search, bytes, and microseconds to make it: separators | a model, if one can be made");
    for set in KeySet::ALL {
        if !sets.is_empty() && !sets.iter().any(|name| name == set.description().0) {
            continue;
        }
        for ssts in SSTS {
            let run = Part::run(set, 2 * ssts as u64);
            // Every SST is known by its first key and its last one.
            let files: Vec<_> = run.keys.chunks_exact(2).collect();
            let keys: Vec<_> =
                (0..SEARCHES).map(|i| &run.keys[mix64(i as u64) as usize % run.keys.len()]).collect();
            let make = |builder: IndexBuilder, choice| {
                let started = Instant::now();
                let mut builder = builder;
                files.windows(2).for_each(|pair| builder.boundary(&pair[0][1], &pair[1][0]));
                let index = builder.finish_as(choice).0;
                let made_us = started.elapsed().as_nanos() as f64 / 1000.0;
                format!(
                    "{:?}: {:.1} ns, {} B, {made_us:.0} us",
                    index.kind(),
                    search_ns(&index, &keys),
                    index.memory()
                )
            };
            let separators = make(IndexBuilder::new(), IndexChoice::Separators);
            let model = make(IndexBuilder::learning(), IndexChoice::Learned);
            println!("{:10} {ssts:6} SSTs  {separators} | {model}", run.name);
        }
    }
}

/// Time of a search, the fastest of some turns.
fn search_ns(index: &Index, keys: &[&Vec<u8>]) -> f64 {
    let turn = || {
        let started = Instant::now();
        let mut found = 0;
        for i in 0..keys.len() {
            // The next key depends on what was found, so the processor cannot begin with it.
            found = index.find(keys[(i + (found as usize & 1)) % keys.len()]);
        }
        black_box(found);
        started.elapsed().as_nanos() as f64 / keys.len() as f64
    };
    (0..TURNS).map(|_| turn()).fold(f64::INFINITY, f64::min)
}
