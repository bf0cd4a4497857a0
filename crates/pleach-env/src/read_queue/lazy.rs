//! A service of reads that starts when it is needed first.

use std::io;
use std::mem;
use std::sync::Arc;

use super::ReadDriver;
use super::service::{QueuedRead, ReadService};
use crate::env::Env;
use crate::sync::Mutex;

/// See the module's text.
pub struct LazyReadService<R: QueuedRead> {
    env: Arc<dyn Env>,
    /// Held while the service starts.
    service: Mutex<Service<R>>,
}

enum Service<R: QueuedRead> {
    NotStarted,
    Started(Arc<ReadService<R>>),
    Closed,
}

impl<R: QueuedRead> LazyReadService<R> {
    /// A service that has not started.
    pub fn new(env: &Arc<dyn Env>) -> Self {
        Self { env: Arc::clone(env), service: Mutex::new(Service::NotStarted) }
    }

    /// The service, which the first call starts; `None` after [`LazyReadService::close`]. Where the system has no ring or thread for
    /// `driver`, those that wait read.
    pub fn get(&self, driver: ReadDriver) -> Option<Arc<ReadService<R>>> {
        let mut service = self.service.lock();
        if let Service::NotStarted = &*service {
            let started: io::Result<_> = ReadService::new(&self.env, driver)
                .or_else(|_| ReadService::new(&self.env, ReadDriver::Blocking));
            let started = started.expect("callers that read for themselves need nothing");
            *service = Service::Started(Arc::new(started));
        }
        match &*service {
            Service::Started(service) => Some(Arc::clone(service)),
            _ => None,
        }
    }

    /// Waits for all reads, and takes no more.
    pub fn close(&self) {
        if let Service::Started(service) = mem::replace(&mut *self.service.lock(), Service::Closed) {
            service.close();
        }
    }
}
