//! The bytes of a whole SST, as docs/format/sst.md shows them.

use std::fmt::Write;
use std::path::Path;

use pleach_coding::put_varint;
use pleach_table::{Codec, FrameCache, IndexChoice, SstOptions, ValueKind};

use crate::support::{Entries, PATH, build, learned, machine, open, options};

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

/// Keys that become numbers, each in a block of its own.
fn regular() -> Entries {
    let value = || (ValueKind::Put, vec![0; 4000]);
    (0..7u32).map(|i| (format!("k{:03}", i * i * 10).into_bytes(), value())).collect()
}

/// Keys each in a compressed block of its own, whose lengths differ.
fn uneven() -> Entries {
    let value = |len| (ValueKind::Put, vec![0; len]);
    [9000, 16_000, 12_000, 10_000].into_iter().zip(b'a'..).map(|(len, key)| (vec![key], value(len))).collect()
}

/// Pointers to values of 1000 bytes in key order, and a tombstone.
fn pictures() -> Entries {
    let pointer = |i: u64| {
        let mut bytes = Vec::new();
        for number in [7, 64 + 1004 * i, 1000] {
            put_varint(&mut bytes, number);
        }
        (ValueKind::ValuePointer, bytes)
    };
    let mut entries: Entries = (0..6).map(|i| (format!("k{i}").into_bytes(), pointer(i))).collect();
    entries.insert(b"k6".to_vec(), (ValueKind::Tombstone, Vec::new()));
    entries
}

/// The bytes of an SST of `entries`.
fn written(entries: &Entries, options: SstOptions) -> String {
    let (sim, env) = machine();
    let summary = build(&env, entries, options);
    open(&env, Some(&summary), &FrameCache::new(0)).unwrap();
    dump(&sim.read_file(Path::new(PATH)).unwrap())
}

#[test]
fn the_worked_example_is_what_is_written() {
    let document = include_str!("../../../../docs/format/sst.md");
    let no_filter = SstOptions { filter_bits_per_key: 0.0, ..learned() };
    for dump in [
        written(&tiny(), options(Codec::None)),
        written(&tiny(), options(Codec::Lz4)),
        written(&regular(), no_filter),
        written(&uneven(), SstOptions { codec: Codec::Lz4, index: IndexChoice::Separators, ..no_filter }),
        written(&pictures(), SstOptions { filter_bits_per_key: 0.0, ..options(Codec::Lz4) }),
    ] {
        assert!(document.contains(&dump), "an example should read\n{dump}");
    }
}
