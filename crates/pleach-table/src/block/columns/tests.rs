//! Tests of columnar blocks: the same answers as rows, fixed bytes, lengths, damage.
#![expect(clippy::big_endian_bytes, reason = "numbers whose order is that of their bytes")]

use pleach_coding::put_varint;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::block::{BlockPacker, BlockType, DataBlock, Header, Packing, validate};
use crate::key_hash;
use crate::sizes::{BLOCK_LEN_MAX, HEADER_LEN, KEY_LEN_MAX};
use crate::value_kind::ValueKind;

type Value = (ValueKind, Vec<u8>);
type Entry = (Vec<u8>, ValueKind, Vec<u8>);

/// Unfolded blocks of the entries, each with its header.
fn pack(entries: &[Entry], packing: Packing, columns: bool) -> Vec<(Vec<u8>, Header)> {
    let mut packer = BlockPacker::new(packing, columns);
    let mut blocks = Vec::new();
    let mut put = |packer: &mut BlockPacker, last: bool| {
        let Some(cut) = (if last { packer.last_cut() } else { packer.next_cut() }) else { return false };
        let mut block = vec![0; HEADER_LEN];
        let block_type = packer.encode(cut, &mut block);
        packer.drain(cut.entries);
        let raw_len = u32::try_from(block.len() - HEADER_LEN).unwrap();
        let header = Header::uncompressed(block_type, u16::try_from(cut.entries).unwrap(), raw_len);
        block[..HEADER_LEN].copy_from_slice(&header.encode());
        let len_max = match packing {
            Packing::Padded => cut.padded_len,
            Packing::Unpadded(len) if cut.entries > 1 => len.max(BLOCK_LEN_MAX),
            Packing::Unpadded(_) => usize::MAX,
        };
        assert!(block.len() <= len_max, "{} bytes in place of {len_max}", block.len());
        blocks.push((block, header));
        true
    };
    for (key, kind, value) in entries {
        packer.push(key, *kind, value, key_hash(0, key));
        while put(&mut packer, false) {}
    }
    put(&mut packer, true);
    blocks
}

fn pointer(segment: u64, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [segment, offset, len] {
        put_varint(&mut bytes, number);
    }
    bytes
}

/// Entries of pointers to values of `len` bytes that lie in key order.
fn in_order(keys: impl IntoIterator<Item = Vec<u8>>, len: u64) -> Vec<Entry> {
    let value = |i| pointer(7, 64 + (len + 4) * i, len);
    (0..).zip(keys).map(|(i, key)| (key, ValueKind::ValuePointer, value(i))).collect()
}

fn dense(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|i| i.to_be_bytes().to_vec())
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 1..6),
        vec(any::<u8>(), 8),
        (0u64..1 << 20).prop_map(|i| i.to_be_bytes().to_vec()),
        (0u32..5000).prop_map(|i| format!("{i:016}").into_bytes()),
        "https://example\\.org/[a-c]{1,9}/[0-9]{0,30}".prop_map(String::into_bytes),
        (1usize..3000).prop_map(|len| vec![b'a'; len]),
        "[0-9a-f]{1,20}".prop_map(String::into_bytes),
    ]
}

/// Keys of one length of decimal or hexadecimal digits behind a few prefixes, perhaps with another key among them.
fn digits() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let prefixes = (1usize..5)
        .prop_flat_map(|len| vec(proptest::string::string_regex(&format!("[A-Z_]{{{len}}}")).unwrap(), 1..4));
    let numbers = prop_oneof![vec(any::<u64>(), 1..300), (1u64..300).prop_map(|count| (0..count).collect())];
    let keys = (prefixes, 1usize..20, any::<bool>(), numbers, vec(keys(), 0..2));
    keys.prop_map(|(prefixes, len, is_hex, numbers, others)| {
        let count = numbers.len();
        let key = |(at, number): (usize, u64)| {
            let digits = if is_hex { format!("{number:020x}") } else { format!("{number:020}") };
            let prefix = &prefixes[at * prefixes.len() / count];
            format!("{prefix}{}", &digits[20 - len..]).into_bytes()
        };
        numbers.into_iter().enumerate().map(key).chain(others).collect()
    })
}

/// Keys of one kind, or of all.
fn key_lists() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one_kind = prop_oneof![
        vec(vec(any::<u8>(), 8), 1..300),
        vec(vec(any::<u8>(), 20), 1..300),
        digits(),
        (any::<u64>(), 1u64..3000).prop_map(|(first, count)| {
            (0..count).map(|i| (first.saturating_add(i)).to_be_bytes().to_vec()).collect()
        }),
        vec(keys(), 1..300),
    ];
    one_kind.prop_map(|mut keys: Vec<Vec<u8>>| {
        keys.sort();
        keys.dedup();
        keys
    })
}

/// Pointers of all kinds, tombstones, and sometimes values of other forms.
fn values() -> impl Strategy<Value = Value> {
    let number = |bits: u32| (0..=bits).prop_flat_map(|bits| 0..=(1u64 << bits) - 1);
    prop_oneof![
        400 => (number(2), number(32), number(20))
            .prop_map(|(segment, offset, len)| (ValueKind::ValuePointer, pointer(segment, offset, len))),
        40 => Just((ValueKind::Tombstone, Vec::new())),
        1 => (number(63), number(32), number(32))
            .prop_map(|(segment, offset, len)| (ValueKind::ValuePointer, pointer(segment, offset, len))),
        1 => vec(any::<u8>(), 0..30).prop_map(|value| (ValueKind::ValuePointer, value)),
        1 => vec(any::<u8>(), 0..30).prop_map(|value| (ValueKind::Put, value)),
    ]
}

/// Short values of one length, and perhaps tombstones, or one of another length.
fn short_values() -> impl Strategy<Value = Vec<Value>> {
    (0usize..70, any::<bool>(), vec(any::<u8>(), 3000), any::<Option<u8>>()).prop_map(
        |(len, has_tombstones, seeds, other)| {
            let of_one_len = |seed: u8| match seed {
                0..20 if has_tombstones => (ValueKind::Tombstone, Vec::new()),
                _ => (ValueKind::Put, vec![seed; len]),
            };
            let mut values: Vec<_> = seeds.into_iter().map(of_one_len).collect();
            if let Some(at) = other {
                values[usize::from(at)] = (ValueKind::Put, vec![at; len + 1]);
            }
            values
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let with = |(keys, values): (Vec<Vec<u8>>, Vec<Value>)| {
        keys.into_iter().zip(values).map(|(key, (kind, value))| (key, kind, value)).collect()
    };
    prop_oneof![
        (key_lists(), 0u64..3000).prop_map(|(keys, len)| in_order(keys, len)),
        (key_lists(), vec(values(), 3000)).prop_map(with),
        (key_lists(), short_values()).prop_map(with),
    ]
}

fn packings() -> impl Strategy<Value = Packing> {
    prop_oneof![Just(Packing::Padded), Just(Packing::COMPRESSED), Just(Packing::Unpadded(BLOCK_LEN_MAX))]
}

/// The entries that the blocks hold; each is found by lookups and by seeks.
fn read_back(blocks: &[(Vec<u8>, Header)]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (bytes, header) in blocks {
        validate(bytes, header).unwrap();
        let block = DataBlock::new(bytes);
        for i in 0..block.count() {
            let entry = block.entry(i);
            let key = [block.prefix(), entry.suffix.bytes(bytes)].concat();
            let hash = key_hash(0, &key);
            assert_eq!(block.find(&key, hash), Some((entry.kind, entry.value.clone())));
            assert!(block.finds(i, &key, hash));
            assert_eq!(block.lower_bound(&key), i);
            assert_eq!(block.lower_bound(&[&key[..], &[0]].concat()), i + 1);
            if i + 1 < block.count() {
                assert_eq!(block.entry_behind(i, &entry.value, 0), block.entry(i + 1));
            }
            entries.push((key, entry.kind, entry.value.bytes(bytes).to_vec()));
        }
    }
    entries
}

proptest! {
    #[test]
    fn packed_entries_come_back(entries in entries(), packing in packings()) {
        prop_assert!(read_back(&pack(&entries, packing, true)) == entries);
        let rows = pack(&entries, packing, false);
        prop_assert!(rows.iter().all(|(_, header)| header.block_type == BlockType::Data));
        prop_assert!(read_back(&rows) == entries);
    }

    /// One block of each layout with the same entries: every search has the same answer.
    #[test]
    fn columns_answer_as_rows(
        entries in entries(),
        others in vec(keys(), 0..50),
        cut in any::<prop::sample::Index>(),
    ) {
        let (bytes, header) = pack(&entries, Packing::Unpadded(BLOCK_LEN_MAX), true).swap_remove(0);
        let count = usize::from(header.count);
        let rows = pack(&entries[..count.min(300)], Packing::Unpadded(60_000), false).swap_remove(0).0;
        let (columns, rows) = (DataBlock::new(&bytes), DataBlock::new(&rows));
        prop_assume!(rows.count() == count);
        let shortened = entries.iter().map(|(key, ..)| key[..=cut.index(key.len())].to_vec());
        let longer = entries.iter().map(|(key, ..)| [&key[..], &[255, 0, 1]].concat());
        for key in others.into_iter().chain(shortened).chain(longer) {
            let hash = key_hash(0, &key);
            prop_assert_eq!(columns.find(&key, hash).map(|(kind, _)| kind), rows.find(&key, hash).map(|(kind, _)| kind));
            prop_assert_eq!(columns.lower_bound(&key), rows.lower_bound(&key));
        }
    }

    #[test]
    fn changed_blocks_are_valid_or_rejected(
        entries in entries(),
        edits in vec((any::<prop::sample::Index>(), any::<bool>(), any::<u8>()), 1..5),
        raw_len in prop_oneof![9 => Just(None), 1 => (0u32..5000).prop_map(Some)],
    ) {
        let (mut block, mut header) = pack(&entries, Packing::Padded, true).swap_remove(0);
        for (at, early, value) in edits {
            let len = block.len() - HEADER_LEN;
            block[HEADER_LEN + at.index(if early { len.min(48) } else { len })] = value;
        }
        header.raw_len = raw_len.unwrap_or(header.raw_len);
        if validate(&block, &header).is_ok() {
            block.truncate(HEADER_LEN + header.raw_len as usize);
            let view = DataBlock::new(&block);
            for i in 0..view.count() {
                let entry = view.entry(i);
                let _any = (entry.suffix.bytes(&block), entry.value.bytes(&block));
            }
            for (key, ..) in &entries {
                view.find(key, key_hash(0, key));
                view.lower_bound(key);
            }
        }
    }
}

#[test]
fn stored_bytes_are_fixed() {
    let entries = in_order((0u8..40).map(|i| vec![b'k', i / 10 * 25, i % 10 * 25]), 1000);
    let (block, header) = pack(&entries, Packing::Padded, true).swap_remove(0);
    assert_eq!((header.block_type, header.count), (BlockType::Columns, 40));
    let fixed =
        b"\x01\0\x02\0\0\0\0\0\x07\0\0\0\0\0\0\0\x40\0\0\0\xec\x03\0\0\xe8\x03\0\0\xfc\x93\x83\0\x09\0\0\0k";
    let keys: Vec<u8> = entries.iter().flat_map(|(key, ..)| key[1..].to_vec()).collect();
    assert_eq!(block[HEADER_LEN..], [&fixed[..], &keys].concat());
}

#[test]
fn stored_bytes_of_packed_keys_and_values_are_fixed() {
    let key = |i: u8| format!("k{:02x}", 3 * i).into_bytes();
    let mut entries: Vec<Entry> = (0..40).map(|i| (key(i), ValueKind::Put, vec![i, 0xaa])).collect();
    (entries[9].1, entries[9].2) = (ValueKind::Tombstone, Vec::new());
    let (block, header) = pack(&entries, Packing::Padded, true).swap_remove(0);
    assert_eq!((header.block_type, header.count), (BlockType::PackedColumns, 40));
    let fixed =
        b"\x01\0\x02\0\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x55\x55\x55\x55\x01\0\0\0k";
    let (alphabet, kinds) = (b"0\x0aa\0", b"\0\x02\0\0\0");
    let keys: Vec<u8> = (0..40).map(|i| 3 * i).collect();
    let values: Vec<u8> = (0..40).flat_map(|i| if i == 9 { [0, 0] } else { [i, 0xaa] }).collect();
    assert_eq!(block[HEADER_LEN..], [&fixed[..], alphabet, kinds, &keys, &values].concat());
    assert!(read_back(&[(block, header)]) == entries);
}

/// Payload bytes an entry, and how many of the blocks are columnar.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn bytes_an_entry(entries: &[Entry]) -> (f64, usize, usize) {
    let blocks = pack(entries, Packing::Padded, true);
    let bytes: usize = blocks.iter().map(|(block, _)| block.len()).sum();
    let columnar = blocks.iter().filter(|(_, header)| header.block_type != BlockType::Data).count();
    (bytes as f64 / entries.len() as f64, columnar, blocks.len())
}

#[test]
fn values_of_one_size_in_key_order_take_no_bytes() {
    let (bytes, columnar, blocks) = bytes_an_entry(&in_order(dense(20_000), 1016));
    assert!(bytes < 2.2, "{bytes:.2} bytes an entry");
    assert_eq!(columnar, blocks);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut keys: Vec<Vec<u8>> = (0..20_000).map(|_| rng.u64(..).to_be_bytes().to_vec()).collect();
    keys.sort();
    let (bytes, ..) = bytes_an_entry(&in_order(keys, 1016));
    assert!(bytes < 8.2, "{bytes:.2} bytes an entry");
}

#[test]
fn puts_and_pointers_of_other_forms_are_in_rows() {
    for (kind, value) in [
        (ValueKind::Put, pointer(1, 2, 3)),
        (ValueKind::ValuePointer, vec![1, 2]),
        (ValueKind::ValuePointer, vec![0x81, 0, 2, 3]),
        (ValueKind::ValuePointer, [pointer(1, 2, 3), vec![0]].concat()),
        (ValueKind::ValuePointer, pointer(1 << 63, 2, 3)),
        (ValueKind::ValuePointer, pointer(1, 1 << 32, 3)),
        (ValueKind::Tombstone, vec![1]),
    ] {
        let mut entries = in_order(dense(100), 1000);
        (entries[50].1, entries[50].2) = (kind, value);
        let blocks = pack(&entries, Packing::Padded, true);
        assert!(blocks.iter().all(|(_, header)| header.block_type == BlockType::Data));
        assert!(read_back(&blocks) == entries);
    }
}

/// A second alphabet has the digits of the first keys, too. The first alphabet had them without having met them.
#[test]
fn digits_behind_letters_that_change_come_back() {
    let keys = (0..10).map(|i| format!("A{i:03}")).chain(["B000".to_owned(), "B001".to_owned()]);
    let entries: Vec<Entry> = keys.map(|key| (key.into_bytes(), ValueKind::Put, vec![7; 8])).collect();
    let blocks = pack(&entries, Packing::Padded, true);
    assert_eq!(blocks[0].1.block_type, BlockType::PackedColumns);
    assert!(read_back(&blocks) == entries);
}

#[test]
fn values_are_in_columns_where_they_save_an_eighth() {
    let entries = |len: usize, is_text: bool| -> Vec<Entry> {
        let key = |i: u64| {
            if is_text {
                format!("{:016}", i * 7919 % 100_003).into_bytes()
            } else {
                [&b"key of 16 "[..], &i.to_be_bytes()[2..]].concat()
            }
        };
        let keys: std::collections::BTreeSet<Vec<u8>> = (0..20_000u64).map(key).collect();
        keys.into_iter().map(|key| (key, ValueKind::Put, vec![b'v'; len])).collect()
    };
    for (len, is_text, per_entry) in
        [(0, true, 3.1), (4, true, 7.1), (8, true, 11.2), (8, false, 10.3), (60, true, 72.0)]
    {
        let entries = entries(len, is_text);
        let (bytes, columnar, blocks) = bytes_an_entry(&entries);
        assert!(bytes < per_entry, "{bytes:.2} bytes an entry with values of {len}");
        // All but a short one at the end.
        assert!(
            if len < 60 { columnar + 1 >= blocks } else { columnar == 0 },
            "{columnar} of {blocks}, {len}"
        );
        let blocks = pack(&entries, Packing::Padded, true);
        assert!(read_back(&blocks) == entries);
    }
}

#[test]
fn tombstones_alone_stay_in_rows() {
    let entries: Vec<Entry> = dense(2000).map(|key| (key, ValueKind::Tombstone, Vec::new())).collect();
    assert_eq!(bytes_an_entry(&entries).1, 0);
}

#[test]
fn a_huge_key_is_a_block_of_its_own() {
    for (before, behind) in [(0, 0), (500, 0), (0, 500), (500, 500)] {
        let low = dense(before);
        let huge = [vec![b'k'; KEY_LEN_MAX]];
        let high = (0..behind).map(|i: u64| (i | 0xff << 56).to_be_bytes().to_vec());
        let entries = in_order(low.chain(huge).chain(high), 5000);
        for packing in [Packing::Padded, Packing::Unpadded(BLOCK_LEN_MAX)] {
            let blocks = pack(&entries, packing, true);
            assert!(read_back(&blocks) == entries);
            assert!(blocks.iter().any(|(block, header)| block.len() > KEY_LEN_MAX && header.count == 1));
        }
    }
}

/// A block of two keys `ka` and `kb`, with these bytes from `at` of the payload on, and `records`.
fn forged(at: usize, bytes: &[u8], records: usize) -> (Vec<u8>, Header) {
    let mut payload = b"\x01\0\x01\0\0\0\0\0\x07\0\0\0\0\0\0\0\x40\0\0\0\xec\x03\0\0\xe8\x03\0\0\xff\xff\xff\xff\x01\0\0\0kab".to_vec();
    payload[at..at + bytes.len()].copy_from_slice(bytes);
    payload.resize(payload.len() + records, 0);
    let header = Header::uncompressed(BlockType::Columns, 2, u32::try_from(payload.len()).unwrap());
    ([&header.encode()[..], &payload].concat(), header)
}

#[test]
fn impossible_fixed_parts_are_refused() {
    let is_valid = |at, bytes: &[u8], records| {
        let (block, header) = forged(at, bytes, records);
        validate(&block, &header).is_ok()
    };
    assert!(is_valid(0, b"\x01\0", 0));
    assert!(is_valid(5, &[32, 32, 32], 24), "parts of 32 bits");
    for (what, at, bytes, records) in [
        ("a prefix behind the payload", 0, &b"\xff\xff"[..], 0),
        ("keys behind the payload", 2, b"\xff\xff", 0),
        ("keys that end before the payload", 2, b"\0\0", 0),
        ("an unknown flag", 4, b"\x04", 0),
        ("a length of keys that vary", 4, b"\x01", 0),
        ("parts of 33 bits", 5, &[33, 0, 0], 9),
        ("parts of 33 bits", 5, &[0, 33, 0], 9),
        ("parts of 255 bits", 5, &[0, 0, 255], 64),
        ("missing records", 5, &[0, 8, 0], 1),
        ("records without bits", 5, &[0, 0, 0], 1),
        ("a segment of 2^63", 15, b"\x80", 0),
        ("a line with a shift of 64", 34, &[64], 0),
        ("a reserved byte", 35, &[1], 0),
    ] {
        assert!(!is_valid(at, bytes, records), "{what}");
    }
}

#[test]
fn impossible_packed_columns_are_refused() {
    let entries: Vec<Entry> =
        (0..40).map(|i| (format!("k{i:02}").into_bytes(), ValueKind::Put, vec![b'v'])).collect();
    let (good, header) = pack(&entries, Packing::Padded, true).swap_remove(0);
    assert_eq!(header.block_type, BlockType::PackedColumns);
    let is_valid = |edits: &[(usize, u8)], header: &Header| {
        let mut block = good.clone();
        for (at, byte) in edits {
            block[HEADER_LEN + at] = *byte;
        }
        validate(&block, header).is_ok()
    };
    assert!(is_valid(&[], &header));
    assert!(!is_valid(&[], &Header { block_type: BlockType::Columns, ..header }), "in a block of pointers");
    for (what, edits) in [
        ("an unknown flag", &[(4, 0x1c)][..]),
        ("packed keys that vary", &[(4, 13), (2, 0)]),
        ("one symbol in a key", &[(2, 1)]),
        ("more symbols than a number has", &[(2, 17)]),
        ("other keys", &[(2, 4)]),
        ("bits of pointers", &[(6, 1)]),
        ("a base of segments", &[(9, 1)]),
        ("a base of offsets", &[(16, 1)]),
        ("a stride", &[(20, 1)]),
        ("longer values", &[(24, 2)]),
        ("values of 4 GiB", &[(24, 255), (25, 255), (26, 255), (27, 255)]),
        ("an alphabet without symbols", &[(38, 0)]),
        ("an alphabet of 17 symbols", &[(38, 17)]),
        ("an alphabet that does not ascend", &[(38, 10), (39, b'1')]),
        ("a second part of a whole alphabet", &[(39, b'a')]),
        ("a reserved byte of the alphabet", &[(40, 1)]),
    ] {
        assert!(!is_valid(edits, &header), "{what}");
    }
}

#[test]
fn a_record_may_lead_beyond_the_last_segment() {
    let bases = [&u64::MAX.to_le_bytes()[..7], b"\x7f\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff"].concat();
    let (mut block, header) = forged(5, &[&[32, 0, 0], &bases[..]].concat(), 8);
    let records_at = block.len() - 8;
    block[records_at..].fill(0xff);
    validate(&block, &header).unwrap();
    let value = DataBlock::new(&block).entry(1).value;
    let segment = (1 << 63) - 1 + u64::from(u32::MAX);
    assert_eq!(value.bytes(&block), pointer(segment, u32::MAX.into(), u32::MAX.into()));
}

#[test]
fn impossible_ends_of_keys_are_refused() {
    let entries = in_order(
        (0..40u8)
            .map(|i| [b"key".repeat(1 + usize::from(i % 2)), vec![b'0' + i]].concat())
            .collect::<std::collections::BTreeSet<_>>(),
        1000,
    );
    let (good, header) = pack(&entries, Packing::Padded, true).swap_remove(0);
    assert_eq!(header.block_type, BlockType::Columns);
    validate(&good, &header).unwrap();
    let ends_at = HEADER_LEN + 36 + 3 + usize::from(header.count);
    let mut refused = 0;
    for at in ends_at..ends_at + 2 * usize::from(header.count) {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut block = good.clone();
            block[at] = byte;
            if validate(&block, &header).is_err() {
                refused += 1;
                continue;
            }
            let view = DataBlock::new(&block);
            (0..view.count()).for_each(|i| assert!(view.entry(i).suffix.bytes(&block).len() <= block.len()));
        }
    }
    assert!(refused > 100);
}
