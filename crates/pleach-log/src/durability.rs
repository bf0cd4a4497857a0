//! How long a write lasts once its call has returned.

/// The failures that a committed write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The write is in the operating system's cache at return: it survives the death of the process, not that of the
    /// machine. A crash of the machine loses the newest writes only, never one in the middle.
    #[default]
    Buffered,
    /// The write is on the medium at return, and so is every write before it.
    Sync,
}
