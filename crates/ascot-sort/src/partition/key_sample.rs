//! A sample of each part's keys, taken while the parts are written. Its keys bound the groups into which the chunks
//! of a part are divided when the part is sorted.
//!
//! ```text
//!   split      part 3 ─▶ every n-th number is kept (n doubles when the quota of the part is full)
//!   sort part  kept numbers, sorted ─▶ bounds of groups of about GROUP_BYTES ─▶ chunks are grouped,
//!              and each group is sorted in the cache on its way to the output
//! ```
//!
//! So every number is sorted once, in a group as large as the cache, instead of once in its chunk and again in the
//! merge. A resumed job has no sample: it sorts chunks and merges them.

use std::sync::Arc;

use ascot_io::{Buf, Pool};

use crate::records::Splitters;

/// Maximum bytes of a group: it is sorted in a second-level cache.
const GROUP_BYTES: u64 = 256 << 10;
/// Approximate number of keys kept for each group: the size of a group is then within a third of GROUP_BYTES.
const KEYS_PER_GROUP: u64 = 24;
/// Maximum number of groups of a part: grouping a chunk writes to as many addresses at once.
const MAX_GROUPS: u64 = 2048;
/// Inverse of the sample's maximum memory share.
const MEMORY_SHARE: u64 = 16;

/// The sample of all parts.
pub struct KeySample {
    memory: Buf,
    /// Maximum number of keys of a part.
    quota: usize,
    parts: Vec<PartSample>,
    group_bytes: u64,
    /// At first every `every`-th key is kept.
    every: u64,
    /// The latest requested part and its bounds: the chunks of a part come one after another.
    latest: Option<(usize, Option<Arc<Splitters>>)>,
}

#[derive(Clone, Copy)]
struct PartSample {
    kept: usize,
    /// Every `every`-th key is kept now.
    every: u64,
    /// Keys to skip before the next one that is kept.
    skip: u64,
}

impl KeySample {
    /// Memory for the keys of `data_bytes` of records; none if it would take too much. A chunk of output, of
    /// `chunk_bytes`, should hold a group.
    pub fn new(pool: &Pool, data_bytes: u64, record_bytes: u64, chunk_bytes: usize) -> Option<Self> {
        let group_bytes = GROUP_BYTES.min(chunk_bytes as u64 / 2).max(1);
        let keys = data_bytes / group_bytes * KEYS_PER_GROUP;
        // Quotas are twice what an even share would be.
        let bytes = (2 * keys * size_of::<u64>() as u64).max(4096);
        if bytes > pool.budget() as u64 / MEMORY_SHARE {
            return None;
        }
        let memory = pool.region(bytes as usize, "a sample of keys").ok()?;
        let every = (group_bytes / record_bytes / KEYS_PER_GROUP).max(1);
        Some(KeySample { memory, quota: 0, parts: Vec::new(), group_bytes, every, latest: None })
    }

    /// Memory of the sample.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Clears the sample and divides it among `parts` parts.
    pub fn divide(&mut self, parts: usize) {
        self.quota = self.memory.len() / size_of::<u64>() / parts.max(1);
        self.parts = vec![PartSample { kept: 0, every: self.every, skip: self.every / 2 }; parts];
    }

    /// Samples `count` more records of a part; `key` returns the prefix of the key of one of them.
    pub fn add(&mut self, part: usize, count: usize, key: impl Fn(usize) -> u64) {
        let sample = &mut self.parts[part];
        // The memory is aligned, its length a multiple of a key's, and there is a quota for each part.
        let kept: &mut [u64] = bytemuck::cast_slice_mut(&mut self.memory);
        let kept = &mut kept[part * self.quota..(part + 1) * self.quota];
        let mut at = sample.skip;
        while at < count as u64 {
            if sample.kept == kept.len() {
                // Keep every second key, and half as many from now on.
                for i in 0..sample.kept / 2 {
                    kept[i] = kept[2 * i];
                }
                sample.kept /= 2;
                sample.every *= 2;
                if sample.kept == kept.len() {
                    return;
                }
            }
            kept[sample.kept] = key(at as usize);
            sample.kept += 1;
            at += sample.every;
        }
        sample.skip = at - count as u64;
    }

    /// The bounds of the groups of a part of `bytes` bytes; none if it is one group, or if nothing was sampled.
    pub fn bounds(&mut self, part: usize, bytes: u64) -> Option<Arc<Splitters>> {
        if let Some((latest, bounds)) = &self.latest
            && *latest == part
        {
            return bounds.clone();
        }
        let bounds = self.find_bounds(part, bytes).map(Arc::new);
        self.latest = Some((part, bounds.clone()));
        bounds
    }

    fn find_bounds(&mut self, part: usize, bytes: u64) -> Option<Splitters> {
        let sample = *self.parts.get(part)?;
        let kept: &mut [u64] = bytemuck::cast_slice_mut(&mut self.memory);
        let kept = &mut kept[part * self.quota..part * self.quota + sample.kept];
        kept.sort_unstable();
        let groups = (bytes / self.group_bytes + 1).min(MAX_GROUPS).min(kept.len() as u64) as usize;
        if groups < 2 {
            return None;
        }
        let bounds: Vec<u64> = (1..groups).map(|i| kept[kept.len() * i / groups]).collect();
        // Rounded bounds are searched faster, and cost evenly spread keys little.
        let rounded = Splitters::rounded(&bounds);
        if kept.len() < 2 * groups || largest(kept, &rounded) <= 2 * kept.len() / groups {
            return Some(rounded);
        }
        let keys: Vec<Vec<u8>> = bounds.iter().map(|bound| bound.to_be_bytes().to_vec()).collect();
        Some(Splitters::new(&keys, false))
    }
}

/// The number of keys in the largest group.
fn largest(keys: &[u64], bounds: &Splitters) -> usize {
    let mut sizes = vec![0; bounds.parts()];
    keys.iter().for_each(|&key| sizes[bounds.part_of_prefix(key)] += 1);
    sizes.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_about_as_large_as_wanted() {
        let pool = Pool::new(64 << 20);
        let count = 1usize << 20;
        let value = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let mut sample = KeySample::new(&pool, (count * 8) as u64, 8, 1 << 20).expect("memory");
        sample.divide(2);
        for chunk in 0..16 {
            sample.add(1, count / 16, |i| value(chunk * count / 16 + i));
        }
        assert!(sample.bounds(0, 1 << 20).is_none(), "nothing is known of the other part");
        let bounds = sample.bounds(1, (count * 8) as u64).expect("many groups");
        let mut sizes = vec![0u64; bounds.parts()];
        (0..count).for_each(|i| sizes[bounds.part_of_prefix(value(i))] += 8);
        let largest = sizes.iter().max().copied().unwrap_or(0);
        assert!(largest < 2 * GROUP_BYTES && bounds.parts() > 24, "{sizes:?}");
    }

    #[test]
    fn equal_keys_get_a_group_of_their_own() {
        let pool = Pool::new(64 << 20);
        let mut sample = KeySample::new(&pool, 8 << 20, 8, 1 << 20).expect("memory");
        sample.divide(1);
        sample.add(0, 1 << 20, |i| if i % 3 == 0 { i as u64 } else { 77_777 });
        let bounds = sample.bounds(0, 8 << 20).expect("many groups");
        assert!(bounds.all_equal(bounds.part_of_prefix(77_777)));
        assert!(!bounds.all_equal(bounds.part_of_prefix(77_778)));
    }

    #[test]
    fn little_memory_has_no_sample() {
        assert!(KeySample::new(&Pool::new(1 << 20), 8 << 30, 8, 1 << 20).is_none());
    }
}
