//! `LearnedKV`, Fig. 13: reads and writes with and without filters, in the last of three phases.

use super::phases::{last_phase, run_phases};
use super::{SETS, bytes_or_dash, detail, filter_setting, print_row, print_setup, rate_of};
use crate::engine::Result;
use crate::paper::Session;
use crate::report::count;

/// The figure.
pub(crate) fn fig13(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "a Bloom filter over the keys of the LSM costs writes 6 % and gains reads 31.73 %. Ours: a filter for each SST.",
    );
    print_row(&["engine", "keys", "filters", "reads/s", "theirs", "writes/s", "theirs", "filter bytes"]);
    for (name, set) in SETS {
        for engine in session.engines.clone() {
            let Some(setting) = filter_setting(engine.name) else {
                print_row(&[engine.name, name, "has no filters"]);
                continue;
            };
            let mut off = [None; 2];
            for (state, tunes) in [("off", &[(setting, "0")][..]), ("on", &[])] {
                let records = run_phases(session, &engine, set, "readupdate50", tunes)?;
                let record = last_phase(&records)?;
                let rates = ["get", "put"].map(|kind| rate_of(record, kind).unwrap_or(0.0));
                let [reads, writes] = [0, 1].map(|at: usize| {
                    let base = *off[at].get_or_insert(rates[at]);
                    format!("{} ({:.2}x)", count(rates[at]), rates[at] / base)
                });
                let [their_reads, their_writes] =
                    if state == "on" { ["1.32x", "0.94x"] } else { ["1x", "1x"] };
                print_row(&[
                    engine.name,
                    name,
                    state,
                    &reads,
                    their_reads,
                    &writes,
                    their_writes,
                    &bytes_or_dash(detail(record, "filter_bytes")),
                ]);
            }
        }
    }
    Ok(())
}
