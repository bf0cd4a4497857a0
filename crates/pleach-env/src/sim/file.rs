//! A handle of a simulated file.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fastrand::Rng;
use parking_lot::MutexGuard;
use rustix::io::Errno;

use super::SimEnv;
use super::block::BLOCK_LEN;
use super::fault::FaultKind;
use super::inode::{FILE_LEN_MAX, Ino};
use super::machine::{Machine, Turn};
use crate::env::{Dir, File, FileLock, LockMode, OpenOptions, Site, check_punch};
use crate::failpoint;
use crate::sync::point;

/// A handle. Keeps its inode and the environment alive.
pub(super) struct SimFile {
    env: Arc<SimEnv>,
    ino: Ino,
    options: OpenOptions,
}

impl SimFile {
    /// Opens a handle. Requires: `machine` is the locked machine of `env`.
    pub(super) fn open(
        env: Arc<SimEnv>,
        mut machine: MutexGuard<'_, Machine>,
        ino: Ino,
        options: OpenOptions,
    ) -> Arc<Self> {
        machine.open_handle(ino);
        drop(machine);
        Arc::new(Self { env, ino, options })
    }

    /// As the kernel does for `O_DIRECT`.
    fn check_alignment(&self, address: usize, len: usize, offset: u64) -> io::Result<()> {
        let aligned = [address, len].iter().all(|n| n.is_multiple_of(BLOCK_LEN));
        if self.options.direct && !(aligned && offset.is_multiple_of(BLOCK_LEN as u64)) {
            return Err(Errno::INVAL.into());
        }
        Ok(())
    }

    fn is_mapped(&self, len: usize, offset: u64) -> bool {
        let machine = self.env.machine.lock();
        let range = machine.mapped.as_ref().and_then(|mapped| mapped.get(&self.ino));
        len > 1 && range.is_some_and(|range| range.contains(&offset) && len as u64 <= range.end - offset)
    }

    /// The first half of a write into a mapped range: any of its bytes reach the file. An error is what a bus error stands for,
    /// and nothing is mapped from then on.
    fn store_part(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut turn = self.begin_change("store", offset.checked_add(buf.len() as u64))?;
        let machine = &mut *turn.machine;
        machine.store_count += 1;
        let mut bytes = vec![0; buf.len()];
        let inode = machine.disk.inode_mut(self.ino);
        inode.read(&mut bytes, offset);
        store_some(&mut machine.lengths, buf, &mut bytes);
        inode.write(&bytes, offset);
        let error = match turn.fault {
            Some(FaultKind::Eio | FaultKind::FailsYetDone) => Some(Errno::IO),
            // Of a file whose bytes another one shares, so that the reserved space is not its own.
            Some(FaultKind::NoSpace) => Some(Errno::NOSPC),
            _ => None,
        };
        if let Some(error) = error {
            if let Some(mapped) = &mut turn.machine.mapped {
                mapped.remove(&self.ino);
            }
            return Err(error.into());
        }
        turn.machine.is_in_store = true;
        Ok(())
    }

    fn begin_change(&self, op: &'static str, end: Option<u64>) -> io::Result<Turn<'_>> {
        let turn = self.env.begin(op)?;
        if !self.options.write {
            return Err(Errno::BADF.into());
        }
        if end.is_none_or(|end| end > FILE_LEN_MAX) {
            return Err(Errno::FBIG.into());
        }
        Ok(turn)
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        point();
        let mut machine = self.env.machine.lock();
        let mut len = machine.begin_read(buf.len())?;
        self.check_alignment(buf.as_ptr().addr(), buf.len(), offset)?;
        if self.options.direct {
            // Also a short read ends with a whole block.
            len = len.next_multiple_of(BLOCK_LEN);
        }
        machine.check_readable(self.ino, &(offset..offset + len as u64))?;
        Ok(machine.disk.inode(self.ino).read(&mut buf[..len], offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        if self.is_mapped(buf.len(), offset) {
            self.store_part(buf, offset)?;
        }
        let mut turn = self.begin_change("write_at", offset.checked_add(buf.len() as u64))?;
        turn.machine.is_in_store = false;
        self.check_alignment(buf.as_ptr().addr(), buf.len(), offset)?;
        if buf.is_empty() {
            return Ok(0);
        }
        let Turn { machine, fault } = &mut turn;
        let granted = match fault {
            Some(FaultKind::ShortWrite) if buf.len() > 1 => machine.lengths.usize(1..buf.len()),
            Some(FaultKind::Eio | FaultKind::NoSpace) => failed_len(&mut machine.lengths, buf.len()),
            _ => buf.len(),
        };
        let in_quota = machine.within_quota(granted);
        if in_quota == 0 && granted > 0 {
            return Err(Errno::DQUOT.into());
        }
        let granted = in_quota;
        let free_blocks = machine.free_blocks();
        let inode = machine.disk.inode_mut(self.ino);
        let written = inode.fit(offset, granted, free_blocks);
        if written > 0 {
            inode.write(&buf[..written], offset);
        }
        if let Some(left) = &mut machine.write_quota {
            *left -= written as u64;
        }
        if turn.end().is_err() {
            turn.machine.disk.inode_mut(self.ino).sync();
        }
        turn.end()?;
        turn.check_fault()?;
        if written == 0 { Err(Errno::NOSPC.into()) } else { Ok(written) }
    }

    /// Counts also if a failpoint skips it, so that later calls keep their numbers.
    fn sync(&self, site: Site) -> io::Result<()> {
        let mut turn = self.env.begin("sync")?;
        if failpoint::skipped(site) {
            return Ok(());
        }
        let error = turn.fault.and_then(FaultKind::sync_error);
        let inode = turn.machine.disk.inode(self.ino);
        if inode.is_settled() {
            return error.map_or_else(|| turn.end(), Err);
        }
        let inode = turn.machine.disk.inode_mut(self.ino);
        if let Some(error) = error {
            inode.fail_sync();
            return Err(error);
        }
        inode.sync();
        turn.end()
    }

    fn len(&self) -> io::Result<u64> {
        let mut machine = self.env.machine.lock();
        machine.check_power()?;
        Ok(machine.disk.inode(self.ino).len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut turn = self.begin_change("set_len", Some(len))?;
        turn.check_fault()?;
        turn.machine.disk.inode_mut(self.ino).set_len(len);
        turn.end()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut turn = self.begin_change("allocate", Some(len))?;
        turn.check_fault()?;
        let free_blocks = turn.machine.free_blocks();
        if turn.machine.disk.inode(self.ino).shortfall(len) > free_blocks {
            return Err(Errno::NOSPC.into());
        }
        turn.machine.disk.inode_mut(self.ino).allocate(len);
        turn.end()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        check_punch(offset, len)?;
        let mut turn = self.begin_change("punch", Some(offset.saturating_add(len)))?;
        turn.check_fault()?;
        turn.machine.disk.inode_mut(self.ino).punch(offset, len);
        turn.end()
    }

    fn expect_small_writes(&self, range: Range<u64>) -> bool {
        let mut machine = self.env.machine.lock();
        machine.mapped.as_mut().map(|mapped| mapped.insert(self.ino, range)).is_some()
    }

    fn expect_random_reads(&self) {}

    fn prefetch(&self, _offset: u64, _len: u64) {}

    fn forget(&self, _offset: u64, _len: u64) {}
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.env.machine.lock().close_handle(self.ino);
    }
}

/// A handle of a simulated directory. Keeps the environment alive.
pub(super) struct SimDir {
    env: Arc<SimEnv>,
    path: PathBuf,
}

impl SimDir {
    /// Requires: `machine` is the locked machine of `env`.
    pub(super) fn open(env: Arc<SimEnv>, machine: &mut Machine, path: &Path) -> Arc<Self> {
        machine.open_dirs += 1;
        Arc::new(Self { env, path: path.to_path_buf() })
    }
}

impl Dir for SimDir {
    fn sync(&self, site: Site) -> io::Result<()> {
        self.env.sync_names(&self.path, site, true)
    }
}

impl Drop for SimDir {
    fn drop(&mut self) {
        self.env.machine.lock().open_dirs -= 1;
    }
}

/// How many of its `len` bytes a failed write has written: any prefix. Nothing and everything are more frequent, because
/// stores go wrong there.
fn failed_len(rng: &mut Rng, len: usize) -> usize {
    match rng.u8(..4) {
        0 => 0,
        1 => len,
        _ => rng.usize(0..=len),
    }
}

/// Copies some bytes of `from`: none, those up to or behind a place, or words of eight bytes or single bytes at random.
fn store_some(rng: &mut Rng, from: &[u8], to: &mut [u8]) {
    let place = rng.usize(0..=from.len());
    match rng.u8(..6) {
        0 => {}
        1 => to[..place].copy_from_slice(&from[..place]),
        2 => to[place..].copy_from_slice(&from[place..]),
        3 => to.iter_mut().zip(from).filter(|_| rng.bool()).for_each(|(to, from)| *to = *from),
        _ => {
            let words = to.chunks_mut(8).zip(from.chunks(8));
            words.filter(|_| rng.bool()).for_each(|(to, from)| to.copy_from_slice(from));
        }
    }
}

/// The holders of a locked file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Exclusively,
    /// By so many handles, at least one.
    Shared(usize),
}

impl Held {
    /// How many handles hold it.
    pub(super) fn count(self) -> usize {
        match self {
            Held::Exclusively => 1,
            Held::Shared(count) => count,
        }
    }
}

/// A held lock.
pub(super) struct SimLock {
    env: Weak<SimEnv>,
    path: PathBuf,
}

impl SimLock {
    /// Takes the lock unless another handle holds it in a mode that excludes this one.
    pub(super) fn take(
        env: &Weak<SimEnv>,
        machine: &mut Machine,
        path: &Path,
        mode: LockMode,
    ) -> Option<Self> {
        let held = match (mode, machine.locks.get(path)) {
            (LockMode::Exclusive, None) => Held::Exclusively,
            (LockMode::Shared, None) => Held::Shared(1),
            (LockMode::Shared, Some(Held::Shared(count))) => Held::Shared(count + 1),
            (LockMode::Exclusive, Some(_)) | (LockMode::Shared, Some(Held::Exclusively)) => return None,
        };
        machine.locks.insert(path.to_path_buf(), held);
        Some(Self { env: Weak::clone(env), path: path.to_path_buf() })
    }
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let Some(env) = self.env.upgrade() else { return };
        let mut machine = env.machine.lock();
        match machine.locks.get_mut(&self.path) {
            Some(Held::Shared(count)) if *count > 1 => *count -= 1,
            _ => {
                machine.locks.remove(&self.path);
            }
        }
    }
}
