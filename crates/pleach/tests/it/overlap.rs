//! Reads of a device that takes its time: those of one call, and futures, are in flight together.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use pleach::env::{Env, RealEnv, SlowEnv};
use pleach::{Db, Options, Shape};

use crate::rig::tasks::Unpark;

/// Reads that the device does at the same time.
const WIDTH: usize = 8;
const LATENCY: Duration = Duration::from_millis(20);
/// Keys that are read, each in a block of its own.
const READ: u32 = 64;
/// Several blocks hold fewer entries than this: `get_many` reads neighbouring blocks at once.
const APART: u32 = 48;

fn key(n: u32) -> String {
    format!("key{n:08}")
}

/// A store of one run, opened again: its indexes are in memory, and no data block is.
fn open(env: &Arc<SlowEnv>, dir: &std::path::Path) -> Db {
    let options = || Options::new().memory(8 << 20).shape(Shape::Forest).env(Arc::clone(env) as Arc<dyn Env>);
    let db = options().open(dir).unwrap();
    let partition = db.default_partition();
    for n in 0..READ * APART {
        partition.put(key(n), [7; 400]).unwrap();
    }
    db.flush().unwrap();
    drop(partition);
    db.close().unwrap();
    let db = options().open(dir).unwrap();
    assert_eq!(db.default_partition().get(key(APART / 2)).unwrap().as_deref(), Some(&[7; 400][..]));
    env.set_latency(LATENCY);
    db
}

fn keys() -> Vec<String> {
    (0..READ).map(|n| key(n * APART)).collect()
}

/// Runs `read` and checks that its reads overlapped.
fn overlaps(env: &SlowEnv, read: impl FnOnce()) {
    let begin = env.now();
    read();
    let (took, reads) = (env.now().saturating_sub(begin), u32::try_from(env.reads()).unwrap());
    // Two blocks may have been read before, and an index may be read meanwhile.
    assert!((READ - 2..READ + 8).contains(&reads), "{reads} reads");
    assert_eq!(env.running_max(), WIDTH);
    // On an idle machine they take an eighth of their latencies one after the other, on a loaded one more.
    assert!(took < LATENCY * reads / 2, "{reads} reads took {took:?}");
}

#[test]
fn the_reads_of_get_many_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let env = Arc::new(SlowEnv::new(Arc::new(RealEnv::new()), WIDTH));
    let db = open(&env, dir.path());
    let partition = db.default_partition();
    overlaps(&env, || {
        let values = partition.get_many(keys()).unwrap();
        assert!(values.iter().all(|value| value.as_deref() == Some(&[7; 400][..])));
    });
}

#[test]
fn the_reads_of_futures_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let env = Arc::new(SlowEnv::new(Arc::new(RealEnv::new()), WIDTH));
    let db = open(&env, dir.path());
    let partition = db.default_partition();
    overlaps(&env, || {
        let mut futures: Vec<_> = keys().into_iter().map(|key| partition.get_async(key)).collect();
        let waker = Waker::from(Unpark::new());
        while !futures.is_empty() {
            futures.retain_mut(|future| match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => {
                    assert_eq!(value.unwrap().as_deref(), Some(&[7; 400][..]));
                    false
                }
                Poll::Pending => true,
            });
            if !futures.is_empty() {
                thread::park();
            }
        }
    });
}
