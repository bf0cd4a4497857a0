//! A service of reads that starts when it is needed first, for callers that seldom ask for it: each call takes a lock.

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

    /// The service, which the first call starts; `None` after [`LazyReadService::close`].
    pub fn get(&self, driver: ReadDriver) -> Option<Arc<ReadService<R>>> {
        let mut service = self.service.lock();
        if let Service::NotStarted = &*service {
            *service = Service::Started(Arc::new(ReadService::new(&self.env, driver)));
        }
        match &*service {
            Service::Started(service) => Some(Arc::clone(service)),
            _ => None,
        }
    }

    /// Waits for all reads, and takes no more.
    pub fn close(&self) {
        // Unlocked before the reads end: a task that one of them wakes may ask for the service.
        let service = mem::replace(&mut *self.service.lock(), Service::Closed);
        if let Service::Started(service) = service {
            service.close();
        }
    }
}
