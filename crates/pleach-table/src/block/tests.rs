//! Tests of data blocks: round trips, fixed bytes, damage.

use proptest::prelude::*;

use super::*;
use crate::key_hash;
use crate::sizes::{BLOCK_LEN_MAX, HEADER_LEN, KEY_LEN_MAX, PAGE};
use crate::value_kind::ValueKind;

type Entries = Vec<(Vec<u8>, ValueKind, Vec<u8>)>;

/// Unfolded blocks of the entries, each with its header, and how long they are stored.
fn pack(entries: &Entries, packing: Packing) -> Vec<(Vec<u8>, Header, usize)> {
    let mut packer = BlockPacker::new(packing, true);
    let mut blocks = Vec::new();
    let mut put = |packer: &mut BlockPacker, cut: Cut| {
        let mut block = vec![0; HEADER_LEN];
        let block_type = packer.encode(cut, &mut block);
        packer.drain(cut.entries);
        let raw_len = u32::try_from(block.len() - HEADER_LEN).unwrap();
        let header = Header::uncompressed(block_type, u16::try_from(cut.entries).unwrap(), raw_len);
        block[..HEADER_LEN].copy_from_slice(&header.encode());
        assert!(
            packing != Packing::Padded
                || (block.len() <= cut.padded_len && cut.padded_len.is_multiple_of(PAGE))
        );
        blocks.push((block, header, cut.padded_len));
    };
    for (key, kind, value) in entries {
        packer.push(key, *kind, value, key_hash(0, key));
        while let Some(cut) = packer.next_cut() {
            put(&mut packer, cut);
        }
    }
    if let Some(cut) = packer.last_cut() {
        put(&mut packer, cut);
    }
    blocks
}

fn read_back(blocks: &[(Vec<u8>, Header, usize)]) -> Entries {
    let mut entries = Vec::new();
    for (bytes, header, _) in blocks {
        validate(bytes, header).unwrap();
        let block = DataBlock::new(bytes);
        for i in 0..block.count() {
            let entry = block.entry(i);
            let key = [block.prefix(), entry.suffix.bytes(bytes)].concat();
            assert_eq!(block.find(&key, key_hash(0, &key)), Some((entry.kind, entry.value.clone())));
            assert_eq!(block.lower_bound(&key), i);
            assert_eq!(block.lower_bound(&[&key[..], &[0]].concat()), i + 1);
            entries.push((key, entry.kind, entry.value.bytes(bytes).to_vec()));
        }
    }
    entries
}

fn entries() -> impl Strategy<Value = Entries> {
    let key = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..6),
        "[ab]{1,9}".prop_map(String::into_bytes),
        (1usize..3000).prop_map(|len| vec![b'a'; len]),
    ];
    let value_len = prop_oneof![5 => 0usize..300, 2 => 300usize..3000, 1 => 3000usize..30_000];
    proptest::collection::btree_map(key, value_len, 1..200)
        .prop_map(|map| map.into_iter().map(|(key, len)| (key, ValueKind::Put, vec![b'v'; len])).collect())
}

proptest! {
    #[test]
    fn packed_entries_come_back(entries in entries(), packing in prop_oneof![
        Just(Packing::Padded), Just(Packing::COMPRESSED), Just(Packing::Unpadded(BLOCK_LEN_MAX))
    ]) {
        prop_assert!(read_back(&pack(&entries, packing)) == entries);
    }

    #[test]
    fn changed_blocks_are_valid_or_rejected(
        entries in entries(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let (mut block, header, _) = pack(&entries, Packing::Padded).swap_remove(0);
        for (at, value) in edits {
            let at = HEADER_LEN + at.index(block.len() - HEADER_LEN);
            block[at] = value;
        }
        if validate(&block, &header).is_ok() {
            let view = DataBlock::new(&block);
            for i in 0..view.count() {
                let entry = view.entry(i);
                let _any = (entry.suffix.bytes(&block), entry.value.bytes(&block));
            }
            view.find(&entries[0].0, key_hash(0, &entries[0].0));
            view.lower_bound(&entries[0].0);
        }
    }
}

#[test]
fn stored_bytes_are_fixed() {
    let entries = vec![
        (b"apple".to_vec(), ValueKind::Put, b"red".to_vec()),
        (b"apricot".to_vec(), ValueKind::Tombstone, vec![]),
    ];
    let (block, _, padded_len) = pack(&entries, Packing::Padded).swap_remove(0);
    assert_eq!(padded_len, PAGE);
    let tags = [crate::hash::tag_of(key_hash(0, b"apple")), crate::hash::tag_of(key_hash(0, b"apricot"))];
    let expected = [
        b"\0\0\0\0\x00\x01\x02\0\x19\0\0\0\x19\0\0\0\x02\0ap".as_slice(),
        &tags,
        b"\0\0\x08\0\x03\x0dplered\x05\x02ricot",
    ];
    assert_eq!(block, expected.concat());
}

#[test]
fn a_sealed_block_belongs_to_its_file_and_offset() {
    let (mut block, header, _) =
        pack(&vec![(b"k".to_vec(), ValueKind::Put, vec![7; 50])], Packing::Padded).remove(0);
    let id = pleach_env::FileId;
    seal(&mut block, id(3), 8192);
    let check = |block: &[u8], file, offset| {
        check(block, file, offset, DATA_TYPES, "sst.block.crc").map(|(header, _)| header)
    };
    assert_eq!(check(&block, id(3), 8192).unwrap(), header);
    assert!(check(&block, id(4), 8192).is_err());
    assert!(check(&block, id(3), 4096).is_err());
    assert!(check(&[0; 4096], id(0), 0).is_err(), "zeros are no block");
    for bit in 0..block.len() * 8 {
        let mut damaged = block.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&damaged, id(3), 8192).is_err(), "bit {bit}");
    }
}

/// Share of an uncompressed SST's data that is padding.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn padding_share(value_len: usize, spread: usize) -> f64 {
    let mut rng = fastrand::Rng::with_seed(1);
    let entries: Entries = (0..20_000)
        .map(|i| {
            let len = value_len - spread + rng.usize(..=2 * spread);
            (format!("user{i:012}").into_bytes(), ValueKind::Put, vec![0; len])
        })
        .collect();
    let blocks = pack(&entries, Packing::Padded);
    let stored: usize = blocks.iter().map(|(_, _, len)| len).sum();
    let used: usize = blocks.iter().map(|(block, ..)| block.len()).sum();
    let mean = stored as f64 / blocks.len() as f64 / PAGE as f64;
    let loss = (stored - used) as f64 / stored as f64;
    println!("values of {value_len} +-{spread}: padding {:.2} %, {mean:.2} pages a block", loss * 100.0);
    loss
}

#[test]
fn padding_stays_small() {
    for len in [50, 100, 200, 400, 700, 1000, 1300, 1500, 2000, 2500, 3000, 3500, 4000] {
        // Of values of 3500 bytes no number of pages up to four holds more than one each.
        let bound = if len == 3500 { 0.14 } else { 0.125 };
        assert!(padding_share(len, 0) <= bound, "values of {len}");
        assert!(padding_share(len, len / 2) <= 0.125, "values of {len}, spread");
    }
}

/// Stored share of the raw size when blocks of so many bytes are compressed.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn compressed_share(entries: &Entries, raw_target: usize) -> f64 {
    let blocks = pack(entries, Packing::Unpadded(raw_target));
    let stored: usize = blocks
        .iter()
        .map(|(block, ..)| HEADER_LEN + lz4_flex::block::compress(&block[HEADER_LEN..]).len())
        .sum();
    let raw: usize = entries.iter().map(|(key, _, value)| key.len() + value.len()).sum();
    stored as f64 / raw as f64
}

#[test]
fn longer_blocks_compress_better() {
    let mut rng = fastrand::Rng::with_seed(1);
    let half_random = |rng: &mut fastrand::Rng| [[0u8; 50].map(|_| rng.u8(..)), [b'x'; 50]].concat();
    let record = |rng: &mut fastrand::Rng| {
        let (age, city) = (rng.u8(..100), rng.choice(["Berlin", "Lagos", "Quito", "Osaka"]).unwrap());
        format!(
            r#"{{"id":{},"age":{age},"city":"{city}","email":"u{}@example.org"}}"#,
            rng.u32(..),
            rng.u16(..)
        )
        .into_bytes()
    };
    let mut entries = |value: &dyn Fn(&mut fastrand::Rng) -> Vec<u8>| -> Entries {
        (0..20_000).map(|i| (format!("user{i:012}").into_bytes(), ValueKind::Put, value(&mut rng))).collect()
    };
    for (name, entries) in [("half random", entries(&half_random)), ("records", entries(&record))] {
        let shares = [4, 8, 16, 32].map(|kib| compressed_share(&entries, (kib << 10).min(65_000)));
        println!("{name}: {shares:.3?} of the raw size in blocks of 4, 8, 16, 32 KiB");
        assert!(shares.is_sorted_by(|a, b| a > b));
    }
}

#[test]
fn an_entry_alone_has_the_bytes_of_a_block_of_one() {
    for key_len in [1, 20, KEY_LEN_MAX] {
        for value_len in [0, 1, 100, 5000, 70_000] {
            let (key, value) = (vec![b'k'; key_len], vec![b'v'; value_len]);
            let hash = key_hash(0, &key);
            let mut packer = BlockPacker::new(Packing::Padded, true);
            packer.push(&key, ValueKind::Put, &value, hash);
            let (mut packed, mut alone) = (Vec::new(), Vec::new());
            let cut = packer.next_cut().or_else(|| packer.last_cut()).unwrap();
            packer.encode(cut, &mut packed);
            encode_alone(&key, ValueKind::Put, value_len, hash, &mut alone);
            alone.extend_from_slice(&value);
            assert!(packed == alone, "a key of {key_len} bytes, a value of {value_len}");
        }
    }
}

/// The tag is a byte of the hash, so another key may have it.
#[test]
fn a_key_that_differs_only_in_the_common_prefix_is_not_found() {
    let key = |i: u8| format!("prefix-{i}").into_bytes();
    let entries: Entries = (0..4).map(|i| (key(i), ValueKind::Put, vec![i])).collect();
    let blocks = pack(&entries, Packing::Padded);
    let block = DataBlock::new(&blocks[0].0);
    assert_eq!((block.count(), block.prefix()), (4, &b"prefix-"[..]));
    let hash = key_hash(0, &key(1));
    assert!(block.find(&key(1), hash).is_some());
    for other in ["Prefix-1", "prefix_1", "prefix-7", "refix-1", "1"] {
        assert_eq!(block.find(other.as_bytes(), hash), None, "{other}");
    }
}
