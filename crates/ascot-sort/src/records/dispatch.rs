//! From a request to the one [`Records`] that serves it. Passes are compiled once for each.

use std::sync::Arc;

use ascot_record::framing::{CsvFraming, FixedFraming, Framing, LineFraming, PrefixedFraming};
use ascot_record::keys::{
    self, ByteRangeKey, Compiled, CsvColumn, CsvKeySpec, KeyColumn, KeyError, KeyOptions,
};
use ascot_record::layout::{Layout, NumberFormat};
use ascot_record::order::{BodyOrder, LastResort, ProgramOrder, RangeOrder};

use super::{Framed, Numbers, Records};
use crate::api::error::SortError;
use crate::api::request::{Keys, SortRequest};
use crate::records::misfits::refuse_fallbacks;

/// Something done with records of whatever kind.
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Does it.
    fn visit<R: Records>(self, records: Arc<R>) -> Self::Output;
}

/// The head of the first input, as far as keys depend on it.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The name of that input.
    pub input: String,
    /// The header, with its end.
    pub header: Option<Vec<u8>>,
    /// Bytes of records behind it; the last may be cut short.
    pub records: Vec<u8>,
}

/// Rows from which the types of CSV columns are inferred.
const SAMPLE_ROWS: usize = 1000;

/// Heads of fewer bytes are whole files.
const SHORT_BYTES: usize = 128 << 10;

/// Makes the records of a request and gives them to `visitor`.
pub fn with_records<V: Visitor>(
    request: &SortRequest,
    head: &Head,
    visitor: V,
) -> Result<V::Output, SortError> {
    match (request.layout, &request.keys) {
        (Layout::Number(format), Keys::Value { descending }) => Ok(numbers(format, *descending, visitor)),
        (Layout::Lines { delimiter }, Keys::Command(options)) => lines(request, delimiter, options, visitor),
        (Layout::Csv { separator, quote }, Keys::Columns(specs)) => {
            let framing = CsvFraming { separator, quote };
            let columns = csv_columns(framing, specs, head)?;
            if request.checks.strict {
                refuse_fallbacks(&columns, &head.input, request.header)?;
            }
            let program = keys::compile_columns(specs, &columns, separator, quote);
            let order = ProgramOrder::new(framing, program, LastResort::None);
            Ok(visitor.visit(Arc::new(Framed::new(framing, order).with_columns(columns))))
        }
        (Layout::Fixed { len }, Keys::Ranges(ranges)) => {
            if let Some(beyond) = ranges.iter().find(|range| range.end != usize::MAX && range.end > len) {
                return Err(SortError::Request(format!(
                    "key {}..{} reaches beyond the record of {len} bytes\n  give a range within 0..{len} (--key), or another length (--format fixed:LEN)",
                    beyond.start, beyond.end
                )));
            }
            ranges_of(FixedFraming(len), ranges, visitor)
        }
        (Layout::Prefixed { width, endian }, Keys::Ranges(ranges)) => {
            ranges_of(PrefixedFraming { width, endian }, ranges, visitor)
        }
        (layout, _) => Err(SortError::Request(format!(
            "these keys do not fit records of format {layout}\n  lines take -k; csv takes --key COLUMN,...; fixed and prefixed take --key START..END; numbers take -r only"
        ))),
    }
}

fn numbers<V: Visitor>(format: NumberFormat, descending: bool, visitor: V) -> V::Output {
    if format.kind.width() == size_of::<u32>() {
        visitor.visit(Arc::new(Numbers::<u32>::new(format, descending)))
    } else {
        visitor.visit(Arc::new(Numbers::<u64>::new(format, descending)))
    }
}

fn lines<V: Visitor>(
    request: &SortRequest,
    delimiter: u8,
    options: &KeyOptions,
    visitor: V,
) -> Result<V::Output, SortError> {
    let framing = LineFraming(delimiter);
    let last_resort = match options.last_resort(request.stable, request.unique) {
        keys::LastResort::InputOrder => LastResort::None,
        keys::LastResort::WholeBody { reverse: false } => LastResort::Bytes,
        keys::LastResort::WholeBody { reverse: true } => LastResort::BytesReversed,
    };
    Ok(match keys::compile(options)? {
        Compiled::WholeBody { reverse } => {
            visitor.visit(Arc::new(Framed::new(framing, BodyOrder::new(framing, reverse))))
        }
        Compiled::Program(program) => {
            visitor.visit(Arc::new(Framed::new(framing, ProgramOrder::new(framing, program, last_resort))))
        }
    })
}

fn ranges_of<F: Framing + 'static, V: Visitor>(
    framing: F,
    ranges: &[ByteRangeKey],
    visitor: V,
) -> Result<V::Output, SortError> {
    // Records of one length were held against the ranges before.
    let reach = |range: &ByteRangeKey| if range.end == usize::MAX { range.start } else { range.end };
    let reach = ranges.iter().map(reach).max().filter(|_| framing.fixed_len().is_none()).unwrap_or(0);
    Ok(match ranges {
        [] => visitor.visit(Arc::new(Framed::new(framing, BodyOrder::new(framing, false)))),
        [range] => {
            let order = RangeOrder::new(framing, range.start..range.end, range.descending, LastResort::None);
            visitor.visit(Arc::new(Framed::new(framing, order).with_least_body(reach)))
        }
        several => {
            let program = keys::compile_ranges(several, framing.fixed_len())?;
            let order = ProgramOrder::new(framing, program, LastResort::None);
            visitor.visit(Arc::new(Framed::new(framing, order).with_least_body(reach)))
        }
    })
}

fn csv_columns(framing: CsvFraming, specs: &[CsvKeySpec], head: &Head) -> Result<Vec<KeyColumn>, SortError> {
    let header = head.header.as_deref().map(|header| framing.body(header));
    let columns = |specs: &[CsvKeySpec], rows: &[&[u8]]| {
        keys::csv_columns(specs, header, framing.separator, framing.quote, rows)
    };
    if header.is_none() && head.records.is_empty() {
        // Nothing but empty files: any column will do.
        let first = |spec: &CsvKeySpec| CsvKeySpec { column: CsvColumn::Number(1), ..spec.clone() };
        return Ok(columns(&specs.iter().map(first).collect::<Vec<_>>(), &[])?);
    }
    columns(specs, &sample_rows(framing, &head.records)).map_err(|error| match error {
        KeyError::ColumnBeyond { .. } | KeyError::ColumnBeyondRows { .. } => {
            SortError::Request(format!("{}: {error}", head.input))
        }
        error => error.into(),
    })
}

/// The first rows of `records`, without their ends: those that types are inferred from.
pub fn sample_rows(framing: CsvFraming, records: &[u8]) -> Vec<&[u8]> {
    let mut rows = Vec::new();
    let mut start = 0;
    while let (Some(end), true) = (framing.end(records, start), rows.len() < SAMPLE_ROWS) {
        rows.push(framing.body(&records[start..end]));
        start = end;
    }
    // Of a short file also a last row that lacks its end.
    if rows.len() < SAMPLE_ROWS && records.len() < SHORT_BYTES && start < records.len() {
        rows.push(framing.body(&records[start..]));
    }
    rows
}
