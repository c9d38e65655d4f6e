//! Files of bare numbers.

use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use ascot_record::layout::{Endian, Layout, NumberFormat, NumberType};

use super::{whole_records, wrong_type};
use crate::error::Result;
use crate::row::fixed_values;
use crate::type_name::type_name;

/// The Arrow type of a file's numbers.
pub(super) fn type_of(kind: NumberType) -> DataType {
    match kind {
        NumberType::U32 => DataType::UInt32,
        NumberType::U64 => DataType::UInt64,
        NumberType::I32 => DataType::Int32,
        NumberType::I64 => DataType::Int64,
        NumberType::F32 => DataType::Float32,
        NumberType::F64 => DataType::Float64,
    }
}

pub(super) fn to_array(format: NumberFormat, bytes: &Buffer) -> Result<ArrayRef> {
    let width = format.kind.width();
    whole_records(Layout::Number(format), width, bytes.len())?;
    let aligned = bytes.as_ptr().addr().is_multiple_of(width);
    let values = match format.endian {
        Endian::Little if aligned => bytes.clone(),
        Endian::Little => Buffer::from(bytes.as_slice()),
        Endian::Big => swapped(bytes, width),
    };
    let data = ArrayData::builder(type_of(format.kind)).len(bytes.len() / width).add_buffer(values);
    Ok(make_array(data.build()?))
}

pub(super) fn to_bytes(format: NumberFormat, array: &dyn Array, out: &mut Vec<u8>) -> Result<()> {
    let expected = type_of(format.kind);
    if *array.data_type() != expected {
        return Err(wrong_type(Layout::Number(format), type_name(&expected), array.data_type()));
    }
    let width = format.kind.width();
    let values = fixed_values(array, width);
    match format.endian {
        Endian::Little => out.extend_from_slice(&values),
        Endian::Big => out.extend_from_slice(&swapped(&values, width)),
    }
    Ok(())
}

/// The values with their bytes in reverse.
fn swapped(bytes: &[u8], width: usize) -> Buffer {
    let mut out = MutableBuffer::from_len_zeroed(bytes.len());
    match width {
        4 => swap::<4>(bytes, out.as_slice_mut()),
        _ => swap::<8>(bytes, out.as_slice_mut()),
    }
    out.into()
}

fn swap<const W: usize>(bytes: &[u8], out: &mut [u8]) {
    for (slot, value) in out.as_chunks_mut::<W>().0.iter_mut().zip(bytes.as_chunks::<W>().0) {
        *slot = *value;
        slot.reverse();
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, UInt64Type};

    use super::*;
    use crate::files::{TextType, to_array, to_bytes};

    fn layout(text: &str) -> Layout {
        Layout::parse(text).unwrap()
    }

    #[test]
    fn aligned_little_endian_numbers_are_not_copied() {
        let bytes = Buffer::from_vec(vec![1u64, 2, u64::MAX]);
        let array = to_array(layout("u64"), &bytes, TextType::Auto).unwrap();
        assert_eq!(array.as_primitive::<UInt64Type>().values(), &[1, 2, u64::MAX]);
        assert_eq!(array.as_primitive::<UInt64Type>().values().inner().as_ptr(), bytes.as_ptr());
        let shifted = Buffer::from(&[&[0u8][..], &bytes].concat()[..]).slice(1);
        let array = to_array(layout("u64"), &shifted, TextType::Auto).unwrap();
        assert_eq!(array.as_primitive::<UInt64Type>().values(), &[1, 2, u64::MAX]);
    }

    #[test]
    fn both_byte_orders_come_back() {
        for text in ["f32", "f32-be"] {
            let bytes: Vec<u8> = (0..64).collect();
            let array = to_array(layout(text), &Buffer::from(&bytes[..]), TextType::Auto).unwrap();
            let first = array.as_primitive::<Float32Type>().value(0).to_bits();
            assert_eq!(first, if text == "f32" { 0x03020100 } else { 0x00010203 });
            let mut out = Vec::new();
            to_bytes(layout(text), &array.slice(1, 3), &mut out).unwrap();
            assert_eq!(out, bytes[4..16]);
        }
    }

    #[test]
    fn half_a_number_and_another_type_are_refused() {
        let error = to_array(layout("u64"), &Buffer::from(&[0u8; 12]), TextType::Auto).unwrap_err();
        assert!(error.to_string().contains("12 bytes"), "{error}");
        let array = arrow_array::UInt32Array::from(vec![1]);
        let error = to_bytes(layout("u64"), &array, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("uint32") && error.contains("uint64"), "{error}");
    }
}
