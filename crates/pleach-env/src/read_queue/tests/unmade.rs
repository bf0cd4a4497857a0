//! Reads that a service is handed and does not make: nobody wants them, or the driver cannot.

use super::*;
use crate::env::Env;

/// A read that nobody wants any more.
struct Unwanted(Arc<PageRead>);

impl QueuedRead for Unwanted {
    type Buffer = Vec<u8>;

    fn request(&self, _tag: u64) -> ReadRequest<'_, Vec<u8>> {
        panic!("nobody wants it")
    }

    fn give_up(&self) -> bool {
        true
    }

    fn complete(&self, result: io::Result<Vec<u8>>) {
        self.0.complete(result);
    }
}

#[test]
fn reads_that_nobody_wants_are_neither_made_nor_completed() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 4096);
    for driver in drivers() {
        let service = ReadService::new(&env, driver);
        let reads: Vec<_> = (0..300).map(|_| Arc::new(Unwanted(PageRead::new(&file, 0)))).collect();
        assert!(reads.iter().all(|read| service.submit(Arc::clone(read))));
        service.close();
        assert!(reads.iter().all(|read| read.0.result.lock().is_none()), "{driver}");
        assert!(reads.into_iter().all(|read| Arc::into_inner(read).is_some()), "the service keeps none");
    }
}

#[test]
fn a_read_that_was_withdrawn_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 4096);
    let service = ReadService::new(&env, ReadDriver::Blocking);
    let reads = [PageRead::new(&file, 0), PageRead::new(&file, 0)];
    assert!(reads.iter().all(|read| service.submit(Arc::clone(read))));
    service.withdraw(&reads[0]);
    assert!(service.help() && !service.help());
    assert!(reads[0].result.lock().is_none() && reads[1].result.lock().is_some());
}

/// A ring reads files of the system only.
#[cfg(target_os = "linux")]
#[test]
fn reads_that_a_ring_cannot_make_fail_and_take_no_place() {
    let _turn = ring_failures::TURN.lock();
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let file = file_of(&*env, dir.path(), 4096);
    let simulated = SimEnv::new(1);
    simulated.create_dir_all(Path::new("/d")).unwrap();
    let unreadable = file_of(&*simulated, Path::new("/d"), 4096);
    for driver in drivers().into_iter().filter(|driver| driver.is_ring()) {
        let service = ReadService::new(&env, driver);
        // More than are in flight at the same time.
        for _ in 0..300 {
            let read = PageRead::new(&unreadable, 0);
            assert!(service.submit(Arc::clone(&read)));
            assert_eq!(read.wait(&service).unwrap_err().kind(), io::ErrorKind::Unsupported, "{driver}");
        }
        let read = PageRead::new(&file, 0);
        assert!(service.submit(Arc::clone(&read)) && read.wait(&service).is_ok(), "{driver}");
    }
}
