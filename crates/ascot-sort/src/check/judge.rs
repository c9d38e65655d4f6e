//! Judges of records, selected by layout and keys: they validate parts of a sequence of records, each independently.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use ascot_record::framing::{CsvFraming, FixedFraming, Framing, LineFraming, Partial, PrefixedFraming};
use ascot_record::gensort::{Validation, Validator};
use ascot_record::keys::{
    ByteRangeKey, Compiled, CsvColumn, CsvKeySpec, KeyProgram, compile, compile_csv, compile_ranges,
};
use ascot_record::layout::{Layout, NumberFormat};
use ascot_record::number::to_ordered;
use ascot_record::order::{LastResort, ProgramOrder, RangeOrder, RecordOrder, WriteKey};

use crate::api::{Keys, Result, SortError};
use crate::read::{Inputs, refuse_different};
use crate::records::{Cut, RecordEnds, sample_rows};

/// Judges parts of a sequence of records, each independently.
pub(super) trait Judge: RecordEnds {
    /// Validates whole records.
    fn validate(&self, part: &[u8]) -> Validation;

    /// Combines the validations of two consecutive parts.
    fn combine(&self, part: Validation, next: Validation) -> Validation;

    /// Whether greater keys come first.
    fn descending(&self) -> bool;
}

/// Judges records of any framing by keys of any order. Keys in its validations are normalised.
pub(super) struct Ordered<F, O> {
    framing: F,
    order: O,
    /// Validates records of one length with ascending keys at fixed positions, several times as fast.
    fixed: Option<Validator>,
}

impl<F: Framing, O: RecordOrder> Ordered<F, O> {
    /// For records found by `framing`.
    pub(super) fn new(framing: F, order: O) -> Self {
        Ordered { framing, order, fixed: None }
    }

    fn compare(&self, key: &[u8], before: &[u8]) -> Ordering {
        if self.order.descending() { before.cmp(key) } else { key.cmp(before) }
    }
}

impl Ordered<FixedFraming, RangeOrder<FixedFraming>> {
    /// For records of `len` bytes with ascending keys at these positions.
    pub(super) fn fixed(len: usize, keys: Vec<Range<usize>>) -> Self {
        let framing = FixedFraming(len);
        let fixed = Some(Validator::new(len, keys));
        Ordered { fixed, ..Ordered::new(framing, RangeOrder::whole(framing, false)) }
    }
}

impl<F: Framing + 'static, O: RecordOrder + 'static> RecordEnds for Ordered<F, O> {
    fn record_bytes(&self) -> Option<usize> {
        self.framing.fixed_len()
    }

    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        self.framing.cut(bytes, max_records)
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        self.framing.go_on(part, partial)
    }

    fn completion(&self) -> Option<u8> {
        self.framing.completes()
    }
}

impl<F: Framing + 'static, O: RecordOrder + 'static> Judge for Ordered<F, O> {
    fn validate(&self, part: &[u8]) -> Validation {
        if let Some(fixed) = &self.fixed {
            return fixed.validate(part);
        }
        let mut validation = Validation::default();
        let mut scratch = Vec::new();
        let mut before = Vec::new();
        let mut start = 0;
        while let Some(end) = self.framing.end(part, start) {
            let record = &part[start..end];
            let key = self.order.key(record, &mut scratch);
            if validation.records == 0 {
                validation.first_key = key.to_vec();
            } else {
                validation.note(self.compare(key, &before));
            }
            before.clear();
            before.extend_from_slice(key);
            validation.records += 1;
            validation.checksum = validation.checksum.wrapping_add(crc32fast::hash(record).into());
            start = end;
        }
        validation.last_key = before;
        validation
    }

    fn combine(&self, part: Validation, next: Validation) -> Validation {
        part.combine(next, |first, last| self.compare(first, last))
    }

    fn descending(&self) -> bool {
        self.order.descending()
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;

/// Bytes of the first input from which the columns of CSV and their types are inferred.
const HEAD_BYTES: usize = 256 << 10;

/// The judge of the records of `inputs`, and the inputs without their headers.
pub(super) fn judge(
    layout: Layout,
    keys: &Keys,
    has_header: bool,
    inputs: Inputs,
) -> Result<(Arc<dyn Judge>, Inputs)> {
    let (Layout::Csv { separator, quote }, Keys::Columns(specs)) = (layout, keys) else {
        let inputs = match layout {
            Layout::Lines { delimiter } if has_header => without_headers(inputs, LineFraming(delimiter))?,
            _ => inputs,
        };
        return Ok((judge_without_header(layout, keys)?, inputs));
    };
    let framing = CsvFraming { separator, quote };
    let has_header = has_header || specs.iter().any(|spec| matches!(spec.column, CsvColumn::Name(_)));
    let head = head_of(&inputs, framing, has_header)?;
    let judge = by_key(framing, csv_key(framing, specs, &head, has_header)?);
    if !has_header {
        return Ok((judge, inputs));
    }
    let inputs = without_headers(inputs, framing)?;
    refuse_different(&inputs, framing)?;
    Ok((judge, inputs))
}

/// The beginning of the first input that has rows, or of the first.
fn head_of(inputs: &Inputs, framing: CsvFraming, has_header: bool) -> Result<Vec<u8>> {
    let head = inputs.get(0).map_or(Ok(Vec::new()), |first| first.peek(HEAD_BYTES))?;
    let has_rows = |head: &[u8]| sample_rows(framing, head).len() > usize::from(has_header);
    if has_rows(&head) {
        return Ok(head);
    }
    for other in inputs.iter().skip(1).filter(|input| input.size.is_some_and(|size| size > 0)) {
        let other = other.peek(HEAD_BYTES)?;
        if has_rows(&other) {
            return Ok(other);
        }
    }
    Ok(head)
}

fn without_headers(inputs: Inputs, framing: impl Framing) -> Result<Inputs> {
    inputs.skip_headers(&|head| framing.end(head, 0).unwrap_or(head.len()))
}

fn csv_key(framing: CsvFraming, specs: &[CsvKeySpec], head: &[u8], has_header: bool) -> Result<KeyProgram> {
    let rows = sample_rows(framing, head);
    let (header, rows) = rows.split_at(usize::from(has_header).min(rows.len()));
    let header = header.first().copied();
    Ok(compile_csv(specs, header, framing.separator, framing.quote, rows)?)
}

fn judge_without_header(layout: Layout, keys: &Keys) -> Result<Arc<dyn Judge>> {
    match (layout, keys) {
        (Layout::Fixed { len }, Keys::Ranges(ranges)) => fixed(len, ranges),
        (Layout::Prefixed { width, endian, keyed }, Keys::Ranges(ranges)) => {
            by_ranges(PrefixedFraming { width, endian, keyed }, ranges)
        }
        (Layout::Number(format), Keys::Value { descending }) => Ok(numbers(format, *descending)),
        (Layout::Lines { delimiter }, Keys::Command(options)) => {
            let framing = LineFraming(delimiter);
            Ok(match compile(options)? {
                Compiled::WholeBody { reverse } => {
                    Arc::new(Ordered::new(framing, RangeOrder::whole(framing, reverse)))
                }
                Compiled::Program(program) => by_key(framing, program),
            })
        }
        _ => Err(SortError::Request(format!(
            "these keys do not fit records of format {layout}: lines take -k, csv takes --key COLUMN,..., fixed and \
             prefixed records take --key START..END, numbers take none"
        ))),
    }
}

/// Records of one length, by ranges; if all ascend, with the fast validator.
fn fixed(len: usize, ranges: &[ByteRangeKey]) -> Result<Arc<dyn Judge>> {
    if ranges.iter().any(|range| range.descending || range.start >= range.end) {
        return by_ranges(FixedFraming(len), ranges);
    }
    // Reports a wrong range with the same message as a sort does.
    compile_ranges(ranges, Some(len))?;
    let mut plain: Vec<_> = ranges.iter().map(|range| range.start..range.end.min(len)).collect();
    if plain.is_empty() {
        plain.push(0..len);
    }
    Ok(Arc::new(Ordered::fixed(len, plain)))
}

fn by_ranges<F: Framing + 'static>(framing: F, ranges: &[ByteRangeKey]) -> Result<Arc<dyn Judge>> {
    if ranges.is_empty() {
        return Ok(Arc::new(Ordered::new(framing, RangeOrder::whole(framing, false))));
    }
    let program = compile_ranges(ranges, framing.fixed_len())?;
    Ok(by_key(framing, program))
}

fn numbers(format: NumberFormat, descending: bool) -> Arc<dyn Judge> {
    let framing = FixedFraming(format.kind.width());
    by_key(framing, Value { format, descending })
}

fn by_key<F: Framing + 'static>(framing: F, key: impl WriteKey + 'static) -> Arc<dyn Judge> {
    Arc::new(Ordered::new(framing, ProgramOrder::new(framing, key, LastResort::None)))
}

/// The value of a bare number.
struct Value {
    format: NumberFormat,
    descending: bool,
}

impl WriteKey for Value {
    fn write_key(&self, body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(body);
        let ordered = &mut out[start..];
        to_ordered(ordered, self.format, self.descending);
        // The integer is in native byte order; a key is big-endian.
        if cfg!(target_endian = "little") {
            ordered.reverse();
        }
    }
}
