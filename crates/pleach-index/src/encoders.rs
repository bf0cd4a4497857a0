//! Encoders that indexes share: most SSTs of a run have equal ones.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::snbc::Snbc;

/// Encoders in use. It keeps none alive.
///
/// # Concurrency
/// A lock protects the list. It is held for a search among the encoders, and no other lock is taken under it.
#[derive(Debug, Default)]
pub struct Encoders {
    known: Mutex<Vec<Weak<Snbc>>>,
}

impl Encoders {
    /// No encoders.
    pub fn new() -> Self {
        Self::default()
    }

    /// The encoder in use that equals `encoder`, or `encoder` itself, known from now on.
    pub(crate) fn shared(&self, encoder: &Arc<Snbc>) -> Arc<Snbc> {
        // The list is whole even if a thread panicked with the lock.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| known.strong_count() > 0);
        let equal = known.iter().filter_map(Weak::upgrade).find(|known| known == encoder);
        equal.unwrap_or_else(|| {
            known.push(Arc::downgrade(encoder));
            Arc::clone(encoder)
        })
    }
}
