//! Shared flush files: the live bytes of each, and the partitions whose sections keep a sparse one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pleach_env::FileId;

use crate::keys::PartitionId;
use crate::picker;
use crate::version::SubTree;
use crate::version::edit::RunKind;

/// The shared files of the newest version.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SharedFiles {
    files: HashMap<FileId, SharedFile>,
    /// The sections of each partition.
    sections: HashMap<PartitionId, Vec<Section>>,
    /// Partitions with sections in sparse files.
    in_sparse: BTreeSet<PartitionId>,
}

#[derive(Debug, Default, PartialEq)]
struct SharedFile {
    live_bytes: u64,
    raw_bytes: u64,
    partitions: BTreeSet<PartitionId>,
}

#[derive(Debug, PartialEq)]
struct Section {
    file: FileId,
    bytes: u64,
    /// Bytes of all entries of the file.
    raw_bytes: u64,
}

impl SharedFiles {
    /// Partitions with sections in sparse files.
    pub(super) fn in_sparse(&self) -> &BTreeSet<PartitionId> {
        &self.in_sparse
    }

    /// Takes over the sections of a changed sub-tree; `None` when the partition was dropped.
    pub(super) fn update(&mut self, id: PartitionId, tree: Option<&SubTree>) {
        let new = sections(tree);
        let old = self.sections.remove(&id).unwrap_or_default();
        let was_sparse: BTreeMap<_, _> =
            old.iter().chain(&new).map(|section| (section.file, self.is_sparse(section.file))).collect();
        for Section { file, bytes, .. } in old {
            let shared = self.files.entry(file).or_default();
            shared.live_bytes = shared.live_bytes.saturating_sub(bytes);
            shared.partitions.remove(&id);
        }
        for &Section { file, bytes, raw_bytes } in &new {
            let shared = self.files.entry(file).or_default();
            shared.live_bytes = shared.live_bytes.saturating_add(bytes);
            shared.raw_bytes = raw_bytes;
            shared.partitions.insert(id);
        }
        if !new.is_empty() {
            self.sections.insert(id, new);
        }
        let mut changed = BTreeSet::from([id]);
        for (file, was_sparse) in was_sparse {
            let shared = &self.files[&file];
            if self.is_sparse(file) != was_sparse {
                changed.extend(&shared.partitions);
            }
            if shared.partitions.is_empty() {
                self.files.remove(&file);
            }
        }
        for id in changed {
            let mut sections = self.sections.get(&id).into_iter().flatten();
            let is_in_sparse = sections.any(|section| self.is_sparse(section.file));
            super::set_member(&mut self.in_sparse, id, is_in_sparse);
        }
    }

    fn is_sparse(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|shared| picker::is_sparse(shared.live_bytes, shared.raw_bytes))
    }
}

fn sections(tree: Option<&SubTree>) -> Vec<Section> {
    let runs = tree.into_iter().flat_map(|tree| &tree.runs).filter(|run| run.kind == RunKind::Section);
    let section = |file: &crate::version::RunFile| Section {
        file: file.file.id,
        bytes: file.meta.bytes,
        raw_bytes: file.file.summary.raw_bytes,
    };
    runs.flat_map(|run| &run.files).map(section).collect()
}
