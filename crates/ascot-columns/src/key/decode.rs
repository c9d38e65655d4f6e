//! Keys to key columns, column by column.

use super::fixed::ValueOrder;
use super::text::{append_text, find_closed};
use super::{KeyFormat, KeyPart, KeyPartKind};
use crate::row::{ColumnBuilder, Malformed, Span};

/// Positions and texts of a block of keys.
#[derive(Debug, Default)]
pub(crate) struct KeyScratch {
    cursors: Vec<usize>,
    /// Whether the row's value is not null.
    valid: Vec<bool>,
    /// The texts of a column, escapes resolved, and their places.
    texts: Vec<u8>,
    spans: Vec<Span>,
}

impl KeyFormat {
    /// Appends the columns that keys give back; `builders` are those of the schema's columns.
    ///
    /// # Errors
    /// A key that violates the format. The builders are then unusable.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        keys: &[Span],
        builders: &mut [ColumnBuilder],
        scratch: &mut KeyScratch,
    ) -> Result<(), Malformed> {
        scratch.cursors.clear();
        scratch.cursors.extend(keys.iter().map(|key| key.start));
        for part in &self.parts[..self.decodable] {
            let mut block = Block { bytes, keys, scratch: &mut *scratch };
            block.decode(part, &mut builders[part.column])?;
        }
        let wrong = |(key, cursor): (&Span, &usize)| if *cursor == key.end { None } else { Some(key.start) };
        match keys.iter().zip(&scratch.cursors).find_map(wrong) {
            Some(at) if self.decodable == self.parts.len() => {
                Err(Malformed { at, reason: "its key is longer than the key columns" })
            }
            _ => Ok(()),
        }
    }
}

struct Block<'a> {
    bytes: &'a [u8],
    keys: &'a [Span],
    scratch: &'a mut KeyScratch,
}

impl Block<'_> {
    fn decode(&mut self, part: &KeyPart, builder: &mut ColumnBuilder) -> Result<(), Malformed> {
        self.markers(part, builder)?;
        match part.kind {
            KeyPartKind::Bool => {
                let mut values = self.fixed::<1>()?;
                values.iter_mut().zip(&self.scratch.valid).for_each(|([value], valid)| {
                    *value = if *valid { *value ^ part.flip } else { 0 };
                });
                if let Some(row) = values.iter().position(|[value]| *value > 1) {
                    return Err(self.malformed(row, "a boolean of its key is neither 0 nor 1"));
                }
                builder.append_bools(values.iter().map(|[value]| *value == 1));
                Ok(())
            }
            KeyPartKind::Fixed { width, order } => match width {
                1 => self.values::<1>(order, part.flip, builder),
                2 => self.values::<2>(order, part.flip, builder),
                4 => self.values::<4>(order, part.flip, builder),
                8 => self.values::<8>(order, part.flip, builder),
                16 => self.values::<16>(order, part.flip, builder),
                32 => self.values::<32>(order, part.flip, builder),
                _ => self.slices(width, part.flip, builder),
            },
            KeyPartKind::Bytes { open } => self.texts(open, part.flip, builder),
            KeyPartKind::Nested(_) => Ok(()),
        }
    }

    fn malformed(&self, row: usize, reason: &'static str) -> Malformed {
        Malformed { at: self.keys[row].start, reason }
    }

    /// Reads the markers of a part, and notes which rows have a value.
    fn markers(&mut self, part: &KeyPart, builder: &mut ColumnBuilder) -> Result<(), Malformed> {
        let rows = self.keys.len();
        self.scratch.valid.clear();
        let Some(marker) = part.marker else {
            self.scratch.valid.resize(rows, true);
            builder.append_valid(rows);
            return Ok(());
        };
        if self.require(1).is_ok()
            && self.scratch.cursors.iter().all(|cursor| self.bytes[*cursor] == marker.value)
        {
            self.scratch.valid.resize(rows, true);
            builder.append_valid(rows);
            self.scratch.cursors.iter_mut().for_each(|cursor| *cursor += 1);
            return Ok(());
        }
        let mut nulls = 0;
        for row in 0..rows {
            let cursor = self.scratch.cursors[row];
            let byte = if cursor < self.keys[row].end { self.bytes.get(cursor) } else { None };
            let valid = match byte {
                Some(byte) if *byte == marker.value => true,
                Some(byte) if *byte == marker.null => false,
                _ => return Err(self.malformed(row, "its key has no marker of nulls")),
            };
            nulls += usize::from(!valid);
            self.scratch.valid.push(valid);
            self.scratch.cursors[row] += 1;
        }
        match nulls {
            0 => builder.append_valid(rows),
            _ => self.scratch.valid.iter().for_each(|valid| builder.append_validity(*valid)),
        }
        Ok(())
    }

    /// Fails if a key ends less than `width` bytes after its cursor.
    fn require(&self, width: usize) -> Result<(), Malformed> {
        let short = |(key, cursor): (&Span, &usize)| cursor + width > key.end;
        match self.keys.iter().zip(&self.scratch.cursors).position(short) {
            Some(row) => Err(self.malformed(row, "its key is shorter than the key columns")),
            None => Ok(()),
        }
    }

    /// The next `W` bytes of every key.
    fn fixed<const W: usize>(&mut self) -> Result<Vec<[u8; W]>, Malformed> {
        self.require(W)?;
        let bytes = self.bytes;
        let next = |cursor: &mut usize| {
            let value = bytes.get(*cursor..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; W]);
            *cursor += W;
            value
        };
        Ok(self.scratch.cursors.iter_mut().map(next).collect())
    }

    fn values<const W: usize>(
        &mut self,
        order: ValueOrder,
        flip: u8,
        builder: &mut ColumnBuilder,
    ) -> Result<(), Malformed> {
        let ordered = self.fixed::<W>()?;
        let rows = ordered.iter().zip(&self.scratch.valid);
        let select = |valid: bool, value: [u8; W]| if valid { value } else { [0; W] };
        match order {
            ValueOrder::Unsigned => builder.append_fixed(
                rows.map(|(bytes, valid)| select(*valid, ValueOrder::Unsigned.value(*bytes, flip))),
            ),
            ValueOrder::Signed => builder.append_fixed(
                rows.map(|(bytes, valid)| select(*valid, ValueOrder::Signed.value(*bytes, flip))),
            ),
            ValueOrder::Float => builder.append_fixed(
                rows.map(|(bytes, valid)| select(*valid, ValueOrder::Float.value(*bytes, flip))),
            ),
            ValueOrder::Bytes => builder.append_fixed(
                rows.map(|(bytes, valid)| select(*valid, ValueOrder::Bytes.value(*bytes, flip))),
            ),
        }
        Ok(())
    }

    fn slices(&mut self, width: usize, flip: u8, builder: &mut ColumnBuilder) -> Result<(), Malformed> {
        self.require(width)?;
        let KeyScratch { cursors, valid, texts, .. } = &mut *self.scratch;
        texts.clear();
        for (cursor, valid) in cursors.iter_mut().zip(valid) {
            let base = texts.len();
            texts.extend_from_slice(&self.bytes[*cursor..*cursor + width]);
            // A null has zeros.
            let flip = if *valid { flip } else { 0 };
            texts[base..].iter_mut().for_each(|byte| *byte ^= flip);
            *cursor += width;
        }
        let rows = self.keys.len();
        let texts: &[u8] = texts;
        builder.append_slices((0..rows).map(|row| &texts[row * width..][..width]));
        Ok(())
    }

    fn texts(&mut self, open: bool, flip: u8, builder: &mut ColumnBuilder) -> Result<(), Malformed> {
        let KeyScratch { cursors, valid, texts, spans } = &mut *self.scratch;
        texts.clear();
        spans.clear();
        for ((cursor, valid), key) in cursors.iter_mut().zip(valid).zip(self.keys) {
            let wrong = |reason| Malformed { at: key.start, reason };
            if open {
                spans.push(Span { start: *cursor, end: key.end });
                if !*valid && *cursor < key.end {
                    return Err(wrong("its key has bytes after a null"));
                }
                *cursor = key.end;
                continue;
            }
            let start = texts.len();
            if *valid {
                let rest = &self.bytes[*cursor..key.end];
                let len = find_closed(rest, flip).ok_or(wrong("a text of its key has no end"))?;
                append_text(&rest[..len], flip, texts)
                    .ok_or(wrong("a text of its key has a wrong escape"))?;
                *cursor += len;
            }
            spans.push(Span { start, end: texts.len() });
        }
        let source = if open { self.bytes } else { texts };
        let at = self.keys.first().map_or(0, |key| key.start);
        builder.append_spans(source, spans).map_err(|reason| Malformed { at, reason })
    }
}
