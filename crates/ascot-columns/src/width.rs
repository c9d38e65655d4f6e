//! Bytes of lengths and of values.

use arrow_schema::DataType;

/// Bytes of a length.
pub(crate) const LENGTH: usize = 4;

/// Bytes of the values of a type, if they all have the same number and are stored one after the other.
pub(crate) fn fixed_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        other => other.primitive_width(),
    }
}
