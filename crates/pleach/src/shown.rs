//! The numbers that each batch changes when it is shown to readers. They share a cache line, which the processor of a writer
//! takes from the others once a batch.
//!
//! # Concurrency
//! One batch at a time changes them: the one whose turn it is, or that of the commit leader. Any thread reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pleach_env::sync::OwnLine;
use pleach_log::SeqNo;

use crate::stats::add_alone;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Shown(OwnLine<Numbers>);

#[derive(Default)]
struct Numbers {
    /// Last sequence number whose batch is in the memtable, or is about to be.
    announced: AtomicU64,
    /// Last sequence number whose batch is wholly in the memtable. Release by the thread that has inserted it,
    /// acquire by readers.
    visible: AtomicU64,
    /// Operations since the open.
    operations: AtomicU64,
    /// Bytes written to the log since the open.
    log_bytes: AtomicU64,
    /// Batches committed side by side that are in the memtable.
    side_by_side: AtomicU64,
}

impl Shown {
    /// The numbers of a store whose last sequence number is `last_seq`.
    pub(crate) fn new(last_seq: SeqNo) -> Arc<Self> {
        let (announced, visible) = (AtomicU64::new(last_seq), AtomicU64::new(last_seq));
        Arc::new(Self(OwnLine(Numbers { announced, visible, ..Numbers::default() })))
    }

    /// Announces that writes up to `last_seq` are about to be shown ([`crate::tombstone_spans`]).
    #[inline]
    pub(crate) fn announce(&self, last_seq: SeqNo) {
        self.0.announced.store(last_seq, Ordering::SeqCst);
    }

    /// Last sequence number that was announced.
    pub(crate) fn announced(&self) -> SeqNo {
        self.0.announced.load(Ordering::SeqCst)
    }

    /// Last sequence number that readers may see.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        self.0.visible.load(Ordering::Acquire)
    }

    /// Lets readers see the writes up to `seq`, all of which are in the memtables.
    #[inline]
    pub(crate) fn show_up_to(&self, seq: SeqNo) {
        self.0.visible.store(seq, Ordering::Release);
    }

    /// As [`Shown::show_up_to`], for a batch that was committed side by side.
    #[inline]
    pub(crate) fn show_side_by_side(&self, seq: SeqNo) {
        add_alone(&self.0.side_by_side, 1);
        self.show_up_to(seq);
    }

    /// Batches that were shown by [`Shown::show_side_by_side`].
    #[inline]
    pub(crate) fn side_by_side(&self) -> u64 {
        self.0.side_by_side.load(Ordering::Relaxed)
    }

    /// Counts operations, or bytes of the log.
    #[inline]
    pub(crate) fn count(&self, operations: u32, log_bytes: u64) {
        add_alone(&self.0.operations, u64::from(operations));
        add_alone(&self.0.log_bytes, log_bytes);
    }

    /// Operations since the open.
    pub(crate) fn operations(&self) -> u64 {
        self.0.operations.load(Ordering::Relaxed)
    }

    /// Bytes written to the log since the open.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.0.log_bytes.load(Ordering::Relaxed)
    }
}
