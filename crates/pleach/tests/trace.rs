//! Trace of a store: each span and event of the table in the crate's documentation, once.
//!
//! This is a binary of its own because `tracing` caches for the whole process which spans are enabled: a thread without a
//! subscriber that reaches a span first can disable it for the subscriber of another thread.

#![expect(clippy::unwrap_used, reason = "what the tests call is part of the test")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, Weak};

use pleach::env::{CrashPolicy, Fault, FaultKind, SimEnv};
use pleach::{Db, Durability, ErrorKind, Options, Shape};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const DIR: &str = "/store";

/// A span or event, with its fields as text.
#[derive(Clone, Debug)]
struct Told {
    name: &'static str,
    level: Level,
    is_ended: bool,
    fields: BTreeMap<&'static str, String>,
}

impl Told {
    fn of(metadata: &Metadata<'static>) -> Self {
        assert_eq!(metadata.name(), metadata.target());
        Self { name: metadata.name(), level: *metadata.level(), is_ended: false, fields: BTreeMap::new() }
    }

    fn number<N: FromStr<Err: Debug>>(&self, field: &str) -> N {
        self.fields[field].parse().unwrap()
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Records all spans and events. A span's id is its place in the list, counted from 1.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Told>>>);

impl Recorder {
    /// Runs `act` and returns what was recorded meanwhile. A simulated store does all its work on this thread.
    fn during(act: impl FnOnce()) -> Vec<Told> {
        let recorder = Self::default();
        tracing::subscriber::with_default(recorder.clone(), act);
        let told = std::mem::take(&mut *recorder.0.lock().unwrap());
        assert!(told.iter().all(|told| told.is_ended), "{told:?}");
        told
    }

    fn span(&self, id: &Id, change: impl FnOnce(&mut Told)) {
        change(&mut self.0.lock().unwrap()[usize::try_from(id.into_u64()).unwrap() - 1]);
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pleach::")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut told = Told::of(attributes.metadata());
        attributes.record(&mut told);
        let mut list = self.0.lock().unwrap();
        list.push(told);
        Id::from_u64(list.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.span(span, |told| values.record(told));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = Told { is_ended: true, ..Told::of(event.metadata()) };
        event.record(&mut told);
        self.0.lock().unwrap().push(told);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, span: &Id) {
        self.span(span, |told| told.is_ended = true);
    }
}

fn options(env: &Arc<SimEnv>) -> Options {
    let options = Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(128 << 10);
    options.shape(Shape::Forest).runs_per_stage(2)
}

fn put_all(db: &Db, keys: std::ops::Range<u32>) {
    let partition = db.default_partition();
    keys.for_each(|key| partition.put(key.to_le_bytes(), [1; 1000]).unwrap());
}

fn sst_count(env: &SimEnv) -> u64 {
    env.file_names(Path::new(DIR)).iter().filter_map(|name| name.strip_suffix(".sst")).count() as u64
}

fn named<'t>(told: &'t [Told], name: &str) -> Vec<&'t Told> {
    told.iter().filter(|told| told.name == name).collect()
}

/// The only one of this name.
fn only<'t>(told: &'t [Told], name: &str) -> &'t Told {
    let [one] = named(told, name)[..] else { panic!("{name}: {told:?}") };
    one
}

#[test]
fn the_life_of_a_store_is_traced_once() {
    let env = SimEnv::new(1);
    let told = Recorder::during(|| {
        let db = options(&env).open(DIR).unwrap();
        let users = db.partition("users").unwrap();
        assert_eq!(db.create_partitions(["users", "posts"]).unwrap().len(), 2, "one of them is new");
        put_all(&db, 0..50);
        users.put("alice", "1").unwrap();
        assert!(users.get("alice").unwrap().is_some());
        db.flush().unwrap();
        db.drop_partition(users).unwrap();
        db.clone().close().unwrap();
        db.close().unwrap();
    });
    let names: Vec<_> = told.iter().map(|told| told.name.strip_prefix("pleach::").unwrap()).collect();
    let created = "partition_created";
    assert_eq!(names, ["open", "recovery", created, created, "flush", "partition_dropped", "close"]);
    assert!(told.iter().all(|told| told.level == Level::INFO));
    assert_eq!((&*told[0].fields["path"], &*told[6].fields["path"]), (DIR, DIR));
    assert_eq!((told[1].number("records"), told[1].number("bytes")), (0, 0));
    assert!(!told[1].fields.contains_key("torn_segment"));
    let partition = |told: &Told| (told.fields["partition"].clone(), told.fields["name"].clone());
    assert_eq!(partition(&told[2]), ("1".to_owned(), "users".to_owned()));
    assert_eq!(partition(&told[3]), ("2".to_owned(), "posts".to_owned()));
    assert_eq!(partition(&told[5]), partition(&told[2]));
    assert!(told[4].number::<u64>("memtable_bytes") > 50_000);
    assert!(told[4].number::<u64>("written_bytes") > 50_000);
    assert_eq!((told[4].number("outputs"), told[4].number("last_seq")), (2, 51));
}

#[test]
fn a_recovery_traces_what_it_found() {
    let env = SimEnv::new(1);
    let db = options(&env).open(DIR).unwrap();
    put_all(&db, 0..10);
    let mut batch = db.batch();
    batch.put(&db.default_partition(), "last", [2; 5000]);
    batch.commit(Durability::Buffered).unwrap();
    let recovery_of = |env: &Arc<SimEnv>| {
        let told = Recorder::during(|| drop(options(env).open(DIR).unwrap()));
        only(&told, "pleach::recovery").clone()
    };
    let whole = recovery_of(&env.crash_image(CrashPolicy::Everything, 1));
    assert_eq!(whole.number::<u64>("records"), 11);
    assert!(whole.number::<u64>("bytes") > 15_000 && !whole.fields.contains_key("torn_segment"));

    let crashed = env.crash_image(CrashPolicy::Everything, 1);
    let names = crashed.file_names(Path::new(DIR));
    let newest = names.iter().filter_map(|name| name.strip_suffix(".log")).max().unwrap();
    let path = Path::new(DIR).join(format!("{newest}.log"));
    let mut bytes = crashed.read_file(&path).unwrap();
    *bytes.iter_mut().rfind(|byte| **byte == 2).unwrap() = 3; // In the last batch, which was never synced.
    crashed.write_file(&path, &bytes);
    let torn = recovery_of(&crashed);
    assert_eq!(torn.number::<u64>("records"), 10);
    assert!(torn.number::<u64>("torn_offset") > 10_000 && torn.fields.contains_key("torn_segment"));
}

#[test]
fn flushes_compactions_and_stalls_add_up_to_the_statistics() {
    for shape in [Shape::Forest, Shape::Leveled, Shape::ForestOverBottom] {
        let env = SimEnv::new(1);
        let mut stats = None;
        let told = Recorder::during(|| {
            let db = options(&env).shape(shape).open(DIR).unwrap();
            (0..4).for_each(|_| put_all(&db, 0..1000));
            db.compact().unwrap();
            db.settle().unwrap();
            stats = Some(db.stats());
        });
        let stats = stats.unwrap();
        let sum = |name: &str, field| -> u64 {
            named(&told, name).iter().map(|told| told.number::<u64>(field)).sum()
        };
        let millis = |name: &str| -> f64 {
            named(&told, name).iter().map(|told| told.number::<f64>("waited_ms")).sum()
        };
        assert_eq!(named(&told, "pleach::flush").len() as u64, stats.flushes);
        assert_eq!(sum("pleach::flush", "written_bytes"), stats.flush_bytes);
        assert_eq!(sum("pleach::compaction", "written_bytes"), stats.compaction_written_bytes);
        assert!(sum("pleach::compaction", "outputs") >= sst_count(&env));
        let step = named(&told, "pleach::compaction")[0];
        assert_eq!(&step.fields["partition"], "0");
        assert!(step.number::<u64>("inputs") >= 1 && step.number::<u64>("stage") >= 1);
        assert!(!named(&told, "pleach::stall").is_empty(), "{shape:?}: no write waited");
        let waited = millis("pleach::stall") + millis("pleach::slowdown");
        let stalled = stats.stalled.as_secs_f64() * 1e3;
        assert!((waited - stalled).abs() < 1e-3, "{waited} ms told, {stalled} ms counted");
        let level = |name| named(&told, name).iter().map(|told| told.level).max();
        assert_eq!(level("pleach::stall"), Some(Level::WARN));
        assert!(level("pleach::slowdown").is_none_or(|level| level == Level::DEBUG));
    }
}

#[test]
fn a_failed_sync_and_the_close_after_it_are_traced_once() {
    let env = SimEnv::new(1);
    let told = Recorder::during(|| {
        let db = options(&env).open(DIR).unwrap();
        put_all(&db, 0..10);
        env.add_fault(Fault { at_op: env.op_count(), kind: FaultKind::SyncFails });
        for _ in 0..3 {
            assert!(db.sync().is_err());
        }
        assert_eq!(db.default_partition().put("a", "b").unwrap_err().kind(), ErrorKind::Poisoned);
        drop(db);
    });
    let poisoned = only(&told, "pleach::poisoned");
    assert_eq!(poisoned.level, Level::ERROR);
    assert!(poisoned.fields["error"].contains("sync"), "{poisoned:?}");
    assert_eq!(only(&told, "pleach::close_failed").level, Level::ERROR);
}

#[test]
fn a_full_disk_is_traced_by_background_work() {
    let env = SimEnv::new(1);
    let told = Recorder::during(|| {
        let db = options(&env).open(DIR).unwrap();
        put_all(&db, 0..50);
        let mut weak = Some(Arc::downgrade(&env));
        env.on_op(Box::new(move |at_op, _| {
            if let Some(env) = weak.as_ref().and_then(Weak::upgrade).filter(|env| sst_count(env) > 0) {
                env.add_fault(Fault { at_op, kind: FaultKind::NoSpaceFrom });
                weak = None;
            }
        }));
        assert!(db.flush().unwrap_err().is_out_of_space());
        env.clear_faults();
        db.flush().unwrap();
    });
    let shortage = only(&told, "pleach::shortage");
    assert_eq!(shortage.level, Level::ERROR);
    assert!(shortage.fields.contains_key("error"));
    assert!(named(&told, "pleach::poisoned").is_empty());
    let flushes = named(&told, "pleach::flush");
    assert_eq!(flushes.len(), 2, "the second one went through");
    assert!(!flushes[0].fields.contains_key("outputs") && flushes[1].fields.contains_key("outputs"));
}

#[test]
fn a_panic_of_a_job_is_traced_and_poisons() {
    let env = SimEnv::new(1);
    let told = Recorder::during(|| {
        let db = options(&env).open(DIR).unwrap();
        put_all(&db, 0..50);
        let weak = Arc::downgrade(&env);
        env.on_op(Box::new(move |_, _| {
            assert!(weak.upgrade().is_none_or(|env| sst_count(&env) == 0), "planted by the test");
        }));
        assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Poisoned);
    });
    let panicked = only(&told, "pleach::job_panicked");
    assert_eq!((panicked.level, &*panicked.fields["job"]), (Level::ERROR, "pleach-flush"));
    assert!(panicked.fields["panic"].contains("planted by the test"));
    assert!(only(&told, "pleach::poisoned").fields["error"].contains("planted by the test"));
}

#[test]
fn a_file_of_values_that_cannot_be_read_is_traced_once() {
    let env = SimEnv::new(1);
    let told = Recorder::during(|| {
        let db = options(&env).separate_at(100).space_target(4.0).open(DIR).unwrap();
        for number in (0..2000).map(|number| number * 787 % 2000) {
            db.default_partition().put(format!("{number:05}"), [1; 200]).unwrap();
        }
        db.flush().unwrap();
        let names = env.file_names(Path::new(DIR)).into_iter().filter(|name| name.contains(".log"));
        env.add_unreadable(&Path::new(DIR).join(names.min().unwrap()), 0..1 << 20);
        db.convert().unwrap();
        db.convert().unwrap();
    });
    let damaged = only(&told, "pleach::value_file_damaged");
    assert_eq!(damaged.level, Level::ERROR);
    assert!(damaged.fields["error"].contains("read the value"), "{damaged:?}");
}
