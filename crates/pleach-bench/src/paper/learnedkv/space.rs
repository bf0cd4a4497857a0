//! `LearnedKV`, Table 1: the bytes of keys and pointers, of models and of values after three phases.

use super::phases::{last_phase, run_phases};
use super::{SETS, bytes_or_dash, detail, print_cells, print_row, print_setup, value_file_bytes};
use crate::bench::Record;
use crate::engine::Result;
use crate::paper::Session;
use crate::report::bytes;

/// The table.
pub(crate) fn table1(session: &mut Session<'_>) -> Result<()> {
    print_setup(
        session,
        "the key list and the LSM of LearnedKV take half of RocksDB's LSM. At the end of P3.",
    );
    print_row(&[
        "engine",
        "keys",
        "keys and pointers",
        "upper runs",
        "models, indexes",
        "filters",
        "value files",
        "referenced",
        "disk, end",
    ]);
    print_row(&[
        "LearnedKV (theirs)",
        "dense",
        "11.9 MB",
        "4.2 MB",
        "8 KB",
        "not counted",
        "978 MB",
        "-",
        "-",
    ]);
    print_row(&["RocksDB (theirs)", "dense", "23 MB", "23 MB", "-", "not counted", "978 MB", "-", "-"]);
    for (name, set) in SETS {
        for engine in session.engines.clone() {
            let records = run_phases(session, &engine, set, "readupdate50", &[])?;
            let record = last_phase(&records)?;
            print_cells(&[
                engine.name.to_owned(),
                name.to_owned(),
                bytes_or_dash(key_bytes(record)),
                bytes_or_dash(detail(record, "upper_bytes")),
                bytes_or_dash(detail(record, "index_bytes")),
                bytes_or_dash(detail(record, "filter_bytes")),
                bytes_or_dash(value_file_bytes(record)),
                bytes_or_dash(live_value_bytes(record)),
                bytes(record.final_disk_bytes as f64),
            ]);
        }
    }
    crate::report::print(
        "\nKeys and pointers: all SSTs less their filters, models or indexes included. An engine with values in its SSTs has\n\
         them there. Referenced: values in these files that SSTs point to, older versions included. A dash: the engine does not\n\
         tell.",
    );
    Ok(())
}

/// Bytes of SSTs without their filters, which the paper does not count.
fn key_bytes(record: &Record) -> Option<u64> {
    let filters = detail(record, "filter_bytes").unwrap_or(0);
    detail(record, "sst_bytes").map(|ssts| ssts.saturating_sub(filters))
}

/// Bytes in value files that a read can return.
fn live_value_bytes(record: &Record) -> Option<u64> {
    let of_blobs = || {
        let garbage = detail(record, "blob_garbage_bytes")?;
        Some(detail(record, "blob_file_bytes")?.saturating_sub(garbage))
    };
    detail(record, "value_bytes").or_else(of_blobs)
}
