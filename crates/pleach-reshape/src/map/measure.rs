//! What the map costs: run by hand.
//!
//! `cargo test --release -p pleach-reshape --lib measure -- --ignored --nocapture --test-threads=1`

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "figures to look at, of small numbers"
)]

use std::time::Instant;

use crossbeam_skiplist::SkipMap;

use super::*;
use crate::map::packed::Packed;

/// 16 random bytes; with `TEXT` the URL of one of 5000 hosts, of which few have most.
fn key(number: u64, is_text: bool) -> Key {
    let mut rng = fastrand::Rng::with_seed(number);
    if is_text {
        let most = rng.u32(1..5000);
        let host = rng.u32(..most);
        let folders = ["about", "archive", "catalog", "download", "journal", "library", "market", "product"];
        let [folder, other] = [(); 2].map(|()| folders[rng.usize(..folders.len())]);
        return format!("https://www.{host}.example/{folder}/{other}-{:x}.html", rng.u64(..))
            .into_bytes()
            .into();
    }
    let mut key = [0; 16];
    rng.fill(&mut key);
    Key::from_slice(&key)
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<u64>().unwrap_or(0) * 1024
}

fn timed(threads: u64, count: u64, work: impl Fn(u64) + Sync) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a measurement")]
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || (thread..count).step_by(threads as usize).for_each(work));
        }
    });
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

#[test]
#[ignore = "a measurement"]
fn measure_layer_and_skip_list() {
    let count = variable("KEYS", 400_000);
    let is_text = variable("TEXT", 0) > 0;
    let keys: Vec<_> = (0..count).map(|number| key(number, is_text)).collect();
    for threads in [1, 2, 8] {
        let (layer, horizon) = (Layer::new(count as usize * layer::ENTRY_BYTES), Horizon::default());
        let published = |number| Published { id: Some(Id(number + 1)), version: number };
        let publish = |number: u64| {
            let key = &keys[number as usize];
            layer.publish(key, key_hash(key), published(number), &horizon);
        };
        let insert = timed(threads, count, publish);
        let get = timed(threads, count, |number| {
            let key = &keys[number as usize];
            assert!(layer.get(key, key_hash(key), NEWEST).is_some());
        });
        let list: SkipMap<Key, Published> = SkipMap::new();
        let list_insert = timed(threads, count, |number| {
            list.insert(Key::from_slice(&keys[number as usize]), published(number));
        });
        let list_get = timed(threads, count, |number| {
            assert!(list.get(&keys[number as usize][..]).is_some());
        });
        println!(
            "{count} keys, {threads} threads, ns a key: layer {insert:.0} in, {get:.0} out; skip list {list_insert:.0} in, \
             {list_get:.0} out"
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn measure_map_in_memory() {
    let (count, delta) = (variable("KEYS", 10_000_000), variable("DELTA", 32 << 20) as usize);
    let share = variable("SHARE", 2) as usize;
    let is_text = variable("TEXT", 0) > 0;
    let before = resident_bytes();
    let map = Map::new(Base::Memory(Packed::default()));
    #[expect(clippy::disallowed_methods, reason = "a measurement")]
    let start = Instant::now();
    let mut merging = 0.0;
    for number in 0..count {
        let key = key(number, is_text);
        map.publish(std::iter::once((&key[..], key_hash(&key), Some(Id(number + 1)))), number + 1);
        if map.active_bytes() > delta.max(map.base_bytes() / 2) / share || number + 1 == count {
            #[expect(clippy::disallowed_methods, reason = "a measurement")]
            let start = Instant::now();
            map.seal();
            map.merge_sealed(BATCH_ENTRIES, |base, _, entries| Ok(base.apply(entries))).unwrap();
            map.forget_sealed(None);
            merging += start.elapsed().as_secs_f64();
        }
    }
    let whole = start.elapsed().as_secs_f64();
    let keys = timed(1, count, |number| {
        std::hint::black_box(key(number, is_text));
    });
    let each = |seconds: f64| seconds * 1e9 / count as f64;
    println!(
        "{count} keys, delta {delta} B: {:.0} ns a put, of these {:.0} merging; {keys:.0} ns making keys not counted",
        each(whole) - keys,
        each(merging)
    );
    let bytes = |bytes: f64| bytes / count as f64;
    println!(
        "{:.1} B a key in the tree, {:.1} B a key resident",
        bytes(map.base_bytes() as f64),
        bytes(resident_bytes() as f64 - before as f64)
    );
    let get = timed(1, count / 10, |number| {
        let key = key(number * 10, is_text);
        assert!(!map.get(&key, key_hash(&key)).unwrap().ids.is_empty());
    });
    println!("{:.0} ns a get", get - keys);
}
