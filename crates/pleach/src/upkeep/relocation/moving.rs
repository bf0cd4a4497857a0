//! Moving: the live values of some files are copied to a new one, which takes their places in the version.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use pleach_env::{Error, FileId, Result, failpoint};

use super::choosing::PLACES_MAX;
use super::space::moved_len;
use super::{Places, Victim};
use crate::state::State;
use crate::stats::add;
use crate::upkeep::Upkeep;
use crate::values::{
    CHECKSUM_LEN, HomeKind, LiveSegment, MovedFileBuilder, SegmentUse, ValueHome, ValuePointer,
};
use crate::version::edit::{Edit, EditItem};

impl Upkeep {
    /// Cleans the first files for whose live values the disk has room: as many as fill a new file of about the length of a log
    /// segment.
    ///
    /// Returns the bytes by which the files have become shorter; 0 if the disk has no room.
    ///
    /// After an error nothing has changed; in a poisoned store the edit may be durable.
    pub(super) fn move_some(&self, victims: &mut VecDeque<Victim>) -> Result<u64> {
        // Files stay on the disk until those that replace them are complete.
        let mut room = self.room_for_moves();
        if room < self.writes.moved_bytes() && self.version_set.remove_obsolete() > 0 {
            room = self.room_for_moves();
        }
        let some = take_some(victims, self.writes.moved_bytes(), room);
        let before: u64 = some.iter().map(|victim| victim.len).sum();
        let version = Arc::clone(&self.version_set.state.load().version);
        let mut segments: Vec<(Arc<ValueHome>, FileId, Places)> = Vec::new();
        for victim in some {
            for (segment, mut places) in victim.segments {
                // Since the marking, a segment may have lost its last reference.
                let Some(LiveSegment { home, .. }) = version.values.find(segment) else { continue };
                debug_assert_eq!(home.file, victim.file, "only relocation changes homes");
                places.sort_unstable();
                // Only a forged SST points to a place twice.
                places.dedup();
                check_places(&places, || home.path(&self.ctx.dir))
                    .inspect_err(|error| self.note_damaged(home.file, error))?;
                segments.push((Arc::clone(home), segment, places));
            }
        }
        drop(version);
        if segments.is_empty() {
            return Ok(before);
        }
        segments.sort_by_key(|(_, segment, _)| *segment);
        let moved = self.copy(&segments)?;
        let mut edit = Edit::default();
        for (_, segment, places) in &segments {
            let (file, kind, len) = match moved {
                Some((file, len)) if !places.is_empty() => (file, HomeKind::Moved, len),
                _ => (*segment, HomeKind::Gone, 0),
            };
            edit.push(EditItem::ValueHome { segment: *segment, file, kind, len });
        }
        let committed = self.version_set.commit_edit(edit, Vec::new(), State::with_version);
        if let (Err(_), Some((file, _)), None) = (&committed, moved, self.ctx.status.poison()) {
            self.remove_value_file(file);
        }
        failpoint::reached("relocation.committed");
        committed?;
        Ok(before.saturating_sub(moved.map_or(0, |(_, len)| len)))
    }

    /// Bytes that a new file may take: what is free on the disk beyond the need of log and flushes, or half of it if that is
    /// more. When so little is free, writes are refused, and cleaning is what frees space.
    pub(super) fn room_for_moves(&self) -> u64 {
        let kept = self.writes.kept_for_flushes();
        let free = self.ctx.env.available_space(&self.ctx.dir).unwrap_or(u64::MAX);
        free.saturating_sub(kept).max(free / 2)
    }

    /// Copies the live values to a new file, and makes it durable with its name. Returns its number and length; `None` if
    /// nothing is live.
    fn copy(&self, segments: &[(Arc<ValueHome>, FileId, Places)]) -> Result<Option<(FileId, u64)>> {
        if segments.iter().all(|(.., places)| places.is_empty()) {
            return Ok(None);
        }
        let (ctx, id) = (&self.ctx, self.version_set.new_file_id());
        let mut builder = MovedFileBuilder::create(&ctx.env, &ctx.dir, id)?;
        if let Err(error) = self.fill(&mut builder, segments) {
            builder.abandon();
            return Err(error);
        }
        let finished = builder.finish("moved.sync").and_then(|len| {
            self.ctx.sync_dir("moved.dir_sync")?;
            Ok(len)
        });
        let len = finished.inspect_err(|_| {
            self.remove_value_file(id);
        })?;
        add(&ctx.counters.value_moved_bytes, len);
        add(&ctx.counters.value_moves, 1);
        Ok(Some((id, len)))
    }

    fn fill(
        &self,
        builder: &mut MovedFileBuilder,
        segments: &[(Arc<ValueHome>, FileId, Places)],
    ) -> Result<()> {
        let ctx = &self.ctx;
        for (home, segment, places) in segments {
            let path = home.path(&ctx.dir);
            // Not an error of the new file.
            let note_damage = |error: &Error| {
                if error.path() == Some(&*path) && !error.is_shortage() {
                    self.note_damaged(home.file, error);
                }
            };
            let file = home.reader(&ctx.env, &ctx.dir, ctx.options.direct_reads).inspect_err(note_damage)?;
            let pointers = places.iter().map(|&(offset, len)| ValuePointer {
                segment: *segment,
                offset: offset.into(),
                len,
            });
            let mut charged = builder.len();
            file.read_each(pointers, &mut |pointer, stored| {
                if !builder.has_room(stored.len()) {
                    let message = "the values to which SSTs point have more than 4 GiB";
                    return Err(Error::corruption(&path, pointer.offset, message));
                }
                builder.add(pointer, stored)?;
                if builder.len() - charged >= PIECE_BYTES {
                    self.keep_pace(builder.len() - charged);
                    charged = builder.len();
                    ctx.status.check_not_closed()?;
                    self.measure_value_debt();
                }
                Ok(())
            })
            .inspect_err(note_damage)?;
        }
        Ok(())
    }
}

/// An error if values overlap, which ascend: pointers to them are forged. A table of moved values could not lead to them, and
/// they may be much more than their file.
fn check_places(places: &Places, path: impl Fn() -> PathBuf) -> Result<()> {
    for pair in places.windows(2) {
        let &[(offset, len), (next, next_len)] = pair else { continue };
        if u64::from(offset) + CHECKSUM_LEN as u64 + u64::from(len) > u64::from(next) {
            let message = format!(
                "SSTs point to a value of {len} bytes at {offset} and to one of {next_len} bytes at {next}, which overlap"
            );
            return Err(Error::corruption(&path(), next.into(), message));
        }
    }
    Ok(())
}

/// Bytes between two charges of the pace.
const PIECE_BYTES: u64 = 1 << 20;

/// Live values that are moved to one file from several sources: offsets in its table have 32 bits.
const MOVED_BYTES_MAX: u64 = 1 << 30;

/// Takes files whose live values are about `bytes` together, at least one, but only files whose values have `room` in a new
/// file, and not so many values that a later pass could clean that file only alone. The others stay in the list.
fn take_some(victims: &mut VecDeque<Victim>, bytes: u64, room: u64) -> Vec<Victim> {
    let (mut some, mut left) = (Vec::new(), VecDeque::new());
    let (mut live, mut moved, mut values) = (0u64, 0u64, 0u64);
    let bytes = bytes.min(MOVED_BYTES_MAX);
    while let Some(victim) = victims.pop_front() {
        let (len, moved_len, count) = (victim.live(), victim.moved_len(), victim.places().count() as u64);
        if len > 0 && moved + moved_len > room {
            left.push_back(victim);
            continue;
        }
        if live > 0 && (live + len > MOVED_BYTES_MAX || values + count > PLACES_MAX) {
            victims.push_front(victim);
            break;
        }
        (live, moved, values) = (live + len, moved + moved_len, values + count);
        some.push(victim);
        if live >= bytes {
            break;
        }
    }
    left.append(victims);
    *victims = left;
    some
}

impl Victim {
    /// Bytes of its live values.
    fn live(&self) -> u64 {
        self.places().map(|(_, len)| u64::from(*len)).fold(0, u64::saturating_add)
    }

    /// About the bytes that they take in a new file.
    pub(super) fn moved_len(&self) -> u64 {
        let values = self.places().count() as u64;
        moved_len(SegmentUse { values, bytes: self.live() + values * CHECKSUM_LEN as u64 })
    }

    fn places(&self) -> impl Iterator<Item = &(u32, u32)> {
        self.segments.iter().flat_map(|(_, places)| places)
    }
}
