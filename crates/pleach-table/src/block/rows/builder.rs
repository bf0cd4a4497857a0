//! Encoding of blocks in rows.

use pleach_coding::{common_prefix_len, put_varint};

use super::PREFIX_LEN_MAX;
use crate::block::waiting::{Waiting, WaitingEntries};
use crate::value_kind::ValueKind;

/// Appends the payload of a block of the first `entries`.
pub(crate) fn encode(waiting: &WaitingEntries, entries: usize, out: &mut Vec<u8>) {
    let last_key = waiting.key(entries - 1);
    let prefix_len = common_prefix_len(waiting.key(0), last_key).min(PREFIX_LEN_MAX);
    out.extend_from_slice(&u16::try_from(prefix_len).expect("at most PREFIX_LEN_MAX").to_le_bytes());
    out.extend_from_slice(&last_key[..prefix_len]);
    out.extend(waiting.first(entries).iter().map(|entry| entry.tag));
    let offsets_at = out.len();
    out.resize(offsets_at + 2 * entries, 0);
    let entries_at = out.len();
    for i in 0..entries {
        let offset = u16::try_from(out.len() - entries_at).expect("only the first entry may be long");
        out[offsets_at + 2 * i..][..2].copy_from_slice(&offset.to_le_bytes());
        let suffix = &waiting.key(i)[prefix_len..];
        put_varint(out, suffix.len() as u64);
        put_varint(out, waiting.get(i).value_word().into());
        out.extend_from_slice(suffix);
        out.extend_from_slice(waiting.value(i));
    }
}

/// Appends the payload of a block of one entry, without the value, which follows it.
///
/// Guarantees: the same bytes as [`encode`] for a single entry.
pub(crate) fn encode_alone(key: &[u8], kind: ValueKind, value_len: usize, hash: u64, out: &mut Vec<u8>) {
    let entry = Waiting::new(0, key, kind, value_len, hash);
    let (prefix, suffix) = key.split_at(key.len().min(PREFIX_LEN_MAX));
    out.extend_from_slice(&u16::try_from(prefix.len()).expect("at most PREFIX_LEN_MAX").to_le_bytes());
    out.extend_from_slice(prefix);
    out.push(entry.tag);
    out.extend_from_slice(&[0, 0]); // Its offset.
    put_varint(out, suffix.len() as u64);
    put_varint(out, entry.value_word().into());
    out.extend_from_slice(suffix);
}
