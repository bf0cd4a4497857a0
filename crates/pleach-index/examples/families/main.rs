//! The models of the papers beside ours, by size: Greedy-PLR+ of `LearnedKV` by its error bound, the pure model of `TridentKV`,
//! which cuts blocks where it says, and the paper's alphabets and groups of SNBC.
//!
//! Only sizes, pages and errors; the same on every machine. Bytes are resident ones with all that finding a block touches.
//!
//! ```sh
//! cargo run --release -p pleach-index --example families -- --json figures.json [set ...]
//! ```

#![expect(clippy::print_stdout, reason = "it prints tables")]
#![expect(clippy::disallowed_methods, reason = "it writes a file of figures")]
#![expect(clippy::cast_precision_loss, reason = "figures of a few digits")]
#![expect(clippy::indexing_slicing, reason = "places are computed from lengths")]

#[path = "../simulated/blocks.rs"]
mod blocks;
mod coder;
#[path = "../../../pleach-table/examples/index_table/data.rs"]
mod data;
mod groups;
mod pure;

use std::fmt::Write as _;

use blocks::{VALUE_LEN, pack};
use coder::{Alphabet, Coder, Training};
use data::{KeySet, Part};
use groups::{Blocks, Grouping, Thresholds};
use pleach_index::{GreedyPlr, IndexBuilder, IndexChoice, IndexKind};

/// Error bounds of the sweep, in blocks. `TridentKV` refuses models with an error of 6 or more.
const BOUNDS: [u32; 7] = [0, 1, 2, 4, 6, 8, 16];
/// Blocks that a segment of the pure model covers; the last one covers all.
const SEGMENTS: [usize; 6] = [2, 4, 16, 64, 256, usize::MAX];
/// Of so many keys, one is predicted.
const SAMPLED: usize = 5;
/// Bits of numbers that are wide enough for the pure model.
const WIDE_BITS: f64 = 120.0;
/// Values for which Greedy-PLR+ is shown: ordinary ones, and pointers to separated values.
const VALUE_LENS: [usize; 2] = [VALUE_LEN, 12];
const GROUPINGS: [Thresholds; 4] = [
    Thresholds { records: 512, error: 1.0, is_for_whole_keys: true },
    Thresholds { records: 512, error: 6.0, is_for_whole_keys: true },
    Thresholds { records: 512, error: 1.0, is_for_whole_keys: false },
    Thresholds { records: 512, error: 6.0, is_for_whole_keys: false },
];

/// Figures by name, in their order.
#[derive(Default)]
struct Figures(String);

impl Figures {
    fn text(&mut self, name: &str, text: &str) {
        self.add(name, format_args!("\"{text}\""));
    }

    fn number(&mut self, name: &str, number: f64) {
        self.add(name, format_args!("{number:.4}"));
    }

    fn add(&mut self, name: &str, value: std::fmt::Arguments<'_>) {
        let separator = if self.0.is_empty() { "" } else { "," };
        write!(self.0, "{separator}\"{name}\":{value}").expect("a string takes it");
    }
}

/// An SST, in the blocks that the builder writes.
struct Sst<'a> {
    name: &'a str,
    keys: &'a [Vec<u8>],
    value_len: usize,
    /// Keys in the blocks.
    counts: Vec<usize>,
}

impl<'a> Sst<'a> {
    fn new(part: &'a Part, value_len: usize) -> Self {
        let counts = pack(&part.keys, value_len, true);
        Self { name: &part.name, keys: &part.keys, value_len, counts }
    }

    fn figures(&self, family: &str) -> Figures {
        let mut figures = Figures::default();
        figures.text("set", self.name);
        figures.text("family", family);
        figures.number("value_len", self.value_len as f64);
        figures
    }

    fn builder(&self) -> IndexBuilder {
        let mut builder = IndexBuilder::learning();
        let mut at = 0;
        for count in &self.counts[..self.counts.len() - 1] {
            at += count;
            builder.boundary(&self.keys[at - 1], &self.keys[at]);
        }
        builder
    }

    /// The first keys of all blocks.
    fn firsts(&self) -> Vec<usize> {
        let mut at = 0;
        let first = |count: &usize| {
            at += count;
            at - count
        };
        self.counts.iter().map(first).collect()
    }

    fn coder(&self) -> Coder {
        let mut training = Training::default();
        self.keys.iter().for_each(|key| training.add(key));
        training.finish(Alphabet::Ranks, WIDE_BITS)
    }

    /// The mean error of predictions, in blocks. Asserts the bound.
    fn mean_error(&self, model: &GreedyPlr) -> f64 {
        let (mut sum, mut count) = (0_u64, 0_u64);
        let mut at = 0;
        for (block, len) in (0..).zip(&self.counts) {
            let keys = self.keys[at..at + len].iter().step_by(SAMPLED);
            for key in keys.chain([&self.keys[at + len - 1]]) {
                let error = model.predict(key).abs_diff(block);
                assert!(error <= model.error_max(), "a key is out of the bound");
                sum += u64::from(error);
                count += 1;
            }
            at += len;
        }
        sum as f64 / count as f64
    }
}

/// Segments of Greedy-PLR+ as the paper has it: `points` are all keys with their places in blocks.
fn segments_over_all_keys(points: &[(f64, f64)], error_max: f64) -> usize {
    let (mut segments, mut at) = (0, 0);
    while let Some(&(start, place)) = points.get(at) {
        let (next, next_place) = points.get(at + 1).copied().unwrap_or((start, place));
        let slope = if next > start { (next_place - place) / (next - start) } else { 0.0 };
        let is_near = |(code, truth): &&(f64, f64)| {
            let predicted = place + (code - start) * slope;
            (predicted.floor() - truth.floor()).abs() <= error_max
        };
        at += 1 + points[at + 1..].iter().take_while(is_near).count();
        segments += 1;
    }
    segments
}

/// Greedy-PLR+ by its error bound.
fn sweep(sst: &Sst, codes: &[u128], objects: &mut Vec<Figures>) {
    let blocks = sst.counts.len() as f64;
    let builder = sst.builder();
    let mut at = 0..;
    let places = (0_u32..).zip(&sst.counts).flat_map(|(block, &count)| {
        (0..count).map(move |entry| f64::from(block) + entry as f64 / count as f64)
    });
    let points: Vec<(f64, f64)> =
        places.map(|place| ((codes[at.next().expect("endless")] - codes[0]) as f64, place)).collect();
    println!("  values of {} bytes, {} blocks", sst.value_len, sst.counts.len());
    println!("  Greedy-PLR+: bound  blocks/segment  bytes/block  mean error  blocks/segment over all keys");
    for bound in BOUNDS {
        let Some(model) = builder.greedy_plr(bound) else {
            println!("    none: keys at boundaries tie");
            return;
        };
        let per_segment = blocks / model.segments() as f64;
        let bytes = model.memory() as f64 / blocks;
        let error = sst.mean_error(&model);
        let literally = blocks / segments_over_all_keys(&points, bound.into()) as f64;
        println!("    {bound:>17} {per_segment:15.1} {bytes:12.3} {error:11.2} {literally:15.1}");
        let mut figures = sst.figures("greedy-plr");
        figures.number("error_max", bound.into());
        figures.number("segments", model.segments() as f64);
        figures.number("resident_bytes_per_block", bytes);
        figures.number("mean_error", error);
        figures.number("blocks_per_segment_over_all_keys", literally);
        objects.push(figures);
    }
    let (exact, _) = builder.finish_as(IndexChoice::Learned);
    assert!(exact.kind() == IndexKind::Learned, "codes differ");
    let bytes = exact.memory() as f64 / blocks;
    println!("    exact, with residuals: {} segments, {bytes:.3} bytes/block", exact.segments());
    let mut figures = sst.figures("exact");
    figures.number("segments", exact.segments().into());
    figures.number("resident_bytes_per_block", bytes);
    objects.push(figures);
}

/// The pure model by the length of its segments.
fn cut_by_model(sst: &Sst, coder: &Coder, codes: &[u128], objects: &mut Vec<Figures>) {
    let packed = pack(sst.keys, VALUE_LEN, false).len() as f64;
    println!("  pure model: blocks a segment  segments  blocks%  bytes/block");
    for per_segment in SEGMENTS {
        let Some((blocks, segments)) = pure::cut(sst.keys, codes, per_segment) else {
            println!("    none: keys of one code exceed a page");
            return;
        };
        let growth = (blocks as f64 / packed - 1.0) * 100.0;
        let bytes = (segments * pure::SEGMENT_BYTES + coder.stored_len) as f64 / packed;
        let wanted = if per_segment == usize::MAX { blocks } else { per_segment };
        println!("    {wanted:>26} {segments:9} {growth:+8.1} {bytes:12.3}");
        let mut figures = sst.figures("pure");
        figures.number("blocks_per_segment", wanted as f64);
        figures.number("segments", segments as f64);
        figures.number("blocks_growth_percent", growth);
        figures.number("resident_bytes_per_block", bytes);
        objects.push(figures);
    }
}

/// SNBC with one group and with greedy groups, in both alphabets.
fn group(sst: &Sst, objects: &mut Vec<Figures>) {
    let firsts = sst.firsts();
    let blocks = Blocks { keys: sst.keys, firsts: &firsts };
    println!("  SNBC: alphabet  groups  overflowing  bits  bytes/block  ties%  mean error  largest error");
    for alphabet in [Alphabet::MinMax, Alphabet::Ranks] {
        let mut show = |kind: &str, grouping: Grouping| {
            let count = firsts.len() as f64;
            let Grouping { groups, overflowing, bits, error_max, .. } = grouping;
            let bytes = grouping.bytes as f64 / count;
            let (ties, error) = (grouping.ties as f64 / count * 100.0, grouping.error_sum / count);
            println!(
                "    {alphabet:?} {kind:20} {groups:7} {overflowing:7} {bits:7.1} {bytes:9.3} {ties:7.2} {error:9.2} {error_max:9.1}"
            );
            let mut figures = sst.figures("snbc");
            figures.text("alphabet", &format!("{alphabet:?}"));
            figures.text("grouping", kind);
            for (name, number) in [
                ("groups", groups as f64),
                ("overflowing", overflowing as f64),
                ("bits", bits),
                ("resident_bytes_per_block", bytes),
                ("tied_boundaries_percent", ties),
                ("mean_error", error),
                ("largest_error", error_max),
            ] {
                figures.number(name, number);
            }
            objects.push(figures);
        };
        show("one group", Grouping::whole(&blocks, alphabet));
        for thresholds in GROUPINGS {
            let keys = if thresholds.is_for_whole_keys { "whole keys" } else { "64 bits" };
            let kind = format!("E_t {}, {keys}", thresholds.error);
            show(&kind, Grouping::greedy(&blocks, alphabet, thresholds));
        }
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().position(|argument| argument == "--json").map(|at| {
        arguments.remove(at);
        if at < arguments.len() { arguments.remove(at) } else { panic!("--json needs a file") }
    });
    let mut objects = Vec::new();
    for set in KeySet::ALL {
        if !arguments.is_empty() && !arguments.iter().any(|name| name == set.description().0) {
            continue;
        }
        let part = Part::of_run(set);
        println!("{}: {} keys", part.name, part.keys.len());
        let [sst, pointers] = VALUE_LENS.map(|value_len| Sst::new(&part, value_len));
        let coder = sst.coder();
        let codes: Vec<u128> = sst.keys.iter().map(|key| coder.encode(key)).collect();
        assert!(codes.is_sorted(), "codes are monotone");
        sweep(&sst, &codes, &mut objects);
        sweep(&pointers, &codes, &mut objects);
        cut_by_model(&sst, &coder, &codes, &mut objects);
        group(&sst, &mut objects);
    }
    if let Some(path) = json {
        let objects: Vec<String> = objects.iter().map(|figures| format!("{{{}}}", figures.0)).collect();
        std::fs::write(path, format!("[\n{}\n]\n", objects.join(",\n")))?;
    }
    Ok(())
}
