//! The loop of one thread that has many reads in flight, as futures: gets, and scans that read by chunks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::drive::Bounds;
use super::execute::Tally;
use crate::engine::{Direction, Engine, GetFuture, Result, Scan, ScanFuture, ScannedEntries};
use crate::measure::Recorder;
use crate::workload::{Op, OpKind, OpStream};

/// Reads between two reports of progress.
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

enum Reading<'a> {
    Get(GetFuture<'a>),
    /// With the key that it starts with.
    Scan(ScanFuture<'a>, Vec<u8>),
}

enum Found {
    Value(Option<Vec<u8>>),
    Entries(ScannedEntries),
}

struct InFlight<'a> {
    reading: Reading<'a>,
    index: u64,
    key_len: usize,
    begin_ns: u64,
}

impl<'a> Reading<'a> {
    /// Starts the operation's read.
    fn begin(engine: &'a dyn Engine, op: &Op) -> Result<Self> {
        let (partition, from) = (op.partition, Some(&op.key[..]));
        let begun = match op.kind {
            OpKind::Scan => {
                let scan = Scan { partition, from, direction: Direction::Forward, limit: op.limit };
                engine.scan_async(&scan).map(|scan| Self::Scan(scan, op.key.clone()))
            }
            _ => engine.get_async(partition, &op.key).map(Self::Get),
        };
        begun.ok_or_else(|| "the engine gives no futures".into())
    }

    fn kind(&self) -> OpKind {
        match self {
            Self::Get(_) => OpKind::Get,
            Self::Scan(..) => OpKind::Scan,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Found>> {
        match self {
            Self::Get(get) => get.as_mut().poll(context).map_ok(Found::Value),
            Self::Scan(scan, _) => scan.as_mut().poll(context).map_ok(Found::Entries),
        }
    }
}

impl InFlight<'_> {
    fn count(&self, found: &Found, tally: &mut Tally) {
        let is_found = match (found, &self.reading) {
            (Found::Value(Some(value)), _) => {
                tally.saw(self.key_len, value, self.index);
                true
            }
            (Found::Entries(entries), Reading::Scan(_, from)) => {
                let mut first = Some((&from[..], self.index));
                entries.iter().for_each(|(key, value)| tally.scanned(first.take(), key, value));
                first.is_none()
            }
            _ => false,
        };
        tally.missed += u64::from(!is_found);
        tally.ops += 1;
    }
}

/// Performs the stream's reads, `depth` at a time. A read's latency is the time from its start until it has been polled ready.
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
            let reading = Reading::begin(engine, &op)?;
            let begin_ns = recorder.now_ns();
            in_flight[place] = Some(InFlight { reading, index: op.index, key_len: op.key.len(), begin_ns });
            (open, started) = (open + 1, started + 1);
        }
        let Some(read) = &mut in_flight[place] else { continue };
        let mut context = Context::from_waker(&wakers[place]);
        let Poll::Ready(found) = read.reading.poll(&mut context) else { continue };
        read.count(&found?, &mut tally);
        let end_ns = recorder.now_ns();
        recorder.timed(read.reading.kind(), read.begin_ns, end_ns, 1);
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
