//! Options: how a store is opened, and the enumerations of their values.

use std::sync::Arc;

use pleach::env::{Env, MemEnv, RealEnv};
use pleach::{Conversion, Durability, LearnedIndex, Options, Shape};
use pleach_ffi::guard;

use crate::arguments::{member, required};
use crate::error::{ErrorHandle, Result, report};

/// When a write returns, and so which failures it survives.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PleachDurability {
    /// The operating system has it: it survives a crash of the process, but not of the machine.
    Buffered = 0,
    /// It is on the medium, and so is every write before it.
    Sync = 1,
}

/// How blocks and separated values are compressed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PleachCompression {
    /// Not at all.
    None = 0,
    /// With LZ4, where that saves at least an eighth.
    Lz4 = 1,
}

/// How the files of a partition are arranged.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PleachShape {
    /// A forest of sorted runs above one large run: writes least. The default.
    ForestOverBottom = 0,
    /// A forest of sorted runs.
    Forest = 1,
    /// One run a stage, each ten times as large as the one above: reads least, writes most.
    Leveled = 2,
}

/// When new files get a learned index.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PleachLearnedIndex {
    /// Where it is smaller than separators; while many threads write, later. The default.
    Adaptive = 0,
    /// Where it is smaller than separators.
    Always = 1,
    /// Never.
    Never = 2,
}

/// When separated values are copied into the order of their keys.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PleachConversion {
    /// Once scans have lost as much time to values in disorder as the copies take. The default.
    ForScans = 0,
    /// Never.
    Never = 1,
    /// At each merge of everything.
    Always = 2,
}

pub(crate) fn durability(number: u32) -> Result<Durability> {
    const MEMBERS: [Durability; 2] = [Durability::Buffered, Durability::Sync];
    member(&MEMBERS, number, "durability")
}

/// How to open a store. Every option can be left alone. Options can be used for many opens, and freed after any of them.
///
/// Thread safety: one thread at a time changes them; opens only read them.
pub struct OptionsHandle {
    options: Options,
}

const _: () = pleach_ffi::assert_shared::<OptionsHandle>();

impl OptionsHandle {
    /// The options of a pointer, or the defaults for null.
    pub(crate) fn of(handle: Option<&Self>) -> Options {
        handle.map_or_else(Options::new, |handle| handle.options.clone())
    }
}

/// For Rust programs that set what C cannot, such as an environment of their own.
impl From<Options> for OptionsHandle {
    fn from(options: Options) -> Self {
        Self { options }
    }
}

/// Changes the options of a pointer.
fn set(
    options: Option<&mut OptionsHandle>,
    change: impl FnOnce(Options) -> Result<Options>,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        let handle = required(options, "options")?;
        handle.options = change(handle.options.clone())?;
        Ok(())
    })
}

/// New options with the defaults. The caller frees them with `pleach_options_free`. Null only after a bug in Pleach.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_create() -> Option<Box<OptionsHandle>> {
    guard(None, || Some(Box::new(Options::new().into())))
}

/// Frees options. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_free(options: Option<Box<OptionsHandle>>) {
    guard((), || drop(options));
}

/// Whether a missing store is created; otherwise its open fails with `PLEACH_CODE_NOT_FOUND`. Default: true.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_create_if_missing(
    options: Option<&mut OptionsHandle>,
    yes: bool,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.create_if_missing(yes)))
}

/// Whether the open of a store that exists fails with `PLEACH_CODE_INVALID_ARGUMENT`. Default: false. An open for reading only
/// ignores it.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_error_if_exists(
    options: Option<&mut OptionsHandle>,
    yes: bool,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.error_if_exists(yes)))
}

/// Whether the files of stores are in memory only, for tests and temporary data. Default: false. All stores opened with these
/// options share the files, which last as long as the options or one of the stores. Setting true again starts with none.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_in_memory(
    options: Option<&mut OptionsHandle>,
    yes: bool,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| {
        let env: Arc<dyn Env> = if yes { Arc::new(MemEnv::new()) } else { Arc::new(RealEnv::new()) };
        Ok(options.env(env))
    })
}

/// Memory budget of a store in bytes, at least 1 MiB: memtables, indexes, filters and cached blocks. Default: a quarter of the
/// memory that the process may use, from 64 MiB to 1 GiB. An open refuses what is out of range.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_memory(
    options: Option<&mut OptionsHandle>,
    bytes: usize,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.memory(bytes)))
}

/// Size of a memtable in bytes: 16 KiB to 1 GiB. Default: an eighth of the memory budget, at most 64 MiB. An open refuses what is
/// out of range.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_memtable_bytes(
    options: Option<&mut OptionsHandle>,
    bytes: usize,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.memtable_bytes(bytes)))
}

/// How new blocks and separated values are compressed: a `pleach_compression`. Default: `PLEACH_COMPRESSION_NONE`.
///
/// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for an unknown number.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_compression(
    options: Option<&mut OptionsHandle>,
    compression: u32,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.compression(member(&[false, true], compression, "compression")?)))
}

/// Whether reads bypass the system's page cache. Default: false. For data that is far larger than a large memory budget.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_direct_reads(
    options: Option<&mut OptionsHandle>,
    yes: bool,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.direct_reads(yes)))
}

/// How files are arranged: a `pleach_shape`. Default: `PLEACH_SHAPE_FOREST_OVER_BOTTOM`. A store can be opened with any shape.
///
/// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for an unknown number.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_shape(
    options: Option<&mut OptionsHandle>,
    shape: u32,
) -> Option<Box<ErrorHandle>> {
    const MEMBERS: [Shape; 3] = [Shape::ForestOverBottom, Shape::Forest, Shape::Leveled];
    set(options, |options| Ok(options.shape(member(&MEMBERS, shape, "shape")?)))
}

/// Threads that compact: 1 to 64. Default: one for each processor, at most 4. An open refuses what is out of range.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_compaction_threads(
    options: Option<&mut OptionsHandle>,
    threads: usize,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.compaction_threads(threads)))
}

/// Bytes that all compaction threads together may write in a second. Default: 0, no limit.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_compaction_bytes_per_second(
    options: Option<&mut OptionsHandle>,
    bytes: u64,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.compaction_bytes_per_second(bytes)))
}

/// Bits per key of the filters: 0 (none) to 32. Default: 10, about 1 % false positives. An open refuses what is out of range.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_filter_bits_per_key(
    options: Option<&mut OptionsHandle>,
    bits: f32,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.filter_bits_per_key(bits)))
}

/// When new files get a learned index: a `pleach_learned_index`. Default: `PLEACH_LEARNED_INDEX_ADAPTIVE`.
///
/// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for an unknown number.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_learned_index(
    options: Option<&mut OptionsHandle>,
    when: u32,
) -> Option<Box<ErrorHandle>> {
    const MEMBERS: [LearnedIndex; 3] = [LearnedIndex::Adaptive, LearnedIndex::Always, LearnedIndex::Never];
    set(options, |options| Ok(options.learned_index(member(&MEMBERS, when, "learned_index")?)))
}

/// Length in bytes from which on values are kept outside of the sorted files, so that merges do not move them. Default: 1024;
/// with 0 none is.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_separate_at(
    options: Option<&mut OptionsHandle>,
    bytes: usize,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.separate_at(bytes)))
}

/// Space that a store with separated values may take, as a multiple of its live data: 1.1 to 4. Default: 1.3. An open refuses
/// what is out of range.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_space_target(
    options: Option<&mut OptionsHandle>,
    ratio: f64,
) -> Option<Box<ErrorHandle>> {
    set(options, |options| Ok(options.space_target(ratio)))
}

/// When separated values are copied into the order of their keys: a `pleach_conversion`. Default:
/// `PLEACH_CONVERSION_FOR_SCANS`.
///
/// Errors: `PLEACH_CODE_INVALID_ARGUMENT` for an unknown number.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn pleach_options_set_conversion(
    options: Option<&mut OptionsHandle>,
    when: u32,
) -> Option<Box<ErrorHandle>> {
    const MEMBERS: [Conversion; 3] = [Conversion::ForScans, Conversion::Never, Conversion::Always];
    set(options, |options| Ok(options.conversion(member(&MEMBERS, when, "conversion")?)))
}
