//! Drivers of reads: their names, and the choice among them when a store is opened.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use super::{ReadQueue, ReadRequest};
use crate::env::{Env, OpenOptions};
use crate::memory::Region;

/// Length of the read that proves a driver: direct reads are of whole blocks.
const PROBE_BYTES: usize = 4096;

/// What reads for a [`ReadQueue`] and for a [`ReadService`](super::ReadService).
///
/// The polled drivers stand for the polling thread of TridentKV (3.4), which used SPDK. They spend a processor to save
/// system calls and interrupts, so they need processors that are idle. None is chosen unless it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadDriver {
    /// An `io_uring`, on Linux: one system call submits several reads. A queue has the ring of the calling thread, a
    /// service one of a thread of its own.
    Ring,
    /// A ring whose reads end without an interrupt: the thread that waits polls the device (`IORING_SETUP_IOPOLL`). It
    /// needs direct reads, and a device with poll queues (`nvme.poll_queues`).
    DevicePolled,
    /// A ring from which a thread of the kernel takes the reads, so that a submission needs no system call
    /// (`IORING_SETUP_SQPOLL`). All rings of the process share the thread. It spins while there are reads, and for a
    /// millisecond after the last one. The thread that waits looks for completions for 100 microseconds before it sleeps.
    KernelPolled,
    /// Threads, up to 16 for the process, each of which reads for others and waits.
    Threads,
    /// The thread that wants the bytes, one read after the other. A future blocks the thread that polls it.
    Blocking,
}

impl ReadDriver {
    const ALL: [Self; 5] =
        [Self::Ring, Self::DevicePolled, Self::KernelPolled, Self::Threads, Self::Blocking];

    /// The first driver that reads the file at `path`, opened with `options`. Without `wanted`, the environment's best and
    /// then those below it are tried. [`ReadDriver::DevicePolled`] may become [`ReadDriver::KernelPolled`], and either
    /// [`ReadDriver::Ring`], where the system does not poll. Any other driver that is `wanted` is taken or refused.
    ///
    /// # Errors
    /// That of the last driver tried; for instance, a container's policy may refuse rings.
    pub fn choose(
        env: &dyn Env,
        wanted: Option<Self>,
        path: &Path,
        options: OpenOptions,
    ) -> io::Result<Self> {
        let mut driver = wanted.unwrap_or_else(|| env.read_driver());
        loop {
            let lower = match driver {
                Self::Blocking => return Ok(driver),
                Self::Threads if wanted.is_none() => return Ok(driver),
                Self::DevicePolled => Some(Self::KernelPolled),
                Self::KernelPolled => Some(Self::Ring),
                Self::Ring | Self::Threads => wanted.is_none().then_some(Self::Threads),
            };
            match (driver.try_on(env, path, options), lower) {
                (Err(_), Some(lower)) => driver = lower,
                (tried, _) => return tried.map(|()| driver),
            }
        }
    }

    /// Reads the beginning of a file. A ring that can be made may still refuse to read.
    fn try_on(self, env: &dyn Env, path: &Path, options: OpenOptions) -> io::Result<()> {
        let file = &env.open_file(path, options)?;
        let mut queue = ReadQueue::new(env, self, 1)?;
        let buffer = Region::try_new(PROBE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        queue.push(ReadRequest { file, offset: 0, buffer, needed: 0, tag: 0 })?;
        queue.next().expect("one read is in flight").result?;
        if queue.was_refused_polling() {
            Err(io::Error::other("the device cannot be polled"))
        } else if queue.driver() == self {
            Ok(())
        } else {
            Err(io::Error::other("the system refuses to read by a ring"))
        }
    }

    /// Whether an `io_uring` reads.
    pub(super) fn is_ring(self) -> bool {
        matches!(self, Self::Ring | Self::DevicePolled | Self::KernelPolled)
    }
}

impl fmt::Display for ReadDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::DevicePolled => "device-polled",
            Self::KernelPolled => "kernel-polled",
            Self::Threads => "threads",
            Self::Blocking => "blocking",
        })
    }
}

impl FromStr for ReadDriver {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|driver| driver.to_string() == name).ok_or_else(|| {
            let names = Self::ALL.map(|driver| driver.to_string()).join(", ");
            format!("{name:?} is no driver of reads: choose one of {names}")
        })
    }
}

impl Default for ReadDriver {
    /// The one that is always there.
    fn default() -> Self {
        Self::Blocking
    }
}
