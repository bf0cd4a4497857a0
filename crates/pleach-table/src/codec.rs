//! Compression of blocks.

/// Compression of an SST's data blocks, with the number it has on disk. Never renumber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// None: blocks start at multiples of 4096 and are read by one aligned request.
    #[default]
    None = 0,
    /// LZ4 block format: blocks are packed without padding.
    Lz4 = 1,
}

impl Codec {
    /// The codec with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            _ => None,
        }
    }

    /// Its number on disk.
    pub fn number(self) -> u8 {
        self as u8
    }
}
