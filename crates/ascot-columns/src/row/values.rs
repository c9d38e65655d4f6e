//! Values of any length in memory: strings, binary values, and encoded elements of lists.

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{Array, BinaryViewArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::DataType;

/// Values of a column of any length, by row. A null counts as an empty value.
pub(crate) struct VarValues {
    source: Source,
    nulls: Option<NullBuffer>,
}

enum Source {
    Small(OffsetBuffer<i32>, Buffer),
    Large(OffsetBuffer<i64>, Buffer),
    View(BinaryViewArray),
    /// The value of row i is between offsets i and i + 1.
    Encoded(Vec<usize>, Vec<u8>),
}

impl VarValues {
    /// The values of an array of strings or binary values; an empty column for other types.
    pub(crate) fn of_array(array: &dyn Array) -> VarValues {
        let source = match array.data_type() {
            DataType::Utf8 => of_bytes::<Utf8Type>(array, Source::Small),
            DataType::Binary => of_bytes::<BinaryType>(array, Source::Small),
            DataType::LargeUtf8 => of_bytes::<LargeUtf8Type>(array, Source::Large),
            DataType::LargeBinary => of_bytes::<LargeBinaryType>(array, Source::Large),
            DataType::Utf8View => Source::View(array.as_string_view().clone().to_binary_view()),
            DataType::BinaryView => Source::View(array.as_binary_view().clone()),
            _ => Source::Encoded(vec![0; array.len() + 1], Vec::new()),
        };
        VarValues { source, nulls: nulls_of(array) }
    }

    /// Values that lie between `offsets` of `bytes`.
    pub(crate) fn encoded(offsets: Vec<usize>, bytes: Vec<u8>, nulls: Option<NullBuffer>) -> VarValues {
        VarValues { source: Source::Encoded(offsets, bytes), nulls }
    }

    /// Passes every row and its value to `take`.
    pub(crate) fn for_each(&self, mut take: impl FnMut(usize, &[u8])) {
        match &self.source {
            Source::Small(offsets, bytes) => self.in_turn(parts(offsets, bytes, |at| at as usize), take),
            Source::Large(offsets, bytes) => self.in_turn(parts(offsets, bytes, |at| at as usize), take),
            Source::View(array) => (0..array.len()).for_each(|row| {
                take(row, if array.is_null(row) { &[] } else { array.value(row) });
            }),
            Source::Encoded(offsets, bytes) => self.in_turn(parts(offsets, bytes, |at| at), take),
        }
    }

    fn in_turn<'v>(&self, values: impl Iterator<Item = &'v [u8]>, mut take: impl FnMut(usize, &[u8])) {
        match &self.nulls {
            None => values.enumerate().for_each(|(row, value)| take(row, value)),
            Some(nulls) => values.zip(nulls.iter()).enumerate().for_each(|(row, (value, is_valid))| {
                take(row, if is_valid { value } else { &[] });
            }),
        }
    }
}

/// The bytes between each two offsets, which `place` converts.
fn parts<'v, O: Copy>(
    offsets: &'v [O],
    bytes: &'v [u8],
    place: impl Fn(O) -> usize,
) -> impl Iterator<Item = &'v [u8]> {
    offsets.windows(2).map(move |ends| bytes.get(place(ends[0])..place(ends[1])).unwrap_or_default())
}

/// The offsets and the bytes of an array, as the source that `source` makes of them.
fn of_bytes<T: ByteArrayType>(
    array: &dyn Array,
    source: fn(OffsetBuffer<T::Offset>, Buffer) -> Source,
) -> Source {
    let array = array.as_bytes::<T>();
    source(array.offsets().clone(), array.values().clone())
}

/// The nulls of an array, if it has any.
pub(super) fn nulls_of(array: &dyn Array) -> Option<NullBuffer> {
    array.nulls().filter(|nulls| nulls.null_count() > 0).cloned()
}
