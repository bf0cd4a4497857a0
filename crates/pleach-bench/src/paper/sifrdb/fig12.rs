//! SifrDB, Fig. 12: SST-level filters.

use super::{SST_BYTES, print_row};
use crate::engine::Result;
use crate::paper::Session;
use crate::report::{bytes, count, nanos, print};

/// Keys here; theirs were 10 GB.
const FILTER_KEYS: u64 = 1_000_000;

/// Filters.
pub(crate) fn fig12(session: &mut Session<'_>) -> Result<()> {
    let keys = session.keys(FILTER_KEYS);
    print(&format!(
        "Theirs: 10 GB; at 10 bits per key reads take 1 / 3.7 of the time without filters, for 106 MB of memory (1.06 %\n\
         of the data); more bits gain little. Ours: {} pairs of 123 B, random reads past the page cache, little memory.\n",
        count(keys as f64)
    ));
    print_row(&["bits per key", "mean read", "against none", "index and filters", "share of data"]);
    let mut without = None;
    for bits in [0, 5, 10, 15, 20] {
        let text = format!(
            "--workloads fillrandom,readrandom --keys {keys} --ops {} --key-set user --value-size uniform:1-200 \
             --memory 8MiB --direct --no-settle --tune pleach.memtable_bytes={},pleach.sst_bytes={SST_BYTES},\
             pleach.filter_bits_per_key={bits}",
            (keys / 10).max(100),
            256 << 10,
        );
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let records = session.run("pleach", &words)?;
        let Some(read) = records.last() else { return Err("a record was expected".into()) };
        let base = *without.get_or_insert(read.mean_ns);
        let memory = read.engine_stats.index_filter_bytes.unwrap_or(0) as f64;
        print_row(&[
            &bits.to_string(),
            &nanos(read.mean_ns),
            &format!("{:.2}x faster", base / read.mean_ns.max(1.0)),
            &bytes(memory),
            &format!("{:.2} %", 100.0 * memory / read.live_bytes.max(1) as f64),
        ]);
    }
    print(
        "\nOnly Pleach is run: other engines have no filter of this kind to vary. The memory is that of indexes and",
    );
    print(
        "filters together; the first line is the indexes alone. Whatever is merged meanwhile is merged: stores are",
    );
    print("read as the load has left them.");
    Ok(())
}
