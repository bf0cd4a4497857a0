//! The properties of a store, as LevelDB names them.

use crate::database::Database;

/// LevelDB's levels. Pleach has none: all SSTs count for the first.
const LEVELS: usize = 7;

/// The text of a property; `None` if there is none of this name.
pub(crate) fn text(db: &Database, name: &str) -> Option<String> {
    let name = name.strip_prefix("leveldb.")?;
    if let Some(level) = name.strip_prefix("num-files-at-level") {
        let is_number = level.bytes().all(|byte| byte.is_ascii_digit());
        let level: usize = level.parse().ok().filter(|level| is_number && *level < LEVELS)?;
        return Some(if level == 0 { db.db.stats().ssts.to_string() } else { "0".to_owned() });
    }
    match name {
        "stats" => Some(statistics(db)),
        "sstables" => Some(tables(db)),
        "approximate-memory-usage" => Some(memory(db).to_string()),
        _ => None,
    }
}

fn memory(db: &Database) -> u64 {
    let stats = db.db.stats();
    let view = db.ordered.as_ref().map_or(0, |ordered| ordered.bytes() as u64);
    stats.memtable_bytes
        + stats.pinned_memtable_bytes
        + stats.cache_bytes
        + stats.index_filter_bytes
        + stats.value_cache_bytes
        + view
}

fn statistics(db: &Database) -> String {
    let stats = db.db.stats();
    format!(
        "Pleach {}\n\
         SSTs {} ({} bytes, {} entries, {} runs), value files {} ({} bytes)\n\
         memory {} of {} bytes: memtables {}, cached blocks {}, cached values {}, indexes and filters {}\n\
         since the open: {} operations, log {} bytes, {} flushes ({} bytes), {} compactions (read {}, wrote {} bytes), stalled {:.3} s\n",
        env!("CARGO_PKG_VERSION"),
        stats.ssts,
        stats.sst_bytes,
        stats.sst_entries,
        stats.runs,
        stats.value_files,
        stats.value_file_bytes,
        memory(db),
        stats.memory_bytes,
        stats.memtable_bytes,
        stats.cache_bytes,
        stats.value_cache_bytes,
        stats.index_filter_bytes,
        stats.operations,
        stats.log_bytes,
        stats.flushes,
        stats.flush_bytes,
        stats.compactions,
        stats.compaction_read_bytes,
        stats.compaction_written_bytes,
        stats.stalled.as_secs_f64(),
    )
}

fn tables(db: &Database) -> String {
    let stats = db.db.stats();
    format!("--- all levels ---\n {} SSTs, {} bytes, in {} runs\n", stats.ssts, stats.sst_bytes, stats.runs)
}
