//! Boundaries of partitions by key range: a sample of the keys of one epoch divides those of the next.
//!
//! Each key of an epoch has the same probability to be in the sample (reservoir sampling: Vitter, "Random Sampling
//! with a Reservoir", 1985, algorithm R). The sample is bounded, and so are its keys: any string can be a boundary, so
//! long keys are truncated.

use ascot_model::random::SplitMix64;

/// Sample keys per partition.
const KEYS_PER_PARTITION: usize = 256;
/// Maximum number of keys of a sample.
const KEYS_MAX: usize = 1 << 16;
/// Maximum bytes of a key in the sample; longer keys are truncated.
const KEY_MAX: usize = 64;

/// A sample of keys.
#[derive(Clone, Debug)]
pub struct Sampler {
    keys: Vec<Vec<u8>>,
    max_keys: usize,
    seen: u64,
    random: SplitMix64,
}

impl Sampler {
    /// A sampler for `partitions` partitions.
    pub fn new(partitions: u32) -> Self {
        let max_keys = (partitions as usize).saturating_mul(KEYS_PER_PARTITION).min(KEYS_MAX);
        Self { keys: Vec::new(), max_keys, seen: 0, random: SplitMix64::default() }
    }

    /// Offers a key to the sample.
    pub fn see(&mut self, key: &[u8]) {
        let kept = || key[..key.len().min(KEY_MAX)].to_vec();
        if self.keys.len() < self.max_keys {
            self.keys.push(kept());
        } else {
            let place = self.random.below(self.seen + 1);
            if let Some(old) = usize::try_from(place).ok().and_then(|place| self.keys.get_mut(place)) {
                *old = kept();
            }
        }
        self.seen += 1;
    }

    /// Number of keys offered.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The keys in the sample, to be merged with other samples.
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Ascending boundaries between `partitions` partitions of about equal numbers of keys; empties the sample.
    pub fn boundaries(&mut self, partitions: u32) -> Vec<Vec<u8>> {
        let mut keys = std::mem::take(&mut self.keys);
        self.seen = 0;
        self.random = SplitMix64::default();
        keys.sort_unstable();
        let share = |part: usize| keys.get(part * keys.len() / partitions as usize).cloned();
        (1..partitions as usize).filter_map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_about_even() {
        let mut sampler = Sampler::new(4);
        (0..200_000u64).for_each(|key| sampler.see(&(key * key).to_be_bytes()));
        assert_eq!((sampler.seen(), sampler.keys().len()), (200_000, 1024));
        let boundaries = sampler.boundaries(4);
        let mut counts = [0; 4];
        for key in (0..200_000u64).map(|key| (key * key).to_be_bytes()) {
            counts[boundaries.partition_point(|boundary| boundary.as_slice() <= &key[..])] += 1;
        }
        assert!(counts.iter().all(|count| (38_000..62_000).contains(count)), "{counts:?}");
        assert_eq!((sampler.seen(), Sampler::new(3).boundaries(3)), (0, Vec::<Vec<u8>>::new()));
    }
}
