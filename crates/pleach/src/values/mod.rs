//! Separated values: large values that lie outside of SSTs, where the log wrote them.
//!
//! A put of a value of [`Options::separate_at`](crate::Options::separate_at) bytes or more is logged with a checksum of its own.
//! The flush writes a *value pointer* into the SST instead of the value. A log segment to which pointers refer lives on as a
//! *value segment*. A pointer names a segment, and the version says in which file the values of that segment are: its *home*
//! ([`segments`]). Homes are log segments ([`file`] reads them all), files into which flushes and conversions copy values, and
//! files into which relocation moves the values that are left of others ([`builder`]). How a value is stored there, plain or
//! packed, says [`stored`].
//!
//! # Invariants
//! 1. *Durable before named*: a home's bytes and name are synced before the edit that names it.
//! 2. *Exact references*: each file of a run states how much of each segment its pointers refer to, above the clip. The sums
//!    over a version say what is live. A segment without references is not in the version.
//! 3. *Pinned*: a version holds the homes of its segments; a home is removed when no version holds it.
//! 4. *Proved*: a value's checksum covers its partition, key and bytes, so a stale or misplaced value is never returned.
//!
//! # On disk
//! Layout: docs/format/values.md; in the log: docs/format/batch.md.
//!
//! # Origin
//! `LearnedKV`, sections 2.2 and 4; values stay in the log as in `WiscKey`. Departure: segments are cleaned one by one, and no
//! pointer is rewritten.
#![cfg_attr(doc, doc = include_str!("../../../../docs/format/values.md"))]

mod builder;
mod cache;
mod file;
mod home;
mod pointer;
mod read;
mod read_value;
mod segments;
mod stored;

pub(crate) use builder::{MovedFileBuilder, ValueFileBuilder};
pub(crate) use cache::{ValueBytes, ValueCache};
pub(crate) use file::{ValueFile, ValueSpan, kind_of};
pub(crate) use home::{HomeKind, ValueHome};
pub(crate) use pointer::ValuePointer;
pub(crate) use read::ValueRead;
pub(crate) use read_value::{ProvedValue, range_in};
pub(crate) use segments::{LiveSegment, SegmentUse, SegmentUses, ValueRefs, ValueSegments};
pub(crate) use stored::{CHECKSUM_LEN, PackedValue, ValuePacker, checksum, packed_checksum};
