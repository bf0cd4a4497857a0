//! Shapes: the forms workloads take, what they need of the store, and the streams they give to threads.

use std::ops::Range;
use std::sync::Arc;

use super::delete::DeleteStream;
use super::fill::FillStream;
use super::mix::{Mix, MixStream};
use super::op::OpStream;
use super::queue::QueueStream;
use crate::data::{Dataset, Distribution};

/// Key spaces of the workloads that drop some.
pub(crate) const PARTITIONS: usize = 10;
/// Those that are dropped: half of them. Never the first, which engines may have by default.
pub(crate) const DROPPED: Range<usize> = 1..6;

/// Stages of a store that grows.
pub(crate) const STAGES: u64 = 10;

/// The partition of a key where there are [`PARTITIONS`].
#[inline]
pub(crate) fn partition_of(index: u64) -> usize {
    (index % PARTITIONS as u64) as usize
}

/// The state of the store from which a workload starts. If the store has another state, it is made before the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// An empty store.
    Fresh,
    /// All keys in one partition, settled.
    Loaded,
    /// All keys spread over [`PARTITIONS`] partitions, settled.
    Partitioned,
    /// An empty store with queues of their length.
    Queues,
}

/// Lengths of scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanLen {
    Fixed(usize),
    /// Uniform from one.
    UpTo(usize),
    /// RocksDB's mixgraph.
    Mixgraph,
}

/// What a workload does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Every key once, in key order or shuffled.
    Fill { sorted: bool },
    /// A mix of operations. Without a distribution the command line's rules.
    Mix { mix: Mix, distribution: Option<Distribution>, missing: bool, many: bool },
    /// Every key once more, shuffled, or those of the part that the command line chooses.
    FillAgain,
    /// Reads while one more thread overwrites at a fixed rate.
    ReadWhileWriting,
    /// The same while the engine converts everything, over and over.
    ReadWhileConverting,
    /// Reads before and while the engine merges everything.
    ReadWhileCompacting,
    /// Puts and gets in turn, on a store that grows.
    FillStages,
    /// The engine's conversion of everything.
    Convert,
    /// Everything, entry by entry.
    ReadAll { reverse: bool },
    /// Half of the keys.
    Delete,
    /// Turns of a queue.
    Queue,
    /// Drops [`DROPPED`].
    DropPartitions,
    /// Reads the other partitions before and after [`DROPPED`] are gone.
    ReadAfterDrop,
}

/// The parameters of a stream.
#[derive(Clone)]
pub(crate) struct StreamContext {
    pub(crate) dataset: Arc<Dataset>,
    /// Streams of different purposes draw different numbers.
    pub(crate) purpose: &'static str,
    pub(crate) thread: usize,
    pub(crate) threads: usize,
    /// Which turn of the workload it is; another one draws other numbers.
    pub(crate) turn: u64,
    /// Keys per batch of writes.
    pub(crate) batch: usize,
    /// Keys per read of many; one for single reads.
    pub(crate) many: usize,
    pub(crate) scan_len: ScanLen,
    pub(crate) missing: bool,
    pub(crate) partitioned: bool,
    /// The keys that a mix chooses among, by their position in a load in random order; `None`: among all.
    pub(crate) choices: Option<Range<u64>>,
    /// Keys that earlier workloads inserted beyond the loaded ones.
    pub(crate) inserted_before: u64,
}

impl Shape {
    /// Whether it puts each key of a fresh store once.
    pub(crate) fn is_fill(self) -> bool {
        matches!(self, Self::Fill { .. })
    }

    pub(crate) fn needs(self) -> Needs {
        match self {
            Self::Fill { .. } | Self::FillStages => Needs::Fresh,
            Self::Queue => Needs::Queues,
            Self::DropPartitions | Self::ReadAfterDrop => Needs::Partitioned,
            _ => Needs::Loaded,
        }
    }

    /// Whether it only writes, each key equally often; limits of loads apply to it.
    pub(crate) fn is_load(self) -> bool {
        matches!(self, Self::Fill { .. } | Self::Mix { mix: Mix::PUTS, .. })
    }

    /// Whether its operations can be started on schedule. Single calls, such as a conversion, need no schedule.
    pub(crate) fn can_be_paced(self) -> bool {
        !matches!(self, Self::ReadAll { .. } | Self::FillStages)
    }

    /// The class of the workload in comparisons.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Fill { .. } | Self::FillAgain | Self::Delete | Self::Mix { mix: Mix::PUTS, .. } => "loads",
            Self::Mix { mix: Mix::GETS, .. }
            | Self::ReadWhileWriting
            | Self::ReadWhileConverting
            | Self::ReadWhileCompacting
            | Self::ReadAfterDrop => "gets",
            Self::Mix { mix: Mix::SCANS, .. } | Self::ReadAll { .. } => "scans",
            Self::Mix { .. } | Self::FillStages => "mixes",
            Self::Queue | Self::DropPartitions | Self::Convert => "other",
        }
    }

    /// Whether the store still holds all keys afterwards.
    pub(crate) fn keeps_all_keys(self) -> bool {
        !matches!(self, Self::Delete | Self::Queue | Self::DropPartitions | Self::ReadAfterDrop)
    }

    /// Whether it changes the store.
    pub(crate) fn writes(self) -> bool {
        match self {
            Self::Mix { mix, .. } => mix.writes(),
            Self::ReadAll { .. } => false,
            _ => true,
        }
    }

    /// Operations unless the command line says otherwise; none means as many as the stream has.
    pub(crate) fn ops_by_default(self, keys: u64) -> Option<u64> {
        match self {
            Self::Fill { .. } | Self::FillAgain | Self::FillStages | Self::DropPartitions | Self::Convert => {
                None
            }
            Self::Delete => Some((keys / 2).max(1)),
            _ => Some(keys),
        }
    }

    /// The stream of one thread.
    pub(crate) fn stream(self, context: &StreamContext, by_default: Distribution) -> Box<dyn OpStream> {
        match self {
            Self::Fill { sorted } => Box::new(FillStream::new(context, sorted)),
            Self::FillAgain => Box::new(FillStream::again(context)),
            Self::Mix { mix, distribution, .. } => {
                Box::new(MixStream::new(context, mix, distribution.unwrap_or(by_default)))
            }
            Self::ReadWhileWriting
            | Self::ReadWhileConverting
            | Self::ReadWhileCompacting
            | Self::ReadAfterDrop
            | Self::ReadAll { .. }
            | Self::FillStages
            | Self::Convert
            | Self::DropPartitions => Box::new(MixStream::new(context, Mix::GETS, by_default)),
            Self::Delete => Box::new(DeleteStream::new(context)),
            Self::Queue => Box::new(QueueStream::new(context, false)),
        }
    }

    /// The stream that overwrites, beside readers or before them.
    pub(crate) fn writer_stream(context: &StreamContext) -> Box<dyn OpStream> {
        Box::new(MixStream::new(context, Mix::PUTS, Distribution::Uniform))
    }

    /// The stream that puts a part of the keys in random order, by their position in a load.
    pub(crate) fn part_stream(context: &StreamContext, part: Range<u64>) -> Box<dyn OpStream> {
        Box::new(FillStream::of_part(context, false, part))
    }

    /// The stream that fills one thread's queue.
    pub(crate) fn queue_filling_stream(context: &StreamContext) -> Box<dyn OpStream> {
        Box::new(QueueStream::new(context, true))
    }
}
