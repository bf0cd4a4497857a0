//! An SST's summary as the manifest writes it. Layout: docs/format/manifest.md.

use pleach_coding::{Decoder, put_bytes, put_varint};
use pleach_table::SstSummary;

use crate::limits::PARTITION_KEY_LEN_MAX;

pub(super) fn encode(summary: &SstSummary, out: &mut Vec<u8>) {
    put_varint(out, summary.file_len);
    put_varint(out, u64::from(summary.tail_len));
    put_varint(out, u64::from(summary.footer_crc));
    put_varint(out, u64::from(summary.data_blocks));
    put_varint(out, summary.entries);
    put_varint(out, summary.tombstones);
    put_varint(out, summary.value_pointers);
    put_varint(out, summary.raw_bytes);
    put_varint(out, summary.filter_bits);
    put_bytes(out, &summary.smallest);
    put_bytes(out, &summary.largest);
}

pub(super) fn decode(rest: &mut Decoder<'_>) -> Option<SstSummary> {
    Some(SstSummary {
        file_len: rest.varint()?,
        tail_len: rest.u32()?,
        footer_crc: rest.u32()?,
        data_blocks: rest.u32()?,
        entries: rest.varint()?,
        tombstones: rest.varint()?,
        value_pointers: rest.varint()?,
        raw_bytes: rest.varint()?,
        filter_bits: rest.varint()?,
        smallest: key(rest)?,
        largest: key(rest)?,
    })
}

fn key(rest: &mut Decoder<'_>) -> Option<Vec<u8>> {
    rest.bytes().filter(|key| key.len() <= PARTITION_KEY_LEN_MAX).map(<[u8]>::to_vec)
}
