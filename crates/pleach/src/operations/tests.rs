//! Operations: what is encoded is decoded, and any bytes give an error or operations within the limits.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Plain = (u32, Vec<u8>, Option<Vec<u8>>);

fn operations(plain: &[Plain]) -> Operations {
    operations_with(plain, LARGE_VALUE_LEN)
}

fn operations_with(plain: &[Plain], large: usize) -> Operations {
    let sizes = ValueSizes { large, separated: usize::MAX, packed: false };
    let mut operations = Operations::default();
    for (partition, key, value) in plain {
        operations.push(PartitionId(*partition), key, value.as_deref(), sizes).unwrap();
    }
    operations
}

fn decoded(payload: &[u8]) -> Result<Vec<Plain>, &'static str> {
    let mut plain = Vec::new();
    Operations::decode(payload, &mut |op| {
        let value = (op.kind == ValueKind::Put).then(|| op.value.to_vec());
        plain.push((op.partition.get(), op.user_key.to_vec(), value));
    })?;
    Ok(plain)
}

#[test]
fn stored_bytes_are_fixed() {
    let batch = operations(&[(1, b"alice".to_vec(), Some(b"1".to_vec())), (258, b"x".to_vec(), None)]);
    assert_eq!(batch.payload(), b"\x01\x01\x05\x01alice1\x02\x82\x02\x01x");
    assert_eq!(batch.count(), 2);
    // Also in docs/format/values.md: the value is as long as the least that is separated.
    let mut separated = Operations::default();
    let sizes = ValueSizes { separated: 9, ..ValueSizes::ALL_SMALL };
    separated.push(PartitionId(1), b"alice", Some(b"a picture"), sizes).unwrap();
    separated.push(PartitionId(1), b"bob", Some(b"a letter"), sizes).unwrap();
    assert_eq!(
        separated.payload(),
        b"\x03\x01\x05\x09alice\x9e\xdf\x15\x51a picture\x01\x01\x03\x08boba letter"
    );
    let mut packed = Operations::default();
    let sizes = ValueSizes { packed: true, ..sizes };
    packed.push(PartitionId(1), b"alice", Some(&[b'a'; 40]), sizes).unwrap();
    assert_eq!(
        packed.payload().escape_ascii().to_string(),
        b"\x04\x01\x05\x0dalice\x3a\xa7\x4d\xcb\x28\x1fa\x01\x00\x0e\x60aaaaaa".escape_ascii().to_string()
    );
}

/// The operations with raw values, and for each the bytes of the stored one.
fn decoded_raw(payload: &[u8]) -> Result<Vec<(Plain, usize)>, &'static str> {
    let mut all = Vec::new();
    Operations::decode_raw(payload, &mut |op| {
        let value = (op.kind != ValueKind::Tombstone).then(|| op.value.to_vec());
        all.push(((op.partition.get(), op.user_key.to_vec(), value), op.stored_len));
    })?;
    Ok(all)
}

/// Packed values, plain ones, large ones and deletes in one batch.
#[test]
fn packed_values_come_back_raw() {
    let noise: Vec<u8> = std::iter::repeat_with({
        let mut rng = fastrand::Rng::with_seed(5);
        move || rng.u8(..)
    })
    .take(300)
    .collect();
    let (same, large) = (vec![7; 300], vec![8; 5000]);
    let plain: Vec<Plain> = [None, Some(&noise), Some(&same), Some(&large), Some(&same)]
        .into_iter()
        .zip(0u8..)
        .map(|(value, n)| (n.into(), vec![n; 3], value.cloned()))
        .collect();
    for large in [4000, usize::MAX] {
        let sizes = ValueSizes { large, separated: 100, packed: true };
        let mut batch = Operations::default();
        for again in 0..2 {
            batch.clear();
            for (partition, key, value) in &plain {
                batch.push(PartitionId(*partition), key, value.as_deref(), sizes).unwrap();
            }
            assert!(batch.is_in_pieces() && batch.payload_len() < batch.copied_len(), "{again}");
            let whole: Vec<u8> = batch.payload_bytes().into_iter().flatten().collect();
            assert_eq!(whole.len(), batch.payload_len());
            let found = decoded_raw(&whole).unwrap();
            assert!(found.iter().map(|(op, _)| op).eq(&plain));
            let footprint = Operations::footprint_of(&whole);
            let of_batch = batch.footprint();
            assert_eq!((footprint.records, of_batch.records), (5, 5));
            assert!(footprint.bytes >= 5900, "raw bytes count");
            assert_eq!(of_batch == footprint, large == usize::MAX);
            let mut expected = found.into_iter();
            batch.for_each(&mut |op| {
                let value = (op.kind != ValueKind::Tombstone).then(|| op.value.to_vec());
                let (plain, stored_len) = expected.next().unwrap();
                assert_eq!((op.partition.get(), op.user_key.to_vec(), value), plain);
                assert_eq!(op.stored_len, stored_len);
                assert_eq!(
                    stored_len < op.value.len(),
                    [2, 3, 4].contains(&plain.0) && op.value.len() < large
                );
                if op.kind == ValueKind::ValuePointer {
                    let stored = &whole[op.value_at..][..stored_len];
                    let of = if stored_len < op.value.len() { packed_checksum } else { checksum };
                    let crc = &whole[op.value_at - CHECKSUM_LEN..op.value_at];
                    assert_eq!(crc, of(op.partition, op.user_key, stored).to_le_bytes());
                }
            });
            assert_eq!(expected.len(), 0);
        }
        let mut taken = Vec::new();
        batch.take_each(&mut |op, large| {
            let value = large.map_or_else(|| op.value.to_vec(), |large| large.bytes().to_vec());
            let value = (op.kind != ValueKind::Tombstone).then_some(value);
            taken.push((op.partition.get(), op.user_key.to_vec(), value));
        });
        assert_eq!(taken, plain);
    }
}

/// Records that ask for much memory are refused before any is taken.
#[test]
fn packed_values_are_limited_together() {
    // As long as a block of 5 MiB can be, but not more than a value.
    let mut op = b"\x04\x01\x01".to_vec();
    put_varint(&mut op, (5 << 20) + 5);
    op.extend_from_slice(b"x\0\0\0\0");
    put_varint(&mut op, VALUE_LEN_MAX as u64);
    op.resize(op.len() + (5 << 20), 0);
    let mut count = 0;
    assert_eq!(Operations::decode(&op.repeat(2), &mut |_| count += 1), Ok(()));
    assert!(Operations::decode(&op.repeat(3), &mut |_| count += 1).is_err());
    assert_eq!(count, 4);
}

#[test]
fn what_is_no_batch_is_refused() {
    for (payload, why) in [
        (&b"\0\x01\x01x"[..], "no kind"),
        (b"\x03\x01\x01\0xcrc", "a separated value without a whole checksum"),
        (b"\x05\x01\x01x", "an unknown kind"),
        (b"\x04\x01\x01\x0cxcrc", "a packed value without a whole checksum"),
        (b"\x04\x01\x01\0x\0\0\0\0", "a packed value without its length"),
        (b"\x04\x01\x01\x03x\0\0\0\0\xff\x02\x1f", "a packed value shorter than any of its length"),
        (b"\x04\x01\x01\x02x\0\0\0\0\x02\x1f", "a packed value as long as the raw one"),
        (b"\x02\x81", "a partition that does not end"),
        (b"\x02\x80\x80\x80\x80\x10\x01x", "a partition above 2^32"),
        (b"\x02\x01\x81\x80\x40x", "a key above the limit"),
        (b"\x01\x01\x01\x81\x80\x80\x80\x02x", "a value above the limit"),
        (b"\x01\x01\x01\x02xv", "a value longer than the rest"),
        (b"\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01x", "a length of 2^64 - 1"),
    ] {
        assert!(decoded(payload).is_err(), "{why}");
    }
    assert_eq!(decoded(b""), Ok(vec![]));
}

#[test]
fn a_batch_stays_below_its_limit() {
    let mut batch = operations(&[(0, b"k".to_vec(), None)]);
    // As if nearly a gibibyte were in it: the check must not need one.
    assert!(batch.has_room_for(BATCH_BYTES_MAX - batch.payload().len()));
    assert!(!batch.has_room_for(BATCH_BYTES_MAX - batch.payload().len() + 1));
    assert!(!batch.has_room_for(usize::MAX));
    let huge = vec![0; VALUE_LEN_MAX + 1];
    assert!(
        batch
            .push(
                PartitionId(0),
                b"k",
                Some(&huge),
                ValueSizes { large: LARGE_VALUE_LEN, separated: 1 << 40, packed: false }
            )
            .is_err()
    );
    assert_eq!(batch.count(), 1);
}

#[test]
fn large_values_lie_apart_and_come_back() {
    let plain: Vec<Plain> = [499, 500, 3, 5_000, 0, 501]
        .iter()
        .zip(0u8..)
        .map(|(&len, n)| (u32::from(n), vec![n; 3], (len > 0).then(|| vec![n; len])))
        .collect();
    let whole = operations(&plain);
    let mut batch = operations_with(&plain, 500);
    assert!(batch.is_in_pieces() && !whole.is_in_pieces());
    assert_eq!((batch.payload_len(), batch.record_len()), (whole.payload_len(), whole.record_len()));
    assert_eq!(batch.footprint().large_bytes, 500 + 5_000 + 501 + 3 * LARGE_FRONT);
    let mut visited = Vec::new();
    batch.for_each(&mut |op| {
        let value = (op.kind == ValueKind::Put).then(|| op.value.to_vec());
        visited.push((op.partition.get(), op.user_key.to_vec(), value));
    });
    assert_eq!(visited, plain);
    let mut taken = Vec::new();
    batch.take_each(&mut |op, large| {
        let value = large.map_or_else(|| op.value.to_vec(), |large| large.bytes().to_vec());
        taken.push((op.partition.get(), op.user_key.to_vec(), (op.kind == ValueKind::Put).then_some(value)));
    });
    assert_eq!(taken, plain);
    assert_eq!(batch.payload_len(), whole.payload_len(), "the length is charged after the commit");
    batch.clear();
    assert!(!batch.is_in_pieces() && batch.payload_len() == 0);
}

proptest! {
    #[test]
    fn batches_come_back(plain in vec((any::<u32>(), vec(any::<u8>(), 1..40), any::<Option<Vec<u8>>>()), 0..20)) {
        let batch = operations(&plain);
        prop_assert_eq!(decoded(batch.payload()), Ok(plain));
        for len in 0..batch.payload().len() {
            // A shorter batch may still be one, never another one.
            let short = decoded(&batch.payload()[..len]).unwrap_or_default();
            prop_assert!(short.len() < batch.count() as usize);
        }
    }

    #[test]
    fn any_bytes_give_an_error_or_operations_within_limits(bytes in vec(any::<u8>(), 0..200)) {
        let mut taken = 0;
        let _any_answer = Operations::decode(&bytes, &mut |op| taken += op.user_key.len() + op.value.len());
        prop_assert!(taken <= bytes.len());
    }
}

/// With and without memory regions, the checksum stands in front of the value, where its place says.
#[test]
fn separated_values_have_a_checksum_in_front() {
    for large in [usize::MAX, 500, 20] {
        let mut batch = Operations::default();
        for (number, len) in (1u8..).zip([20, 19, 600, 700, 0, 30]) {
            let sizes = ValueSizes { large, separated: 20, packed: false };
            batch.push(PartitionId(number.into()), &[number; 3], Some(&vec![number; len]), sizes).unwrap();
        }
        batch.push(PartitionId(9), b"gone", None, ValueSizes { large, separated: 0, packed: false }).unwrap();
        let mut whole = Vec::new();
        let mut rest = batch.payload_bytes();
        while let Some(piece) = rest.pop_front() {
            whole.extend_from_slice(&piece);
        }
        let mut seen = 0;
        let mut check = |op: Operation<'_>, value: &[u8]| {
            seen += 1;
            assert_eq!(op.kind == ValueKind::ValuePointer, value.len() >= 20);
            if op.kind == ValueKind::ValuePointer {
                assert_eq!(&whole[op.value_at..][..value.len()], value);
                let crc = &whole[op.value_at - CHECKSUM_LEN..op.value_at];
                assert_eq!(crc, checksum(op.partition, op.user_key, value).to_le_bytes());
            }
        };
        Operations::decode(&whole, &mut |op| {
            let value = op.value;
            check(op, value);
        })
        .unwrap();
        assert_eq!(Operations::footprint_of(&whole).records, 7);
        batch.for_each(&mut |op| {
            let value = op.value.to_vec();
            check(op, &value);
        });
        batch.take_each(&mut |op, large| {
            let value = large.map_or_else(|| op.value.to_vec(), |large| large.bytes().to_vec());
            check(op, &value);
        });
        assert_eq!(seen, 21);
    }
}

#[test]
fn a_thread_keeps_no_large_value_of_a_failed_batch() {
    let mut batch = operations_with(&[(1, b"k".to_vec(), Some(vec![7; 100]))], 50);
    assert!(!batch.record_mut().is_contiguous());
    batch.keep_memory();
    let kept = Operations::in_kept_memory();
    assert!(kept.record.is_contiguous() && kept.count() == 0 && !kept.is_in_pieces());
    assert!(kept.record.capacity() > 0);
    assert!(KEPT.take().is_none(), "it is kept once");
    operations(&[(1, b"k".to_vec(), Some(vec![7; KEPT_LEN_MAX + 1]))]).keep_memory();
    assert!(KEPT.take().is_none(), "it is too long to be kept");
}
