//! Keys: user keys that scans return, partition numbers, and partition keys.
//!
//! The memtable, the log and shared flush files hold *partition keys*: the partition's number, big-endian, in front of the
//! user key. Their byte order is the order by (partition, user key). An SST of a single partition holds user keys alone.

use std::fmt;
use std::ops::{Bound, Deref, RangeBounds};

use smallvec::SmallVec;

/// Bytes of the partition number in front of a partition key.
pub(crate) const PARTITION_PREFIX_LEN: usize = 4;

/// Implements order, equality, hash and conversions for a type that derefs to `[u8]`: those of its bytes.
macro_rules! impl_bytes {
    ($name:ident) => {
        impl std::borrow::Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                self
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                self
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                (**self).cmp(&**other)
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Eq for $name {}

        impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for $name {
            fn eq(&self, other: &T) -> bool {
                **self == *other.as_ref()
            }
        }

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }

        impl From<$name> for Vec<u8> {
            fn from(bytes: $name) -> Self {
                bytes.into_vec()
            }
        }

        impl std::fmt::Debug for $name {
            /// Prints the length, never the data.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({} bytes)", stringify!($name), self.len())
            }
        }
    };
}
pub(crate) use impl_bytes;

/// Number of a partition. It is never reused, so the remains of a dropped partition cannot be taken for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub(crate) u32);

impl PartitionId {
    /// The number itself; the default partition has 0.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The four bytes in front of this partition's keys.
    #[expect(clippy::big_endian_bytes, reason = "byte order is key order")]
    pub(crate) fn prefix(self) -> [u8; PARTITION_PREFIX_LEN] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A user key that a scan returns. It derefs to `[u8]`. Short keys need no allocation. Order, equality and hash are those of
/// the bytes, so a map of keys can be searched with a slice.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = pleach::Db::open(dir.path())?;
/// let users = db.default_partition();
/// users.put(b"alice", b"1")?;
/// let all: std::collections::BTreeMap<pleach::Key, pleach::Value> = users.iter().collect::<Result<_, _>>()?;
/// assert_eq!(all.get(&b"alice"[..]).map(|value| &value[..]), Some(&b"1"[..]));
/// # Ok::<(), pleach::Error>(())
/// ```
#[derive(Clone)]
pub struct Key(SmallVec<[u8; 32]>);

impl Key {
    #[inline]
    pub(crate) fn new(user_key: &[u8]) -> Self {
        Self(SmallVec::from_slice(user_key))
    }

    /// The bytes in a vector of their own.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl_bytes!(Key);

/// A partition key on the stack, for lookups.
pub(crate) type PartitionKey = SmallVec<[u8; 64]>;

/// `partition`'s number in front of `user_key`.
#[inline]
pub(crate) fn partition_key(partition: PartitionId, user_key: &[u8]) -> PartitionKey {
    let mut key = PartitionKey::new();
    key.extend_from_slice(&partition.prefix());
    key.extend_from_slice(user_key);
    key
}

/// The two parts of a partition key; `None` when it is too short to be one.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "byte order is key order")]
pub(crate) fn split_partition_key(key: &[u8]) -> Option<(PartitionId, &[u8])> {
    let (prefix, user_key) = key.split_first_chunk::<PARTITION_PREFIX_LEN>()?;
    Some((PartitionId(u32::from_be_bytes(*prefix)), user_key))
}

/// The user keys from `lower` on, below `upper` if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) lower: Box<[u8]>,
    pub(crate) upper: Option<Box<[u8]>>,
}

impl KeyRange {
    pub(crate) fn of<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> Self {
        let lower = match bounds.start_bound() {
            Bound::Included(key) => key.as_ref().into(),
            Bound::Excluded(key) => successor(key.as_ref()),
            Bound::Unbounded => Box::default(),
        };
        let upper = match bounds.end_bound() {
            Bound::Included(key) => Some(successor(key.as_ref())),
            Bound::Excluded(key) => Some(key.as_ref().into()),
            Bound::Unbounded => None,
        };
        Self { lower, upper }
    }

    /// Whether no key is in the range.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends_before(&self.lower)
    }

    /// Whether all keys of the range are below `key`.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.upper.as_deref().is_some_and(|upper| upper <= key)
    }
}

/// The first and the last key of some entries.
pub(crate) type KeyEnds = (Box<[u8]>, Box<[u8]>);

/// The smallest key above `key`.
pub(crate) fn successor(key: &[u8]) -> Box<[u8]> {
    [key, &[0]].concat().into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_keys_order_by_partition_then_key() {
        let key = |p, k: &[u8]| partition_key(PartitionId(p), k).to_vec();
        assert!(key(1, b"z") < key(2, b"a"));
        assert!(key(255, b"z") < key(256, b"a"));
        assert!(key(1, b"a") < key(1, b"aa"));
        assert_eq!(split_partition_key(&key(7, b"k")), Some((PartitionId(7), &b"k"[..])));
        assert_eq!(split_partition_key(&[1, 2, 3]), None);
    }

    #[test]
    fn the_successor_of_a_key_is_the_next_key() {
        assert_eq!(&*successor(b"a"), b"a\0");
    }
}
