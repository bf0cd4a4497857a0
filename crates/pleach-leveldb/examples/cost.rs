//! Puts and gets by Pleach's Rust interface, to compare with the same calls of LevelDB's C++ class:
//!
//! ```text
//! make -C adapters/leveldb cost
//! ```
//!
//! `cost DIRECTORY KEYS GETS` prints nanoseconds of a put and of a get. `adapters/leveldb/tests/cost.cc` is its twin: the same
//! keys in the same order, values, options and prints. All data is cached when gets are measured. A get copies the value to
//! memory that is used again, as the class does.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a program that measures the real machine"
)]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use pleach::{Options, Partition};

const KEY_LEN: usize = 16;
const VALUE_LEN: usize = 100;

/// What the adapter makes of the twin's options: a cache of 256 MiB and two write buffers of 64 MiB.
const WRITE_BUFFER: usize = 64 << 20;
const MEMORY: usize = (256 << 20) + 2 * WRITE_BUFFER;

/// SplitMix64.
fn mix(n: u64) -> u64 {
    let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Made when it is needed: a list of keys would be another memory that a get waits for.
fn key(n: u64) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    let first = mix(n + 1);
    key[..8].copy_from_slice(&first.to_le_bytes());
    key[8..].copy_from_slice(&mix(first).to_le_bytes());
    key
}

fn get_all(partition: &Partition, order: &[u64]) -> pleach::Result<usize> {
    let (mut bytes, mut copy) = (0, Vec::new());
    for &n in order {
        copy.clear();
        if let Some(value) = partition.get(key(n))? {
            copy.extend_from_slice(&value);
        }
        bytes += copy.len();
    }
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, count, gets] = &arguments[..] else {
        return Err("usage: cost DIRECTORY KEYS GETS".into());
    };
    let (count, gets): (u64, u64) = (count.parse()?, gets.parse()?);
    let options = Options::new().memory(MEMORY).memtable_bytes(WRITE_BUFFER).compression(false);
    let db = options.open(PathBuf::from(directory))?;
    let partition = db.default_partition();
    let value = [b'v'; VALUE_LEN];

    let started = Instant::now();
    for n in 0..count {
        partition.put(key(n), value)?;
    }
    println!("put {:.1}", started.elapsed().as_secs_f64() * 1e9 / count as f64);

    partition.compact()?;
    let order: Vec<u64> = (0..gets).map(|n| mix(n ^ (1 << 60)) % count).collect();
    get_all(&partition, &(0..count).collect::<Vec<_>>())?;
    let started = Instant::now();
    let bytes = get_all(&partition, &order)?;
    println!("get {:.1}", started.elapsed().as_secs_f64() * 1e9 / gets as f64);
    if bytes as u64 != gets * VALUE_LEN as u64 {
        return Err("a value was not found".into());
    }
    db.close()?;
    Ok(())
}
