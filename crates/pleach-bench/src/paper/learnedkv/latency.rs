//! Latency while upkeep runs: puts of one thread and gets of another in quiet, while everything is converted over and over, and
//! while overwrites force relocation. The paper claims that its conversion does not block (sections 4.2 and 4.3), and shows no
//! figure of it.

use super::{Run, SETS, print_row, print_setup};
use crate::bench::Record;
use crate::engine::{EngineFactory, Result};
use crate::measure::Latency;
use crate::paper::{Session, is_pleach};
use crate::report::{bytes, count, nanos, print};

/// Puts a second of the paced writer. It polls for up to 30 us before each of them; at a quicker pace two processors would be
/// short of one for the work that is measured.
const PACE: f64 = 10_000.0;
/// Seconds of each measurement: so short that in quiet the overwrites stay below every space target.
const SECONDS: f64 = 8.0;
/// The goals, for the paced writer.
const PUT_P999_NS: u64 = 2_000_000;
const PUT_MAX_NS: u64 = 50_000_000;
const GETS_SHARE: f64 = 0.8;

/// A state of the store, and the work that goes on meanwhile.
struct Case {
    name: &'static str,
    /// Workloads behind the load; the last one is measured. Gets alone come before it, so that values are cached alike.
    workloads: fn(keys: u64) -> String,
    /// Room for garbage.
    space_target: &'static str,
    /// The number in the record that says whether the work was done at all.
    evidence: Option<&'static str>,
}

const CASES: [Case; 3] = [
    Case {
        name: "quiet",
        workloads: |_| "readrandom,readwhilewriting".to_owned(),
        space_target: "4",
        evidence: None,
    },
    Case {
        name: "converting",
        workloads: |_| "readrandom,readwhileconverting".to_owned(),
        space_target: "4",
        evidence: Some("values_converted_meanwhile"),
    },
    Case {
        name: "relocating",
        // The garbage of half of the keys is above the target.
        workloads: |keys| format!("overwrite:{},readrandom,readwhilewriting", (keys / 2).max(1)),
        space_target: "1.3",
        evidence: Some("value_moves_meanwhile"),
    },
];

/// The figure.
pub(crate) fn latency(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "conversion and garbage collection run in the background and block neither reads nor writes.",
    );
    print(&format!(
        "One thread gets without a pause, one overwrites. The latency of a paced put counts from its scheduled start: it has\n\
         the time, too, in which the system did not let the writer run. That of its call does not. Goals, with the paced\n\
         writer of {} puts/s: p99.9 of puts at most {}, longest put at most {}, gets at least {} % of quiet.\n",
        count(PACE),
        nanos(PUT_P999_NS as f64),
        nanos(PUT_MAX_NS as f64),
        GETS_SHARE * 100.0,
    ));
    for engine in session.engines.clone() {
        if !is_pleach(engine.name) {
            print_row(&[engine.name, "has no conversion"]);
            continue;
        }
        for paced in [true, false] {
            writer(session, &engine, paced)?;
        }
    }
    print(
        "\nThe store is loaded anew for each row. Runs are void if nothing was converted or moved while they were measured.\n\
         Conversions are calls of Db::convert that ended; moves are those of relocation.",
    );
    Ok(())
}

/// The rows of a writer.
fn writer(session: &mut Session<'_>, engine: &EngineFactory, paced: bool) -> Result<()> {
    let pace = if paced { format!("{} puts/s", count(PACE)) } else { "unpaced".to_owned() };
    print(&format!("\n{}, {pace}:", engine.name));
    let head = ["case", "puts/s", "put: p50 / p99 / p99.9 / max", "call: p50 / p99 / p99.9 / max", "stalled"];
    let more = ["gets/s", "of quiet", "get: p50 / p99 / p99.9 / max", "work"];
    print_wide(&head.iter().chain(&more).map(|&cell| cell.to_owned()).collect::<Vec<_>>());
    let mut quiet = None;
    for case in &CASES {
        let records = records(session, engine, case, paced)?;
        let measured = records.last().ok_or("a record was expected")?;
        if case.evidence.is_none() {
            quiet = Some(measured.ops_per_s);
            if let Some(alone) = records.iter().find(|record| record.workload == "readrandom") {
                row("gets alone", alone, None, "-");
            }
        }
        let share = quiet.map(|quiet| measured.ops_per_s / quiet);
        let work = if is_void(case, measured) { "none: VOID".to_owned() } else { work(measured) };
        row(case.name, measured, share, &work);
        if paced && case.evidence.is_some() {
            print(&format!("{:<11} {}", "", verdict(case, measured, share)));
        }
    }
    Ok(())
}

fn records(
    session: &mut Session<'_>,
    engine: &EngineFactory,
    case: &Case,
    paced: bool,
) -> Result<Vec<Record>> {
    let keys = session.keys(super::KEYS);
    let workloads = format!("fillrandom,{}", (case.workloads)(keys));
    let writes = if paced { format!("--write-rate {PACE}") } else { "--unpaced-writes".to_owned() };
    let further = format!("{writes} --duration {} --load-limit 3600", session.seconds(SECONDS));
    let (_, set) = SETS[1];
    let tunes = [("space_target", case.space_target), ("conversion", "never")];
    let run = Run { tunes: &tunes, further: &further, ..Run::new(session, &workloads, set) };
    Run { distribution: "uniform", ..run }.records(session, engine)
}

/// Whether the case's work was not done.
fn is_void(case: &Case, record: &Record) -> bool {
    case.evidence.is_some_and(|name| extra(record, name) < 1.0)
}

fn extra(record: &Record, name: &str) -> f64 {
    record.extra.get(name).copied().unwrap_or(0.0)
}

/// What upkeep did.
fn work(record: &Record) -> String {
    let mut work = Vec::new();
    if let Some(conversions) = record.extra.get("conversions") {
        work.push(format!(
            "{conversions} conversions, {}",
            bytes(extra(record, "value_converted_bytes_meanwhile"))
        ));
    }
    if extra(record, "value_moves_meanwhile") > 0.0 {
        let (moves, moved) =
            (extra(record, "value_moves_meanwhile"), extra(record, "value_moved_bytes_meanwhile"));
        work.push(format!("{moves} moves, {}", bytes(moved)));
    }
    if work.is_empty() { "-".to_owned() } else { work.join("; ") }
}

fn row(name: &str, record: &Record, share: Option<f64>, work: &str) {
    let times = |kind: &str| {
        let of = |number: fn(&Latency) -> u64| {
            record.by_kind.get(kind).map_or_else(|| "-".to_owned(), |latency| nanos(number(latency) as f64))
        };
        [of(|l| l.p50_ns), of(|l| l.p99_ns), of(|l| l.p999_ns), of(|l| l.max_ns)].join(" / ")
    };
    let puts = record.by_kind.get("put_beside").map(|puts| count(puts.count as f64 / record.seconds));
    print_wide(&[
        name.to_owned(),
        puts.unwrap_or_else(|| "-".to_owned()),
        times("put_beside"),
        times("calls_beside"),
        nanos(extra(record, "stalled_meanwhile_ns")),
        count(record.ops_per_s),
        share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}")),
        times("get"),
        work.to_owned(),
    ]);
}

/// Cells of which some have four numbers.
fn print_wide(cells: &[String]) {
    const WIDTHS: [usize; 9] = [11, 7, 38, 38, 8, 7, 8, 38, 1];
    let aligned: Vec<String> =
        cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}")).collect();
    print(aligned.join(" ").trim_end());
}

/// Which goals were met: by the scheduled puts, and by their calls alone.
fn verdict(case: &Case, record: &Record, share: Option<f64>) -> String {
    if is_void(case, record) {
        return "nothing to say about the goals, because nothing was converted or moved".to_owned();
    }
    let met = |is_met| if is_met { "met" } else { "MISSED" };
    let puts = |kind: &str| {
        let latency = record.by_kind.get(kind).cloned().unwrap_or_default();
        format!("p99.9 {}, max {}", met(latency.p999_ns <= PUT_P999_NS), met(latency.max_ns <= PUT_MAX_NS))
    };
    let gets = met(share.is_some_and(|share| share >= GETS_SHARE));
    format!("goals: puts {}; their calls {}; gets {gets}", puts("put_beside"), puts("calls_beside"))
}
