//! The bytes that docs/format/log.md shows.

use std::fmt::Write as _;

use pleach_log::Append;

use crate::support::{Machine, record_of};

/// Lines of 16 bytes: offset, bytes.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (i, line) in bytes.chunks(16).enumerate() {
        let bytes: Vec<_> = line.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(text, "{:04x}  {}", i * 16, bytes.join(" ")).unwrap();
    }
    text
}

#[test]
fn the_segment_of_the_format_document() {
    let machine = Machine::new();
    let mut log = machine.log(7, 192, 40);
    log.append([Append { record: &mut record_of(b"hello"), first_seq: 41, count: 1 }]).unwrap();
    log.append([Append { record: &mut record_of(b"pleach"), first_seq: 42, count: 1 }]).unwrap();
    log.sync().unwrap();
    let document = include_str!("../../../../docs/format/log.md");
    let shown = hex(&machine.read(7));
    assert!(document.contains(&shown), "docs/format/log.md should show:\n{shown}");
}
