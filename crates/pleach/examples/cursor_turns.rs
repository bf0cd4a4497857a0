//! What it costs to turn a cursor: steps a second of a walk that goes up, and of one that turns at every step, by the number of
//! runs that the keys are spread over. All blocks are cached.
//!
//! ```sh
//! cargo run --release -p pleach --example cursor_turns
//! ```

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::big_endian_bytes,
    clippy::cast_precision_loss,
    reason = "a program that measures the real machine"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use pleach::{Cursor, Db, Options, Shape};

const KEYS: u64 = 200_000;
const RUNS: [u64; 5] = [1, 2, 8, 16, 32];

fn key(n: u64) -> [u8; 16] {
    // Spread by an odd multiplier, so that the runs interlace without a pattern.
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8).to_be_bytes());
    key
}

/// A store of so many runs. Nothing merges them.
fn store(dir: &std::path::Path, runs: u64) -> pleach::Result<Db> {
    let options = Options::new().memory(512 << 20).memtable_bytes(64 << 20);
    let db = options.shape(Shape::Forest).runs_per_stage(64).open(dir)?;
    for run in 0..runs {
        for n in (run..KEYS).step_by(usize::try_from(runs).expect("few")) {
            db.default_partition().put(key(n), [7; 100])?;
        }
        db.flush()?;
    }
    Ok(db)
}

/// Steps a second: `steps` of them from random places, time and again.
fn rate(
    cursor: &mut Cursor,
    mut walk: impl FnMut(&mut Cursor) -> pleach::Result<u64>,
) -> pleach::Result<f64> {
    let (mut steps, mut rng, start) = (0, 1u64, Instant::now());
    while start.elapsed() < Duration::from_millis(500) {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        cursor.seek(key(rng >> 20))?;
        steps += walk(cursor)?;
    }
    Ok(steps as f64 / start.elapsed().as_secs_f64())
}

fn main() -> pleach::Result<()> {
    println!("runs  steps/s up  steps/s turning  turning / up");
    for runs in RUNS {
        let dir = tempfile::tempdir().expect("a directory");
        let db = store(dir.path(), runs)?;
        let mut cursor = db.default_partition().cursor()?.fill_cache();
        while cursor.is_valid() || cursor.first()? {
            if !cursor.next()? {
                break;
            }
        }
        let mut ratios = Vec::new();
        let (mut up, mut turning) = (0.0, 0.0);
        for _ in 0..5 {
            up = rate(&mut cursor, |cursor| {
                let mut steps = 0;
                while steps < 1_000 && cursor.next()? {
                    black_box(cursor.key());
                    steps += 1;
                }
                Ok(steps)
            })?;
            turning = rate(&mut cursor, |cursor| {
                let mut steps = 0;
                while steps < 1_000 && (if steps % 2 == 0 { cursor.next()? } else { cursor.prev()? }) {
                    black_box(cursor.key());
                    steps += 1;
                }
                Ok(steps)
            })?;
            ratios.push(turning / up);
        }
        ratios.sort_by(f64::total_cmp);
        println!("{runs:4} {:9.1} M {:14.1} M {:13.2}", up / 1e6, turning / 1e6, ratios[2]);
    }
    Ok(())
}
