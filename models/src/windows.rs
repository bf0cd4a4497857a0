//! Windows that scans read in the background, with a service of one kind.

#[path = "../../crates/pleach-table/src/sst/window_read.rs"]
mod source;

use std::sync::Arc;
use std::task::Waker;

use crate::loads::block_on;
use crate::store::{Env, ReadDriver, ReadService, Sst, Still};
use source::WindowRead;
use window::Span;

mod reader {
    pub(super) use crate::store::Sst;
}

mod window {
    use std::io;
    use std::marker::PhantomData;

    use super::reader::Sst;
    use crate::store::{ReadRequest, Result};

    /// The number of the only block.
    pub(super) struct Span(pub(super) u32);

    #[derive(Default)]
    pub struct WindowBuffer;

    #[derive(Debug)]
    pub(super) struct Window(pub(super) u32);

    impl Span {
        pub(super) fn request<'s>(
            &self,
            _sst: &'s Sst,
            _spare: Option<WindowBuffer>,
            _tag: u64,
        ) -> ReadRequest<'s, WindowBuffer> {
            ReadRequest(PhantomData)
        }
    }

    impl Window {
        pub(super) fn of_read(sst: &Sst, span: &Span, read: io::Result<WindowBuffer>) -> Result<Self> {
            read.map(|_memory| Self(span.0)).map_err(|error| sst.load_failed(span.0, error))
        }
    }
}

/// Scans of one store: the service of their windows.
pub struct Scans {
    env: Arc<dyn Env>,
    sst: Arc<Sst>,
    service: ReadService<WindowRead>,
}

/// A window that was handed to the service.
pub struct Begun(Arc<WindowRead>);

impl Scans {
    /// Threads of the model read, or those who wait.
    pub fn new(driver: ReadDriver) -> Arc<Self> {
        let env: Arc<dyn Env> = Arc::new(Still);
        let service = ReadService::new(&env, driver);
        Arc::new(Self { service, sst: Sst::new(0), env })
    }

    /// Hands a window in.
    pub fn begin(&self, block: u32) -> Begun {
        let read = Arc::new(WindowRead::new(&self.sst, Span(block), None));
        self.service.submit(Arc::clone(&read));
        Begun(read)
    }

    /// Makes a read, as a thread of the service. `false` if there is none.
    pub fn make_one(&self) -> bool {
        self.service.make_one()
    }

    /// Waits as a thread; the block that the window has, or `None` after a failure.
    pub fn wait(&self, begun: Begun) -> Option<u32> {
        begun.0.wait(&self.service).ok().map(|window| window.0)
    }

    /// The same as a task.
    pub fn wait_as_task(&self, begun: Begun) -> Option<u32> {
        let read = block_on(&*self.env, None, |waker| begun.0.poll(&self.service, waker));
        read.expect("without a deadline").ok().map(|window| window.0)
    }

    /// A poll of a task that does not wait. Whether the window was there.
    pub fn poll_once(&self, begun: &Begun) -> bool {
        begun.0.poll(&self.service, Waker::noop()).is_ready()
    }

    /// Gives a window up.
    pub fn abandon(&self, begun: &Begun) {
        self.service.withdraw(&begun.0);
    }

    pub fn close(&self) {
        self.service.close();
    }
}
