//! The system's futex: compares a word under a lock that the waking call takes too, and has a queue for each address.
//!
//! No thread wakes up early, so a wake-up that is lost stays lost. The comparison orders nothing by itself: only the lock does.

use std::collections::HashMap;
use std::sync::Arc;

use crate::gates::atomic::{AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex};

/// What a call is for.
#[derive(Clone, Copy)]
pub struct Flags;

impl Flags {
    pub const PRIVATE: Self = Self;
}

/// The word has another value.
#[derive(Debug, PartialEq, Eq)]
pub struct Again;

/// Queues by the address of the word, each with the number of threads that sleep there.
struct Queues(Mutex<HashMap<usize, Queue>>);

#[derive(Default)]
struct Queue {
    sleepers: usize,
    /// Another one for those that come after a wake-up.
    woken: Arc<Condvar>,
}

loom::lazy_static! {
    static ref QUEUES: Queues = Queues(Mutex::new(HashMap::new()));
}

/// Makes the queues of a model. Requires: no other thread runs, or making them would order the threads.
pub fn begin() {
    drop(QUEUES.0.lock());
}

fn address(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word).addr()
}

/// Sleeps if the word has the value.
pub fn wait(word: &AtomicU32, _flags: Flags, value: u32, _timeout: Option<()>) -> Result<(), Again> {
    let mut queues = QUEUES.0.lock();
    if word.load(Ordering::Relaxed) != value {
        return Err(Again);
    }
    let queue = queues.entry(address(word)).or_default();
    queue.sleepers += 1;
    let woken = Arc::clone(&queue.woken);
    woken.wait(&mut queues);
    Ok(())
}

/// Wakes all threads that sleep there. Returns their number.
pub fn wake(word: &AtomicU32, _flags: Flags, count: u32) -> Result<usize, Again> {
    assert_eq!(count, i32::MAX as u32, "the model wakes all");
    let queue = QUEUES.0.lock().remove(&address(word)).unwrap_or_default();
    queue.woken.notify_all();
    Ok(queue.sleepers)
}
