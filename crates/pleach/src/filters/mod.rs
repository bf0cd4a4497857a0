//! Filters of a store: how large each is made, and which stay in memory.
//!
//! The filter itself is `pleach-table`'s; here are the decisions about all of them together. Nothing here does I/O.
//!
//! # Origin
//! `SifrDB`, section 4.1: a filter for each SST, in memory. Departure: the paper gives every key the same bits.

mod allotment;
mod residence;

pub(crate) use allotment::{StageFill, bits_per_key};
pub(crate) use residence::{FilterDemand, choose, is_due_to_fade};
