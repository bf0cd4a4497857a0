//! The store: a handle that is cheap to clone, and what stands behind it.

mod closing;
mod collect_stats;
mod create_drop;
mod destroy;
mod directory;
mod futures;
mod handle;
mod inner;
mod open;
mod partition;
mod recovery;
mod snapshot;
mod verify;
mod write_batch;

pub use destroy::destroy;
pub(crate) use directory::LOCK;
pub use futures::{GetFuture, GetManyFuture};
pub use handle::Db;
pub(crate) use open::DEFAULT_PARTITION;
pub use partition::Partition;
pub use snapshot::Snapshot;
pub use verify::VerifyReport;
pub use write_batch::WriteBatch;
