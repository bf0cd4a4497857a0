//! The segments of a version: where the values of each are, and how much of them is live.
//!
//! # Cost
//! Finding a segment is a binary search. An edit that changes references copies the list: 32 bytes for each segment, of which
//! a terabyte of values has 16 000.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleach_env::FileId;

use super::home::{HomeKind, ValueHome};

/// A sum of references: values, and their bytes with checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentUse {
    pub(crate) values: u64,
    pub(crate) bytes: u64,
}

impl SegmentUse {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.values += 1;
        self.bytes += bytes;
    }

    /// The sum after a change; `None` if more goes than there is.
    fn changed(self, (values, bytes): (i64, i64)) -> Option<Self> {
        Some(Self {
            values: self.values.checked_add_signed(values)?,
            bytes: self.bytes.checked_add_signed(bytes)?,
        })
    }
}

/// References by segment.
pub(crate) type SegmentUses = BTreeMap<FileId, SegmentUse>;

/// How much of each segment a file of a run refers to, above the clip. Empty for most stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValueRefs(Option<Arc<[(FileId, SegmentUse)]>>);

impl ValueRefs {
    pub(crate) fn new(uses: &SegmentUses) -> Self {
        Self::from_sorted(uses.iter().map(|(id, used)| (*id, *used)).collect())
    }

    /// Requires: `uses` is sorted by segment.
    pub(crate) fn from_sorted(uses: Vec<(FileId, SegmentUse)>) -> Self {
        Self((!uses.is_empty()).then(|| uses.into()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileId, SegmentUse)> {
        self.0.iter().flat_map(|uses| uses.iter().copied())
    }

    /// Bytes of all values referred to.
    pub(crate) fn bytes(&self) -> u64 {
        self.iter().map(|(_, used)| used.bytes).fold(0, u64::saturating_add)
    }

    /// What is left without `gone`; an error message if more goes than there is.
    pub(crate) fn without(&self, gone: &SegmentUses) -> Result<Self, String> {
        let mut left: SegmentUses = self.iter().collect();
        for (segment, used) in gone {
            let rest = left.get_mut(segment).and_then(|left| {
                let values = left.values.checked_sub(used.values)?;
                *left = SegmentUse { values, bytes: left.bytes.checked_sub(used.bytes)? };
                Some(())
            });
            rest.ok_or_else(|| format!("more of segment {segment} was read than is referred to"))?;
        }
        left.retain(|_, used| used.values > 0);
        Ok(Self::new(&left))
    }
}

/// A segment with live values.
#[derive(Clone, Debug)]
pub(crate) struct LiveSegment {
    pub(crate) id: FileId,
    pub(crate) home: Arc<ValueHome>,
    /// What the pointers of all runs refer to.
    pub(crate) live: SegmentUse,
}

/// See the module's text. Clones share the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueSegments(Option<Arc<Vec<LiveSegment>>>);

impl ValueSegments {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveSegment> {
        self.0.iter().flat_map(|list| list.iter())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether both share one list.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(list), Some(other)) => Arc::ptr_eq(list, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// The segment numbered `id`.
    pub(crate) fn find(&self, id: FileId) -> Option<&LiveSegment> {
        let list = self.0.as_ref()?;
        list.binary_search_by_key(&id, |segment| segment.id).ok().map(|at| &list[at])
    }

    /// Each home that is a file once, by number, with the use of all segments in it.
    pub(crate) fn homes(&self) -> BTreeMap<FileId, (Arc<ValueHome>, SegmentUse)> {
        let mut homes: BTreeMap<FileId, (Arc<ValueHome>, SegmentUse)> = BTreeMap::new();
        for LiveSegment { home, live, .. } in
            self.iter().filter(|segment| segment.home.kind != HomeKind::Gone)
        {
            let (_, sum) =
                homes.entry(home.file).or_insert_with(|| (Arc::clone(home), SegmentUse::default()));
            // A forged manifest may say anything.
            sum.values = sum.values.saturating_add(live.values);
            sum.bytes = sum.bytes.saturating_add(live.bytes);
        }
        homes
    }

    /// The segments after an edit that changes homes and references; an error message if it does not fit. Segments without
    /// references go.
    pub(crate) fn changed(
        &self,
        homes: &BTreeMap<FileId, Arc<ValueHome>>,
        uses: &BTreeMap<FileId, (i64, i64)>,
    ) -> Result<Self, String> {
        if homes.is_empty() && uses.values().all(|change| *change == (0, 0)) {
            return Ok(self.clone());
        }
        let mut list: BTreeMap<FileId, LiveSegment> =
            self.iter().map(|segment| (segment.id, segment.clone())).collect();
        for (&id, home) in homes {
            let live = list.get(&id).map_or_else(SegmentUse::default, |segment| segment.live);
            list.insert(id, LiveSegment { id, home: Arc::clone(home), live });
        }
        for (&id, &change) in uses.iter().filter(|(_, change)| **change != (0, 0)) {
            let segment = list
                .get_mut(&id)
                .ok_or_else(|| format!("a file refers to value segment {id}, which is unknown"))?;
            segment.live = segment
                .live
                .changed(change)
                .ok_or_else(|| format!("the references to value segment {id} do not add up"))?;
        }
        let list: Vec<_> = list.into_values().filter(|segment| segment.live.values > 0).collect();
        Ok(Self((!list.is_empty()).then(|| Arc::new(list))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(file: u64) -> Arc<ValueHome> {
        Arc::new(ValueHome::new(FileId(file), HomeKind::Segment, 1000, Arc::default()))
    }

    #[test]
    fn segments_come_with_references_and_go_with_the_last() {
        let homes = BTreeMap::from([(FileId(3), home(3)), (FileId(5), home(5))]);
        let uses = BTreeMap::from([(FileId(3), (2, 200))]);
        let first = ValueSegments::default().changed(&homes, &uses).unwrap();
        assert!(first.find(FileId(5)).is_none(), "nothing refers to it");
        assert_eq!(first.find(FileId(3)).unwrap().live, SegmentUse { values: 2, bytes: 200 });
        let none = BTreeMap::new();
        let error = first.changed(&none, &BTreeMap::from([(FileId(4), (1, 9))])).unwrap_err();
        assert!(error.contains("unknown"), "{error}");
        let error = first.changed(&none, &BTreeMap::from([(FileId(3), (-3, -200))])).unwrap_err();
        assert!(error.contains("do not add up"), "{error}");
        let moved = first.changed(&BTreeMap::from([(FileId(3), home(9))]), &BTreeMap::new()).unwrap();
        let segment = moved.find(FileId(3)).unwrap();
        assert_eq!((segment.home.file, segment.live.values), (FileId(9), 2));
        assert!(moved.changed(&none, &BTreeMap::from([(FileId(3), (-2, -200))])).unwrap().is_empty());
    }

    #[test]
    fn references_are_subtracted_by_segment() {
        let used = |values, bytes| SegmentUse { values, bytes };
        let refs = ValueRefs::new(&BTreeMap::from([(FileId(1), used(2, 20)), (FileId(2), used(1, 7))]));
        let left = refs.without(&BTreeMap::from([(FileId(2), used(1, 7)), (FileId(1), used(1, 9))])).unwrap();
        assert!(left.iter().eq([(FileId(1), used(1, 11))]));
        assert_eq!(left.bytes(), 11);
        assert!(left.without(&BTreeMap::from([(FileId(2), used(1, 7))])).is_err());
        assert!(left.without(&BTreeMap::from([(FileId(1), used(2, 11))])).is_err());
    }
}
