//! Values of a fixed width as bytes that memcmp orders, and back.

use arrow_schema::DataType;

/// How the bytes of a little-endian value become ordered ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueOrder {
    Unsigned,
    Signed,
    /// The total order of IEEE 754.
    Float,
    /// The bytes are in order as they are.
    Bytes,
}

impl ValueOrder {
    /// The order of the values of a type of fixed width; `None` if they have none.
    pub(super) fn of(data_type: &DataType) -> Option<ValueOrder> {
        use DataType as T;
        match data_type {
            T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => Some(ValueOrder::Unsigned),
            T::Float16 | T::Float32 | T::Float64 => Some(ValueOrder::Float),
            T::FixedSizeBinary(_) => Some(ValueOrder::Bytes),
            other => other.primitive_width().map(|_| ValueOrder::Signed),
        }
    }

    /// The ordered bytes of a value, combined with `flip`.
    #[inline(always)]
    pub(super) fn ordered<const W: usize>(self, mut value: [u8; W], flip: u8) -> [u8; W] {
        if self != ValueOrder::Bytes {
            value.reverse();
        }
        let sign = value.first().map_or(0, |first| ((*first as i8) >> 7) as u8);
        let (head, tail) = match self {
            ValueOrder::Unsigned | ValueOrder::Bytes => (0, 0),
            ValueOrder::Signed => (0x80, 0),
            ValueOrder::Float => (sign | 0x80, sign),
        };
        combine(value, head ^ flip, tail ^ flip)
    }

    /// The value of which [`ordered`](Self::ordered) made these bytes.
    #[inline(always)]
    pub(super) fn value<const W: usize>(self, bytes: [u8; W], flip: u8) -> [u8; W] {
        let negative = bytes.first().map_or(0, |first| !(((first ^ flip) as i8 >> 7) as u8));
        let (head, tail) = match self {
            ValueOrder::Unsigned | ValueOrder::Bytes => (0, 0),
            ValueOrder::Signed => (0x80, 0),
            ValueOrder::Float => (negative | 0x80, negative),
        };
        let mut value = combine(bytes, head ^ flip, tail ^ flip);
        if self != ValueOrder::Bytes {
            value.reverse();
        }
        value
    }
}

/// Combines the first byte with `head` and the others with `tail`.
#[inline(always)]
fn combine<const W: usize>(mut bytes: [u8; W], head: u8, tail: u8) -> [u8; W] {
    for byte in &mut bytes {
        *byte ^= tail;
    }
    if let Some(first) = bytes.first_mut() {
        *first ^= tail ^ head;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_order_and_come_back() {
        let floats = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, f64::MIN_POSITIVE, 2.0, f64::INFINITY, f64::NAN];
        let signed = [i64::MIN, -256, -1, 0, 1, 255, i64::MAX];
        let check = |order: ValueOrder, values: Vec<[u8; 8]>| {
            for flip in [0, 0xff] {
                let ordered: Vec<_> = values.iter().map(|value| order.ordered(*value, flip)).collect();
                assert!(ordered.is_sorted_by(|a, b| if flip == 0 { a < b } else { a > b }), "{order:?}");
                let back: Vec<_> = ordered.iter().map(|bytes| order.value(*bytes, flip)).collect();
                assert_eq!(back, values, "{order:?}");
            }
        };
        check(ValueOrder::Float, floats.map(f64::to_le_bytes).to_vec());
        check(ValueOrder::Signed, signed.map(i64::to_le_bytes).to_vec());
        check(ValueOrder::Unsigned, [0u64, 1, 256, u64::MAX].map(u64::to_le_bytes).to_vec());
        check(ValueOrder::Bytes, [0u64, 1, 256, u64::MAX].map(u64::to_be_bytes).to_vec());
    }
}
