//! Pseudo-random numbers that are the same in every run.

/// SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, figure 14); it holds the seed.
#[derive(Clone, Debug, Default)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Fills a buffer with bytes that do not compress.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for word in buffer.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
    }

    /// A number below `count`; 0 if `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(count)) >> 64) as u64
    }

    /// A number from 0 to 1.
    pub fn fraction(&mut self) -> f64 {
        self.next_u64() as f64 / u64::MAX as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_of_a_seed() {
        let mut random = SplitMix64(1_234_567);
        assert_eq!(
            [random.next_u64(), random.next_u64()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        assert!((0..100).all(|_| random.below(7) < 7) && (0.0..=1.0).contains(&random.fraction()));
    }
}
