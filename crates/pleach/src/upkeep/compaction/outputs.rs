//! Files of a compaction's output that no edit names yet.

use std::sync::Arc;

use pleach_env::Result;

use crate::trace::Span;
use crate::upkeep::Upkeep;
use crate::version::SstFile;
use crate::version::edit::{Edit, EditItem, RunFileMeta};

/// A file of the output.
pub(super) enum Made {
    /// A new file.
    Written(Arc<SstFile>, RunFileMeta),
    /// A file of an input.
    Moved(RunFileMeta),
}

/// Notes in the span of a step what it has made.
pub(super) fn trace_made(span: &Span, made: Option<&Made>) {
    span.made(made.iter().count(), made.map_or(0, Made::written_bytes));
}

impl Made {
    /// Bytes on the disk that were not there before.
    fn written_bytes(&self) -> u64 {
        match self {
            Self::Written(_, meta) => meta.bytes,
            Self::Moved(_) => 0,
        }
    }
}

/// The files. Dropped, they stay in the directory until the next open removes them.
#[derive(Default)]
pub(super) struct Outputs(Vec<Made>);

impl Outputs {
    pub(super) fn add(&mut self, made: Option<Made>) {
        self.0.extend(made);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes on the disk that were not there before.
    pub(super) fn written_bytes(&self) -> u64 {
        self.0.iter().map(Made::written_bytes).sum()
    }

    /// Makes the names of new files durable.
    pub(super) fn sync_names(&self, upkeep: &Upkeep) -> Result<()> {
        if self.written_bytes() > 0 { upkeep.ctx.sync_dir("compaction.dir_sync") } else { Ok(()) }
    }

    /// Names the new files in `edit`. Those, and all as parts of a run.
    pub(super) fn name_in(&mut self, edit: &mut Edit) -> (Vec<Arc<SstFile>>, Vec<RunFileMeta>) {
        let (mut files, mut metas) = (Vec::new(), Vec::new());
        for made in self.0.drain(..) {
            let (Made::Written(_, meta) | Made::Moved(meta)) = &made;
            metas.push(meta.clone());
            if let Made::Written(file, _) = made {
                edit.push(EditItem::AddFile { file: file.id, summary: file.summary.clone() });
                files.push(file);
            }
        }
        (files, metas)
    }

    /// Lets the new files go.
    pub(super) fn abandon(&mut self) {
        for made in self.0.drain(..) {
            if let Made::Written(file, _) = made {
                file.mark_obsolete();
            }
        }
    }
}
