//! Opening a store for a command: where it is, whether it may be created, which partition.
//!
//! Commands that read never create a store or a partition; a missing one is an error. Opening recovers the store, so it
//! writes to the directory even if the command only reads, unless `--read-only` is given. If the disk is full, the store may
//! be opened for reading only; then the command prints a warning to standard error.

use std::path::{Path, PathBuf};

use clap::Args;
use pleach::limits::PARTITION_NAME_LEN_MAX;
use pleach::{Db, ErrorKind, Options, Partition};
use pleach_command::parse_bytes;

use crate::dropped;
use crate::failure::{BUSY, Exit, Failure, Result, is_refused};
use crate::output::{note, warn};

/// Flags that every command understands.
#[derive(Args, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Directory of the store
    #[arg(long, global = true, value_name = "PATH", env = "PLEACH_DB", hide_env_values = true)]
    pub(crate) db: Option<PathBuf>,
    /// Partition to work on [default: "default"; of `partitions`, `compact`, `convert` and `stats`: all]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// Memory to use, such as 64M or 2G [default: a quarter of the process's limit (control group or machine), 64M to 1G]
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_bytes::<usize>)]
    pub(crate) memory: Option<usize>,
    /// Open the store for reading only: change nothing, share it with other readers; commands that write refuse it
    #[arg(long, global = true)]
    pub(crate) read_only: bool,
    /// Write machine-readable JSON to standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

const NO_ROOM: &str =
    "a store that is there can be read on a full disk; a new one needs some room: free some space";

const UNREADABLE: &str = "reading a store takes permission to read its files and to enter its directory: check owner and \
     permissions with `ls -la`";

const NOT_CREATED: &str = "no store was created: give a path where you may write";

/// An error if no partition can have the name. Checked before a store is created.
pub(crate) fn check_partition_name(name: &str) -> Result<()> {
    let len = name.len();
    if (1..=PARTITION_NAME_LEN_MAX).contains(&len) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "a partition's name has 1 to {PARTITION_NAME_LEN_MAX} bytes; this one has {len}"
    )))
}

/// The default partition of commands.
const DEFAULT_PARTITION: &str = "default";

impl StoreArgs {
    /// The directory.
    pub(crate) fn dir(&self) -> Result<&Path> {
        self.db.as_deref().ok_or_else(|| {
            Failure::usage("no store was given").hint("use --db PATH, or set the variable PLEACH_DB")
        })
    }

    /// Name of the partition to work on.
    pub(crate) fn partition_name(&self) -> &str {
        self.partition.as_deref().unwrap_or(DEFAULT_PARTITION)
    }

    /// An error if no partition can have the given name. Checked before a store is created.
    pub(crate) fn check_partition_name(&self) -> Result<()> {
        check_partition_name(self.partition_name())
    }

    /// An error if a partition was named. For commands that read the whole store.
    pub(crate) fn check_no_partition(&self, command: &str) -> Result<()> {
        if self.partition.is_none() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "`pleach {command}` reads the whole store, so --partition cannot be used with it"
        ))
        .hint("leave out --partition"))
    }

    /// Opens an existing store.
    pub(crate) fn open(&self) -> Result<Db> {
        self.open_changed(|options| options)
    }

    /// Opens an existing store with changed options.
    pub(crate) fn open_changed(&self, change: impl FnOnce(Options) -> Options) -> Result<Db> {
        let dir = self.dir()?;
        if let Err(error) = std::fs::symlink_metadata(dir) {
            return Err(match error.kind() {
                std::io::ErrorKind::NotFound => no_store(dir),
                _ => Failure::io("look for the store", dir, &error),
            });
        }
        self.open_with(false, change)
    }

    /// Opens a store. Creates it if it is missing, unless `no_create` is set.
    pub(crate) fn open_or_create(&self, no_create: bool) -> Result<Db> {
        if no_create { self.open() } else { self.open_with(true, |options| options) }
    }

    fn open_with(&self, create: bool, change: impl FnOnce(Options) -> Options) -> Result<Db> {
        let dir = self.dir()?;
        let options = change(options(create, self.memory).read_only(self.read_only));
        let db = options.open(dir).map_err(|error| match error.kind() {
            ErrorKind::Conflict => {
                Failure::new(Exit::Busy, format!("the store {} is open elsewhere", dir.display())).hint(BUSY)
            }
            ErrorKind::NotFound => no_store(dir),
            ErrorKind::InvalidArgument if dir.is_file() => {
                Failure::usage(format!("{} is a file; a store is a directory", dir.display()))
            }
            _ if error.is_out_of_space() => Failure::from(error).hint(NO_ROOM),
            _ if self.read_only && is_refused(&error) => Failure::from(error).hint(UNREADABLE),
            _ if is_refused(&error) && matches!(dir.try_exists(), Ok(false)) => {
                Failure::from(error).hint(NOT_CREATED)
            }
            _ => error.into(),
        })?;
        self.tell_of_full_disk(&db);
        if let Some(dropped) = dropped::describe(&db.stats()) {
            warn(dropped);
        }
        Ok(db)
    }

    /// Warns when the store could be opened for reading only, although `--read-only` was not given.
    fn tell_of_full_disk(&self, db: &Db) {
        if let Some(why) = db.read_only().filter(|_| !self.read_only) {
            note(format_args!("the store is open for reading only: {why}"));
        }
    }

    /// The partition to work on, which must exist.
    pub(crate) fn partition_of(&self, db: &Db) -> Result<Partition> {
        let name = self.partition_name();
        db.find_partition(name).ok_or_else(|| {
            Failure::not_found(format!("there is no partition \"{}\"", name.escape_debug()))
                .hint(format!("there are: {}", db.partitions().join(", ")))
        })
    }

    /// The partition that was named, which must exist; all if none was.
    pub(crate) fn chosen_partitions(&self, db: &Db) -> Result<Vec<Partition>> {
        match self.partition {
            Some(_) => Ok(vec![self.partition_of(db)?]),
            None => Ok(db.partitions().iter().filter_map(|name| db.find_partition(name)).collect()),
        }
    }

    /// The partition to write to, created if it is missing.
    pub(crate) fn partition_or_create(&self, db: &Db, no_create: bool) -> Result<Partition> {
        if no_create { self.partition_of(db) } else { Ok(db.partition(self.partition_name())?) }
    }
}

/// Opens the store in `dir`.
pub(crate) fn open_dir(dir: &Path, create: bool, memory: Option<usize>) -> pleach::Result<Db> {
    options(create, memory).open(dir)
}

fn options(create: bool, memory: Option<usize>) -> Options {
    let options = Options::new().create_if_missing(create);
    match memory {
        Some(bytes) => options.memory(bytes),
        None => options,
    }
}

fn no_store(dir: &Path) -> Failure {
    Failure::not_found(format!("there is no store at {}", dir.display()))
        .hint("`pleach put` and `pleach load` create a store; commands that read never do")
}
