//! Reads that do not block their thread: one get, many gets in flight, a time limit, a scan by chunks, and a close.
//!
//! `cargo run --release -p pleach --example async_reads -- [keys]`
//!
//! The futures need no runtime. This program polls them with the small [`block_on`] below. In a program that has a runtime,
//! the `async` functions stay as they are, and a task awaits them:
//!
//! ```text
//! let users = db.partition("users")?;                            // Send + Sync + 'static, cheap to clone
//! tokio::spawn(async move { users.get_async("alice").await });
//! ```
//!
//! Writes, `flush`, `open` and `close` block their thread. Call them on a thread that may block, for instance by
//! `tokio::task::spawn_blocking`.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use pleach::{Db, ErrorKind, GetFuture, Options, Partition, ReadOptions, Result, Value};

fn main() -> Result<()> {
    let keys = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(100_000).max(1);
    let dir = tempfile::tempdir().expect("a directory for the store");
    fill(&Options::new().open(dir.path())?, keys)?;
    // Opened again, the store has its blocks on the disk and none in its cache.
    let db = Options::new().open(dir.path())?;
    let users = db.partition("users")?;

    block_on(read(&users, keys))?;
    let stats = db.stats();
    println!("{} reads of the device by the driver `{}`", stats.lookup_reads, stats.read_driver);

    block_on(close(db, &users, keys))
}

fn name(n: u32) -> String {
    format!("user{n:08}")
}

fn fill(db: &Db, keys: u32) -> Result<()> {
    let users = db.partition("users")?;
    for n in 0..keys {
        users.put(name(n), [b'x'; 200])?;
    }
    db.flush()
}

async fn read(users: &Partition, keys: u32) -> Result<()> {
    // One get. Without `await` nothing happens: the read begins at the first poll.
    let value = users.get_async(name(keys / 2)).await?;
    println!("one get: {} bytes", value.map_or(0, |value| value.len()));

    // Many gets of one task. The store keeps up to 128 of them waiting for blocks at the same time.
    let names = (0..keys).step_by(100).map(name);
    let values = users.get_many_async(names).await?;
    println!("many gets: {} values", values.iter().flatten().count());

    // Single gets that are in flight at the same time. With a runtime each may be a task of its own.
    let gets = (50..keys).step_by(1000).map(|n| users.get_async(name(n))).collect();
    println!("gets at the same time: {} values", join(gets).await?.iter().flatten().count());

    // A read that must not take long. If the device answers late, the block is in the cache at the next attempt.
    let quick = ReadOptions::new().timeout(Duration::from_millis(5));
    match users.get_async_with(name(keys - 1), &quick).await {
        Ok(value) => println!("in time: {}", value.is_some()),
        Err(error) if error.kind() == ErrorKind::TimedOut => println!("too late: {error}"),
        Err(error) => return Err(error),
    }

    // A scan. A chunk has at least one entry and at most as many as asked for.
    let mut chunks = users.prefix("user000").into_chunks(1000);
    let mut entries = 0;
    while let Some(chunk) = chunks.next_chunk().await? {
        entries += chunk.len();
    }
    println!("a scan: {entries} entries");

    // A future may be dropped at any time. This one was not polled, so nothing is read. A read that has begun ends without
    // its future, and its block goes to the cache.
    drop(users.get_async(name(7)));
    Ok(())
}

/// A future that is polled after the close returns `Closed`. One that was waiting returns its answer or `Closed`.
async fn close(db: Db, users: &Partition, keys: u32) -> Result<()> {
    let get = users.get_async(name(keys / 3));
    db.close()?;
    let error = get.await.expect_err("the store is closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    println!("after the close: {error}");
    Ok(())
}

/// Polls all gets until each has its answer. Returns the first error. `futures::future::try_join_all` does the same and polls
/// only those that were woken.
async fn join(mut gets: Vec<GetFuture>) -> Result<Vec<Option<Value>>> {
    let mut values = vec![None; gets.len()];
    let mut waiting: Vec<usize> = (0..gets.len()).collect();
    poll_fn(|cx| {
        let mut failed = None;
        waiting.retain(|&n| match Pin::new(&mut gets[n]).poll(cx) {
            Poll::Ready(Ok(value)) => {
                values[n] = value;
                false
            }
            Poll::Ready(Err(error)) => {
                failed = Some(error);
                false
            }
            Poll::Pending => true,
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if waiting.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await?;
    Ok(values)
}

/// Wakes a thread that sleeps in [`block_on`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on the calling thread, which sleeps while the future waits.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        std::thread::park();
    }
}

/// `cargo test` runs the example.
#[test]
fn the_example_runs() -> Result<()> {
    main()
}
