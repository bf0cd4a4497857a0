//! The bytes of a whole SST, as docs/format/sst.md shows them.

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
        dump += &format!("{:04x}  {}\n", i * 16, hex.join(" "));
    }
    dump
}

#[test]
fn the_worked_example_is_what_is_written() {
    let document = include_str!("../../../../docs/format/sst.md");
    for (codec, title) in [(Codec::None, "uncompressed"), (Codec::Lz4, "LZ4")] {
        let (sim, env) = machine();
        let summary = build(&env, &tiny(), SstOptions { codec, filter_bits_per_key: 10.0 });
        let bytes = sim.read_file(Path::new(PATH)).unwrap();
        let dump = dump(&bytes);
        println!("{title}\n{dump}");
        assert!(document.contains(&dump), "the {title} example should read\n{dump}");
        open(&env, Some(&summary), &FrameCache::new(0)).unwrap();
    }
}
