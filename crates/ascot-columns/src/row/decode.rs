//! Rows to columns, column by column.

use super::builder::{ColumnBuilder, Values};
use super::span::{Malformed, Span, length_at};
use super::{Column, Kind, RowFormat};
use crate::width::LENGTH;

/// Elements of lists decoded at a time.
const CHILD_ROWS: usize = 1024;

/// Positions of the values of a block of rows.
#[derive(Debug, Default)]
pub(crate) struct RowScratch {
    cursors: Vec<usize>,
    spans: Vec<Span>,
}

/// Appends the rows at `rows` of `bytes` to the builders of the format's columns.
///
/// # Errors
/// A row that violates the format. The builders are then unusable.
pub(crate) fn decode_rows<'b>(
    format: &RowFormat,
    bytes: &[u8],
    rows: &[Span],
    builders: impl IntoIterator<Item = &'b mut ColumnBuilder>,
    scratch: &mut RowScratch,
) -> Result<(), Malformed> {
    let head = format.head();
    let fits = |row: &Span| match format.vars {
        0 => row.end - row.start == head,
        _ => row.end - row.start >= head,
    };
    if let Some(row) = rows.iter().find(|row| !fits(row)) {
        return Err(Malformed { at: row.start, reason: "its length is not that of a row" });
    }
    let RowScratch { cursors, spans } = scratch;
    cursors.clear();
    cursors.extend(rows.iter().map(|row| row.start + head));
    let mut block = Block { format, bytes, rows, cursors, spans };
    for (column, builder) in format.columns.iter().zip(builders) {
        block.decode(column, builder)?;
    }
    Ok(())
}

struct Block<'a> {
    format: &'a RowFormat,
    bytes: &'a [u8],
    rows: &'a [Span],
    /// The first byte of every row that belongs to the next column of any length.
    cursors: &'a mut [usize],
    spans: &'a mut Vec<Span>,
}

impl Block<'_> {
    fn decode(&mut self, column: &Column, builder: &mut ColumnBuilder) -> Result<(), Malformed> {
        self.nulls(column, builder);
        match &column.kind {
            Kind::Null => {
                builder.grow(self.rows.len());
            }
            Kind::Bool { at } => self.bools(*at, builder)?,
            Kind::Fixed { at, width } => self.fixed(self.format.bitmap + at, *width, builder),
            Kind::Bytes { var } => {
                self.find_values(*var)?;
                let at = self.rows.first().map_or(0, |row| row.start);
                builder.append_spans(self.bytes, self.spans).map_err(|reason| Malformed { at, reason })?;
            }
            Kind::List { var, child } => {
                self.find_values(*var)?;
                if let Values::List { offsets, elements } = builder.grow(self.rows.len()) {
                    let mut ends = Vec::with_capacity(self.spans.len());
                    decode_elements(child, self.bytes, self.spans, elements, &mut ends)?;
                    offsets.extend(ends);
                }
            }
            Kind::FixedList { var, size, child } => {
                self.find_values(*var)?;
                if let Values::FixedList { elements } = builder.grow(self.rows.len()) {
                    let mut end = elements.rows();
                    let mut ends = Vec::with_capacity(self.spans.len());
                    decode_elements(child, self.bytes, self.spans, elements, &mut ends)?;
                    for (found, row) in ends.iter().zip(self.rows) {
                        end += size;
                        if *found != end {
                            let reason = "a list of fixed size has another size";
                            return Err(Malformed { at: row.start, reason });
                        }
                    }
                }
            }
            Kind::Struct(fields) => {
                // The builder is one of a struct with the same fields.
                let Values::Struct(builders) = builder.grow(self.rows.len()) else { return Ok(()) };
                for (field, builder) in fields.iter().zip(builders) {
                    self.decode(field, builder)?;
                }
            }
        }
        Ok(())
    }

    fn nulls(&self, column: &Column, builder: &mut ColumnBuilder) {
        let Some(bit) = column.bit else { return builder.append_valid(self.rows.len()) };
        let byte = bit / 8;
        let mask = 1u8 << (bit % 8);
        let any = self.rows.iter().fold(0, |any, row| any | self.bytes[row.start + byte]);
        if any & mask == 0 {
            return builder.append_valid(self.rows.len());
        }
        for row in self.rows {
            builder.append_validity(self.bytes[row.start + byte] & mask == 0);
        }
    }

    fn bools(&self, at: usize, builder: &mut ColumnBuilder) -> Result<(), Malformed> {
        let at = self.format.bitmap + at;
        if let Some(row) = self.rows.iter().find(|row| self.bytes[row.start + at] > 1) {
            return Err(Malformed { at: row.start, reason: "a boolean is neither 0 nor 1" });
        }
        builder.append_bools(self.rows.iter().map(|row| self.bytes[row.start + at] == 1));
        Ok(())
    }

    fn fixed(&self, at: usize, width: usize, builder: &mut ColumnBuilder) {
        match width {
            1 => self.fixed_of::<1>(at, builder),
            2 => self.fixed_of::<2>(at, builder),
            4 => self.fixed_of::<4>(at, builder),
            8 => self.fixed_of::<8>(at, builder),
            16 => self.fixed_of::<16>(at, builder),
            32 => self.fixed_of::<32>(at, builder),
            _ => builder.append_slices(self.rows.iter().map(|row| &self.bytes[row.start + at..][..width])),
        }
    }

    fn fixed_of<const W: usize>(&self, at: usize, builder: &mut ColumnBuilder) {
        builder.append_fixed::<W>(self.rows.iter().map(|row| {
            // Every row has its fixed parts.
            self.bytes.get(row.start + at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; W])
        }));
    }

    /// Finds the values of a column of any length.
    fn find_values(&mut self, var: usize) -> Result<(), Malformed> {
        self.spans.clear();
        if !self.format.has_length(var) {
            self.spans.extend(
                self.rows.iter().zip(&*self.cursors).map(|(row, &start)| Span { start, end: row.end }),
            );
            return Ok(());
        }
        let at = self.format.length_at(var);
        for (row, cursor) in self.rows.iter().zip(&mut *self.cursors) {
            let length = length_at(self.bytes, row.start + at).unwrap_or(usize::MAX);
            let end = cursor.checked_add(length).filter(|&end| end <= row.end);
            let Some(end) = end else {
                return Err(Malformed { at: row.start, reason: "a value extends beyond its row" });
            };
            self.spans.push(Span { start: *cursor, end });
            *cursor = end;
        }
        Ok(())
    }
}

/// Appends the elements of the lists at `lists` of `bytes`, and the number of all elements after each list to `ends`.
fn decode_elements(
    format: &RowFormat,
    bytes: &[u8],
    lists: &[Span],
    elements: &mut ColumnBuilder,
    ends: &mut Vec<usize>,
) -> Result<(), Malformed> {
    let mut scratch = RowScratch::default();
    let mut rows = Vec::with_capacity(CHILD_ROWS);
    for list in lists {
        let mut at = list.start;
        while at < list.end {
            let (start, end) = match format.fixed_len() {
                Some(len) => (at, at.checked_add(len)),
                None => (at + LENGTH, length_at(bytes, at).and_then(|len| (at + LENGTH).checked_add(len))),
            };
            let Some(end) = end.filter(|&end| end <= list.end) else {
                return Err(Malformed { at: list.start, reason: "an element extends beyond its list" });
            };
            rows.push(Span { start, end });
            at = end;
            if rows.len() == CHILD_ROWS {
                decode_rows(format, bytes, &rows, [&mut *elements], &mut scratch)?;
                rows.clear();
            }
        }
        ends.push(elements.rows() + rows.len());
    }
    decode_rows(format, bytes, &rows, [elements], &mut scratch)
}
