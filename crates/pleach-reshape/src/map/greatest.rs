//! A key that no entry of the map is above, the greatest one mostly. Keys above it need no lookup, and inserts in the order of
//! keys have only such.

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

    /// Takes a key into account that is going to be published.
    pub(super) fn raise(&self, key: &[u8]) {
        if self.is_below(key)
            && let Some(greatest) = self.key.write().as_mut().filter(|greatest| &greatest[..] < key)
        {
            greatest.clear();
            greatest.extend_from_slice(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn it_never_falls() {
        let greatest = Greatest::default();
        assert!(!greatest.is_below(b"z"), "it is not known");
        greatest.set(Key::default());
        thread::scope(|scope| {
            for thread in 0..4 {
                let greatest = &greatest;
                scope.spawn(move || {
                    for number in 0..20_000 {
                        let key = format!("{:06}", number * 4 + thread);
                        greatest.raise(key.as_bytes());
                        assert!(!greatest.is_below(key.as_bytes()));
                    }
                });
            }
        });
        assert!(!greatest.is_below(b"079999") && greatest.is_below(b"08"));
    }
}
