//! Encoders that indexes share: most SSTs of a run have equal ones.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::snbc::Snbc;

/// Encoders in use. It keeps none alive.
///
/// # Concurrency
/// A lock protects the list. It is held for a search among the encoders, and no other lock is taken under it.
#[derive(Debug, Default)]
pub struct Encoders {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the hash of the stored form. Of two encoders with one hash the later is not shared.
    by_hash: HashMap<u64, Weak<Snbc>>,
    /// Number of encoders at which those that are no longer in use are removed.
    cleaned_at: usize,
}

impl Encoders {
    /// No encoders.
    pub fn new() -> Self {
        Self::default()
    }

    /// The encoder in use that equals `encoder`, or `encoder` itself, known from now on.
    pub(crate) fn shared(&self, encoder: &Arc<Snbc>) -> Arc<Snbc> {
        let hash = hash_of(encoder);
        // The list is whole even if a thread panicked with the lock.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = known.by_hash.get(&hash).and_then(Weak::upgrade) {
            return if other == *encoder { other } else { Arc::clone(encoder) };
        }
        if known.by_hash.len() >= known.cleaned_at {
            known.by_hash.retain(|_, encoder| encoder.strong_count() > 0);
            known.cleaned_at = 2 * known.by_hash.len() + 16;
        }
        known.by_hash.insert(hash, Arc::downgrade(encoder));
        Arc::clone(encoder)
    }
}

fn hash_of(encoder: &Snbc) -> u64 {
    let mut stored = Vec::new();
    encoder.store(&mut stored);
    let mut hasher = DefaultHasher::new();
    hasher.write(&stored);
    hasher.finish()
}
