//! Integration tests of the store, and the rigs that test its promises: docs/testing.md.
#![expect(clippy::disallowed_methods, reason = "tests look at the machine's files and clock themselves")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the rigs are tests, though most of them is no #[test]"
)]

mod background;
mod basics;
mod budget;
mod chunks;
mod closing;
mod compaction;
mod crash;
mod cursors;
mod descriptors;
mod failed_opens;
mod faults;
mod filters;
mod full_disk;
mod golden;
mod in_memory;
mod key_lengths;
mod large_batches;
mod learned;
mod metamorphic;
mod model;
mod overlap;
mod panics;
mod processes;
mod ranges;
mod read_ahead;
mod read_only;
mod reads;
mod repair;
mod repair_faults;
mod repair_order;
mod rig;
mod scans;
mod separated_scans;
mod shortage;
mod threads;
mod tombstones;
mod torn_logs;
mod values;
