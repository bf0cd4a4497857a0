//! Starts of segments that differ in length, and the table that finds the segment of a code.
//!
//! # Invariants
//! 1. *Ascending*: starts ascend from 0. `fit` makes them so, and decoding checks it.
//! 2. *Table*: entry `b` is the last segment that starts before bucket `b`, or 0. By construction in [`Starts::new`].

use std::hint::select_unpredictable;

use pleach_coding::bits::bits_of;

/// How many starts a search compares at most, one by one; the comparisons do not wait for each other.
const COUNTED_MAX: usize = 3;

/// The starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Starts {
    /// Distance of each segment's start from the first segment's, in units of `1 << scale`; then [`COUNTED_MAX`] of no
    /// segment.
    all: Box<[u64]>,
    scale: u8,
    /// For each bucket of starts, the number of the last segment that starts before it, or 0.
    table: Box<[u16]>,
    /// Bits of a start below its bucket.
    shift: u8,
    /// Bits of the largest number of starts in a bucket. Each bit above the lowest two is one halving; up to three starts are
    /// then compared.
    steps: u8,
    /// How many starts are then compared one by one.
    counted: u8,
}

impl Starts {
    /// The table over `starts`, which ascend from 0: two to four buckets for each. `None` if there are too many.
    pub(super) fn new(mut starts: Vec<u64>, scale: u32) -> Option<Self> {
        let span = starts.last().copied().unwrap_or(0);
        let shift = bits_of(span).saturating_sub(bits_of(starts.len() as u64) + 1);
        let mut table = Vec::new();
        let (mut below, mut most) = (0_usize, 0);
        for bucket in 0..=span >> shift {
            table.push(u16::try_from(below.saturating_sub(1)).ok()?);
            let rest = starts.get(below..).unwrap_or_default();
            let inside = rest.iter().take_while(|&&start| start >> shift == bucket).count();
            below += inside;
            most = most.max(inside);
        }
        starts.resize(starts.len() + COUNTED_MAX, u64::MAX);
        let short = |n: u32| u8::try_from(n).ok();
        Some(Self {
            all: starts.into(),
            table: table.into(),
            scale: short(scale)?,
            shift: short(shift)?,
            steps: short(bits_of(most as u64))?,
            counted: u8::try_from(most.min(COUNTED_MAX)).ok()?,
        })
    }

    /// Starts are counted in units of `1 << scale`.
    #[inline]
    pub(super) fn scale(&self) -> u32 {
        self.scale.into()
    }

    /// The start of `segment`.
    #[inline]
    pub(super) fn of(&self, segment: usize) -> u64 {
        self.all.get(segment).copied().unwrap_or(0)
    }

    /// The segment of a code at distance `scaled`.
    #[inline]
    pub(super) fn segment_of(&self, scaled: u64) -> usize {
        let bucket = usize::try_from(scaled >> (self.shift & 63)).unwrap_or(usize::MAX);
        let mut segment: usize =
            self.table.get(bucket.min(self.table.len() - 1)).copied().unwrap_or(0).into();
        for step in (2..self.steps).rev() {
            let probe = segment + (1 << step);
            let is_reached = self.all.get(probe).is_some_and(|start| *start <= scaled);
            segment = select_unpredictable(is_reached, probe, segment);
        }
        let behind = self.all.get(segment + 1..).and_then(<[u64]>::first_chunk::<COUNTED_MAX>);
        let behind = behind.into_iter().flatten().take(self.counted.into());
        segment + behind.map(|start| usize::from(*start <= scaled)).sum::<usize>()
    }

    /// Bytes of memory on the heap.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.all) + size_of_val(&*self.table)
    }
}
