//! A ring whose system call fails permanently: each read ends, and the kernel keeps what it may write to.

use std::thread::ThreadId;

use io_uring::IoUring;

use super::*;

/// How the system call of a thread's ring fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Failure {
    /// Before it does anything.
    AtOnce,
    /// After the kernel has taken what was queued.
    Late,
}

static PLANTED: Mutex<Vec<(ThreadId, Failure)>> = Mutex::new(Vec::new());

/// The failure planted for the calling thread.
pub(in super::super) fn planted() -> Option<Failure> {
    let thread = std::thread::current().id();
    PLANTED.lock().iter().find(|(planted, _)| *planted == thread).map(|(_, failure)| *failure)
}

impl Failure {
    pub(in super::super) fn instead_of_system_call(self, ring: &IoUring) -> io::Result<usize> {
        if self == Self::Late {
            ring.submit()?;
        }
        Err(io::Error::from_raw_os_error(rustix::io::Errno::PERM.raw_os_error()))
    }
}

/// One test at a time, of those that make rings fail or that fail where threads read instead: failures of rings are counted
/// for the process.
pub(super) static TURN: Mutex<()> = Mutex::new(());

/// A planted failure. Dropping it repairs the ring of the thread.
struct Planted(ThreadId);

fn plant(thread: ThreadId, failure: Failure) -> Planted {
    PLANTED.lock().push((thread, failure));
    Planted(thread)
}

impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.lock().retain(|(thread, _)| *thread != self.0);
        // Other tests want rings.
        ring::forget_failures();
    }
}

/// A buffer that counts how many have been dropped.
struct Counted(Vec<u8>, Arc<AtomicU64>);

// SAFETY: as for the vector, which only `bytes_mut` uses.
#[expect(unsafe_code, reason = "see above")]
unsafe impl ReadBuffer for Counted {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_queue_whose_ring_fails_ends_each_read_and_frees_no_buffer_that_the_kernel_has() {
    let _turn = TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let file = file_of(&env, dir.path(), 100_000);
    for (failure, read_by_ring) in [(Failure::AtOnce, 0), (Failure::Late, 0), (Failure::AtOnce, 3)] {
        let dropped = Arc::new(AtomicU64::new(0));
        let mut queue = ReadQueue::new(&env, ReadDriver::Ring, 64).unwrap();
        let push = |queue: &mut ReadQueue<'_, Counted>, tag| {
            let buffer = Counted(vec![0; 100], Arc::clone(&dropped));
            queue.push(ReadRequest { file: &file, offset: tag * 1000, buffer, needed: 100, tag }).unwrap();
        };
        (0..read_by_ring).for_each(|tag| push(&mut queue, tag));
        let mut ended: Vec<_> = (0..read_by_ring).filter_map(|_| queue.next()).collect();
        let _planted = plant(std::thread::current().id(), failure);
        // The last two are not submitted before the queue waits.
        (read_by_ring..42).for_each(|tag| push(&mut queue, tag));
        ended.extend(std::iter::from_fn(|| queue.next()));
        assert_eq!(queue.driver(), ReadDriver::Threads);
        ended.sort_by_key(|read| read.tag);
        assert!((0..42).eq(ended.iter().map(|read| read.tag)), "each read ends once");
        let mut answered = 0;
        for (tag, read) in (0..).zip(ended) {
            match (failure, read.result) {
                (_, Ok(buffer)) => {
                    assert!(buffer.0.iter().copied().eq((tag * 1000..tag * 1000 + 100).map(byte_at)));
                    answered += 1;
                }
                (Failure::Late, Err(error)) => assert!(error.to_string().contains("ring failed"), "{error}"),
                (Failure::AtOnce, Err(error)) => panic!("{error}"),
            }
        }
        // The kernel may have made reads before the ring failed.
        assert!(if failure == Failure::Late { answered <= 40 } else { answered == 42 });
        assert_eq!(dropped.load(Ordering::Relaxed), answered);
        push(&mut queue, 7);
        assert!(queue.next().unwrap().result.is_ok(), "threads read for this queue now");
    }
}

/// A polled ring may make reads without the system call that fails.
#[test]
fn a_polled_queue_whose_ring_fails_ends_each_read_and_frees_no_buffer_that_the_kernel_has() {
    let _turn = TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let file = file_of(&env, dir.path(), 100_000);
    let polled = drivers().into_iter().filter(|driver| POLLED.contains(driver));
    for (driver, failure) in polled.flat_map(|d| [(d, Failure::AtOnce), (d, Failure::Late)]) {
        let dropped = Arc::new(AtomicU64::new(0));
        let mut queue = ReadQueue::new(&env, driver, 64).unwrap();
        let _planted = plant(std::thread::current().id(), failure);
        for tag in 0..42 {
            let buffer = Counted(vec![0; 100], Arc::clone(&dropped));
            queue.push(ReadRequest { file: &file, offset: tag * 1000, buffer, needed: 100, tag }).unwrap();
        }
        let mut ended: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        ended.sort_by_key(|read| read.tag);
        assert!((0..42).eq(ended.iter().map(|read| read.tag)), "each read ends once");
        let mut answered = 0;
        for (tag, read) in (0..).zip(ended) {
            let Ok(buffer) = read.result else { continue };
            assert!(buffer.0.iter().copied().eq((tag * 1000..tag * 1000 + 100).map(byte_at)), "{driver}");
            answered += 1;
        }
        assert_eq!(dropped.load(Ordering::Relaxed), answered, "{driver}, {failure:?}");
    }
}

#[test]
fn a_service_whose_ring_fails_ends_each_read_and_goes_on() {
    let _turn = TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 100 * 4096);
    for (failure, sleeps) in
        [(Failure::AtOnce, false), (Failure::Late, false), (Failure::AtOnce, true), (Failure::Late, true)]
    {
        let service = ReadService::new(&env, ReadDriver::Ring);
        let submit = |count| -> Vec<_> {
            let reads: Vec<_> = (0..count).map(|n| PageRead::new(&file, n % 100)).collect();
            assert!(reads.iter().all(|read| service.submit(Arc::clone(read))));
            reads
        };
        if sleeps {
            assert!(submit(1).remove(0).wait(&service).is_ok());
        }
        let _planted = plant(service.ring_thread().expect("a ring"), failure);
        let mut failed = 0;
        for read in submit(500) {
            match read.wait(&service) {
                Ok(bytes) => assert_eq!(bytes.len(), 4096),
                Err(error) => {
                    assert!(error.to_string().contains("ring failed"), "{error}");
                    failed += 1;
                }
            }
        }
        assert!(failed <= if failure == Failure::Late { 128 } else { 0 }, "{failure:?}: {failed}");
        // The kernel makes reads that the thread has no need to wait for.
        while service.has_ring() {
            let _late = submit(1).remove(0).wait(&service);
        }
        assert!(submit(50).iter().all(|read| read.wait(&service).is_ok()), "threads read now");
        let reads = submit(200);
        service.close();
        assert!(reads.iter().all(|read| read.result.lock().take().expect("a close waits").is_ok()));
        assert!(!service.submit(PageRead::new(&file, 0)));
    }
}

#[test]
fn a_ring_that_fails_at_the_first_read_is_not_chosen() {
    let _turn = TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    file_of(&env, dir.path(), 5000);
    let path = dir.path().join("file");
    for failure in [Failure::AtOnce, Failure::Late] {
        let _planted = plant(std::thread::current().id(), failure);
        let choose = |driver| ReadDriver::choose(&env, driver, &path, OpenOptions::default());
        assert!(choose(Some(ReadDriver::Ring)).is_err());
        assert_eq!(choose(None).unwrap(), ReadDriver::Threads);
    }
}

#[test]
fn where_rings_fail_again_and_again_threads_read() {
    let _turn = TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 5000);
    let _planted = plant(std::thread::current().id(), Failure::AtOnce);
    let mut rings = 0;
    for _ in 0..20 {
        let mut queue = ReadQueue::new(&*env, ReadDriver::Ring, 2).unwrap();
        rings += u32::from(queue.driver() == ReadDriver::Ring);
        assert!(read_all(&mut queue, &file, &[0, 100, 200], 100).iter().all(Result::is_ok));
    }
    assert!((1..20).contains(&rings), "{rings}");
    let service = ReadService::new(&env, ReadDriver::Ring);
    assert!(service.ring_thread().is_none());
    let read = PageRead::new(&file, 0);
    assert!(service.submit(Arc::clone(&read)) && read.wait(&service).is_ok());
}
