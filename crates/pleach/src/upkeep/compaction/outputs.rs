//! Files of a compaction's output that no edit names yet.

use std::sync::Arc;

use pleach_env::Result;

use crate::trace::Span;
use crate::upkeep::Upkeep;
use crate::values::ValueHome;
use crate::version::SstFile;
use crate::version::edit::{Edit, EditItem, RunFileMeta};

/// A file of the output.
pub(super) enum OutputFile {
    /// A new file, with the file of the values that were copied for it.
    Written { file: Arc<SstFile>, meta: RunFileMeta, values: Option<Arc<ValueHome>> },
    /// A file of an input.
    Moved(RunFileMeta),
}

/// Adds the output of a step to its span.
pub(super) fn trace_output(span: &Span, output: Option<&OutputFile>) {
    span.made(output.iter().count(), output.map_or(0, OutputFile::written_bytes));
}

impl OutputFile {
    /// Bytes that were written for it; none for a moved file.
    fn written_bytes(&self) -> u64 {
        match self {
            Self::Written { meta, values, .. } => meta.bytes + values.as_ref().map_or(0, |home| home.len),
            Self::Moved(_) => 0,
        }
    }
}

/// The files. If they are dropped, the next open removes them from the directory.
#[derive(Default)]
pub(super) struct Outputs(Vec<OutputFile>);

impl Outputs {
    pub(super) fn add(&mut self, output: Option<OutputFile>) {
        self.0.extend(output);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes that were written for it; none for a moved file.
    pub(super) fn written_bytes(&self) -> u64 {
        self.0.iter().map(OutputFile::written_bytes).sum()
    }

    /// Makes the names of new files durable.
    pub(super) fn sync_names(&self, upkeep: &Upkeep) -> Result<()> {
        if self.written_bytes() > 0 { upkeep.ctx.sync_dir("compaction.dir_sync") } else { Ok(()) }
    }

    /// Names the new files in `edit`. Returns the new files, and all files as parts of a run.
    pub(super) fn name_in(&mut self, edit: &mut Edit) -> (Vec<Arc<SstFile>>, Vec<RunFileMeta>) {
        let (mut files, mut metas) = (Vec::new(), Vec::new());
        for output in self.0.drain(..) {
            let (OutputFile::Written { meta, .. } | OutputFile::Moved(meta)) = &output;
            metas.push(meta.clone());
            if let OutputFile::Written { file, values, .. } = output {
                if let Some(home) = values {
                    let &ValueHome { file, kind, len, .. } = &*home;
                    edit.push(EditItem::ValueHome { segment: file, file, kind, len });
                }
                edit.push(EditItem::AddFile { file: file.id, summary: file.summary.clone() });
                files.push(file);
            }
        }
        (files, metas)
    }

    /// Makes the new files obsolete.
    pub(super) fn abandon(&mut self) {
        for output in self.0.drain(..) {
            if let OutputFile::Written { file, values, .. } = output {
                file.mark_obsolete();
                if let Some(values) = values {
                    values.mark_obsolete();
                }
            }
        }
    }
}
