//! One 4 KiB block of a simulated file: its current bytes, its durable bytes, and the versions of each sector in between.
//!
//! The medium writes a sector of 512 bytes atomically, so a crash chooses a version for each sector. Pages are shared behind
//! `Arc`: a clean block holds one page twice, and cloning a block copies no bytes.
//!
//! # Invariants
//! 1. If neither `dirty` nor `lost` has a sector's bit, `current` and `durable` agree on that sector.
//! 2. `superseded` holds versions of dirty sectors only, oldest first.

use std::sync::Arc;

/// Unit of caching and of allocation.
pub(super) const BLOCK_LEN: usize = 4096;
/// Unit of atomic persistence.
pub(super) const SECTOR_LEN: usize = 512;
/// The bits of a sector mask fit a byte.
pub(super) const SECTORS_PER_BLOCK: usize = BLOCK_LEN / SECTOR_LEN;
const _: () = assert!(SECTORS_PER_BLOCK == 8);

/// Most superseded versions kept of one block. Arbitrary: beyond it every other one is dropped, so that a crash chooses among
/// fewer of the legal outcomes.
const SUPERSEDED_MAX: usize = 64;

type Page = [u8; BLOCK_LEN];
type Sector = [u8; SECTOR_LEN];

/// A block; `None` stands for a page of zeros that takes no space.
#[derive(Clone, Default)]
pub(super) struct Block {
    current: Option<Arc<Page>>,
    durable: Option<Arc<Page>>,
    /// Sectors written since the last sync.
    dirty: u8,
    /// Sectors whose sync failed: they are readable, the next sync takes them for clean, and they are not on the medium
    /// (fsyncgate).
    lost: u8,
    superseded: Vec<(u8, Arc<Sector>)>,
}

impl Block {
    /// A block with the same bytes now and after a crash.
    pub(super) fn settled(page: Option<Arc<Page>>) -> Self {
        Self { current: page.clone(), durable: page, ..Self::default() }
    }

    /// The bytes that are read now, `None` for zeros.
    pub(super) fn current(&self) -> Option<&Page> {
        self.current.as_deref()
    }

    /// Whether no sector is dirty or lost.
    pub(super) fn is_clean(&self) -> bool {
        self.dirty | self.lost == 0
    }

    /// Writes `bytes` at `offset` within the block.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.supersede(offset / SECTOR_LEN..end.div_ceil(SECTOR_LEN));
        let page = self.current.get_or_insert_with(|| Arc::new([0; BLOCK_LEN]));
        Arc::make_mut(page)[offset..end].copy_from_slice(bytes);
    }

    /// Makes the bytes from `offset` on zeros, as a truncation does.
    pub(super) fn cut(&mut self, offset: usize) {
        let Some(page) = &mut self.current else { return };
        if offset == 0 {
            self.supersede(0..SECTORS_PER_BLOCK);
            self.current = None;
        } else if page[offset..].iter().any(|&b| b != 0) {
            self.supersede(offset / SECTOR_LEN..SECTORS_PER_BLOCK);
            let page = self.current.get_or_insert_with(|| Arc::new([0; BLOCK_LEN]));
            Arc::make_mut(page)[offset..].fill(0);
        }
    }

    /// Keeps the pending versions of `sectors` before they are overwritten, and marks the sectors dirty.
    fn supersede(&mut self, sectors: std::ops::Range<usize>) {
        for sector in sectors {
            let bit = 1 << sector;
            if self.dirty & bit != 0 {
                let version = Arc::new(sector_of(self.current.as_deref(), sector));
                self.superseded.push((low_byte(sector), version));
            }
            self.dirty |= bit;
            self.lost &= !bit;
        }
        if self.superseded.len() > SUPERSEDED_MAX {
            super::inode::thin(&mut self.superseded);
        }
    }

    /// Makes the dirty sectors durable. Lost ones stay lost.
    pub(super) fn sync(&mut self) {
        self.durable =
            if self.lost == 0 { self.current.clone() } else { self.assemble(|versions| versions - 1) };
        self.dirty = 0;
        self.superseded.clear();
    }

    /// Marks the dirty sectors clean without making them durable.
    pub(super) fn fail_sync(&mut self) {
        self.lost |= self.dirty;
        self.dirty = 0;
        self.superseded.clear();
    }

    /// The page after a crash. `pick` gets the number of versions a dirty sector has, the durable one first and the
    /// current one last, and returns the index of the one that the medium keeps.
    pub(super) fn crash(&self, pick: impl FnMut(usize) -> usize) -> Option<Arc<Page>> {
        self.assemble(pick)
    }

    fn assemble(&self, mut pick: impl FnMut(usize) -> usize) -> Option<Arc<Page>> {
        let mut page: Option<Page> = None;
        let mut latest_only = self.lost == 0;
        for sector in (0..SECTORS_PER_BLOCK).filter(|s| self.dirty & (1 << s) != 0) {
            let versions = self.superseded.iter().filter(|(s, _)| usize::from(*s) == sector);
            let count = versions.clone().count() + 2;
            let index = pick(count);
            latest_only &= index + 1 == count;
            if index == 0 {
                continue;
            }
            let bytes = match versions.clone().nth(index - 1) {
                Some((_, version)) => **version,
                None => sector_of(self.current.as_deref(), sector),
            };
            let page = page.get_or_insert_with(|| self.durable.as_deref().copied().unwrap_or([0; BLOCK_LEN]));
            page[sector * SECTOR_LEN..][..SECTOR_LEN].copy_from_slice(&bytes);
        }
        match page {
            _ if latest_only => self.current.clone(),
            Some(page) => Some(Arc::new(page)),
            None => self.durable.clone(),
        }
    }
}

fn sector_of(page: Option<&Page>, sector: usize) -> Sector {
    let mut bytes = [0; SECTOR_LEN];
    if let Some(page) = page {
        bytes.copy_from_slice(&page[sector * SECTOR_LEN..][..SECTOR_LEN]);
    }
    bytes
}

#[expect(clippy::cast_possible_truncation, reason = "a sector index is below 8")]
fn low_byte(sector: usize) -> u8 {
    sector as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(page: Option<&Page>, sector: usize) -> u8 {
        sector_of(page, sector)[0]
    }

    #[test]
    fn a_crash_keeps_any_version_of_each_sector() {
        let mut block = Block::default();
        block.write(0, &[1; 1024]);
        block.sync();
        block.write(0, &[2; 512]);
        block.write(0, &[3; 1024]);
        let mut seen = std::collections::BTreeSet::new();
        for first in 0..3 {
            for second in 0..2 {
                let mut picks = [first, second].into_iter();
                let mut counts = Vec::new();
                let page = block.crash(|versions| {
                    counts.push(versions);
                    picks.next().expect("two sectors are dirty")
                });
                assert_eq!(counts, [3, 2]);
                seen.insert((bytes_of(page.as_deref(), 0), bytes_of(page.as_deref(), 1)));
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 1), (3, 3)]);
    }

    #[test]
    fn lost_sectors_never_become_durable_unless_rewritten() {
        let mut block = Block::default();
        block.write(0, &[1; 1024]);
        block.fail_sync();
        assert_eq!(bytes_of(block.current(), 0), 1);
        block.sync();
        assert_eq!(bytes_of(block.durable.as_deref(), 0), 0);
        block.write(0, &[2; 100]);
        block.sync();
        assert_eq!(bytes_of(block.durable.as_deref(), 0), 2);
        assert_eq!(block.durable.as_deref().expect("written")[511], 1, "the whole sector was rewritten");
        assert_eq!(bytes_of(block.durable.as_deref(), 1), 0);
        assert!(!block.is_clean());
        block.write(512, &[2; 512]);
        block.sync();
        assert!(block.is_clean(), "nothing lost is left");
    }

    #[test]
    fn cutting_is_a_version_of_zeros() {
        let mut block = Block::default();
        block.write(0, &[1; BLOCK_LEN]);
        block.sync();
        block.cut(512);
        assert_eq!((bytes_of(block.current(), 0), bytes_of(block.current(), 1)), (1, 0));
        assert_eq!(bytes_of(block.crash(|_| 0).as_deref(), 1), 1);
        block.cut(0);
        assert!(block.current().is_none());
        assert!(block.crash(|versions| versions - 1).is_none());
    }
}
