//! An array of numbers of a few bits each, without padding.

/// Numbers of up to 40 bits each, lowest bits first.
pub struct Bits {
    /// The numbers, and eight bytes more, so that a word may be written at every number.
    bytes: Vec<u8>,
    width: u32,
}

/// Bytes of `count` numbers.
pub fn bytes_of(count: u64, width: u32) -> Option<usize> {
    usize::try_from(count.checked_mul(u64::from(width))?.div_ceil(8)).ok()
}

impl Bits {
    /// `count` zeros.
    pub fn new(count: usize, width: u32) -> Self {
        Self { bytes: vec![0; (count * width as usize).div_ceil(8) + 8], width }
    }

    /// Sets the number at `index`, which must be zero.
    pub fn set(&mut self, index: usize, number: u64) {
        let at = index * self.width as usize;
        // With the bits before it, the number is within eight bytes: 7 + 40 bits.
        if let Some(word) = self.bytes[at / 8..].first_chunk_mut::<8>() {
            *word = (u64::from_le_bytes(*word) | number << (at % 8)).to_le_bytes();
        }
    }

    /// Its bytes.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.bytes.len() - 8);
        self.bytes
    }
}

/// The number at `index` of an array; `None` if the array ends before.
pub fn get(bytes: &[u8], width: u32, index: u64) -> Option<u64> {
    if width == 0 {
        return Some(0);
    }
    let at = index.checked_mul(u64::from(width))?;
    let first = usize::try_from(at / 8).ok()?;
    let last = usize::try_from((at + u64::from(width) - 1) / 8).ok()?;
    let all = bytes.get(first..=last)?.iter().rev().fold(0u128, |all, &byte| all << 8 | u128::from(byte));
    // At most 40 bits remain.
    Some((all >> (at % 8)) as u64 & ((1 << width) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for width in 1..=40 {
            let number = |index: usize| crate::hash::mix(index as u64) & ((1 << width) - 1);
            let mut bits = Bits::new(50, width);
            (0..50).for_each(|index| bits.set(index, number(index)));
            let bytes = bits.into_bytes();
            assert!((0..50).all(|index| get(&bytes, width, index as u64) == Some(number(index))), "{width}");
            assert_eq!(bytes_of(50, width), Some(bytes.len()));
            assert_eq!(get(&bytes, width, 60), None);
        }
    }
}
