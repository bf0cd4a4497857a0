//! Workloads: streams of operations under their usual names.
//!
//! A [`Workload`] says what it needs of the store and which [`OpStream`] each thread gets. Streams depend on the seed,
//! the workload's name, the thread's number and the number of threads, never on an answer of the engine or on time:
//! every engine meets the same operations in the same order.

mod delete;
mod fill;
mod mix;
mod op;
mod planned;
mod queue;
mod shape;
mod table;

pub(crate) use delete::delete_order;
pub(crate) use mix::Mix;
pub(crate) use op::{Entry, Op, OpKind, OpStream};
pub(crate) use planned::Planned;
pub(crate) use queue::QUEUE_KEY_LEN;
pub(crate) use shape::{DROPPED, Needs, PARTITIONS, ScanLen, Shape, StreamContext, partition_of};
pub(crate) use table::{WORKLOADS, Workload, find};
