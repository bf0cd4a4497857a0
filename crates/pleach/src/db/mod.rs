//! The store: a handle that is cheap to clone, and what stands behind it.

mod attached;
mod background;
mod closing;
mod directory;
mod edits;
mod filters;
mod handle;
mod inner;
mod ledger;
mod open;
mod partition;
mod partitions;
mod pressure;
mod recovery;
mod reserve;
mod snapshot;
mod space;
mod sst_output;
mod touched;
mod verify;
mod write;
mod write_batch;

pub(crate) use directory::LOCK;
pub use handle::Db;
pub(crate) use inner::Inner;
pub(crate) use open::DEFAULT_PARTITION;
pub use partition::Partition;
pub use snapshot::Snapshot;
pub(crate) use sst_output::{NewEntry, SstOutput, parse_sst_name, sst_path};
pub use verify::VerifyReport;
pub use write_batch::WriteBatch;
