//! Rows of CSV as columns.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Float64Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use ascot_record::framing::{CsvFraming, Framing};
use ascot_record::keys::{CsvRow, header_columns};

use super::TextType;
use crate::error::{ColumnsError, Result};

/// The columns of a file of CSV. Empty fields, missing fields and some spellings are null.
#[derive(Clone, Debug)]
pub struct CsvColumns {
    framing: CsvFraming,
    schema: SchemaRef,
    nulls: Vec<Vec<u8>>,
}

impl CsvColumns {
    /// The columns of rows like `first`, which is a header or a row. Columns without a header are named `column_1` and
    /// so on. Those of `numbers` are 64-bit floats, all others text; as binary all are the bytes of the fields. `nulls`
    /// are the spellings of null.
    ///
    /// # Errors
    /// One of `numbers` that is no column.
    pub fn new(
        framing: CsvFraming,
        first: &[u8],
        has_header: bool,
        text: TextType,
        numbers: &[CsvName],
        nulls: &[String],
    ) -> Result<CsvColumns> {
        let of_text = if text == TextType::Binary { DataType::Binary } else { DataType::Utf8 };
        let CsvFraming { separator, quote } = framing;
        let mut names = header_columns(framing.body(first), separator, quote);
        if !has_header {
            names = (1..=names.len()).map(|number| format!("column_{number}")).collect();
        }
        let mut types = vec![of_text; names.len()];
        for number in numbers {
            let at = match number {
                CsvName::Name(name) => names.iter().position(|other| other == name),
                CsvName::Number(number) => number.checked_sub(1),
            };
            match at.and_then(|at| types.get_mut(at)) {
                Some(DataType::Binary) => {}
                Some(data_type) => *data_type = DataType::Float64,
                None => return Err(ColumnsError::UnknownColumn { name: number.to_string(), known: names }),
            }
        }
        let fields: Vec<Field> =
            names.into_iter().zip(types).map(|(name, data_type)| Field::new(name, data_type, true)).collect();
        let nulls = nulls.iter().map(|null| null.clone().into_bytes()).collect();
        Ok(CsvColumns { framing, schema: Arc::new(Schema::new(fields)), nulls })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn framing(&self) -> CsvFraming {
        self.framing
    }

    /// The rows in `bytes` as columns. `before` rows came before them.
    ///
    /// # Errors
    /// A row with more fields than there are columns, text that is not UTF-8, or a field that is no number.
    pub fn to_batch(&self, bytes: &[u8], before: u64) -> Result<RecordBatch> {
        let mut columns: Vec<Column> =
            self.schema.fields().iter().map(|field| Column::new(field.data_type())).collect();
        let mut at = 0;
        let mut rows = 0;
        while at < bytes.len() {
            let end = self.framing.end(bytes, at).unwrap_or(bytes.len());
            let row = self.framing.body(&bytes[at..end]);
            let number = before + rows as u64 + 1;
            self.append(row, &mut columns).map_err(|reason| ColumnsError::FileBytes {
                reason: format!("row {number} of the result {reason}"),
            })?;
            rows += 1;
            at = end;
        }
        let arrays =
            columns.into_iter().zip(self.schema.fields()).map(|(column, field)| column.finish(field));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }

    fn append(&self, row: &[u8], columns: &mut [Column]) -> Result<(), String> {
        let mut fields = CsvRow::new(row, self.framing.separator, self.framing.quote);
        for (column, named) in columns.iter_mut().zip(self.schema.fields()) {
            let content = fields.next().map(|field| match field.contiguous() {
                Some(content) => Cow::Borrowed(content),
                None => Cow::Owned(field.content()),
            });
            let is_null = |content: &Cow<'_, [u8]>| {
                content.is_empty() || self.nulls.iter().any(|null| *null == **content)
            };
            let content = content.filter(|content| !is_null(content));
            column
                .push(content.as_deref())
                .map_err(|reason| format!("has in column '{}' {reason}", named.name()))?;
        }
        match fields.next() {
            None => Ok(()),
            Some(_) => Err(format!("has more than {} fields", columns.len())),
        }
    }
}

/// A column, as a key names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsvName {
    /// By its name in the header.
    Name(String),
    /// By its number, from 1.
    Number(usize),
}

impl std::fmt::Display for CsvName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CsvName::Name(name) => write!(f, "{name}"),
            CsvName::Number(number) => write!(f, "#{number}"),
        }
    }
}

/// Whether a float is the number in a text. Only whole numbers count: other decimals are rarely floats.
fn is_exact(text: &str, number: f64) -> bool {
    /// Up to here all whole numbers are floats.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'-' || byte == b'+';
    if number.abs() < EXACT_MAX || !text.bytes().all(is_digit) {
        return true;
    }
    // The digits of a float are those of the whole number that it is.
    let digits = text.trim_start_matches(['-', '+']).trim_start_matches('0');
    format!("{:.0}", number.abs()) == digits
}

/// A column of a batch as it grows.
struct Column {
    valid: BooleanBufferBuilder,
    values: Values,
}

enum Values {
    Text { ends: Vec<i32>, bytes: Vec<u8> },
    Numbers(Vec<f64>),
}

impl Column {
    fn new(data_type: &DataType) -> Column {
        let values = match data_type {
            DataType::Float64 => Values::Numbers(Vec::new()),
            _ => Values::Text { ends: vec![0], bytes: Vec::new() },
        };
        Column { valid: BooleanBufferBuilder::new(0), values }
    }

    fn push(&mut self, value: Option<&[u8]>) -> Result<(), String> {
        self.valid.append(value.is_some());
        match &mut self.values {
            Values::Text { ends, bytes } => {
                bytes.extend_from_slice(value.unwrap_or_default());
                ends.push(i32::try_from(bytes.len()).map_err(|_| "more than 2 GiB of text".to_owned())?);
            }
            Values::Numbers(numbers) => {
                let number = |value: &[u8]| {
                    let text = std::str::from_utf8(value).ok().map(str::trim);
                    let found = text.and_then(|text| Some((text, text.parse::<f64>().ok()?)));
                    let shown = || String::from_utf8_lossy(value);
                    match found {
                        Some((text, number)) if is_exact(text, number) => Ok(number),
                        Some(_) => Err(format!(
                            "'{}', which 64-bit floats do not hold exactly\n  read the file as binary \
                             (layout=ascot.Csv(binary=True)), which keeps the fields as they are",
                            shown()
                        )),
                        None => Err(format!(
                            "'{}', which is no number\n  leave out the type of the column",
                            shown()
                        )),
                    }
                };
                numbers.push(value.map(number).transpose()?.unwrap_or(0.0));
            }
        }
        Ok(())
    }

    fn finish(mut self, field: &Field) -> Result<ArrayRef> {
        let nulls = Some(NullBuffer::new(self.valid.finish())).filter(|nulls| nulls.null_count() > 0);
        let (ends, bytes) = match self.values {
            Values::Numbers(numbers) => return Ok(Arc::new(Float64Array::new(numbers.into(), nulls))),
            Values::Text { ends, bytes } => (ends, bytes),
        };
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let bytes = Buffer::from_vec(bytes);
        if *field.data_type() == DataType::Binary {
            return Ok(Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?));
        }
        let text = StringArray::try_new(offsets, bytes, nulls).map_err(|_| ColumnsError::FileBytes {
            reason: format!(
                "column '{}' is not UTF-8\n  read the file as binary (layout=ascot.Csv(binary=True))",
                field.name()
            ),
        })?;
        Ok(Arc::new(text))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Float64Type;

    use super::*;

    const FRAMING: CsvFraming = CsvFraming { separator: b',', quote: b'"' };

    fn columns(numbers: &[CsvName]) -> CsvColumns {
        CsvColumns::new(FRAMING, b"name,\"a, b\"\n", true, TextType::Utf8, numbers, &["NA".into()]).unwrap()
    }

    #[test]
    fn fields_become_values_and_nulls() {
        let batch =
            columns(&[CsvName::Name("a, b".into())]).to_batch(b"\"x\"\"y\n\", 1.5\nNA,\nlast\n", 0).unwrap();
        let names = batch.column(0).as_string::<i32>();
        assert_eq!(names.iter().collect::<Vec<_>>(), [Some("x\"y\n"), None, Some("last")]);
        let numbers = batch.column(1).as_primitive::<Float64Type>();
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [Some(1.5), None, None]);
        assert_eq!(columns(&[]).to_batch(b"", 0).unwrap().num_rows(), 0);
        assert_eq!(batch.column(0).null_count(), 1);
    }

    #[test]
    fn whole_numbers_that_no_float_holds_are_refused() {
        let numbers = columns(&[CsvName::Number(2)]);
        for exact in
            ["9007199254740992", "-9007199254740994", "9007199254740993.0", "1e300", "+9007199254740992"]
        {
            let batch = numbers.to_batch(format!("a,{exact}\n").as_bytes(), 0).unwrap();
            let found = batch.column(1).as_primitive::<Float64Type>().value(0);
            assert_eq!(found, exact.parse::<f64>().unwrap(), "{exact}");
        }
        for lost in ["9007199254740993", "-9223372036854775807", "18446744073709551615"] {
            let error = numbers.to_batch(format!("a,{lost}\n").as_bytes(), 0).unwrap_err().to_string();
            assert!(error.contains(lost) && error.contains("binary=True"), "{error}");
        }
        let binary =
            CsvColumns::new(FRAMING, b"n\n", true, TextType::Binary, &[CsvName::Number(1)], &[]).unwrap();
        let batch = binary.to_batch(b"9007199254740993\n", 0).unwrap();
        assert_eq!(batch.column(0).as_binary::<i32>().value(0), b"9007199254740993");
    }

    #[test]
    fn rows_that_do_not_fit_are_named() {
        let error = columns(&[]).to_batch(b"a,b\na,b,c\n", 10).unwrap_err().to_string();
        assert!(error.contains("row 12") && error.contains("more than 2 fields"), "{error}");
        let error = columns(&[CsvName::Number(2)]).to_batch(b"a,b\n", 0).unwrap_err().to_string();
        assert!(error.contains("'a, b'") && error.contains("'b'"), "{error}");
        let unknown = CsvColumns::new(FRAMING, b"a\n", false, TextType::Utf8, &[CsvName::Number(2)], &[]);
        assert!(unknown.unwrap_err().to_string().contains("column_1"));
    }
}
