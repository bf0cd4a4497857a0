//! The policy of filters: how many bits per key a new one gets, and which ones stay in memory.
//!
//! `pleach-table` owns the filter itself. These are pure functions over all filters of a store; `upkeep::filters` loads and
//! evicts.
//!
//! # Origin
//! `SifrDB`, section 4.1: a filter for each SST, in memory. Departure: the paper gives every key the same bits.

mod bits_per_key;
mod eviction;

pub(crate) use bits_per_key::{StageFill, affordable_bits, bits_per_key};
pub(crate) use eviction::{FilterUse, choose, should_decay};
