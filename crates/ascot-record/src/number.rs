//! Bare numbers: converts them to and from integers that have the same order.
//!
//! ```text
//! file bytes ──to_ordered──> native u32 or u64, sorted and spilled as such ──from_ordered──> file bytes
//!
//! unsigned   x                       two's complement   x with its sign bit flipped
//! float      negative: all bits flipped, else the sign bit flipped: IEEE total order,
//!            -NaN < -inf < .. < -0 < +0 < .. < +inf < +NaN
//! descending the complement of the above
//! ```
//!
//! Both conversions are bijections on all bit patterns, work in place, and are one vectorised pass. This module also
//! merges sorted numbers, selects the smallest of them, and groups numbers by part; see [`merge_numbers`], [`Heads`]
//! and [`group_by_part`].

use crate::layout::{Endian, NumberFormat, NumberType};

pub use merge::merge_numbers;
pub use scatter::group_by_part;
pub use select::Heads;

mod merge;
mod scatter;
mod select;

/// Converts numbers as stored in a file to native-endian integers of the same order, in place. Trailing bytes that do
/// not make a whole number stay unchanged.
pub fn to_ordered(bytes: &mut [u8], format: NumberFormat, descending: bool) {
    transform(bytes, format, descending, Direction::ToOrdered);
}

/// Converts the integers of [`to_ordered`] back to numbers as stored in a file, in place.
pub fn from_ordered(bytes: &mut [u8], format: NumberFormat, descending: bool) {
    transform(bytes, format, descending, Direction::FromOrdered);
}

#[derive(Clone, Copy)]
enum Direction {
    ToOrdered,
    FromOrdered,
}

/// Whether a file's byte order differs from the machine's.
fn foreign(endian: Endian) -> bool {
    cfg!(target_endian = "little") != (endian == Endian::Little)
}

fn transform(bytes: &mut [u8], format: NumberFormat, descending: bool, direction: Direction) {
    let swap = foreign(format.endian);
    let flip = |flips: u64| if descending { !flips } else { flips };
    let sign32 = 1 << 31;
    let sign64 = 1 << 63;
    match (format.kind, direction) {
        (NumberType::U32, _) => passes::integers_u32(bytes, swap, flip(0) as u32, direction),
        (NumberType::I32, _) => passes::integers_u32(bytes, swap, flip(sign32) as u32, direction),
        (NumberType::F32, Direction::ToOrdered) => passes::floats_in_u32(bytes, swap, flip(0) as u32),
        (NumberType::F32, Direction::FromOrdered) => passes::floats_out_u32(bytes, swap, flip(0) as u32),
        (NumberType::U64, _) => passes::integers_u64(bytes, swap, flip(0), direction),
        (NumberType::I64, _) => passes::integers_u64(bytes, swap, flip(sign64), direction),
        (NumberType::F64, Direction::ToOrdered) => passes::floats_in_u64(bytes, swap, flip(0)),
        (NumberType::F64, Direction::FromOrdered) => passes::floats_out_u64(bytes, swap, flip(0)),
    }
}

/// The loops, each compiled for the widest vectors the processor may have.
mod passes {
    use super::Direction;

    macro_rules! passes {
        ($($type:ty, $signed:ty, $each:ident, $integers:ident, $floats_in:ident, $floats_out:ident;)*) => {$(
            /// Replaces every number `x` by `f(x)`.
            #[inline(always)]
            fn $each(bytes: &mut [u8], f: impl Fn($type) -> $type) {
                for chunk in bytes.as_chunks_mut().0 {
                    *chunk = f(<$type>::from_ne_bytes(*chunk)).to_ne_bytes();
                }
            }

            pub(super) fn $integers(bytes: &mut [u8], swap: bool, flips: $type, direction: Direction) {
                match (swap, direction) {
                    (false, _) if flips == 0 => {}
                    (false, _) => widest(bytes, |bytes| $each(bytes, |x| x ^ flips)),
                    (true, Direction::ToOrdered) => widest(bytes, |bytes| $each(bytes, |x| x.swap_bytes() ^ flips)),
                    (true, Direction::FromOrdered) => widest(bytes, |bytes| $each(bytes, |x| (x ^ flips).swap_bytes())),
                }
            }

            pub(super) fn $floats_in(bytes: &mut [u8], swap: bool, flips: $type) {
                const SIGN: $type = 1 << (<$type>::BITS - 1);
                let order = |x: $type| x ^ ((x as $signed >> (<$type>::BITS - 1)) as $type | SIGN) ^ flips;
                match swap {
                    false => widest(bytes, |bytes| $each(bytes, order)),
                    true => widest(bytes, |bytes| $each(bytes, |x| order(x.swap_bytes()))),
                }
            }

            pub(super) fn $floats_out(bytes: &mut [u8], swap: bool, flips: $type) {
                const SIGN: $type = 1 << (<$type>::BITS - 1);
                let restore = |x: $type| {
                    let x = x ^ flips;
                    x ^ (!(x as $signed >> (<$type>::BITS - 1)) as $type | SIGN)
                };
                match swap {
                    false => widest(bytes, |bytes| $each(bytes, restore)),
                    true => widest(bytes, |bytes| $each(bytes, |x| restore(x).swap_bytes())),
                }
            }
        )*};
    }

    passes! {
        u32, i32, each_u32, integers_u32, floats_in_u32, floats_out_u32;
        u64, i64, each_u64, integers_u64, floats_in_u64, floats_out_u64;
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "calls a vector kernel that the processor has")]
    fn widest(bytes: &mut [u8], pass: impl Fn(&mut [u8])) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the processor has the features the function is compiled for.
            unsafe { with_avx512(bytes, pass) };
            return;
        }
        pass(bytes);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn with_avx512(bytes: &mut [u8], pass: impl Fn(&mut [u8])) {
        pass(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KINDS: [NumberType; 6] = [
        NumberType::U32,
        NumberType::U64,
        NumberType::I32,
        NumberType::I64,
        NumberType::F32,
        NumberType::F64,
    ];

    fn ordered_f64(x: f64, descending: bool) -> u64 {
        let mut bytes = x.to_be_bytes();
        let format = NumberFormat { kind: NumberType::F64, endian: Endian::Big };
        to_ordered(&mut bytes, format, descending);
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn floats_follow_the_total_order() {
        let ascending = [
            -f64::NAN,
            f64::NEG_INFINITY,
            -1.0,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            1e-300,
            2.5,
            f64::INFINITY,
            f64::NAN,
        ];
        assert!(ascending.is_sorted_by(|a, b| ordered_f64(*a, false) < ordered_f64(*b, false)));
        assert!(ascending.is_sorted_by(|a, b| ordered_f64(*a, true) > ordered_f64(*b, true)));
    }

    proptest! {
        #[test]
        fn there_and_back(bytes in proptest::collection::vec(any::<u8>(), 0..200), descending: bool, big: bool) {
            for kind in KINDS {
                let format = NumberFormat { kind, endian: if big { Endian::Big } else { Endian::Little } };
                let mut copy = bytes.clone();
                to_ordered(&mut copy, format, descending);
                from_ordered(&mut copy, format, descending);
                prop_assert_eq!(&copy, &bytes);
            }
        }

        #[test]
        fn integers_keep_their_order(a: i32, b: i32, c: i64, d: i64, descending: bool) {
            let format = |kind| NumberFormat { kind, endian: Endian::Little };
            let small = |x: i32| {
                let mut bytes = x.to_le_bytes();
                to_ordered(&mut bytes, format(NumberType::I32), descending);
                u32::from_ne_bytes(bytes)
            };
            let large = |x: i64| {
                let mut bytes = x.to_le_bytes();
                to_ordered(&mut bytes, format(NumberType::I64), descending);
                u64::from_ne_bytes(bytes)
            };
            let turn = |order: std::cmp::Ordering| if descending { order.reverse() } else { order };
            prop_assert_eq!(small(a).cmp(&small(b)), turn(a.cmp(&b)));
            prop_assert_eq!(large(c).cmp(&large(d)), turn(c.cmp(&d)));
        }

        #[test]
        fn floats_order_as_total_cmp(a: f32, b: f32) {
            let ordered = |x: f32| {
                let mut bytes = x.to_le_bytes();
                to_ordered(&mut bytes, NumberFormat { kind: NumberType::F32, endian: Endian::Little }, false);
                u32::from_ne_bytes(bytes)
            };
            prop_assert_eq!(ordered(a).cmp(&ordered(b)), a.total_cmp(&b));
        }
    }
}
