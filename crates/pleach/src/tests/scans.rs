//! Commands of the stories about scans.
//!
//! A story begins with an empty store in the simulator, whose runs are merged only when it is asked for. A command may be several
//! with `; ` between them.
//!
//! ```text
//! open k=2                   opens the store again: runs are merged once there are `k` of them, an SST a step
//! in NAME                    what follows concerns this partition, which is created if there is none; at first `default`
//! put KEY=VALUE..            one put after another
//! fill KEY..KEY              puts every number between the keys, with values of 100 bytes
//! del KEY..  or  del KEY..KEY
//! flush, compact
//! step COUNT                 steps of the background jobs
//! drop                       drops the partition
//! runs                       runs of the partition, and how many of them a merge in progress has clipped
//! snapshot NAME              keeps a snapshot
//! scan [BOUNDS] [back] [snapshot=NAME] [first=COUNT] [count]
//! prefix KEY [back] [snapshot=NAME] [first=COUNT] [count]
//!                            the entries, or how many there are and how many tombstones were passed
//! range NAME [BOUNDS] [snapshot=NAME]
//!                            keeps a range
//! walk NAME next|back|seek=KEY|seek-back=KEY..
//!                            steps of a kept range; the entries that it gives
//! ```
//!
//! Bounds are written `a..c`, `a..=c`, `a<..c` (from behind a), `a..` and so on. A key may have escapes, such as `\xff`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use pleach_env::SimEnv;

use super::story::{Player, number, option, play};
use crate::{Db, Options, Partition, Range, Shape, Snapshot};

#[test]
fn stories_of_scans() {
    play::<Scans>("scans");
}

/// What is longer than this is shown by its length.
const SHOWN_MAX: usize = 20;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

struct Scans {
    env: Arc<SimEnv>,
    db: Db,
    partition: Partition,
    /// Handles of partitions that were dropped go on to stand for them.
    partitions: BTreeMap<String, Partition>,
    snapshots: BTreeMap<String, Snapshot>,
    ranges: BTreeMap<String, Range>,
}

impl Default for Scans {
    fn default() -> Self {
        Self::open(SimEnv::new(1), 64)
    }
}

impl Player for Scans {
    fn answer(&mut self, command: &str) -> String {
        let mut told = String::new();
        for command in command.split("; ") {
            let answer = self.answer_one(command);
            told += &answer;
            if !answer.is_empty() {
                told.push('\n');
            }
        }
        told
    }
}

impl Scans {
    fn open(env: Arc<SimEnv>, k: usize) -> Self {
        let options = Options::new().env(Arc::<SimEnv>::clone(&env)).memory(1 << 20).memtable_bytes(64 << 10);
        let options = options.sst_bytes(4 << 10).shape(Shape::Forest).runs_per_stage(k).clean_every(1);
        let db = options.compaction_threads(1).open("/store").unwrap();
        let partition = db.default_partition();
        let (partitions, snapshots, ranges) = Default::default();
        Self { env, db, partition, partitions, snapshots, ranges }
    }

    fn answer_one(&mut self, command: &str) -> String {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match name {
            "open" => self.reopen(number(&words, "k").unwrap()),
            "in" => self.enter(words[0]),
            "put" => words.iter().for_each(|word| self.put(word)),
            "fill" => {
                keys(words[0]).for_each(|key| self.partition.put(key, [b'.'; 100]).unwrap());
            }
            "del" => {
                words.iter().flat_map(|word| keys(word)).for_each(|key| self.partition.delete(key).unwrap());
            }
            "flush" => self.db.flush().unwrap(),
            "compact" => self.partition.compact().unwrap(),
            "step" => (0..words[0].parse().unwrap()).for_each(|_| _ = self.env.step_job()),
            "drop" => self.db.drop_partition(self.partition.clone()).unwrap(),
            "snapshot" => _ = self.snapshots.insert(rest.to_owned(), self.db.snapshot()),
            "range" => _ = self.ranges.insert(words[0].to_owned(), self.range(&words, bounds(&words[1..]))),
            "runs" => {
                let stats = self.partition.stats().unwrap();
                return format!("runs: {}, clipped: {}", stats.runs, stats.clipped);
            }
            "walk" => return self.walk(&words),
            "scan" => return self.scan(self.range(&words, bounds(&words)), &words),
            "prefix" => {
                let prefix = unescaped(words[0]);
                let range = match option(&words, "snapshot") {
                    Some(name) => self.snapshots[name].prefix(&self.partition, prefix),
                    None => self.partition.prefix(prefix),
                };
                return self.scan(range, &words);
            }
            _ => panic!("{command:?} is no command"),
        }
        String::new()
    }

    fn reopen(&mut self, k: u64) {
        self.snapshots.clear();
        self.ranges.clear();
        self.db.clone().close().unwrap();
        *self = Self::open(Arc::clone(&self.env), usize::try_from(k).unwrap());
    }

    fn enter(&mut self, name: &str) {
        let created = || self.db.partition(name).unwrap();
        self.partition = self.partitions.entry(name.to_owned()).or_insert_with(created).clone();
    }

    fn put(&self, word: &str) {
        let (key, value) = word.split_once('=').unwrap();
        self.partition.put(unescaped(key), value).unwrap();
    }

    fn range(&self, words: &[&str], bounds: Bounds) -> Range {
        match option(words, "snapshot") {
            Some(name) => self.snapshots[name].range(&self.partition, bounds),
            None => self.partition.range(bounds),
        }
    }

    fn scan(&self, mut range: Range, words: &[&str]) -> String {
        let before = self.db.stats().tombstones_passed;
        let first = number(words, "first").unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        while (entries.len() as u64) < first {
            let entry = told(if words.contains(&"back") { range.next_back() } else { range.next() });
            match entry.as_str() {
                "end" => break,
                _ => entries.push(entry),
            }
        }
        if words.contains(&"count") {
            let passed = self.db.stats().tombstones_passed - before;
            return format!("{} entries, {passed} tombstones", entries.len());
        }
        if entries.is_empty() { "nothing".to_owned() } else { entries.join(" ") }
    }

    fn walk(&mut self, words: &[&str]) -> String {
        let range = self.ranges.get_mut(words[0]).unwrap();
        let mut entries = Vec::new();
        for word in &words[1..] {
            match word.split_once('=') {
                Some(("seek", key)) => range.seek(unescaped(key)),
                Some(("seek-back", key)) => range.seek_back(unescaped(key)),
                _ if *word == "next" => entries.push(told(range.next())),
                _ if *word == "back" => entries.push(told(range.next_back())),
                _ => panic!("{word} is no step"),
            }
        }
        entries.join(" ")
    }
}

/// The keys of `key` or `from..to`.
fn keys(word: &str) -> impl Iterator<Item = Vec<u8>> {
    let (from, to) = word.split_once("..").unwrap_or((word, ""));
    let (first, count) = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(first), Ok(end)) => (first, end - first),
        _ => (0, 0),
    };
    let width = from.len();
    let one = (count == 0).then(|| unescaped(word));
    one.into_iter().chain((first..first + count).map(move |key| format!("{key:0width$}").into_bytes()))
}

/// The bounds that one of the words gives, or none.
fn bounds(words: &[&str]) -> Bounds {
    let Some((lower, upper)) = words.iter().find_map(|word| word.split_once("..")) else {
        return (Bound::Unbounded, Bound::Unbounded);
    };
    let lower = match (lower, lower.strip_suffix('<')) {
        ("", _) => Bound::Unbounded,
        (_, Some(key)) => Bound::Excluded(unescaped(key)),
        (key, None) => Bound::Included(unescaped(key)),
    };
    let upper = match (upper, upper.strip_prefix('=')) {
        ("", _) => Bound::Unbounded,
        (_, Some(key)) => Bound::Included(unescaped(key)),
        (key, None) => Bound::Excluded(unescaped(key)),
    };
    (lower, upper)
}

/// A key with `\xff` and the like for bytes that are no letters.
fn unescaped(word: &str) -> Vec<u8> {
    let mut parts = word.split("\\x");
    let mut key = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (hex, rest) = part.split_at(2);
        key.push(u8::from_str_radix(hex, 16).unwrap());
        key.extend_from_slice(rest.as_bytes());
    }
    key
}

fn told(entry: Option<crate::Result<(crate::Key, crate::Value)>>) -> String {
    match entry {
        None => "end".to_owned(),
        Some(Err(error)) => format!("{:?}", error.kind()),
        Some(Ok((key, value))) if value.len() > SHOWN_MAX => format!("{}", key.escape_ascii()),
        Some(Ok((key, value))) => format!("{}={}", key.escape_ascii(), value.escape_ascii()),
    }
}
