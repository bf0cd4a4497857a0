//! Opening a store for a command: where it is, whether it may be created, which partition.
//!
//! Commands that read never create a store or a partition; a missing one is an error that says so. Opening recovers
//! the store, and so writes to its directory even when the command only reads.

use std::path::{Path, PathBuf};

use clap::Args;
use pleach::limits::PARTITION_NAME_LEN_MAX;
use pleach::{Db, ErrorKind, Options, Partition};

use crate::bytes::parse_size;
use crate::dropped;
use crate::failure::{Exit, Failure, Result};
use crate::output::warn;

/// Flags that every command understands.
#[derive(Args, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Directory of the store
    #[arg(long, global = true, value_name = "PATH", env = "PLEACH_DB", hide_env_values = true)]
    pub(crate) db: Option<PathBuf>,
    /// Partition to work on [default: "default"]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// Memory to use, such as 64M or 2G [default: 512M]
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<usize>,
    /// Write machine-readable JSON to standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

const NO_ROOM: &str = "opening needs room for one log segment, an eighth of --memory and at most 64M; \
    free some space, or say --memory 8M";

/// The partition that commands use unless told otherwise.
const DEFAULT_PARTITION: &str = "default";

impl StoreArgs {
    /// The directory.
    pub(crate) fn dir(&self) -> Result<&Path> {
        self.db.as_deref().ok_or_else(|| {
            Failure::usage("which store? none was given").hint("say --db PATH, or set the variable PLEACH_DB")
        })
    }

    /// Name of the partition to work on.
    pub(crate) fn partition_name(&self) -> &str {
        self.partition.as_deref().unwrap_or(DEFAULT_PARTITION)
    }

    /// An error when no partition can have the given name. For commands that may create a store: they shall not do so in vain.
    pub(crate) fn check_partition_name(&self) -> Result<()> {
        let len = self.partition_name().len();
        if (1..=PARTITION_NAME_LEN_MAX).contains(&len) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "a partition's name has 1 to {PARTITION_NAME_LEN_MAX} bytes; this one has {len}"
        )))
    }

    /// Opens a store that must be there.
    pub(crate) fn open(&self) -> Result<Db> {
        let dir = self.dir()?;
        if let Err(error) = std::fs::symlink_metadata(dir) {
            return Err(match error.kind() {
                std::io::ErrorKind::NotFound => no_store(dir),
                _ => Failure::io("look for the store", dir, &error),
            });
        }
        self.open_with(false)
    }

    /// Opens a store, creating it if it is missing and `no_create` does not forbid that.
    pub(crate) fn open_or_create(&self, no_create: bool) -> Result<Db> {
        if no_create { self.open() } else { self.open_with(true) }
    }

    fn open_with(&self, create: bool) -> Result<Db> {
        let dir = self.dir()?;
        let db = open_dir(dir, create, self.memory).map_err(|error| match error.kind() {
            ErrorKind::Conflict => {
                Failure::new(Exit::Busy, format!("the store {} is open elsewhere", dir.display()))
                    .hint("one process at a time has a store open; close it there and try again")
            }
            ErrorKind::NotFound => no_store(dir),
            ErrorKind::InvalidArgument if dir.is_file() => {
                Failure::usage(format!("{} is a file; a store is a directory", dir.display()))
            }
            _ if error.is_out_of_space() => Failure::from(error).hint(NO_ROOM),
            _ => error.into(),
        })?;
        if let Some(dropped) = dropped::describe(&db.stats()) {
            warn(dropped);
        }
        Ok(db)
    }

    /// The partition to work on, which must be there.
    pub(crate) fn partition_of(&self, db: &Db) -> Result<Partition> {
        let name = self.partition_name();
        db.find_partition(name).ok_or_else(|| {
            Failure::not_found(format!("there is no partition \"{}\"", name.escape_debug()))
                .hint(format!("there are: {}", db.partitions().join(", ")))
        })
    }

    /// The partition to write to, created if it is missing.
    pub(crate) fn partition_or_create(&self, db: &Db, no_create: bool) -> Result<Partition> {
        if no_create { self.partition_of(db) } else { Ok(db.partition(self.partition_name())?) }
    }
}

/// Opens the store in `dir`.
pub(crate) fn open_dir(dir: &Path, create: bool, memory: Option<usize>) -> pleach::Result<Db> {
    let mut options = Options::new().create_if_missing(create);
    if let Some(bytes) = memory {
        options = options.memory(bytes);
    }
    options.open(dir)
}

fn no_store(dir: &Path) -> Failure {
    Failure::not_found(format!("there is no store at {}", dir.display()))
        .hint("`pleach put` and `pleach load` create one; commands that read never do")
}
