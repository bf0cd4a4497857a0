//! Separated values of a damaged store: which file has the values of each segment.
//!
//! The manifest says it. Without it, every log segment and every file of values is taken for the home of its own values, and the
//! table of a file of moved values says whose they are. A value proves itself, so a wrong home gives no wrong value.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use pleach_env::{Env, Error, FileId, Result};

use super::manifest::{Catalog, Files};
use super::report::Reporter;
use crate::damage::DamagedPlace;
use crate::file_names::values_path;
use crate::keys::PartitionId;
use crate::values::{HomeKind, ValueHome, ValuePointer, kind_of};

/// See the module's text.
#[derive(Default)]
pub(super) struct Homes {
    by_segment: BTreeMap<FileId, Vec<Arc<ValueHome>>>,
    /// Segments that were read as segments of the log: the bytes of their values were counted then.
    pub(super) read_as_log: BTreeSet<FileId>,
}

impl Homes {
    /// The homes that the manifest names, or those that the files may be.
    pub(super) fn find(
        env: &Arc<dyn Env>,
        dir: &Path,
        files: &Files,
        catalog: &Catalog,
        report: &mut Reporter<'_>,
    ) -> Self {
        let mut homes = Self::default();
        if catalog.is_exact {
            for segment in catalog.version.values.iter() {
                homes.by_segment.entry(segment.id).or_default().push(Arc::clone(&segment.home));
            }
            return homes;
        }
        let home = |id, kind, len| Arc::new(ValueHome::new(id, kind, len, Arc::default()));
        for (&id, &len) in &files.values {
            let path = values_path(dir, id);
            let found = kind_of(&**env, &path, id).and_then(|kind| {
                let home = home(id, kind, len);
                Ok((home.segments(env, dir)?, home))
            });
            match found {
                Ok((segments, home)) => {
                    for segment in segments {
                        homes.by_segment.entry(segment).or_default().push(Arc::clone(&home));
                    }
                }
                Err(error) => report.damage(DamagedPlace::of(&path, error)),
            }
        }
        for (&id, &len) in &files.segments {
            homes.by_segment.entry(id).or_default().push(home(id, HomeKind::Segment, len));
        }
        homes
    }

    /// Whether the log segment is the home of values.
    pub(super) fn has_segment(&self, id: FileId) -> bool {
        let homes = self.by_segment.get(&id);
        homes.is_some_and(|homes| homes.iter().any(|home| home.kind == HomeKind::Segment))
    }

    /// Reads the value of a key to which `bytes`, in the SST at `sst`, point. Also gives the bytes that were read and not counted
    /// before.
    pub(super) fn read(
        &self,
        env: &Arc<dyn Env>,
        (dir, sst): (&Path, &Path),
        key: (PartitionId, &[u8]),
        bytes: &[u8],
    ) -> Result<(Arc<[u8]>, u64)> {
        let damaged = |message: String| Error::corruption(sst, 0, message);
        let pointer = ValuePointer::decode(bytes)
            .ok_or_else(|| damaged("expected a value pointer, found other bytes".to_owned()))?;
        let homes = self.by_segment.get(&pointer.segment).map_or(&[][..], |homes| homes);
        let mut failed = damaged(format!("no file has the values of segment {}", pointer.segment));
        for home in homes {
            match home.read(env, dir, pointer, key) {
                Ok(value) => {
                    let is_counted = home.kind == HomeKind::Segment && self.read_as_log.contains(&home.file);
                    return Ok((value, if is_counted { 0 } else { pointer.bytes() }));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

#[cfg(test)]
mod tests {
    use pleach_env::{ErrorKind, SimEnv};

    use super::*;
    use crate::values::{ValueFileBuilder, ValuePacker};

    /// Without a manifest a segment may have several homes, such as a file from which its values were moved, and the new one.
    #[test]
    fn a_value_is_read_from_any_home_that_has_it() {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let (dir, key) = (Path::new("/"), (PartitionId(3), &b"key"[..]));
        let mut builder = ValueFileBuilder::create(&env, dir, FileId(7)).unwrap();
        let (checksum, stored) = ValuePacker::store(None, key, b"value");
        let pointer = builder.add(&checksum, stored).unwrap();
        let len = builder.finish("test.sync").unwrap();
        let mut bytes = Vec::new();
        pointer.encode(&mut bytes);
        let home = |file, kind| Arc::new(ValueHome::new(FileId(file), kind, len, Arc::default()));
        let (missing, found) = (home(8, HomeKind::Moved), home(7, HomeKind::Values));
        for homes in [vec![Arc::clone(&missing), Arc::clone(&found)], vec![found, Arc::clone(&missing)]] {
            let homes = Homes { by_segment: BTreeMap::from([(FileId(7), homes)]), ..Homes::default() };
            let read = homes.read(&env, (dir, Path::new("/sst")), key, &bytes);
            assert_eq!(read.unwrap().0[..], b"value"[..]);
        }
        let homes = Homes { by_segment: BTreeMap::from([(FileId(7), vec![missing])]), ..Homes::default() };
        let error = homes.read(&env, (dir, Path::new("/sst")), key, &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}
