//! What RocksDB tells about itself by properties, which cost nothing until they are asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleach_bench::{EngineStats, Result};
use rocksdb::properties::{
    AGGREGATED_TABLE_PROPERTIES, BLOCK_CACHE_PINNED_USAGE, CUR_SIZE_ALL_MEM_TABLES, DBSTATS,
    LIVE_SST_FILES_SIZE, PropName,
};
use rocksdb::{BoundColumnFamily, Cache, WriteBufferManager};

use super::Db;

/// Properties of blob files, which the crate has no names for.
const BLOBS: [(&str, &str); 3] = [
    ("blob_files", "rocksdb.num-blob-files"),
    ("blob_file_bytes", "rocksdb.live-blob-file-size"),
    ("blob_garbage_bytes", "rocksdb.live-blob-file-garbage-size"),
];

/// Memory that the store's parts share.
pub(super) struct Caches {
    pub(super) cache: Cache,
    pub(super) write_buffers: WriteBufferManager,
}

/// Asks the properties of all column families.
pub(super) fn stats(
    db: &Db,
    families: &[Option<Arc<BoundColumnFamily<'_>>>],
    caches: &Caches,
) -> Result<EngineStats> {
    let (mut index_bytes, mut filter_bytes, mut data_blocks) = (0, 0, 0);
    let mut sums = [("memtable_bytes", CUR_SIZE_ALL_MEM_TABLES, 0), ("sst_bytes", LIVE_SST_FILES_SIZE, 0)];
    let mut details = BTreeMap::new();
    for family in families.iter().flatten() {
        for (_, property, sum) in &mut sums {
            *sum += db.property_int_value_cf(family, *property)?.unwrap_or(0);
        }
        for (name, property) in BLOBS {
            let number = db.property_int_value_cf(family, property)?.unwrap_or(0);
            *details.entry(name.to_owned()).or_default() += number;
        }
        let tables = db.property_value_cf(family, AGGREGATED_TABLE_PROPERTIES)?.unwrap_or_default();
        index_bytes += number(&tables, "index block size");
        filter_bytes += number(&tables, "filter block size");
        data_blocks += number(&tables, "# data blocks");
    }
    details.extend(sums.map(|(name, _, sum)| (name.to_owned(), sum)));
    details.insert("index_bytes".to_owned(), index_bytes);
    details.insert("filter_bytes".to_owned(), filter_bytes);
    details.insert("data_blocks".to_owned(), data_blocks);
    details.insert("cache_bytes".to_owned(), caches.cache.get_usage() as u64);
    details.insert("write_buffer_bytes".to_owned(), caches.write_buffers.get_usage() as u64);
    let pinned: &PropName = BLOCK_CACHE_PINNED_USAGE;
    details.insert("cache_pinned_bytes".to_owned(), db.property_int_value(pinned)?.unwrap_or(0));
    let totals = db.property_value(DBSTATS)?.unwrap_or_default();
    Ok(EngineStats {
        index_filter_bytes: Some(index_bytes + filter_bytes),
        stalled_ns: stalled_ns(&totals),
        details,
        ..EngineStats::default()
    })
}

/// The number with this name out of a text of `name=number; name=number`, where remarks in brackets may follow a name. Sizes
/// are those in files.
fn number(properties: &str, wanted: &str) -> u64 {
    let numbers = properties.split(';').filter_map(|property| {
        let (name, number) = property.rsplit_once('=')?;
        let remark = name.trim_start().strip_prefix(wanted)?;
        let is_it = remark.is_empty() || remark.starts_with(" (");
        is_it.then(|| number.trim().parse::<u64>().ok()).flatten()
    });
    numbers.sum()
}

/// The time that writers were held up, out of a line `Cumulative stall: 00:00:1.500 H:M:S, 0.1 percent`.
fn stalled_ns(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Cumulative stall: "))?;
    let mut parts = line.split(' ').next()?.split(':');
    let hours: u64 = parts.next()?.parse().ok()?;
    let minutes: u64 = parts.next()?.parse().ok()?;
    let (seconds, millis) = parts.next()?.split_once('.')?;
    let seconds: u64 = (hours * 60 + minutes) * 60 + seconds.parse::<u64>().ok()?;
    Some((seconds * 1000 + millis.parse::<u64>().ok()?) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_among_remarks() {
        let text = "# data blocks=2; # data blocks compression rejected=1; raw key size=9; \
            data block size=70; index block size (user-key? 1, delta-value? 1)=30; filter block size=5; # entries for filter=3; ";
        for (name, expected) in [("index block size", 30), ("filter block size", 5), ("# data blocks", 2)] {
            assert_eq!((number(text, name), number("", name)), (expected, 0));
        }
    }

    #[test]
    fn stalls_are_read_in_milliseconds() {
        let text = "** DB Stats **\nUptime(secs): 1.0\nCumulative stall: 01:02:3.045 H:M:S, 9.9 percent\n";
        assert_eq!(stalled_ns(text), Some(3_723_045_000_000));
        assert_eq!(stalled_ns("nothing"), None);
    }
}
