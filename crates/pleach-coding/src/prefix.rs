//! Prefixes of keys: the length of a common one, the key behind all that have one, and the first bytes as a number.

/// Bytes of a [`head`].
pub const HEAD_LEN: usize = 8;

/// How many bytes `a` and `b` have in common from the start.
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let (a_words, b_words) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let mut len = 0;
    for (a, b) in a_words.iter().zip(b_words) {
        let different = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if different != 0 {
            return len + different.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let (a, b) = (a.get(len..).unwrap_or_default(), b.get(len..).unwrap_or_default());
    len + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The smallest key above every key that starts with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The first eight bytes, padded with zeros, as a number. Numbers compare like their bytes. If two are equal, the bytes behind
/// them decide, or the lengths.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "big-endian numbers compare like the bytes they are made of")]
pub fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<HEAD_LEN>() {
        Some(first) => u64::from_be_bytes(*first),
        None => padded_head(bytes),
    }
}

/// [`head`] of `bytes` without the first `skip` ones.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "as in `head`")]
pub fn head_behind(bytes: &[u8], skip: usize) -> u64 {
    let rest = bytes.get(skip..).unwrap_or_default();
    match bytes.last_chunk::<HEAD_LEN>() {
        // In a word that holds some bytes before them too: a copy of a few bytes is slow to read as a word.
        Some(last) if rest.len() < HEAD_LEN => {
            let others = u32::try_from(HEAD_LEN - rest.len()).expect("at most 8");
            u64::from_be_bytes(*last).checked_shl(8 * others).unwrap_or(0)
        }
        _ => head(rest),
    }
}

/// Not inlined, so that [`head`] is small.
#[expect(clippy::big_endian_bytes, reason = "as in `head`")]
fn padded_head(bytes: &[u8]) -> u64 {
    let mut padded = [0; HEAD_LEN];
    for (to, from) in padded.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(padded)
}

/// The bytes that a [`head`] was made of, and the zeros behind them.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "the bytes the head was made of, in their order")]
pub fn head_bytes(head: u64) -> [u8; HEAD_LEN] {
    head.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(prefix_end(&[0xff, 0xff]), None);
        assert_eq!(prefix_end(b""), None);
    }

    proptest! {
        #[test]
        fn prefixes_are_those_found_byte_by_byte(shared in vec(any::<u8>(), 0..40), a in vec(0..3u8, 0..20), b in vec(0..3u8, 0..20)) {
            let (a, b) = ([&shared[..], &a].concat(), [&shared[..], &b].concat());
            let expected = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(common_prefix_len(&a, &b), expected);
        }

        #[test]
        fn heads_compare_like_keys(a in vec(0..3u8, 0..12), b in vec(0..3u8, 0..12)) {
            if head(&a) != head(&b) {
                prop_assert_eq!(head(&a).cmp(&head(&b)), a.cmp(&b));
            }
            for skip in 0..=a.len() + 2 {
                prop_assert_eq!(head_behind(&a, skip), head(a.get(skip..).unwrap_or_default()));
            }
            let len = a.len().min(HEAD_LEN);
            prop_assert_eq!(&head_bytes(head(&a))[..len], &a[..len]);
        }
    }
}
