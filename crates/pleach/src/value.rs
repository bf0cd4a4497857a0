//! Value: bytes that were read and that stay where they are.

use std::ops::Deref;

use pleach_table::BlockRef;

use crate::keys::impl_bytes;
use crate::memtable::MemtableValue;
use crate::values::{ValueBytes, ValuePointer};

/// A value that was read. It derefs to `[u8]` and copies nothing: it pins the memory that holds its bytes, a cached block, a
/// memtable, or the bytes that one read has brought. That memory cannot be used for anything else meanwhile. To keep many
/// values for long, copy them with [`Value::into_vec`]. The bytes stay at their address when the value is moved. Order, equality
/// and hash are those of the bytes.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = pleach::Db::open(dir.path())?;
/// let users = db.partition("users")?;
/// users.put(b"alice", b"1")?;
/// let value = users.get(b"alice")?.expect("it was just put");
/// assert_eq!(&value[..], b"1");
/// assert_eq!(value.into_vec(), b"1");
/// # Ok::<(), pleach::Error>(())
/// ```
#[derive(Clone)]
pub struct Value(Repr);

#[derive(Clone)]
enum Repr {
    Block {
        block: BlockRef,
        start: u32,
        len: u32,
    },
    Memtable(MemtableValue),
    Separated(ValueBytes),
    /// The value is still to be read. `None` if the pointer is malformed. No caller of the crate gets it.
    Pointer(Option<ValuePointer>),
}

impl Value {
    /// Bytes `range` of a block, or of a read.
    #[inline]
    pub(crate) fn in_block(block: BlockRef, range: std::ops::Range<usize>) -> Self {
        let start = u32::try_from(range.start).expect("blocks are shorter than 4 GiB");
        let len = u32::try_from(range.len()).expect("values are at most VALUE_LEN_MAX");
        Self(Repr::Block { block, start, len })
    }

    /// A value that is still to be read, by the bytes of the pointer to it.
    #[inline]
    pub(crate) fn pointer(bytes: &[u8]) -> Self {
        Self(Repr::Pointer(ValuePointer::decode(bytes)))
    }

    /// A value that lay outside of SSTs.
    pub(crate) fn separated(bytes: ValueBytes) -> Self {
        Self(Repr::Separated(bytes))
    }

    /// Whether it is still to be read.
    #[inline]
    pub(crate) fn is_pointer(&self) -> bool {
        matches!(self.0, Repr::Pointer(_))
    }

    /// The pointer to it; `None` if it is malformed, or the value has been read.
    #[inline]
    pub(crate) fn as_pointer(&self) -> Option<ValuePointer> {
        if let Repr::Pointer(pointer) = self.0 { pointer } else { None }
    }

    #[inline]
    pub(crate) fn in_memtable(value: MemtableValue) -> Self {
        Self(Repr::Memtable(value))
    }

    /// A copy of the bytes; the block or memtable is no longer pinned.
    pub fn into_vec(self) -> Vec<u8> {
        self.to_vec()
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Block { block, start, len } => &block[*start as usize..(*start + *len) as usize],
            Repr::Memtable(value) => value.bytes(),
            Repr::Separated(bytes) => bytes,
            Repr::Pointer(_) => unreachable!("nobody reads the bytes of a value before they are there"),
        }
    }
}

impl_bytes!(Value);
