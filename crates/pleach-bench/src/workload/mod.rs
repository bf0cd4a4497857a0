//! Workloads: streams of operations under their usual names.
//!
//! A [`Workload`] defines the state of the store that it needs and the [`OpStream`] of each thread. Streams depend on the
//! seed, the workload's name, the thread's number and the number of threads, but not on the engine's results or on time. So
//! every engine gets the same operations in the same order.

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
pub(crate) use shape::{DROPPED, Needs, PARTITIONS, STAGES, ScanLen, Shape, StreamContext, partition_of};
pub(crate) use table::{WORKLOADS, Workload, find};
