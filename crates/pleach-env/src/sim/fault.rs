//! Faults that a test plants at the k-th mutating call or read.
//!
//! # Invariants
//! 1. A fault acts at its own call and nowhere else, except [`FaultKind::NoSpaceFrom`] and [`FaultKind::CrashAfter`].

use std::io;

use rustix::io::Errno;

/// A fault, and the call that it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Number of the mutating call that it strikes, as counted by [`SimEnv::op_count`](crate::SimEnv::op_count): the
    /// first call of an environment has number 0. For faults of reads, the number of the read, as counted by
    /// [`SimEnv::read_count`](crate::SimEnv::read_count). For [`FaultKind::OpenTooManyFiles`], the number of the open, as
    /// counted by [`SimEnv::open_count`](crate::SimEnv::open_count).
    pub at_op: u64,
    /// The effect.
    pub kind: FaultKind,
}

/// How the message of [`FaultKind::JobPanics`] begins.
pub const JOB_PANIC: &str = "a planted panic";

/// The effect of a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The call fails with `EIO`. A write may have written any prefix of its buffer. A file's sync has the effect of
    /// [`FaultKind::SyncFails`]; every other call has none.
    Eio,
    /// The call fails with `ENOSPC`, otherwise as [`FaultKind::Eio`]: with delayed allocation, a sync too can find the
    /// disk full.
    NoSpace,
    /// Every call from this one on that needs space fails with `ENOSPC`, until
    /// [`SimEnv::clear_faults`](crate::SimEnv::clear_faults). Overwriting and writing into allocated space go on.
    NoSpaceFrom,
    /// The call, if it is a write of more than one byte, writes a random part of its buffer and says so.
    ShortWrite,
    /// The call, if it is a sync, fails with `EIO`. A file's pending bytes are marked clean: they stay readable, and no
    /// later sync makes them durable unless they are written again (fsyncgate). A directory's names stay pending: they
    /// travel in the file system's journal, whose failure no later sync could hide.
    SyncFails,
    /// The call succeeds; then the power is off, as after [`SimEnv::power_off`](crate::SimEnv::power_off).
    CrashAfter,
    /// The read fails with `EIO`.
    ReadEio,
    /// The read, if it is one of more than one byte, reads a random part of its bytes; a direct read, whole blocks of them.
    ReadShort,
    /// The read fails with `EAGAIN`: the next try reads.
    ReadAgain,
    /// The call does its work and then fails with `EIO`. After a write or a sync, all pending bytes of the file are durable.
    /// Names stay pending, as after a call that succeeds.
    FailsYetDone,
    /// The call, if it opens a file or directory (`create_file`, `sync_dir`, `create_dir_all`), fails with `EMFILE` and has
    /// no effect. Calls that open nothing succeed.
    TooManyFiles,
    /// The open fails with `EMFILE`.
    OpenTooManyFiles,
    /// The call, if a background job makes it, panics instead, with a message that begins with [`JOB_PANIC`]. The panic
    /// hook is not called.
    JobPanics,
}

/// The classes of calls; each is counted on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Ops,
    Reads,
    Opens,
}

/// Fails with the error of the fault, if there is one.
pub(super) fn check(error: Option<io::Error>) -> io::Result<()> {
    error.map_or(Ok(()), Err)
}

impl FaultKind {
    fn counter(self) -> Counter {
        match self {
            FaultKind::ReadEio | FaultKind::ReadShort | FaultKind::ReadAgain => Counter::Reads,
            FaultKind::OpenTooManyFiles => Counter::Opens,
            _ => Counter::Ops,
        }
    }

    /// The error of a call that fails without an effect, whatever it does.
    pub(super) fn error(self) -> Option<io::Error> {
        match self {
            FaultKind::Eio | FaultKind::ReadEio => Some(Errno::IO.into()),
            FaultKind::NoSpace => Some(Errno::NOSPC.into()),
            FaultKind::ReadAgain => Some(Errno::AGAIN.into()),
            FaultKind::OpenTooManyFiles => Some(Errno::MFILE.into()),
            _ => None,
        }
    }

    /// The error of a call that opens a file or directory.
    pub(super) fn open_error(self) -> Option<io::Error> {
        if self == FaultKind::TooManyFiles { Some(Errno::MFILE.into()) } else { self.error() }
    }

    /// The error of a call that fails after it has done its work.
    pub(super) fn late_error(self) -> Option<io::Error> {
        (self == FaultKind::FailsYetDone).then(|| Errno::IO.into())
    }

    /// The error of a sync.
    pub(super) fn sync_error(self) -> Option<io::Error> {
        if self == FaultKind::SyncFails { Some(Errno::IO.into()) } else { self.error() }
    }
}

/// The faults planted in one environment.
#[derive(Default)]
pub(super) struct Faults {
    planted: Vec<Fault>,
    struck: u64,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.planted.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.planted.clear();
    }

    /// How many calls a fault has struck.
    pub(super) fn struck(&self) -> u64 {
        self.struck
    }

    /// The fault of the call with this number. [`Faults::is_full`] and [`Faults::is_crashed`] answer for the sticky kinds.
    pub(super) fn strike(&mut self, number: u64, counter: Counter) -> Option<FaultKind> {
        let fault = self.planted.iter().find(|f| f.at_op == number && f.kind.counter() == counter)?;
        self.struck += 1;
        Some(fault.kind)
    }

    /// Whether the disk is full for the call with the number `op_count - 1`.
    pub(super) fn is_full(&self, op_count: u64) -> bool {
        self.planted.iter().any(|f| f.kind == FaultKind::NoSpaceFrom && f.at_op < op_count)
    }

    /// Whether the power went off with one of the first `op_count` calls.
    pub(super) fn is_crashed(&self, op_count: u64) -> bool {
        self.planted.iter().any(|f| f.kind == FaultKind::CrashAfter && f.at_op < op_count)
    }
}
