//! Measures: the figures of a record that reports show, each with its name, its form and what is better.

use super::units::{bytes, count, nanos, ratio};
use crate::bench::Record;
use crate::engine::Result;

/// One figure.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    pub(super) title: &'static str,
    /// The title in tables that have no room.
    pub(super) short: &'static str,
    /// `None` if it does not apply.
    pub(super) value: fn(&Record) -> Option<f64>,
    pub(super) text: fn(f64) -> String,
    pub(super) higher_is_better: bool,
}

pub(super) const THROUGHPUT: Measure = Measure {
    title: "Operations a second",
    short: "ops/s",
    value: |record| Some(record.ops_per_s),
    text: count,
    higher_is_better: true,
};
pub(super) const P50: Measure = latency("Median latency", "p50", |record| positive(record.p50_ns as f64));
pub(super) const P99: Measure =
    latency("99th percentile latency", "p99", |record| positive(record.p99_ns as f64));
pub(super) const P999: Measure =
    latency("99.9th percentile latency", "p99.9", |record| positive(record.p999_ns as f64));
pub(super) const MAX: Measure = latency("Longest latency", "max", |record| positive(record.max_ns as f64));
pub(super) const LONGEST_GAP: Measure = latency("Longest time without an operation's end", "gap", |record| {
    positive(record.longest_gap_ns as f64)
});
pub(super) const WRITE_AMP: Measure =
    amplification("Write amplification", "WA", |record| record.write_amp.filter(|_| writes(record)));
pub(super) const WRITE_AMP_SST: Measure =
    amplification("Write amplification without the log", "WA sst", |record| {
        record.write_amp_sst.filter(|_| writes(record))
    });
pub(super) const READ_AMP: Measure = amplification("Read amplification", "RA", |record| record.read_amp);
pub(super) const SPACE_AMP: Measure = amplification("Space amplification", "SA", |record| record.space_amp);
pub(super) const PEAK_SPACE_AMP: Measure =
    amplification("Peak space amplification", "SA peak", |record| record.peak_space_amp);
pub(super) const PEAK_DISK: Measure = Measure {
    title: "Peak disk use",
    short: "peak disk",
    value: |record| positive(record.peak_disk_bytes as f64),
    text: bytes,
    higher_is_better: false,
};
pub(super) const PEAK_RSS: Measure = Measure {
    title: "Peak memory (RSS)",
    short: "peak RSS",
    value: |record| positive(record.peak_rss_bytes as f64),
    text: bytes,
    higher_is_better: false,
};
pub(super) const CPU: Measure = Measure {
    title: "Processor time per operation",
    short: "CPU/op",
    value: |record| positive(record.cpu_s * 1e9 / record.ops.max(1) as f64),
    text: nanos,
    higher_is_better: false,
};

/// For workloads that first read without other load.
const BEFORE: Measure = Measure {
    title: "Operations a second before",
    short: "before",
    value: |record| record.extra.get("before_ops_per_s").copied(),
    text: count,
    higher_is_better: true,
};
const SHARE_OF_BEFORE: Measure = Measure {
    title: "Share of the operations a second before",
    short: "share",
    value: |record| record.extra.get("share_of_before").copied(),
    text: |number| ratio(Some(number)),
    higher_is_better: true,
};

/// For workloads between two measurements of the device.
const DEVICE: Measure = Measure {
    title: "Raw reads a second of the device",
    short: "device",
    value: |record| record.device_reads_per_s,
    text: count,
    higher_is_better: true,
};
const SHARE_OF_DEVICE: Measure = Measure {
    title: "Operations for each raw read of the device",
    short: "of device",
    value: |record| Some(record.ops_per_s / record.device_reads_per_s?),
    text: |number| ratio(Some(number)),
    higher_is_better: true,
};
const CPU_OF_OPS: Measure = Measure {
    title: "Processor time per operation, without settling",
    short: "CPU/op run",
    value: |record| positive(record.cpu_us_per_op * 1e3),
    text: nanos,
    higher_is_better: false,
};

/// All measures, in the order of reports.
pub(super) const ALL: &[Measure] = &[
    THROUGHPUT,
    P50,
    P99,
    P999,
    MAX,
    LONGEST_GAP,
    WRITE_AMP,
    WRITE_AMP_SST,
    READ_AMP,
    SPACE_AMP,
    PEAK_SPACE_AMP,
    PEAK_DISK,
    PEAK_RSS,
    CPU,
];

const fn latency(title: &'static str, short: &'static str, value: fn(&Record) -> Option<f64>) -> Measure {
    Measure { title, short, value, text: nanos, higher_is_better: false }
}

const fn amplification(
    title: &'static str,
    short: &'static str,
    value: fn(&Record) -> Option<f64>,
) -> Measure {
    Measure { title, short, value, text: |number| ratio(Some(number)), higher_is_better: false }
}

fn positive(number: f64) -> Option<f64> {
    (number > 0.0).then_some(number)
}

fn writes(record: &Record) -> bool {
    record.user_written_bytes > 0
}

/// Measures by their short names, separated by commas.
pub(super) fn parse(names: &str) -> Result<Vec<Measure>> {
    let find = |name: &str| {
        let known = ALL.iter().chain(&[BEFORE, SHARE_OF_BEFORE, DEVICE, SHARE_OF_DEVICE, CPU_OF_OPS]);
        let found = known.copied().find(|measure| measure.short == name);
        found.ok_or_else(|| format!("there is no figure {name:?}").into())
    };
    names.split(',').map(|name| find(name.trim())).collect()
}

impl Measure {
    /// The title within a line.
    pub(super) fn in_sentence(&self) -> String {
        let (first, rest) = self.title.split_at(1);
        first.to_lowercase() + rest
    }

    /// The figure of a record that has any.
    pub(super) fn of(&self, record: &Record) -> Option<f64> {
        if record.error.is_some() { None } else { (self.value)(record) }
    }

    /// The figure as text, or a dash.
    pub(super) fn text_of(&self, record: &Record) -> String {
        self.of(record).map_or_else(|| "-".to_owned(), self.text)
    }

    /// The best figure of some records.
    pub(super) fn best<'a>(&self, records: impl Iterator<Item = &'a Record>) -> Option<f64> {
        let figures = records.filter_map(|record| self.of(record));
        figures.reduce(if self.higher_is_better { f64::max } else { f64::min })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_highest_or_the_lowest() {
        let record = |ops_per_s, p99_ns| Record { ops_per_s, p99_ns, ..Record::default() };
        let records = [record(5.0, 100), record(7.0, 0), record(6.0, 50)];
        assert_eq!(THROUGHPUT.best(records.iter()), Some(7.0));
        assert_eq!(P99.best(records.iter()), Some(50.0));
        assert_eq!(READ_AMP.best(records.iter()), None);
        let failed = Record { error: Some("no".into()), ..record(9.0, 1) };
        assert_eq!((THROUGHPUT.of(&failed), THROUGHPUT.text_of(&failed)), (None, "-".to_owned()));
    }
}
