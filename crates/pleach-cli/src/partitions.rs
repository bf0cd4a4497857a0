//! `pleach partitions`: lists the partitions and their sizes, or creates one.

use clap::Args;
use pleach::{Db, Partition};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::open::{StoreArgs, check_partition_name};
use crate::output::{Output, Table, bytes, count, entries, note, print_document};

/// Most entries that are counted one by one; beyond that, they are estimated. Arbitrary: a fraction of a second.
const COUNTED_MAX: u64 = 200_000;

#[derive(Args)]
#[command(after_help = "\
ENTRIES and DATA (length of keys and values) are exact up to 200,000 entries;
\"~\" marks an estimate from files, where old versions and deletes count, too.
IN FILES is what the partition takes on disk; the newest entries are only in the
log. VALUES is the part of it that values take that are stored apart. These are
not read: compressed ones count with their compressed length, also in DATA.")]
pub(crate) struct PartitionsArgs {
    /// Create a partition instead
    #[arg(long, value_name = "NAME")]
    create: Option<String>,
    /// With --create: do not create a missing store
    #[arg(long, requires = "create")]
    no_create: bool,
    /// Count all entries, however many
    #[arg(long)]
    exact: bool,
}

impl PartitionsArgs {
    /// Whether a partition is to be created.
    pub(crate) fn creates(&self) -> bool {
        self.create.is_some()
    }
}

/// Entries and bytes of a partition.
pub(crate) struct Contents {
    pub(crate) entries: u64,
    /// Whether `entries` and `data_bytes` were counted to the end.
    pub(crate) exact: bool,
    pub(crate) data_bytes: u64,
    /// Bytes on disk.
    pub(crate) file_bytes: u64,
    /// The bytes among them of values that are stored apart.
    pub(crate) value_bytes: u64,
    pub(crate) runs: u64,
}

impl Contents {
    /// Counts up to `max` entries; beyond that, estimates from the properties of files.
    pub(crate) fn of(partition: &Partition, max: u64) -> Result<Self> {
        let stats = partition.stats()?;
        let (mut entries, mut data_bytes, mut exact) = (0, 0, true);
        let mut range = partition.iter();
        while let Some((key, value_len)) = range.next_key()? {
            if entries == max {
                exact = false;
                break;
            }
            entries += 1;
            data_bytes += (key.len() + value_len) as u64;
        }
        if !exact && stats.entries > entries {
            data_bytes = data_bytes.saturating_mul(stats.entries) / entries.max(1);
            entries = stats.entries;
        }
        let (value_bytes, runs) = (stats.value_bytes, stats.runs);
        Ok(Self { entries, exact, data_bytes, file_bytes: stats.bytes + value_bytes, value_bytes, runs })
    }

    /// As [`Contents::of`], but at once.
    pub(crate) fn quick(partition: &Partition) -> Result<Self> {
        Self::of(partition, COUNTED_MAX)
    }

    fn mark(&self) -> &'static str {
        if self.exact { "" } else { "~" }
    }

    fn entries_text(&self) -> String {
        format!("{}{}", self.mark(), count(self.entries))
    }

    fn data_text(&self) -> String {
        format!("{}{}", self.mark(), bytes(self.data_bytes))
    }

    /// `3 entries (12 B)`.
    pub(crate) fn text(&self) -> String {
        format!("{}{} ({})", self.mark(), entries(self.entries), self.data_text())
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        json!({
            "partition": name,
            "entries": self.entries,
            "exact": self.exact,
            "data_bytes": self.data_bytes,
            "file_bytes": self.file_bytes,
            "value_bytes": self.value_bytes,
            "runs": self.runs,
        })
    }
}

pub(crate) fn run(store: &StoreArgs, args: &PartitionsArgs) -> Result<()> {
    match &args.create {
        Some(name) => create(store, name, args.no_create),
        None => list(store, if args.exact { u64::MAX } else { COUNTED_MAX }),
    }
}

fn create(store: &StoreArgs, name: &str, no_create: bool) -> Result<()> {
    if store.partition.as_ref().is_some_and(|other| *other != name) {
        return Err(Failure::usage("two partitions were named; leave out --partition"));
    }
    check_partition_name(name)?;
    let db = store.open_or_create(no_create)?;
    let there = db.find_partition(name).is_some();
    db.partition(name)?;
    db.close()?;
    if store.json {
        return print_document(&json!({"partition": name, "created": !there}));
    }
    note(format!("partition {name:?} {}", if there { "was there already" } else { "created" }));
    Ok(())
}

fn list(store: &StoreArgs, counted_max: u64) -> Result<()> {
    let db = store.open()?;
    let contents = contents(store, &db, counted_max)?;
    if store.json {
        let list: Vec<_> = contents.iter().map(|(name, contents)| contents.json(name)).collect();
        print_document(&Value::Array(list))?;
    } else {
        let mut table = Table::new(&["PARTITION", "ENTRIES", "DATA", "IN FILES", "VALUES", "RUNS"], 1);
        for (name, contents) in &contents {
            let name = name.escape_debug().to_string();
            let (files, values) = (bytes(contents.file_bytes), bytes(contents.value_bytes));
            let (entries, data) = (contents.entries_text(), contents.data_text());
            table.row([name, entries, data, files, values, contents.runs.to_string()]);
        }
        let mut output = Output::stdout();
        table.print(&mut output)?;
        output.finish()?;
    }
    Ok(db.close()?)
}

/// The contents of each partition, or of the chosen one.
fn contents(store: &StoreArgs, db: &Db, counted_max: u64) -> Result<Vec<(String, Contents)>> {
    let partitions = store.chosen_partitions(db)?;
    let of = |partition: &Partition| Ok((partition.name().to_owned(), Contents::of(partition, counted_max)?));
    partitions.iter().map(of).collect()
}
