//! Greedy grouping of keys: records join a group some at a time. When the average error of the group's line or its largest
//! number passes its threshold, the last addition is undone, and the next group begins with it.
//!
//! The paper trains on all keys of a group; here a line gets the first keys of the group's blocks, and the alphabets get all
//! keys.

use crate::coder::{Alphabet, Coder, Training};

/// Bytes of a line: slope and intercept.
const LINE_BYTES: usize = 16;
/// `Max_t` is 2 to this: numbers of 64 bits.
const NUMBER_BITS: f64 = 64.0;

/// The thresholds. The paper has defaults for them but does not say which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    /// `A_s`: records that join at a time.
    pub(crate) records: usize,
    /// `E_t`: largest average error of a group, in blocks.
    pub(crate) error: f64,
    /// Whether `Max_t` holds for the numbers of whole keys, as in the paper. Otherwise codes leave out the last positions, so
    /// that they do not pass it.
    pub(crate) is_for_whole_keys: bool,
}

/// Keys of an SST in their blocks.
pub(crate) struct Blocks<'a> {
    pub(crate) keys: &'a [Vec<u8>],
    /// The number of the first key of each block.
    pub(crate) firsts: &'a [usize],
}

/// What a grouping takes and how well it predicts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grouping {
    pub(crate) groups: usize,
    /// Groups whose largest number passes `Max_t`. Their codes leave out the last positions.
    pub(crate) overflowing: usize,
    /// Bytes of start keys, prefixes, alphabets and lines.
    pub(crate) bytes: usize,
    /// Boundaries whose keys have equal codes.
    pub(crate) ties: usize,
    /// Sum and maximum of the errors of the first keys of blocks, in blocks.
    pub(crate) error_sum: f64,
    pub(crate) error_max: f64,
    /// Most bits of a largest number.
    pub(crate) bits: f64,
}

impl Grouping {
    /// All keys in one group.
    pub(crate) fn whole(blocks: &Blocks<'_>, alphabet: Alphabet) -> Self {
        let mut training = Training::default();
        blocks.keys.iter().for_each(|key| training.add(key));
        let mut grouping = Self::default();
        grouping.push(&Group::new(blocks, 0, blocks.keys.len(), &training, alphabet));
        grouping
    }

    /// Greedy groups.
    pub(crate) fn greedy(blocks: &Blocks<'_>, alphabet: Alphabet, thresholds: Thresholds) -> Self {
        let mut grouping = Self::default();
        let mut from = 0;
        while from < blocks.keys.len() {
            let (mut training, mut last) = (Training::default(), None::<Group<'_>>);
            loop {
                let start = last.as_ref().map_or(from, |group| group.to);
                let to = (start + thresholds.records).min(blocks.keys.len());
                if start == to {
                    break;
                }
                blocks.keys[start..to].iter().for_each(|key| training.add(key));
                let group = Group::new(blocks, from, to, &training, alphabet);
                let overflows = thresholds.is_for_whole_keys && group.coder.bits > NUMBER_BITS;
                let fits = group.mean_error() <= thresholds.error && !overflows;
                if !fits && last.is_some() {
                    break;
                }
                last = Some(group);
                if !fits {
                    break;
                }
            }
            let Some(group) = last else { break };
            from = group.to;
            grouping.push(&group);
        }
        grouping
    }

    fn push(&mut self, group: &Group<'_>) {
        let keys = group.blocks.keys;
        let start = &keys[group.from];
        let before = group.from.checked_sub(1).map_or(&[][..], |before| &keys[before]);
        let separator = before.iter().zip(start).take_while(|(a, b)| a == b).count() + 1;
        self.groups += 1;
        self.overflowing += usize::from(group.coder.bits > NUMBER_BITS);
        self.bytes += separator + group.coder.stored_len + LINE_BYTES;
        self.ties += group.ties();
        self.error_sum += group.errors.iter().sum::<f64>();
        self.error_max = group.errors.iter().copied().fold(self.error_max, f64::max);
        self.bits = self.bits.max(group.coder.bits);
    }
}

/// The keys from `from` to before `to`.
struct Group<'a> {
    blocks: &'a Blocks<'a>,
    from: usize,
    to: usize,
    coder: Coder,
    /// Errors of the first keys of blocks, in blocks.
    errors: Vec<f64>,
}

impl<'a> Group<'a> {
    fn new(blocks: &'a Blocks<'a>, from: usize, to: usize, training: &Training, alphabet: Alphabet) -> Self {
        let coder = training.finish(alphabet, NUMBER_BITS);
        let origin = coder.encode(&blocks.keys[from]);
        let distance = |key: usize| (coder.encode(&blocks.keys[key]) - origin) as f64;
        let points: Vec<(f64, f64)> = Self::firsts(blocks, from, to)
            .enumerate()
            .map(|(block, first)| (distance(first), block as f64))
            .collect();
        let errors = errors_of_line(&points);
        Self { blocks, from, to, coder, errors }
    }

    /// The first keys of the blocks that begin in the group.
    fn firsts(blocks: &Blocks<'a>, from: usize, to: usize) -> impl Iterator<Item = usize> {
        let place = |key: usize| blocks.firsts.partition_point(|&first| first < key);
        blocks.firsts[place(from)..place(to)].iter().copied()
    }

    fn mean_error(&self) -> f64 {
        self.errors.iter().sum::<f64>() / self.errors.len().max(1) as f64
    }

    fn ties(&self) -> usize {
        let code = |key: usize| self.coder.encode(&self.blocks.keys[key]);
        Self::firsts(self.blocks, self.from + 1, self.to).filter(|&key| code(key - 1) == code(key)).count()
    }
}

/// Distances of `points` from the line of the least squares.
fn errors_of_line(points: &[(f64, f64)]) -> Vec<f64> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let slope = if variance > 0.0 { covariance / variance } else { 0.0 };
    points.iter().map(|(x, y)| (mean_y + slope * (x - mean_x) - y).abs()).collect()
}
