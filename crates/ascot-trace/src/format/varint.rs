//! Numbers of variable length: seven bits a byte, the lowest first, the highest bit set in all but the last byte.
//!
//! Signed numbers alternate (0, -1, 1, -2, ...), so that small ones are short. Differences wrap around: any pair of
//! 64-bit numbers has one.

/// The longest number, bytes.
pub const MAX_BYTES: usize = 10;

/// Appends a number.
pub fn put(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends `value - before`.
pub fn put_difference(to: &mut Vec<u8>, value: u64, before: u64) {
    let difference = value.wrapping_sub(before) as i64;
    put(to, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// Takes a number from the front; none if there is none, or it exceeds 64 bits.
pub fn take(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (index, byte) in from.iter().take(MAX_BYTES).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if index == MAX_BYTES - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *from = from.get(index + 1..)?;
            return Some(value);
        }
    }
    None
}

/// Takes a difference from the front, and adds it to `before`.
pub fn take_difference(from: &mut &[u8], before: u64) -> Option<u64> {
    let coded = take(from)?;
    let difference = (coded >> 1) ^ (coded & 1).wrapping_neg();
    Some(before.wrapping_add(difference))
}

/// Takes bytes with their length in front.
pub fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

/// Appends bytes with their length in front.
pub fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, before: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put_difference(&mut bytes, value, before);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(take_difference(&mut rest, before), Some(value));
            prop_assert!(rest.is_empty() && take(&mut rest).is_none());
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while take(&mut rest).is_some() {}
            prop_assert!(rest.len() <= bytes.len());
        }
    }

    #[test]
    fn a_step_of_one_takes_one_byte() {
        let mut bytes = Vec::new();
        put_difference(&mut bytes, 41, 42);
        assert_eq!(bytes, [1]);
        let mut too_large = &[0xff_u8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..];
        assert_eq!(take(&mut too_large), None);
    }
}
