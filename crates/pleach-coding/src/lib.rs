//! Coding of Pleach: numbers as bytes, keys as numbers, and the error of malformed bytes. The bottom of all layers.
//!
//! Integers have a variable length ([`put_varint`], [`take_varint`]) or a fixed one ([`u16_at`], [`u32_at`], [`u64_at`]). A
//! [`Decoder`] takes both from the front of a structure's bytes. If a structure violates its format, its decoder returns
//! [`Malformed`] with the place in the decoded bytes. The layer that knows the file makes an error of it (`Error::malformed`
//! in `pleach-env`). Keys are compared eight bytes at a time ([`common_prefix_len`], [`head`]), and have a form whose order
//! is the reverse one ([`encode_reversed`]). Many small numbers are packed by [`bits`].
//!
//! The formats made of these are in docs/format/. No function here panics for any bytes, except that [`u16_at`],
//! [`u32_at`] and [`u64_at`] require the bytes to be there.

pub mod bits;
mod decoder;
mod fixed;
mod malformed;
mod prefix;
mod reversed;
mod varint;

pub use decoder::{Decoder, put_bytes};
pub use fixed::{u16_at, u32_at, u64_at};
pub use malformed::Malformed;
pub use prefix::{HEAD_LEN, common_prefix_len, head, head_behind, head_bytes, prefix_end};
pub use reversed::{REVERSED_EXTRA_LEN, decode_reversed, encode_reversed};
pub use varint::{put_varint, take_varint, take_varint_u32, varint_len};
