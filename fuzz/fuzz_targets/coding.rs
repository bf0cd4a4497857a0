//! Numbers, length-prefixed bytes, prefixes of keys and their reversed forms, from any bytes.
#![no_main]

use pleach_coding::{
    Decoder, common_prefix_len, decode_reversed, encode_reversed, head, put_bytes, put_varint, take_varint,
    take_varint_u32, varint_len,
};
use pleach_fuzz::Input;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    match input.byte() % 4 {
        0 => decode(input.0),
        1 => varints(input.0),
        2 => reversed(input.0),
        _ => {
            let len = usize::from(input.byte());
            keys(input.bytes(len), input.0);
        }
    }
});

/// Encoding a decoded value gives the same bytes, if they were the fewest that the value takes.
fn varints(bytes: &[u8]) {
    let Some((value, len)) = take_varint(bytes) else {
        assert_eq!(take_varint_u32(bytes), None);
        return;
    };
    assert!(len <= bytes.len() && varint_len(value) <= len);
    let mut encoded = Vec::new();
    put_varint(&mut encoded, value);
    assert_eq!(encoded.len(), varint_len(value));
    assert_eq!(take_varint(&encoded), Some((value, encoded.len())));
    let small = u32::try_from(value).ok().filter(|_| len <= 5);
    assert_eq!(take_varint_u32(bytes), small.map(|small| (small, len)));
}

/// Bytes that are a form are that of one key; the forms of two keys have the reverse order.
fn reversed(bytes: &[u8]) {
    let mut key = Vec::new();
    if decode_reversed(bytes, 1 << 12, &mut key).is_ok() {
        let mut form = Vec::new();
        encode_reversed(&key, &mut form);
        assert_eq!(form, bytes);
    }
    assert!(key.len() <= 1 << 12);
    let (a, b) = bytes.split_at(bytes.len() / 2);
    let [mut a_form, mut b_form] = [Vec::new(), Vec::new()];
    encode_reversed(a, &mut a_form);
    encode_reversed(b, &mut b_form);
    assert_eq!(a_form.cmp(&b_form), b.cmp(a));
    key.clear();
    assert_eq!(decode_reversed(&a_form, a.len(), &mut key), Ok(()));
    assert_eq!(key, a);
}

/// A decoder takes what it returns, and nothing where it returns nothing.
fn decode(bytes: &[u8]) {
    let mut rest = Decoder(bytes);
    while let Some(what) = rest.u8() {
        let before = rest;
        let is_some = match what % 8 {
            0 => rest.varint().is_some(),
            1 => rest.u32().is_some(),
            2 => rest.usize().is_some(),
            3 => rest.array::<8>().is_some(),
            4 => rest.take(usize::from(what)).is_some(),
            5 => rest.fixed_u16().is_some(),
            6 => rest.fixed_u32().is_some(),
            _ => rest.bytes().is_some_and(|taken| {
                let mut encoded = Vec::new();
                put_bytes(&mut encoded, taken);
                assert_eq!(Decoder(&encoded).bytes(), Some(taken));
                true
            }),
        };
        assert!(before.0.ends_with(rest.0));
        assert!(is_some || rest.0.len() == before.0.len());
    }
}

/// Eight bytes at a time say the same as byte by byte.
fn keys(a: &[u8], b: &[u8]) {
    let len = common_prefix_len(a, b);
    assert_eq!(a[..len], b[..len]);
    assert!(a.get(len).is_none() || a.get(len) != b.get(len));
    if head(a) != head(b) {
        assert_eq!(head(a).cmp(&head(b)), a.cmp(b));
    }
}
