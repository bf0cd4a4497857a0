//! The stored form of a model. A decoder checks all parameters, so that no search leaves its blocks or its memory.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block, kind 2.

use pleach_coding::{Decoder, Malformed, put_varint};

use super::bits::{PADDING, padded, unpadded};
use super::code::Code;
use super::line::Shape;
use super::{BLOCK, FIELDS, Field, Model, RESIDUALS, SHAPE, START, STRIDE_MAX, Table};

impl<C: Code> Model<C> {
    /// Appends the stored form.
    pub(crate) fn store(&self, out: &mut Vec<u8>) {
        put_varint(out, self.segments.into());
        out.extend_from_slice(&self.origin.wide().to_le_bytes());
        out.push(u8::try_from(self.scale).expect("below 64"));
        for field in &self.fields {
            put_varint(out, zigzag(field.base));
            out.push(u8::try_from(field.len()).expect("at most 8"));
        }
        out.extend_from_slice(unpadded(&self.bytes));
    }

    /// Decodes the model of an SST of `blocks` blocks from the rest of `input`; `offset` tells how far `input` has come.
    pub(crate) fn load(
        input: Decoder<'_>,
        blocks: u32,
        offset: impl Fn(&Decoder<'_>) -> usize,
    ) -> Result<Self, Malformed> {
        let mut rest = input;
        let malformed = |rest: &Decoder<'_>, expected| Malformed::new(offset(rest), expected);
        let segments = rest.u32().filter(|&segments| 0 < segments && segments < blocks);
        let segments = segments.ok_or(malformed(&input, "fewer segments than blocks"))?;
        let origin = rest.array().and_then(|bytes| C::narrow(u128::from_le_bytes(bytes)));
        let origin = origin.ok_or(malformed(&input, "the start of the first segment"))?;
        let scale = rest.u8().map(u32::from).filter(|&scale| scale < 64);
        let scale = scale.ok_or(malformed(&rest, "a scale below 64"))?;
        let (fields, stride) =
            take_fields(&mut rest).ok_or(malformed(&rest, "fields of at most 8 bytes, 31 in all"))?;
        let records_len = (u64::from(segments) + 1) * stride as u64;
        let residuals_at = records_len * 8;
        let bits = rest.0.len() as u64 * 8;
        if residuals_at > bits {
            return Err(malformed(&rest, "records within the index"));
        }
        let mut model = Self {
            blocks,
            segments,
            origin,
            scale,
            candidates: 1,
            fields,
            stride,
            bytes: padded(rest.0, PADDING),
            residuals_at,
            table: Table::over(&[0], stride),
        };
        let starts = model.ascending_starts();
        let starts = starts.ok_or(malformed(&rest, "starts in ascending order, the first of them 0"))?;
        model.table = Table::over(&starts, stride);
        model.candidates = model.check_records(bits - residuals_at).map_err(|e| malformed(&rest, e))?;
        Ok(model)
    }

    /// All starts, if they ascend from 0.
    fn ascending_starts(&self) -> Option<Vec<u64>> {
        let mut starts = Vec::new();
        for segment in 0..self.segments as usize {
            let start = self.field(segment, START);
            let is_behind = starts.last().map_or(start == 0, |&last| last < start);
            starts.push(is_behind.then_some(start)?);
        }
        Some(starts)
    }

    /// The most candidates of a window. An error message if a record leaves the blocks, or its residuals the `bits` that there
    /// are.
    fn check_records(&self, bits: u64) -> Result<u32, &'static str> {
        let (mut block, mut end, mut most) = (1, 0_u64, 1);
        for segment in 0..self.segments as usize {
            let next = self.field(segment + 1, BLOCK);
            if self.field(segment, BLOCK) != block || next <= block || next > self.blocks.into() {
                return Err("segments that follow each other");
            }
            let shape = Shape::from_number(self.field(segment, SHAPE));
            let width = u64::from(shape.width);
            if !shape.is_usable() {
                return Err("shifts and widths that a search can use");
            }
            if self.field(segment, RESIDUALS) != end.wrapping_sub(width) {
                return Err("residuals that follow each other");
            }
            end += (next - block - 1) * width;
            block = next;
            most = most.max(shape.candidates());
        }
        if block != self.blocks.into() {
            return Err("segments of all blocks");
        }
        if end > bits || bits - end >= 8 {
            return Err("as many residuals as boundaries");
        }
        Ok(most)
    }
}

/// The fields of a record, and its bytes.
fn take_fields(input: &mut Decoder<'_>) -> Option<([Field; FIELDS], usize)> {
    let mut fields = [Field::default(); FIELDS];
    let mut offset = 0;
    for field in &mut fields {
        let base = input.varint()?;
        let len = input.u8().map(usize::from).filter(|&len| len <= 8)?;
        *field = Field::new(base >> 1 ^ (base & 1).wrapping_neg(), len, offset);
        offset += len;
    }
    (offset <= STRIDE_MAX).then_some((fields, offset))
}

/// A number whose upper bits may all be set, so that a varint of it is short.
fn zigzag(number: u64) -> u64 {
    number << 1 ^ (number.cast_signed() >> 63).cast_unsigned()
}
