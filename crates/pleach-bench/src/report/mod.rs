//! Reports: records as a table for the terminal, as JSON for machines and as a page for people.

mod chart;
mod html;
mod style;
mod terminal;
mod units;

use crate::bench::Record;
use crate::engine::Result;

pub(crate) use html::html;
pub(crate) use terminal::{complain, print, print_list, print_table};
pub(crate) use units::{bytes, count, nanos};

/// The records as a JSON array, one object for each engine and workload.
pub(crate) fn json(records: &[Record]) -> Result<String> {
    Ok(serde_json::to_string_pretty(records)? + "\n")
}
