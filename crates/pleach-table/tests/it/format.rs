//! The bytes of a whole SST, as docs/format/sst.md shows them.

use std::fmt::Write;
use std::path::Path;

use pleach_table::{Codec, FrameCache, SstOptions, ValueKind};

use crate::support::{Entries, PATH, build, machine, open};

fn tiny() -> Entries {
    Entries::from([
        (b"apple".to_vec(), (ValueKind::Put, b"red".to_vec())),
        (b"apricot".to_vec(), (ValueKind::Tombstone, Vec::new())),
    ])
}

/// Offset and bytes of every row that is not zero, in hexadecimal.
fn dump(bytes: &[u8]) -> String {
    let mut dump = String::new();
    for (i, row) in bytes.chunks(16).enumerate().filter(|(_, row)| row.iter().any(|&b| b != 0)) {
        let hex: Vec<String> = row.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(dump, "{:04x}  {}", i * 16, hex.join(" ")).unwrap();
    }
    dump
}

/// The bytes of the tiny SST.
fn written(codec: Codec) -> String {
    let (sim, env) = machine();
    let summary = build(&env, &tiny(), SstOptions { codec, ..SstOptions::default() });
    open(&env, Some(&summary), &FrameCache::new(0)).unwrap();
    dump(&sim.read_file(Path::new(PATH)).unwrap())
}

#[test]
fn the_worked_example_is_what_is_written() {
    let document = include_str!("../../../../docs/format/sst.md");
    let dumps = [Codec::None, Codec::Lz4].map(written);
    for dump in &dumps {
        assert!(document.contains(dump), "the examples should read\n{}\nand\n{}", dumps[0], dumps[1]);
    }
}
