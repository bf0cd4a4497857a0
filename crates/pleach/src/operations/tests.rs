//! Operations: what is encoded is decoded, and any bytes give an error or operations within the limits.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Plain = (u32, Vec<u8>, Option<Vec<u8>>);

fn operations(plain: &[Plain]) -> Operations {
    operations_with(plain, LARGE_VALUE_LEN)
}

fn operations_with(plain: &[Plain], large_len: usize) -> Operations {
    let mut operations = Operations::default();
    for (partition, key, value) in plain {
        operations.push(PartitionId(*partition), key, value.as_deref(), large_len).unwrap();
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
}

#[test]
fn what_is_no_batch_is_refused() {
    for (payload, why) in [
        (&b"\0\x01\x01x"[..], "no kind"),
        (b"\x03\x01\x01\0x", "a value pointer"),
        (b"\x04\x01\x01x", "an unknown kind"),
        (b"\x02\x01\0", "an empty key"),
        (b"\x02\x81", "a partition that does not end"),
        (b"\x02\x80\x80\x80\x80\x10\x01x", "a partition above 2^32"),
        (b"\x02\x01\x80\x80\x04x", "a key above the limit"),
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
    assert!(batch.push(PartitionId(0), b"k", Some(&huge), LARGE_VALUE_LEN).is_err());
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
    assert!(batch.has_large() && !whole.has_large());
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
    assert!(!batch.has_large() && batch.payload_len() == 0);
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
