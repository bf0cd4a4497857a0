//! Marking: which separated values a version's readers can see, by a merge of all runs. It writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pleach_env::{FileId, Result};
use pleach_table::ValueKind;

use crate::scan::{Direction, Merge, RunReads, SeekTo, SourceCursor};
use crate::upkeep::Upkeep;
use crate::values::{SegmentUse, SegmentUses, ValuePointer};
use crate::version::Version;

/// Places of live values in a segment: offset and length.
pub(super) type Places = Vec<(u32, u32)>;

/// What is live.
pub(super) struct Marked {
    /// Of every segment.
    pub(super) live: SegmentUses,
    /// The places, of the segments that were asked for.
    pub(super) places: BTreeMap<FileId, Places>,
}

/// Entries between two looks at whether the store is being closed, and how far the values exceed their space: about a
/// millisecond.
const LOOK_EVERY: u32 = 1 << 14;

/// Marks the values that readers of `version` see, with the places of those in `segments`.
pub(super) fn mark(upkeep: &Upkeep, version: &Version, segments: &BTreeSet<FileId>) -> Result<Marked> {
    let mut marks = Marks::new(version, segments);
    let mut looked = 0u32;
    for (partition, state) in version.partitions() {
        if state.tree.sum(|run| run.totals.value_bytes) == 0 {
            continue;
        }
        // Runs without pointers, too: they may hide some.
        let runs = state.tree.runs.iter().filter(|run| !run.files.is_empty());
        let sources =
            runs.map(|run| SourceCursor::over_run(partition, Arc::clone(run), RunReads::Stream)).collect();
        let mut merge = Merge::new(sources, Direction::Up);
        merge.seek(SeekTo::Start)?;
        while let Some(source) = merge.current() {
            if source.kind() == ValueKind::ValuePointer {
                let pointer = ValuePointer::decode(source.value_bytes()).ok_or_else(|| {
                    source.damaged(&upkeep.ctx.dir, "expected a value pointer, found other bytes")
                })?;
                marks.add(pointer);
            }
            looked += 1;
            if looked.is_multiple_of(LOOK_EVERY) {
                upkeep.ctx.status.check_not_closed()?;
                upkeep.measure_value_debt();
            }
            merge.advance()?;
        }
    }
    Ok(marks.finish())
}

/// What has been marked so far, by segment, ascending: each pointer searches it.
struct Marks(Vec<(FileId, Mark)>);

struct Mark {
    live: SegmentUse,
    /// The places, if they are wanted.
    places: Option<Places>,
}

impl Marks {
    fn new(version: &Version, wanted: &BTreeSet<FileId>) -> Self {
        let mark = |id| Mark { live: SegmentUse::default(), places: wanted.contains(&id).then(Places::new) };
        let mut marks: Vec<_> = version.values.iter().map(|segment| (segment.id, mark(segment.id))).collect();
        marks.sort_unstable_by_key(|(id, _)| *id);
        Self(marks)
    }

    fn add(&mut self, pointer: ValuePointer) {
        // A pointer to a segment that the version does not have is damage, which its readers find.
        let Ok(at) = self.0.binary_search_by_key(&pointer.segment, |(id, _)| *id) else { return };
        let Some((_, mark)) = self.0.get_mut(at) else { return };
        mark.live.add(pointer.bytes());
        if let Some(places) = &mut mark.places {
            let offset = u32::try_from(pointer.offset).expect("a segment is shorter than 4 GiB");
            places.push((offset, pointer.len));
        }
    }

    fn finish(self) -> Marked {
        let mut marked = Marked { live: SegmentUses::new(), places: BTreeMap::new() };
        for (id, Mark { live, places }) in self.0 {
            marked.live.insert(id, live);
            marked.places.extend(places.map(|places| (id, places)));
        }
        marked
    }
}
