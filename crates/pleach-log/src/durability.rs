//! Durability: which failures a committed write survives.

/// The failures that a committed write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The write is in the operating system's cache at return. It survives a crash of the process, but not of the machine. A
    /// crash of the machine loses only the newest writes, never one before a write that survives.
    #[default]
    Buffered,
    /// The write is on the medium at return, and so is every write before it.
    Sync,
}
