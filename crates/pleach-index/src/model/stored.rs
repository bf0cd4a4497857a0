//! The stored form of a model. A decoder checks all parameters, so that no search leaves its blocks or its memory.
//!
//! # On disk
//! Layout: docs/format/sst.md, index block, kind 2.

use pleach_coding::bits::{PADDING, are_last_bits_zero, bits_of, bytes_mask, padded, unpadded, word};
use pleach_coding::{Decoder, Malformed, put_varint};

use super::code::Code;
use super::fine::Fine;
use super::line::{Line, Shape};
use super::record::{BLOCKS_MAX, Record};
use super::starts::Starts;
use super::{Layout, Model};

/// Fields of a segment. Its start is what it has more than the one before; 0 if all segments span equally many codes.
const FIELDS: usize = 5;
const START: usize = 0;
const BLOCKS: usize = 1;
const SLOPE: usize = 2;
const BIAS: usize = 3;
const SHAPE: usize = 4;

/// Numbers of layouts. Never renumber.
const UNEVEN: u8 = 0;
const EVEN: u8 = 1;
const UNEVEN_FINE: u8 = 2;

/// A field of all segments: its least value, and how many bytes the differences to it have.
#[derive(Clone, Copy, Default)]
struct Field {
    least: u64,
    len: usize,
}

impl<C: Code> Model<C> {
    /// Appends the stored form.
    pub(crate) fn store(&self, out: &mut Vec<u8>) {
        put_varint(out, self.segments().into());
        out.extend_from_slice(&self.origin.wide().to_le_bytes());
        let (layout, shift) = match &self.layout {
            Layout::Even { shift } => (EVEN, *shift),
            Layout::Uneven(starts, None) => (UNEVEN, starts.scale()),
            Layout::Uneven(starts, Some(_)) => (UNEVEN_FINE, starts.scale()),
        };
        out.extend([layout, u8::try_from(shift).expect("below 128")]);
        let values: Vec<[u64; FIELDS]> = self.values().collect();
        let fields = fields(&values);
        for field in &fields {
            put_varint(out, zigzag(field.least));
            out.push(u8::try_from(field.len).expect("at most 8"));
        }
        for (value, field) in values.iter().flat_map(|values| values.iter().zip(&fields)) {
            let difference = value.wrapping_sub(field.least).to_le_bytes();
            out.extend_from_slice(difference.get(..field.len).unwrap_or_default());
        }
        let fine = if let Layout::Uneven(_, fine) = &self.layout { fine.as_ref() } else { None };
        out.extend(fine.map(|fine| u8::try_from(fine.bits).expect("below 64")));
        out.extend_from_slice(unpadded(&self.residuals));
        if let Some(fine) = fine {
            fine.store(self.blocks, out);
        }
    }

    /// The fields of each segment.
    fn values(&self) -> impl Iterator<Item = [u64; FIELDS]> {
        let starts = (0..self.segments() as usize).map(|segment| match &self.layout {
            Layout::Even { .. } => 0,
            Layout::Uneven(starts, _) => starts.of(segment),
        });
        let pairs = self.records.windows(2).filter_map(|pair| <&[Record; 2]>::try_from(pair).ok());
        let mut before = 0;
        starts.zip(pairs).map(move |(start, [record, next])| {
            let Line { slope, bias, shape } = record.line();
            let mut values = [0; FIELDS];
            values[START] = start - before;
            values[BLOCKS] = u64::from(next.block() - record.block());
            values[SLOPE] = slope;
            values[BIAS] = bias.cast_unsigned();
            values[SHAPE] = shape.number();
            before = start;
            values
        })
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
        if blocks > BLOCKS_MAX {
            return Err(malformed(&input, "fewer blocks than a model can have"));
        }
        let origin = rest.array().and_then(|bytes| C::narrow(u128::from_le_bytes(bytes)));
        let origin = origin.ok_or(malformed(&input, "the start of the first segment"))?;
        let layout = rest.array().map(|[layout, shift]| (layout, u32::from(shift)));
        let (is_even, is_fine, shift) = match layout {
            Some((kind @ (UNEVEN | UNEVEN_FINE), scale @ 0..64)) => (false, kind == UNEVEN_FINE, scale),
            Some((EVEN, shift @ 1..)) if shift < C::BITS => (true, false, shift),
            _ => return Err(malformed(&rest, "a layout, and a shift within a code")),
        };
        let fields = take_fields(&mut rest).ok_or(malformed(&rest, "fields of at most 8 bytes"))?;
        let record_len: usize = fields.iter().map(|field| field.len).sum();
        let records_len = u64::from(segments) * record_len as u64;
        let records_len = usize::try_from(records_len).ok().filter(|&len| len <= rest.0.len());
        let records_len = records_len.ok_or(malformed(&rest, "records within the index"))?;
        let records = rest.take(records_len).unwrap_or_default();
        let values = Values { bytes: padded(records, 8), at: 0, fields };
        let fine_bits = if is_fine { rest.u8().filter(|bits| (1..64).contains(bits)) } else { Some(0) };
        let fine_bits = fine_bits.ok_or(malformed(&rest, "1 to 63 bits apart"))?.into();
        let read = read_records(values, segments as usize, blocks, is_even, fine_bits);
        let (records, starts, bits) = read.map_err(|expected| malformed(&rest, expected))?;
        let residuals_len = usize::try_from(bits.div_ceil(8)).ok();
        let residuals = residuals_len.and_then(|len| rest.take(len));
        let residuals = residuals.ok_or(malformed(&rest, "as many residuals as boundaries"))?;
        if !are_last_bits_zero(residuals, bits) {
            return Err(malformed(&rest, "zero bits behind the last residual"));
        }
        let fine = is_fine.then(|| Fine::load(fine_bits, blocks, rest.0));
        if fine.as_ref().map_or(!rest.is_empty(), Option::is_none) {
            return Err(malformed(&rest, "as many lower bits as marks, and only zero bits behind"));
        }
        let layout = if is_even {
            Some(Layout::Even { shift })
        } else {
            Starts::new(starts, shift).map(|starts| Layout::Uneven(starts, fine.flatten()))
        };
        let layout = layout.ok_or(malformed(&input, "segments that a table can count"))?;
        Ok(Self::of(origin, blocks, layout, records, padded(residuals, PADDING)))
    }
}

/// The fields of one segment after the other.
struct Values {
    bytes: Box<[u8]>,
    at: usize,
    fields: [Field; FIELDS],
}

impl Iterator for Values {
    type Item = [u64; FIELDS];

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.fields.map(|field| {
            let difference = word(&self.bytes, self.at) & bytes_mask(field.len);
            self.at += field.len;
            field.least.wrapping_add(difference)
        }))
    }
}

/// The records of so many `segments` with these `values`, their starts in the uneven layout, and the bits of all residuals;
/// `fine_bits` of each residual are apart.
///
/// Fields of no bytes may claim millions of segments. So nothing is kept of a segment but its record, and its start where
/// these ascend and therefore have bytes.
fn read_records(
    values: impl Iterator<Item = [u64; FIELDS]>,
    segments: usize,
    blocks: u32,
    is_even: bool,
    fine_bits: u32,
) -> Result<(Vec<Record>, Vec<u64>, u64), &'static str> {
    // In the uneven layout the boundary at the start of a segment has no residual.
    let (implicit, end) = if is_even { (0, blocks - 1) } else { (1, blocks) };
    let mut records = Vec::with_capacity(segments + 1);
    let mut starts = Vec::new();
    let (mut block, mut bit) = (implicit, 0_u64);
    for values in values.take(segments) {
        if !is_even {
            let start = next_start(starts.last().copied(), values[START]);
            starts.push(start.ok_or("starts in ascending order, the first of them 0")?);
        } else if values[START] != 0 {
            return Err("starts of 0 where segments span equally many codes");
        }
        let len = u32::try_from(values[BLOCKS]).ok().filter(|&len| implicit <= len && len <= end - block);
        let len = len.ok_or("segments of all blocks")?;
        let can_be_fine =
            |shape: &Shape| shape.width == 0 || (shape.width > fine_bits && shape.fraction >= fine_bits);
        let shape = Shape::from_number(values[SHAPE]).filter(can_be_fine);
        let shape = shape.ok_or("shifts and widths that a search can use")?;
        let line = Line { slope: values[SLOPE], bias: values[BIAS].cast_signed(), shape };
        let first_bit = u32::try_from(bit).map_err(|_| "residuals of at most 2^32 bits")?;
        let record = Record::new(block, first_bit, line);
        records.push(record.ok_or("a slope of 32 bits, a bias of 24, widths that a search can use")?);
        bit += u64::from(len - implicit) * u64::from(shape.without(fine_bits).width);
        block += len;
    }
    if block == end { Ok((records, starts, bit)) } else { Err("segments of all blocks") }
}

/// The start that is `distance` behind the one before, or the first one; `None` if starts do not ascend from 0.
fn next_start(before: Option<u64>, distance: u64) -> Option<u64> {
    match before {
        None => (distance == 0).then_some(0),
        Some(before) => before.checked_add(distance).filter(|_| distance > 0),
    }
}

/// How `values` are stored.
fn fields(values: &[[u64; FIELDS]]) -> [Field; FIELDS] {
    let mut fields = [Field::default(); FIELDS];
    for (no, field) in fields.iter_mut().enumerate() {
        let of_all = values.iter().filter_map(|values| values.get(no)).map(|value| value.cast_signed());
        let least = of_all.clone().min().unwrap_or(0);
        let greatest = of_all.max().unwrap_or(0);
        let len = bits_of(greatest.wrapping_sub(least).cast_unsigned()).div_ceil(8) as usize;
        *field = Field { least: least.cast_unsigned(), len };
    }
    fields
}

fn take_fields(input: &mut Decoder<'_>) -> Option<[Field; FIELDS]> {
    let mut fields = [Field::default(); FIELDS];
    for field in &mut fields {
        let least = input.varint()?;
        let len = input.u8().map(usize::from).filter(|&len| len <= 8)?;
        *field = Field { least: least >> 1 ^ (least & 1).wrapping_neg(), len };
    }
    Some(fields)
}

/// A number whose upper bits may all be set, so that a varint of it is short.
fn zigzag(number: u64) -> u64 {
    number << 1 ^ (number.cast_signed() >> 63).cast_unsigned()
}
