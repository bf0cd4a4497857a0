//! SifrDB's figures: Lu et al., "A Novel Multi-Stage Forest-Based Key-Value Store for Holistic Performance
//! Improvement", TPDS 2020, sections 3 and 5.
//!
//! Their set-up: a billion pairs of 123 bytes on average (keys of 23 bytes, values uniform in 1 to 200), 118 GB; a
//! write buffer of 4 MiB, SSTs of 2 MiB, four trees a stage; one thread; two Xeons of 14 cores and a SATA SSD (Intel
//! S3520). What decides write amplification is the ratio of data to write buffer (about 30,000, that is 17 trees in
//! more than seven stages), so the write buffer shrinks with the data here. The paper gives bars and curves without
//! numbers except where its text names them; only those are quoted.

mod fig12;
mod fig2;
mod fig9;
mod forest;
mod range;
mod search;
mod stages;
mod stores;
mod ycsb;

use super::{Session, filter_setting, is_pleach, tune, words};
use crate::bench::Record;
use crate::report::{bytes, count, print};

pub(super) use fig2::fig2;
pub(super) use fig9::{fig9, fig9a, fig9b, fig9c, fig9d};
pub(super) use fig12::fig12;
pub(super) use range::range;
pub(super) use search::{fig6, fig7, table2};
pub(super) use stages::{fig13, fig14};
pub(super) use stores::fig11;
pub(super) use ycsb::fig15;

/// Write buffer here.
const MEMTABLE_BYTES: u64 = 128 << 10;
/// Half a write buffer, as theirs.
const SST_BYTES: u64 = 64 << 10;

/// The settings, by the engine's own names, that scale it down: its write buffer, and its files if they can be that small.
fn scaled(engine: &str) -> Vec<String> {
    let settings: Vec<(&str, String)> = match engine {
        _ if is_pleach(engine) => {
            vec![("memtable_bytes", MEMTABLE_BYTES.to_string()), ("sst_bytes", SST_BYTES.to_string())]
        }
        "leveldb" => vec![
            ("write_buffer_bytes", MEMTABLE_BYTES.to_string()),
            // The smallest that LevelDB takes.
            ("file_bytes", (1_u64 << 20).to_string()),
        ],
        "fjall" => vec![("memtable_bytes", MEMTABLE_BYTES.to_string())],
        _ if engine.starts_with("rocksdb") => vec![("memtable_bytes", MEMTABLE_BYTES.to_string())],
        _ => Vec::new(),
    };
    settings.into_iter().map(|(name, value)| tune(engine, name, &value)).collect()
}

fn print_setup(session: &Session<'_>, keys: u64) {
    print(&format!(
        "Theirs: 1 G pairs, 23 B keys, values of 1 to 200 B, 118 GB; write buffer 4 MiB, SSTs of 2 MiB, growth factor 4\n\
         for forests, 10 for trees. Ours: {} pairs, 23 B keys, values of 1 to 200 B; write buffer {}, SSTs of {};\n\
         Pleach's forests with factor 4. Engines without such settings have their own. Bars and curves of the paper\n\
         carry no numbers; quoted is what its text says.\n",
        count(session.keys(keys) as f64),
        bytes(MEMTABLE_BYTES as f64),
        bytes(SST_BYTES as f64),
    ));
}

fn print_row(cells: &[&str]) {
    let aligned: Vec<String> = cells.iter().map(|cell| format!("{cell:<21}")).collect();
    print(aligned.join("  ").trim_end());
}

fn print_cells(cells: &[String]) {
    print_row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Bytes of flushes and compactions per byte of the user, as the paper counts ("app data"), without the log. If the engine
/// does not count them: the bytes that the system counts, less the user's bytes for the log.
fn amplification(record: &Record) -> Option<f64> {
    record.write_amp_sst.or_else(|| record.write_amp.map(|with_log| (with_log - 1.0).max(0.0)))
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "not reported".into(), |value| format!("{value:.2}"))
}
