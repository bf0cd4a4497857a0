//! The loop of one thread that has many gets in flight, as futures.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::drive::Bounds;
use super::execute::Tally;
use crate::engine::{Engine, GetFuture, Result};
use crate::measure::Recorder;
use crate::workload::{Op, OpKind, OpStream};

/// Gets between two reports of progress.
const OPS_PER_TELL: u64 = 256;

/// The futures to be polled, and the thread that polls them.
struct Ready {
    places: Mutex<VecDeque<usize>>,
    sleeps: AtomicBool,
    thread: Thread,
}

struct PlaceWaker {
    place: usize,
    ready: Arc<Ready>,
}

impl Wake for PlaceWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.places.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.place);
        if self.ready.sleeps.swap(false, Ordering::SeqCst) {
            self.ready.thread.unpark();
        }
    }
}

impl Ready {
    /// A place whose future is to be polled; waits for one.
    fn next(&self) -> usize {
        loop {
            if let Some(place) = self.places.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
                return place;
            }
            self.sleeps.store(true, Ordering::SeqCst);
            if self.places.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                std::thread::park();
            }
            self.sleeps.store(false, Ordering::SeqCst);
        }
    }
}

struct InFlight<'a> {
    future: GetFuture<'a>,
    index: u64,
    key_len: usize,
    begin_ns: u64,
}

/// Performs the stream's gets, `depth` at a time. A get's latency is the time from its start until it has been polled ready.
pub(super) fn drive_futures(
    engine: &dyn Engine,
    stream: &mut dyn OpStream,
    depth: usize,
    recorder: &mut Recorder,
    bounds: Bounds<'_>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut op = Op::new();
    let ready = Arc::new(Ready {
        places: Mutex::new((0..depth).collect()),
        sleeps: AtomicBool::new(false),
        thread: std::thread::current(),
    });
    let wakers: Vec<Waker> = (0..depth)
        .map(|place| Waker::from(Arc::new(PlaceWaker { place, ready: Arc::clone(&ready) })))
        .collect();
    let mut in_flight: Vec<Option<InFlight<'_>>> = (0..depth).map(|_| None).collect();
    let (mut open, mut started, mut is_over) = (0, 0, false);
    recorder.begin();
    loop {
        let place = ready.next();
        if in_flight[place].is_none() {
            is_over = is_over || started == bounds.ops || !stream.next(&mut op);
            if is_over {
                if open == 0 {
                    break;
                }
                continue;
            }
            let Some(future) = engine.get_async(op.partition, &op.key) else {
                return Err("the engine gives no futures".into());
            };
            let begin_ns = recorder.now_ns();
            in_flight[place] = Some(InFlight { future, index: op.index, key_len: op.key.len(), begin_ns });
            (open, started) = (open + 1, started + 1);
        }
        let Some(get) = &mut in_flight[place] else { continue };
        let mut context = Context::from_waker(&wakers[place]);
        let Poll::Ready(value) = Pin::new(&mut get.future).poll(&mut context) else { continue };
        match value? {
            Some(value) => tally.saw(get.key_len, &value, get.index),
            None => tally.missed += 1,
        }
        tally.ops += 1;
        let end_ns = recorder.now_ns();
        recorder.timed(OpKind::Get, get.begin_ns, end_ns, 1);
        in_flight[place] = None;
        open -= 1;
        wakers[place].wake_by_ref();
        is_over = is_over || bounds.are_over(end_ns);
        if tally.ops.is_multiple_of(OPS_PER_TELL) {
            bounds.progress.fetch_add(OPS_PER_TELL, Ordering::Relaxed);
        }
    }
    bounds.progress.fetch_add(tally.ops % OPS_PER_TELL, Ordering::Relaxed);
    Ok(tally)
}
