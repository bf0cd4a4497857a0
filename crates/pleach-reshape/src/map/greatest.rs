//! A key that no entry of the map is above, the greatest one mostly. Keys above it need no lookup, and inserts in the order of
//! keys have only such.
//!
//! # Invariants
//! 1. No published key is above it. It never falls.
//!
//! # Concurrency
//! Publications of several threads raise it, each before it publishes, with the latches of its keys. Who asks for a key holds
//! the key's latch.

use pleach::env::sync::RwLock;

use super::Key;

/// See the module's text.
#[derive(Default)]
pub(super) struct Greatest {
    /// `None`: it is not known.
    key: RwLock<Option<Key>>,
}

impl Greatest {
    pub(super) fn set(&self, key: Key) {
        *self.key.write() = Some(key);
    }

    /// Whether a key is above all that the map has. Requires: nobody publishes that key meanwhile.
    pub(super) fn is_below(&self, key: &[u8]) -> bool {
        self.key.read().as_ref().is_some_and(|greatest| &greatest[..] < key)
    }

    /// Takes keys into account that are going to be published. Whether all of them are above all keys before.
    pub(super) fn raise<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let (least, most) = keys.fold((None, &b""[..]), |(least, most), key| {
            (Some(least.map_or(key, |least: &[u8]| least.min(key))), most.max(key))
        });
        let (is_least_above, is_most_above) = {
            let greatest = self.key.read();
            let is_above = |key: &[u8]| greatest.as_ref().is_some_and(|greatest| &greatest[..] < key);
            (least.is_some_and(is_above), is_above(most))
        };
        if is_most_above {
            self.raise_alone(most);
        }
        is_least_above
    }

    /// Another thread may have raised it since the look without the lock.
    fn raise_alone(&self, key: &[u8]) {
        if let Some(greatest) = self.key.write().as_mut().filter(|greatest| &greatest[..] < key) {
            greatest.clear();
            greatest.extend_from_slice(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_falls() {
        let greatest = Greatest::default();
        greatest.raise([&b"a"[..]].into_iter());
        assert!(!greatest.is_below(b"z"), "it is not known");
        greatest.set(Key::default());
        assert!(greatest.raise([&b"b"[..], b"a"].into_iter()));
        assert!(greatest.is_below(b"c") && !greatest.is_below(b"b"));
        assert!(!greatest.raise([&b"d"[..], b"b"].into_iter()) && !greatest.is_below(b"d"));
        // As a thread does that has looked before.
        greatest.raise_alone(b"a");
        assert!(!greatest.is_below(b"b"));
    }
}
