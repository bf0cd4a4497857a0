//! Drivers of reads that a test tries, also where the system refuses rings.

use std::env::var_os;

use pleach::{Options, ReadDriver};

/// The polled one is what the system gives: a ring, if it polls nothing.
pub(crate) const DRIVERS: [ReadDriver; 4] =
    [ReadDriver::Ring, ReadDriver::DevicePolled, ReadDriver::Threads, ReadDriver::Blocking];

/// Whether the system may refuse the driver: rings, under `.ci/refuse-rings`, which sets `PLEACH_RINGS`.
pub(crate) fn may_be_refused(driver: ReadDriver) -> bool {
    !matches!(driver, ReadDriver::Threads | ReadDriver::Blocking) && var_os("PLEACH_RINGS").is_some()
}

/// Whether an open that `wanted` a driver may have chosen this one.
pub(crate) fn may_be_chosen(chosen: ReadDriver, wanted: ReadDriver) -> bool {
    let is_unpolled = matches!(chosen, ReadDriver::KernelPolled | ReadDriver::Ring);
    chosen == wanted || may_be_refused(wanted) || (wanted == ReadDriver::DevicePolled && is_unpolled)
}

/// Whether the system refuses all rings.
pub(crate) fn are_rings_refused() -> bool {
    var_os("PLEACH_RINGS").is_some_and(|rings| rings == "refused")
}

/// Options that a test reads by.
pub(crate) trait ReadBy {
    /// Chooses the driver; leaves the choice to the open if the system may refuse it.
    fn read_by(self, driver: ReadDriver) -> Self;
}

impl ReadBy for Options {
    fn read_by(self, driver: ReadDriver) -> Self {
        if may_be_refused(driver) { self } else { self.read_driver(driver) }
    }
}
