//! Selects the `Records` for a request. Passes are compiled once for each kind of `Records`.

use std::sync::Arc;

use ascot_record::framing::{CsvFraming, FixedFraming, Framing, LineFraming, PrefixedFraming};
use ascot_record::keys::{
    self, ByteRangeKey, Compiled, CsvColumn, CsvKeySpec, KeyColumn, KeyError, KeyProgram,
};
use ascot_record::layout::{Layout, NumberFormat};
use ascot_record::order::{LastResort, ProgramOrder, RangeOrder};

use super::{Framed, Numbers};
use crate::api::{Keys, Result, SortError, SortRequest};
use crate::records::misfits::refuse_fallbacks;

/// The head of the first input, as much of it as keys depend on.
#[derive(Clone, Debug, Default)]
pub struct InputHead {
    /// The name of that input.
    pub input: String,
    /// The header, with its terminator.
    pub header: Option<Vec<u8>>,
    /// Bytes of records after it; the last record may be cut short.
    pub records: Vec<u8>,
}

/// Rows from which the types of CSV columns are inferred.
const SAMPLE_ROWS: usize = 1000;

/// A head of fewer bytes is the whole file.
const SHORT_BYTES: usize = 128 << 10;

/// The order of keys that a compiled program computes.
type KeyOrder<F> = ProgramOrder<F, KeyProgram>;

/// The records of a request; passes are compiled for each variant.
pub(crate) enum AnyRecords {
    U32(Arc<Numbers<u32>>),
    U64(Arc<Numbers<u64>>),
    LineBodies(Arc<Framed<LineFraming, RangeOrder<LineFraming>>>),
    LineKeys(Arc<Framed<LineFraming, KeyOrder<LineFraming>>>),
    CsvKeys(Arc<Framed<CsvFraming, KeyOrder<CsvFraming>>>),
    FixedRange(Arc<Framed<FixedFraming, RangeOrder<FixedFraming>>>),
    FixedKeys(Arc<Framed<FixedFraming, KeyOrder<FixedFraming>>>),
    PrefixedRange(Arc<Framed<PrefixedFraming, RangeOrder<PrefixedFraming>>>),
    PrefixedKeys(Arc<Framed<PrefixedFraming, KeyOrder<PrefixedFraming>>>),
}

/// Evaluates an expression that is generic in the kind of `Records`: `with_records!(any, records => f(records))`.
macro_rules! with_records {
    ($any:expr, $records:ident => $result:expr) => {{
        use $crate::records::AnyRecords as Any;
        match $any {
            Any::U32($records) => $result,
            Any::U64($records) => $result,
            Any::LineBodies($records) => $result,
            Any::LineKeys($records) => $result,
            Any::CsvKeys($records) => $result,
            Any::FixedRange($records) => $result,
            Any::FixedKeys($records) => $result,
            Any::PrefixedRange($records) => $result,
            Any::PrefixedKeys($records) => $result,
        }
    }};
}
pub(crate) use with_records;

impl AnyRecords {
    /// The records of `request`, whose first input begins with `head`.
    pub(crate) fn new(request: &SortRequest, head: &InputHead) -> Result<AnyRecords> {
        AnyRecords::with_mean(request, head, None)
    }

    /// The same, if the mean length of the records is known to be `mean_bytes` bytes.
    pub(crate) fn with_mean(
        request: &SortRequest,
        head: &InputHead,
        mean_bytes: Option<f64>,
    ) -> Result<AnyRecords> {
        match (request.layout, &request.keys) {
            (Layout::Number(format), Keys::Value { descending }) => Ok(numbers(format, *descending)),
            (Layout::Lines { delimiter }, Keys::Command(options)) => {
                let framing = LineFraming(delimiter);
                let last_resort = options.last_resort(request.stable, request.unique);
                Ok(match keys::compile(options)? {
                    Compiled::WholeBody { reverse } => {
                        let records = Framed::new(framing, RangeOrder::whole(framing, reverse));
                        AnyRecords::LineBodies(Arc::new(records.with_mean_of(&head.records, mean_bytes)))
                    }
                    Compiled::Program(program) => {
                        let order = ProgramOrder::new(framing, program, last_resort);
                        let records = Framed::new(framing, order);
                        AnyRecords::LineKeys(Arc::new(records.with_mean_of(&head.records, mean_bytes)))
                    }
                })
            }
            (Layout::Csv { separator, quote }, Keys::Columns(specs)) => {
                let framing = CsvFraming { separator, quote };
                let columns = csv_columns(framing, specs, head)?;
                if request.checks.strict {
                    refuse_fallbacks(&columns, &head.input, request.header)?;
                }
                let program = keys::compile_columns(specs, &columns, separator, quote);
                let order = ProgramOrder::new(framing, program, LastResort::None);
                let records = Framed::new(framing, order).with_columns(columns);
                Ok(AnyRecords::CsvKeys(Arc::new(records.with_mean_of(&head.records, mean_bytes))))
            }
            (Layout::Fixed { len }, Keys::Ranges(ranges)) => fixed(len, ranges),
            (Layout::Prefixed { width, endian, keyed }, Keys::Ranges(ranges)) => {
                prefixed(PrefixedFraming { width, endian, keyed }, ranges)
            }
            (layout, _) => Err(SortError::Request(format!(
                "these keys do not fit records of format {layout}\n  lines take -k; csv takes --key \
                 COLUMN,...; fixed and prefixed take --key START..END; numbers take -r only"
            ))),
        }
    }
}

fn numbers(format: NumberFormat, descending: bool) -> AnyRecords {
    if format.kind.width() == size_of::<u32>() {
        AnyRecords::U32(Arc::new(Numbers::new(format, descending)))
    } else {
        AnyRecords::U64(Arc::new(Numbers::new(format, descending)))
    }
}

fn fixed(len: usize, ranges: &[ByteRangeKey]) -> Result<AnyRecords> {
    if let Some(beyond) = ranges.iter().find(|range| range.end != usize::MAX && range.end > len) {
        return Err(SortError::Request(format!(
            "key {}..{} reaches beyond the record of {len} bytes\n  give a range within 0..{len} (--key), or \
             another length (--format fixed:LEN)",
            beyond.start, beyond.end
        )));
    }
    let framing = FixedFraming(len);
    Ok(match ranges {
        [] | [_] => AnyRecords::FixedRange(Arc::new(one_range(framing, ranges.first()))),
        several => AnyRecords::FixedKeys(Arc::new(several_ranges(framing, several)?)),
    })
}

fn prefixed(framing: PrefixedFraming, ranges: &[ByteRangeKey]) -> Result<AnyRecords> {
    // A body shorter than a key's end, or its start if the key is unbounded, is an error.
    let reach = |range: &ByteRangeKey| if range.end == usize::MAX { range.start } else { range.end };
    let body_min = ranges.iter().map(reach).max().unwrap_or(0);
    Ok(match ranges {
        [] | [_] => {
            AnyRecords::PrefixedRange(Arc::new(one_range(framing, ranges.first()).with_min_body(body_min)))
        }
        several => {
            AnyRecords::PrefixedKeys(Arc::new(several_ranges(framing, several)?.with_min_body(body_min)))
        }
    })
}

/// Records ordered by one range, or by their whole bodies.
fn one_range<F: Framing + 'static>(framing: F, range: Option<&ByteRangeKey>) -> Framed<F, RangeOrder<F>> {
    let order = match range {
        Some(range) => RangeOrder::new(framing, range.start..range.end, range.descending, LastResort::None),
        None => RangeOrder::whole(framing, false),
    };
    Framed::new(framing, order)
}

fn several_ranges<F: Framing + 'static>(
    framing: F,
    ranges: &[ByteRangeKey],
) -> Result<Framed<F, KeyOrder<F>>> {
    let program = keys::compile_ranges(ranges, framing.fixed_len())?;
    Ok(Framed::new(framing, ProgramOrder::new(framing, program, LastResort::None)))
}

fn csv_columns(framing: CsvFraming, specs: &[CsvKeySpec], head: &InputHead) -> Result<Vec<KeyColumn>> {
    let header = head.header.as_deref().map(|header| framing.body(header));
    let columns = |specs: &[CsvKeySpec], rows: &[&[u8]]| {
        keys::csv_columns(specs, header, framing.separator, framing.quote, rows)
    };
    let needs_no_head =
        |spec: &CsvKeySpec| matches!(spec.column, CsvColumn::Number(_)) && spec.kind.is_some();
    if header.is_none() && head.records.is_empty() && !specs.iter().all(needs_no_head) {
        // All files are empty: any column serves.
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

/// The first rows of `records`, without their terminators; types are inferred from them.
pub fn sample_rows(framing: CsvFraming, records: &[u8]) -> Vec<&[u8]> {
    let mut rows = Vec::new();
    let mut start = 0;
    while rows.len() < SAMPLE_ROWS
        && let Some(end) = framing.end(records, start)
    {
        rows.push(framing.body(&records[start..end]));
        start = end;
    }
    // For a short file, also a last row without its terminator.
    if rows.len() < SAMPLE_ROWS && records.len() < SHORT_BYTES && start < records.len() {
        rows.push(framing.body(&records[start..]));
    }
    rows
}
