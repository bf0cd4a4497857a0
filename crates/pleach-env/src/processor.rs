//! Use of the machine's processors, which background work asks for before it starts.

use std::time::Duration;

/// Time of all processors of the machine together, since an arbitrary moment. Two of them give the use in between.
///
/// ```
/// use std::time::Duration;
/// use pleach_env::ProcessorTime;
///
/// let at = |busy, total| ProcessorTime { busy: Duration::from_secs(busy), total: Duration::from_secs(total) };
/// assert_eq!(at(25, 120).use_since(at(20, 100)), Some(0.25));
/// assert_eq!(at(25, 120).use_since(at(25, 120)), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Time in which processors worked, for whatever process.
    pub busy: Duration,
    /// All time, idle or not.
    pub total: Duration,
}

impl ProcessorTime {
    /// The share of the processors that was busy from `earlier` to `self`, from 0 to 1; `None` if no time has passed.
    pub fn use_since(self, earlier: Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total).filter(|total| !total.is_zero())?;
        let busy = self.busy.saturating_sub(earlier.busy);
        Some(busy.as_secs_f64() / total.as_secs_f64()).map(|share| share.min(1.0))
    }
}
