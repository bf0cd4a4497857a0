//! Limits: the longest keys and values.

/// Longest key, 32 KiB: a leaf of the map in memory has offsets of 16 bits.
pub const KEY_LEN_MAX: usize = 32 << 10;

/// Longest value, 512 MiB. The store under it may have a lower limit.
pub const VALUE_LEN_MAX: usize = 512 << 20;
