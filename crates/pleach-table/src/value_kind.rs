//! The kind of an entry.

/// Kind of an entry, with the number it has on disk. Never renumber; 0 is no kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// The key has this value.
    Put = 1,
    /// The key has been deleted; the value is empty.
    Tombstone = 2,
    /// The key's value is kept elsewhere; the entry's value says where.
    ValuePointer = 3,
}

impl ValueKind {
    /// The kind with this number.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Put),
            2 => Some(Self::Tombstone),
            3 => Some(Self::ValuePointer),
            _ => None,
        }
    }

    /// Its number on disk.
    #[inline]
    pub fn number(self) -> u8 {
        self as u8
    }
}
