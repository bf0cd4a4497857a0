//! Reports: records as a table for the terminal, as JSON for machines, as a page for people and as
//! Markdown for documents; two runs compared; and brief files, from which tables of documents are written.

mod arrangement;
mod brief;
mod chart;
mod comparison;
mod document;
mod html;
mod markdown;
mod measures;
mod overview;
mod style;
mod terminal;
mod units;

use crate::bench::Record;
use crate::engine::Result;

pub(crate) use brief::{brief, read};
pub(crate) use comparison::{Comparison, Tolerance, median};
pub(crate) use document::with_tables;
pub(crate) use html::html;
pub(crate) use markdown::markdown;
pub(crate) use terminal::{complain, print, print_list, print_table, print_text};
pub(crate) use units::{bytes, count, nanos};

/// The records as a JSON array, one object for each engine and workload, each on a line of its own.
pub(crate) fn json(records: &[Record]) -> Result<String> {
    let lines = records.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}
