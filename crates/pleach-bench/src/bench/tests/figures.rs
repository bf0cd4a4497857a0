//! Figures of records, on an engine whose stalls, files and compactions are known.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::run;
use crate::bench::record::Series;
use crate::engine::{
    Capabilities, Engine, EngineFactory, EngineStats, PLEACH, PLEACH_FOREST, PLEACH_LEVELED, REFERENCE,
    Result, Scan, Session,
};

const KEYS: u64 = 2000;
/// One put in this many takes this long: one in two hundred shows at 99.9 %, not at 99 %.
const SLOW_EVERY: u64 = 200;
const SLOW: Duration = Duration::from_millis(4);
/// One put takes longest.
const SLOWEST: u64 = 1500;
const LONGEST: Duration = Duration::from_millis(70);
const SETTLING: Duration = Duration::from_millis(250);
const COMPACTING: Duration = Duration::from_millis(300);
const SLOW_GET: Duration = Duration::from_millis(1);
/// Disk use before and after settling.
const PEAK_BYTES: usize = 1 << 20;
const SETTLED_BYTES: usize = 256 << 10;

const SCRIPTED: EngineFactory = EngineFactory {
    name: "scripted",
    about: "the reference engine with known delays and files",
    capabilities: Capabilities { compaction: true, ..REFERENCE.capabilities },
    open: |config| {
        let (maps, file) = ((REFERENCE.open)(config)?, config.dir.join("file"));
        Ok(Box::new(Scripted {
            maps,
            file,
            puts: AtomicU64::new(0),
            is_compacting: AtomicBool::new(false),
            slow_gets: AtomicU64::new(0),
        }))
    },
};

struct Scripted {
    maps: Box<dyn Engine>,
    file: PathBuf,
    puts: AtomicU64,
    is_compacting: AtomicBool,
    slow_gets: AtomicU64,
}

impl Engine for Scripted {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(ScriptedSession { engine: self, session: self.maps.session()? }))
    }

    fn drop_partition(&self, partition: usize) -> Result<()> {
        self.maps.drop_partition(partition)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        sleep(SETTLING);
        Ok(fs::write(&self.file, vec![7; SETTLED_BYTES])?)
    }

    fn compact(&self) -> Result<()> {
        self.is_compacting.store(true, Ordering::Relaxed);
        sleep(COMPACTING);
        self.is_compacting.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn stats(&self) -> Result<EngineStats> {
        let slow_gets = self.slow_gets.load(Ordering::Relaxed);
        let puts = self.puts.load(Ordering::Relaxed);
        let details = [("slow_gets".to_owned(), slow_gets), ("remap_table_ns".to_owned(), puts)];
        Ok(EngineStats { details: details.into(), ..EngineStats::default() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct ScriptedSession<'a> {
    engine: &'a Scripted,
    session: Box<dyn Session + 'a>,
}

impl Session for ScriptedSession<'_> {
    fn put(&mut self, partition: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let puts = self.engine.puts.fetch_add(1, Ordering::Relaxed) + 1;
        if puts == KEYS / 2 {
            fs::write(&self.engine.file, vec![7; PEAK_BYTES])?;
        }
        if puts.is_multiple_of(SLOW_EVERY) {
            sleep(SLOW);
        }
        if puts == SLOWEST {
            sleep(LONGEST);
        }
        self.session.put(partition, key, value)
    }

    fn delete(&mut self, partition: usize, key: &[u8]) -> Result<()> {
        self.session.delete(partition, key)
    }

    fn get(&mut self, partition: usize, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if self.engine.is_compacting.load(Ordering::Relaxed) {
            self.engine.slow_gets.fetch_add(1, Ordering::Relaxed);
            sleep(SLOW_GET);
        }
        self.session.get(partition, key, read)
    }

    fn scan(&mut self, scan: &Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.session.scan(scan, visit)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("it is short")
}

#[test]
fn a_load_tells_its_longest_put_its_tail_and_its_longest_gap() {
    let record = run(&SCRIPTED, &format!("--workloads fillrandom --keys {KEYS}")).pop().expect("one record");
    let longest = nanos(LONGEST);
    let put = &record.by_kind["put"];
    assert_eq!(put.max_ns, record.max_ns);
    // Histograms keep three digits.
    assert!((longest * 99 / 100..longest * 4).contains(&record.max_ns), "{}", record.max_ns);
    assert!((longest..longest * 4).contains(&record.longest_gap_ns), "{}", record.longest_gap_ns);
    assert!(record.p99_ns < nanos(SLOW), "{}", record.p99_ns);
    assert!((nanos(SLOW) * 99 / 100..longest * 9 / 10).contains(&record.p999_ns), "{}", record.p999_ns);
    assert!(record.settle_s >= SETTLING.as_secs_f64() && record.seconds < record.settle_s);
}

#[test]
fn remapping_is_counted_without_the_load() {
    let words = format!("--workloads overwrite --keys {KEYS} --ops 100");
    let record = run(&SCRIPTED, &words).pop().expect("one record");
    assert_eq!(record.engine_stats.details["remap_table_ns"], KEYS + 100);
    assert_eq!(record.extra["remap_table_ns_meanwhile"] as u64, 100);
}

#[test]
fn a_load_tells_its_peak_of_disk_use_and_what_remains() {
    let record = run(&SCRIPTED, &format!("--workloads fillrandom --keys {KEYS}")).pop().expect("one record");
    assert_eq!(record.live_bytes, KEYS * 116);
    let amplification = |bytes: usize| bytes as f64 / record.live_bytes as f64;
    for (told, known) in
        [(record.peak_space_amp, amplification(PEAK_BYTES)), (record.space_amp, amplification(SETTLED_BYTES))]
    {
        let told = told.expect("there are live bytes");
        assert!((told / known - 1.0).abs() < 0.05, "{told} {known}");
    }
    assert_eq!(record.series.disk_bytes.iter().max(), Some(&record.peak_disk_bytes));
}

#[test]
fn reads_are_measured_from_the_start_of_a_compaction_to_its_end() {
    let words = format!("--workloads readwhilecompacting --keys {KEYS}");
    let record = run(&SCRIPTED, &words).pop().expect("one record");
    let compacting = COMPACTING.as_secs_f64();
    assert!((compacting..compacting * 2.0).contains(&record.seconds), "{}", record.seconds);
    // Gets are slow from then on, but a few that came before the compaction's thread did.
    let slow_gets = record.engine_stats.details["slow_gets"];
    assert!((30..=300).contains(&slow_gets) && record.ops >= slow_gets, "{slow_gets} of {}", record.ops);
    assert!(record.max_ns >= nanos(SLOW_GET) * 99 / 100, "{}", record.max_ns);
    assert_eq!((record.found, record.missed), (record.ops, 0));
    let extra = |name: &str| record.extra[name];
    assert!(extra("before_ops_per_s") > 10_000.0 && extra("before_p99_ns") < nanos(SLOW_GET) as f64);
    let share = record.ops_per_s / extra("before_ops_per_s");
    assert!((extra("share_of_before") / share - 1.0).abs() < 1e-9 && share < 0.5);
    assert_eq!(record.prepared_by, ["load in random order", "overwrite a tenth"]);

    let without = run(&REFERENCE, &words).pop().expect("one record");
    // What cannot compact is read as in quiet.
    assert_eq!(without.ops, KEYS);
}

#[test]
fn pleach_writes_everything_again_while_it_compacts() {
    for factory in [PLEACH, PLEACH_FOREST, PLEACH_LEVELED] {
        let name = factory.name;
        let words = format!(
            "--workloads fillrandom,readwhilecompacting --keys 5000 --value-size 1000 --background-threads 3 \
             --tune {name}.memtable_bytes=1048576"
        );
        let records = run(&factory, &words);
        let [load, record] = &records[..] else { panic!("{}", records.len()) };
        let stats = &record.engine_stats;
        assert!(record.write_call_bytes > record.live_bytes * 9 / 10, "{name}: {}", record.write_call_bytes);
        assert_eq!((stats.details["runs"], record.missed, record.wrong), (1, 0, 0), "{name}");
        assert!(load.extra.is_empty() && record.write_amp.is_none(), "{name}");
        let shape = match name {
            "pleach" => "ForestOverBottom",
            "pleach-forest" => "Forest",
            _ => "Leveled",
        };
        assert_eq!((&*stats.settings["shape"], &*stats.settings["compaction_threads"]), (shape, "3"));
        assert_eq!(stats.settings["memtable_bytes"], "1048576");
    }
}

#[test]
fn the_second_half_of_a_load_has_its_own_rate() {
    let series =
        Series { bucket_ms: 100, ops: vec![50, 50, 50, 50, 50, 10, 10, 10, 10, 5], ..Series::default() };
    // The last bucket is half full.
    assert_eq!(series.late_ops_per_s(0.95).map(f64::round), Some(100.0));
    assert_eq!(Series::default().late_ops_per_s(0.0), None);
}
