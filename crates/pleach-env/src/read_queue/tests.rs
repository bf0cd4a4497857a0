//! Every driver reads the same bytes, whatever the file does.

#[cfg(target_os = "linux")]
pub(super) mod ring_failures;
#[cfg(target_os = "linux")]
mod rings;
mod unmade;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::*;
use crate::{Fault, FaultKind, OpenOptions, RealEnv, SimEnv, Site, SlowEnv};

const UNPOLLED: [ReadDriver; 3] = [ReadDriver::Ring, ReadDriver::Threads, ReadDriver::Blocking];
const POLLED: [ReadDriver; 2] = [ReadDriver::DevicePolled, ReadDriver::KernelPolled];

/// All drivers but the polled ones that this kernel refuses. Its devices need not poll: then each read of
/// [`ReadDriver::DevicePolled`] is refused, and made otherwise.
fn drivers() -> Vec<ReadDriver> {
    let is_given = |driver: &ReadDriver| match ReadQueue::<Vec<u8>>::new(&RealEnv::new(), *driver, 1) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("not tested: {driver} ({error})");
            false
        }
    };
    UNPOLLED.into_iter().chain(POLLED.into_iter().filter(is_given)).collect()
}

fn byte_at(offset: usize) -> u8 {
    u8::try_from(offset * 7 % 251).expect("a byte")
}

fn file_of(env: &dyn Env, dir: &Path, len: usize) -> Arc<dyn File> {
    let path = dir.join("file");
    let file = env.create_file(&path).unwrap();
    file.write_all_at(&(0..len).map(byte_at).collect::<Vec<_>>(), 0).unwrap();
    env.open_file(&path, OpenOptions::default()).unwrap()
}

/// Reads `len` bytes at each offset, as many at once as the queue takes; the results in the order of `offsets`.
fn read_all(
    queue: &mut ReadQueue<'_, Vec<u8>>,
    file: &Arc<dyn File>,
    offsets: &[u64],
    len: usize,
) -> Vec<io::Result<Vec<u8>>> {
    let mut results = BTreeMap::new();
    let mut waiting = (0u64..).zip(offsets).peekable();
    loop {
        while !queue.is_full()
            && let Some((tag, &offset)) = waiting.next()
        {
            queue.push(ReadRequest { file, offset, buffer: vec![0; len], needed: len, tag }).unwrap();
        }
        let Some(read) = queue.next() else { break };
        let before = results.insert(read.tag, read.result);
        assert!(before.is_none(), "each read ends once");
    }
    assert!(waiting.next().is_none());
    results.into_values().collect()
}

#[test]
fn all_drivers_read_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let file = file_of(&env, dir.path(), 100_000);
    for driver in drivers() {
        for depth in [1, 3, 64, 256] {
            let mut queue = ReadQueue::new(&env, driver, depth).unwrap();
            let offsets: Vec<u64> = (0..500).map(|n| n * 7919 % 99_000).collect();
            for (read, offset) in read_all(&mut queue, &file, &offsets, 1000).into_iter().zip(&offsets) {
                let start = usize::try_from(*offset).unwrap();
                assert!(read.unwrap().iter().copied().eq((start..start + 1000).map(byte_at)), "{driver:?}");
            }
        }
    }
}

#[test]
fn a_file_that_ends_inside_a_read_is_an_error_where_bytes_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let file = file_of(&env, dir.path(), 5000);
    for driver in drivers() {
        let mut queue = ReadQueue::new(&env, driver, 4).unwrap();
        let error = read_all(&mut queue, &file, &[4500], 1000).remove(0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{driver:?}");
        queue
            .push(ReadRequest { file: &file, offset: 4500, buffer: vec![9; 1000], needed: 500, tag: 7 })
            .unwrap();
        let read = queue.next().unwrap();
        assert_eq!(read.tag, 7, "{driver:?}");
        assert!(read.result.unwrap()[..500].iter().copied().eq((4500..5000).map(byte_at)));
        assert!(queue.next().is_none());
    }
}

#[test]
fn a_queue_dropped_with_reads_in_flight_waits_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let file = file_of(&env, dir.path(), 1 << 20);
    for driver in drivers() {
        for _ in 0..50 {
            let mut queue = ReadQueue::new(&env, driver, 64).unwrap();
            for tag in 0..64 {
                let read =
                    ReadRequest { file: &file, offset: tag * 4096, buffer: vec![0; 4096], needed: 4096, tag };
                queue.push(read).unwrap();
            }
            let _one = queue.next();
        }
    }
}

#[test]
fn many_threads_share_the_pool_and_have_rings_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let file = file_of(&env, dir.path(), 100_000);
    std::thread::scope(|scope| {
        for driver in drivers().into_iter().cycle().take(15) {
            let (env, file) = (&env, &file);
            scope.spawn(move || {
                let mut queue = ReadQueue::new(env, driver, 16).unwrap();
                let offsets: Vec<u64> = (0..2000).map(|n| n * 31 % 90_000).collect();
                assert!(read_all(&mut queue, file, &offsets, 64).iter().all(Result::is_ok));
            });
        }
    });
}

#[test]
fn a_simulated_queue_ends_reads_in_any_order_and_with_their_errors() {
    let offsets: Vec<u64> = (0..20).map(|n| n * 4096).collect();
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..4 {
        let env = SimEnv::new(seed);
        env.create_dir_all(Path::new("/d")).unwrap();
        let file = file_of(&*env, Path::new("/d"), 20 * 4096);
        let mut queue = ReadQueue::new(&*env, ReadDriver::Blocking, 20).unwrap();
        env.add_fault(Fault { at_op: env.read_count() + 5, kind: FaultKind::ReadEio });
        for (tag, &offset) in (0..).zip(&offsets) {
            let read = ReadRequest { file: &file, offset, buffer: vec![0; 4096], needed: 4096, tag };
            queue.push(read).unwrap();
        }
        let ended: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(ended.iter().filter(|read| read.result.is_err()).count(), 1);
        orders.insert(ended.iter().map(|read| read.tag).collect::<Vec<_>>());
    }
    assert_eq!(orders.len(), 4, "the order is the seed's");
}

#[test]
fn the_first_driver_that_reads_is_chosen() {
    #[cfg(target_os = "linux")]
    let _turn = ring_failures::TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let real = RealEnv::new();
    file_of(&real, dir.path(), 0);
    let path = dir.path().join("file");
    let choose = |driver| ReadDriver::choose(&real, driver, &path, OpenOptions::default());
    for driver in UNPOLLED {
        assert_eq!(choose(Some(driver)).unwrap(), driver);
    }
    assert_ne!(choose(None).unwrap(), ReadDriver::Blocking);
    let simulated = SimEnv::new(1);
    simulated.create_dir_all(Path::new("/d")).unwrap();
    file_of(&*simulated, Path::new("/d"), 1);
    let path = Path::new("/d/file");
    let choose = |driver| ReadDriver::choose(&*simulated, driver, path, OpenOptions::default());
    for driver in [ReadDriver::Ring].into_iter().chain(POLLED) {
        assert_eq!(choose(Some(driver)).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
    assert_eq!(choose(None).unwrap(), ReadDriver::Blocking);
}

#[test]
fn drivers_have_names() {
    for driver in UNPOLLED.into_iter().chain(POLLED) {
        assert_eq!(driver.to_string().parse(), Ok(driver));
    }
    assert!("uring".parse::<ReadDriver>().unwrap_err().contains("choose one of ring"));
}

/// Reads past the page cache may be polled, reads through it never.
#[test]
fn a_device_is_polled_only_for_direct_reads() {
    #[cfg(target_os = "linux")]
    let _turn = ring_failures::TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let real = RealEnv::new();
    file_of(&real, dir.path(), 5000);
    let path = dir.path().join("file");
    let kernel_polled = if drivers().contains(&ReadDriver::KernelPolled) {
        ReadDriver::KernelPolled
    } else {
        ReadDriver::Ring
    };
    for driver in POLLED {
        let cached = ReadDriver::choose(&real, Some(driver), &path, OpenOptions::default()).unwrap();
        assert_eq!(cached, kernel_polled);
    }
    let direct = OpenOptions { direct: true, ..OpenOptions::default() };
    let chosen = ReadDriver::choose(&real, Some(ReadDriver::DevicePolled), &path, direct).unwrap();
    eprintln!("direct reads: {chosen}");
    assert!(chosen == ReadDriver::DevicePolled || chosen == kernel_polled);
}

#[test]
fn a_queue_says_that_its_reads_were_not_polled() {
    #[cfg(target_os = "linux")]
    let _turn = ring_failures::TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let file = file_of(&env, dir.path(), 5000);
    for driver in drivers() {
        let mut queue = ReadQueue::new(&env, driver, 4).unwrap();
        assert!(read_all(&mut queue, &file, &[0, 100, 200], 100).iter().all(Result::is_ok));
        assert_eq!(queue.was_refused_polling(), driver == ReadDriver::DevicePolled, "{driver}");
    }
}

/// A read of a page, and what came of it.
struct PageRead {
    file: Arc<dyn File>,
    page: u64,
    result: Mutex<Option<io::Result<Vec<u8>>>>,
    ended: Condvar,
}

impl QueuedRead for PageRead {
    type Buffer = Vec<u8>;

    fn request(&self, tag: u64) -> ReadRequest<'_, Vec<u8>> {
        ReadRequest { file: &self.file, offset: self.page * 4096, buffer: vec![0; 4096], needed: 4096, tag }
    }

    fn complete(&self, result: io::Result<Vec<u8>>) {
        assert!(self.result.lock().replace(result).is_none(), "a read ends once");
        self.ended.notify_all();
    }
}

impl PageRead {
    fn new(file: &Arc<dyn File>, page: u64) -> Arc<Self> {
        let file = Arc::clone(file);
        Arc::new(Self { file, page, result: Mutex::new(None), ended: Condvar::new() })
    }

    fn wait(&self, service: &ReadService<Self>) -> io::Result<Vec<u8>> {
        loop {
            let mut result = self.result.lock();
            if let Some(result) = result.take() {
                return result;
            }
            if service.wants_help() {
                drop(result);
                service.help();
            } else {
                self.ended.wait(&mut result);
            }
        }
    }
}

#[test]
fn a_service_reads_for_many_threads_one_by_one_and_in_crowds() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 100 * 4096);
    for driver in drivers() {
        let service = ReadService::new(&env, driver);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (service, file) = (&service, &file);
                scope.spawn(move || {
                    for round in 0..100 {
                        // One read at a time lets the service fall asleep before the next; a crowd fills its queue.
                        let count = if round % 10 == 0 { 300 } else { 1 };
                        let pages = (0..count).map(|n| (n * 13 + thread + round) % 100);
                        let reads: Vec<_> = pages.map(|page| PageRead::new(file, page)).collect();
                        assert!(reads.iter().all(|read| service.submit(Arc::clone(read))));
                        for read in reads {
                            let start = usize::try_from(read.page * 4096).unwrap();
                            let bytes = read.wait(service).unwrap();
                            assert!(bytes.into_iter().eq((start..start + 4096).map(byte_at)), "{driver:?}");
                        }
                    }
                });
            }
        });
        let beyond = PageRead::new(&file, 100);
        assert!(service.submit(Arc::clone(&beyond)));
        assert_eq!(beyond.wait(&service).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{driver:?}");
    }
}

#[test]
fn a_service_that_goes_makes_the_reads_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 100 * 4096);
    for driver in drivers() {
        for count in [0, 1, 500] {
            let service = ReadService::new(&env, driver);
            let reads: Vec<_> = (0..count).map(|n| PageRead::new(&file, n % 100)).collect();
            assert!(reads.iter().all(|read| service.submit(Arc::clone(read))));
            drop(service);
            assert!(
                reads.iter().all(|read| read.result.lock().take().is_some_and(|r| r.is_ok())),
                "{driver:?}"
            );
            assert!(reads.into_iter().all(|read| Arc::into_inner(read).is_some()), "the service keeps none");
        }
    }
}

/// Where a read panics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Panics {
    Nowhere,
    /// When its turn comes.
    First,
    /// When its task is woken.
    Last,
}

impl Panics {
    fn at(self, place: Self) {
        if self == place {
            std::panic::resume_unwind(Box::new("planted by the test"));
        }
    }

    /// Every seventh read panics at `place`.
    fn of(place: Self, n: u64) -> Self {
        if n.is_multiple_of(7) { place } else { Self::Nowhere }
    }
}

/// A read that may panic.
struct Planted(Arc<PageRead>, Panics);

impl QueuedRead for Planted {
    type Buffer = Vec<u8>;

    fn request(&self, tag: u64) -> ReadRequest<'_, Vec<u8>> {
        self.1.at(Panics::First);
        self.0.request(tag)
    }

    fn complete(&self, result: io::Result<Vec<u8>>) {
        self.1.at(Panics::Last);
        self.0.complete(result);
    }
}

#[test]
fn a_panic_of_one_task_is_nothing_to_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 100 * 4096);
    for driver in drivers() {
        let service = ReadService::new(&env, driver);
        let reads: Vec<_> = (0..100)
            .map(|n| Arc::new(Planted(PageRead::new(&file, n), Panics::of(Panics::Last, n))))
            .collect();
        for _ in 0..2 {
            assert!(reads.iter().all(|read| service.submit(Arc::clone(read))));
            if driver == ReadDriver::Blocking {
                while service.help() {}
            }
            for read in reads.iter().filter(|read| read.1 == Panics::Nowhere) {
                let mut result = read.0.result.lock();
                while result.is_none() {
                    read.0.ended.wait(&mut result);
                }
                assert!(result.take().expect("it has ended").is_ok(), "{driver:?}");
            }
        }
        service.close();
    }
}

#[test]
fn a_read_that_panics_before_it_begins_ends_with_an_error_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 100 * 4096);
    for driver in drivers() {
        let service = ReadService::new(&env, driver);
        let reads: Vec<_> = (0..300)
            .map(|n| Arc::new(Planted(PageRead::new(&file, n % 100), Panics::of(Panics::First, n))))
            .collect();
        assert!(reads.iter().all(|read| service.submit(Arc::clone(read))));
        service.close();
        for read in reads {
            let result = read.0.result.lock().take().expect("a close waits");
            assert_eq!(result.is_err(), read.1 == Panics::First, "{driver}");
        }
    }
}

/// A file of which a call reads seven bytes at most, and every other call none, because it is interrupted. From some offset on
/// calls panic.
struct Slow(Arc<dyn File>, AtomicU64);

const PANICS_FROM: u64 = 1 << 20;

impl File for Slow {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Panics::at(Panics::First, if offset < PANICS_FROM { Panics::Nowhere } else { Panics::First });
        if self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = buf.len().min(7);
        self.0.read_at(&mut buf[..len], offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        self.0.sync(site)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.punch(offset, len)
    }

    fn expect_random_reads(&self) {}

    fn prefetch(&self, _offset: u64, _len: u64) {}

    fn forget(&self, _offset: u64, _len: u64) {}
}

#[test]
fn short_and_interrupted_reads_go_on_where_they_ended() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file: Arc<dyn File> = Arc::new(Slow(file_of(&*env, dir.path(), 2000), AtomicU64::new(0)));
    for driver in [ReadDriver::Threads, ReadDriver::Blocking] {
        let mut queue = ReadQueue::new(&*env, driver, 4).unwrap();
        let offsets: Vec<u64> = (0..20).map(|n| n * 91).collect();
        for (read, offset) in read_all(&mut queue, &file, &offsets, 100).into_iter().zip(&offsets) {
            let start = usize::try_from(*offset).unwrap();
            assert!(read.unwrap().iter().copied().eq((start..start + 100).map(byte_at)), "{driver:?}");
        }
        for read in read_all(&mut queue, &file, &[1950], 100) {
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{driver:?}");
        }
        let around_a_panic = read_all(&mut queue, &file, &[0, PANICS_FROM, 91], 100);
        let are_errors: Vec<_> = around_a_panic.iter().map(Result::is_err).collect();
        assert_eq!(are_errors, [false, true, false], "{driver:?}");
        let service = ReadService::new(&env, driver);
        let reads: Vec<_> = [0, PANICS_FROM / 4096, 0].map(|n| PageRead::new(&file, n)).into();
        assert!(reads.iter().all(|read| service.submit(Arc::clone(read))));
        service.close();
        assert!(reads[1].result.lock().take().expect("a close waits").is_err(), "{driver:?}");
    }
}

/// Kernels seldom cut the read of a file short, so a part of it is taken as read.
#[cfg(target_os = "linux")]
#[test]
fn a_ring_reads_what_is_left_of_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_of(&RealEnv::new(), dir.path(), 2000);
    let source = Source::Descriptor(file.descriptor().unwrap().expect("a file of the system"));
    let mut slot = Slot { source, buffer: vec![0; 100], offset: 300, filled: 40, needed: 100, tag: 0 };
    let mut ring = Ring::of_thread(ReadDriver::Ring, 1).unwrap();
    ring.push(0, &mut slot);
    let Ok(Event::Read(0, Ok(60))) = ring.next() else { panic!("60 bytes are left") };
    assert!(slot.buffer[..40].iter().all(|byte| *byte == 0));
    assert!(slot.buffer[40..].iter().copied().eq((340..400).map(byte_at)));
}

/// A read whose task is dropped when it is woken, with the last handle of the service.
struct Closes(Arc<PageRead>, Mutex<Option<ReadService<Closes>>>, Sender<()>);

impl QueuedRead for Closes {
    type Buffer = Vec<u8>;

    fn request(&self, tag: u64) -> ReadRequest<'_, Vec<u8>> {
        self.0.request(tag)
    }

    fn complete(&self, _result: io::Result<Vec<u8>>) {
        drop(self.1.lock().take());
        let _heard = self.2.send(());
    }
}

#[test]
fn a_service_can_be_closed_inside_of_its_own_read() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 4096);
    for driver in drivers().into_iter().filter(|driver| *driver != ReadDriver::Blocking) {
        let (sender, closed) = channel();
        let read = Arc::new(Closes(PageRead::new(&file, 0), Mutex::new(None), sender));
        let mut owner = read.1.lock();
        assert!(owner.insert(ReadService::new(&env, driver)).submit(Arc::clone(&read)));
        drop(owner);
        closed.recv_timeout(Duration::from_secs(60)).expect("the close ends");
    }
}

/// The close waits for the other read, and not for its own.
#[test]
fn a_service_closed_inside_of_a_read_waits_for_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let real: Arc<dyn Env> = Arc::new(RealEnv::new());
    let slow = SlowEnv::new(Arc::clone(&real), 1);
    slow.set_latency(Duration::from_millis(200));
    let file = file_of(&*real, dir.path(), 4096);
    let slow_file = slow.open_file(&dir.path().join("file"), OpenOptions::default()).unwrap();
    let (sender, ended) = channel();
    let read = |file| Arc::new(Closes(PageRead::new(file, 0), Mutex::new(None), sender.clone()));
    let (other, closing) = (read(&slow_file), read(&file));
    let mut owner = closing.1.lock();
    let service = owner.insert(ReadService::new(&real, ReadDriver::Threads));
    assert!(service.submit(other) && service.submit(Arc::clone(&closing)));
    drop(owner);
    for _ in 0..2 {
        ended.recv_timeout(Duration::from_secs(60)).expect("the close ends");
    }
}

/// A read whose task wants the service again when it is woken.
struct Asks(Arc<PageRead>, Arc<LazyReadService<Asks>>, Sender<bool>);

impl QueuedRead for Asks {
    type Buffer = Vec<u8>;

    fn request(&self, tag: u64) -> ReadRequest<'_, Vec<u8>> {
        self.0.request(tag)
    }

    fn complete(&self, _result: io::Result<Vec<u8>>) {
        let _heard = self.2.send(self.1.get(ReadDriver::Blocking).is_none());
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a close that never ends must not keep the test")]
fn a_task_that_is_woken_by_a_close_is_told_that_the_service_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 4096);
    let lazy = Arc::new(LazyReadService::new(&env));
    let (sender, ended) = channel();
    // Nobody makes this read before the close does.
    let read = Arc::new(Asks(PageRead::new(&file, 0), Arc::clone(&lazy), sender));
    assert!(lazy.get(ReadDriver::Blocking).unwrap().submit(read));
    std::thread::spawn(move || lazy.close());
    assert!(ended.recv_timeout(Duration::from_secs(60)).expect("the close ends"));
}
