//! Boundaries of partitions by key range if many ranks write: the keys of each epoch divide the next.
//!
//! ```text
//!   each rank samples its keys ─▶ rank 0: a part of each sample, by the number of keys seen ─▶ boundaries
//!   rank 0 ─▶ the first rank of each node ─▶ the ranks of the node
//! ```
//!
//! Samples and boundaries are messages of the router, sent between epochs. The first epoch assumes keys spread evenly
//! over their first eight bytes, because no sample exists yet.

use super::allreduce::together;
use super::error::RankError;
use crate::routing::{Router, Transport};
use crate::write::Sampler;

/// Purposes of the allreduces here.
const SAMPLED: u8 = 8;
const TO_NODES: u8 = 9;
const TO_RANKS: u8 = 10;
/// Maximum number of partitions by key range: every rank keeps all boundaries.
pub(super) const PARTITIONS_MAX: u32 = 4096;
/// Keys of the joint sample for each partition, and in total.
const KEYS_PER_PARTITION: u64 = 256;
const KEYS_MAX: u64 = 1 << 14;
/// Maximum number of partitions for which a rank samples: 256 keys for each, of up to 64 bytes.
const OWN_PARTITIONS_MAX: u32 = 16;

/// Bytes of a sample key and its list entry.
const KEY_BYTES: usize = 64 + 24;

/// Memory of samples and boundaries: a rank's own sample, the joint one, the old and the new boundaries.
pub(super) fn memory_bytes(partitions: u32) -> usize {
    let own = u64::from(partitions.min(OWN_PARTITIONS_MAX)) * KEYS_PER_PARTITION;
    (own + joint(partitions)) as usize * KEY_BYTES + 2 * partitions as usize * KEY_BYTES
}

/// Number of keys of the joint sample.
fn joint(partitions: u32) -> u64 {
    (u64::from(partitions) * KEYS_PER_PARTITION).min(KEYS_MAX)
}

/// The sample of one rank, and the current boundaries.
pub(super) struct Balance {
    partitions: u32,
    sampler: Sampler,
    pub boundaries: Vec<Vec<u8>>,
}

impl Balance {
    /// Starts with the boundaries of the epoch before, if there was one.
    pub fn new(partitions: u32, before: Vec<Vec<u8>>) -> Self {
        let boundaries = if before.is_empty() { evenly(partitions) } else { before };
        Self { partitions, sampler: Sampler::new(partitions.min(OWN_PARTITIONS_MAX)), boundaries }
    }

    /// Offers a key of this rank to the sample.
    pub fn see(&mut self, key: &[u8]) {
        self.sampler.see(key);
    }

    /// Computes the boundaries of the next epoch from the samples of all ranks, `records` records in total. All ranks
    /// call it.
    pub fn rebalance<T: Transport>(&mut self, router: &mut Router<T>, records: u64) -> Result<(), RankError> {
        let own = self.own_share(records);
        let keys = exchange(router, own.iter().map(|key| (0, key.as_slice())), SAMPLED)?;
        let rank = router.rank();
        let mut found = if rank == 0 { self.divide(keys) } else { Vec::new() };
        let topology = router.topology().clone();
        let node = topology.node_of(rank);
        let lead_of = |other| if other == topology.node_of(0) { 0 } else { topology.rank_at(other, 0) };
        let leads: Vec<u32> = (0..topology.nodes()).map(lead_of).collect();
        let beside = (0..topology.ranks_on(node)).map(|index| topology.rank_at(node, index)).collect();
        for (from, mut to, purpose) in [(0, leads, TO_NODES), (lead_of(node), beside, TO_RANKS)] {
            to.retain(|&other| rank == from && other != rank);
            let come = exchange(router, to_each(to, &found), purpose)?;
            found = if rank == from || come.is_empty() { found } else { come };
        }
        if !found.is_empty() {
            self.boundaries = found;
        }
        Ok(())
    }

    /// Keys of this rank's sample in proportion to its share of all records, evenly spaced over the sample.
    fn own_share(&mut self, records: u64) -> Vec<Vec<u8>> {
        let part = u128::from(joint(self.partitions)) * u128::from(self.sampler.seen());
        let count = part.div_ceil(u128::from(records.max(1))) as usize;
        let keys = self.sampler.keys();
        let count = count.min(keys.len());
        let share = (0..count).filter_map(|number| keys.get(number * keys.len() / count)).cloned().collect();
        self.sampler = Sampler::new(self.partitions.min(OWN_PARTITIONS_MAX));
        share
    }

    fn divide(&self, mut keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        keys.sort_unstable();
        let parts = self.partitions as usize;
        let count = keys.len();
        (1..parts).filter_map(|part| keys.get(part * count / parts).cloned()).collect()
    }
}

/// Pairs each of `ranks` with each of `keys`, in order.
fn to_each(ranks: Vec<u32>, keys: &[Vec<u8>]) -> impl Iterator<Item = (u32, &[u8])> {
    ranks.into_iter().flat_map(|rank| keys.iter().map(move |key| (rank, key.as_slice())))
}

/// Sends messages and receives those of others; returns after the messages of all ranks have arrived.
fn exchange<'a, T: Transport>(
    router: &mut Router<T>,
    messages: impl Iterator<Item = (u32, &'a [u8])>,
    purpose: u8,
) -> Result<Vec<Vec<u8>>, RankError> {
    let mut come = Vec::new();
    let mut take = |message: &[u8]| come.push(message.to_vec());
    for (to, message) in messages {
        router.append(to, message, &mut take)?;
    }
    router.drain(&mut take)?;
    together(router, purpose, Ok(come), &[]).map(|(come, _)| come)
}

/// Boundaries that divide keys evenly by their first eight bytes.
fn evenly(partitions: u32) -> Vec<Vec<u8>> {
    let boundary = |part: u32| ((u128::from(part) << 64) / u128::from(partitions.max(1))) as u64;
    (1..partitions).map(|part| boundary(part).to_be_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_first_keys_are_taken_to_be_even() {
        assert_eq!(evenly(1), Vec::<Vec<u8>>::new());
        assert_eq!(
            evenly(4),
            [[0x40, 0, 0, 0, 0, 0, 0, 0], [0x80, 0, 0, 0, 0, 0, 0, 0], [0xc0, 0, 0, 0, 0, 0, 0, 0]]
        );
        assert_eq!(evenly(PARTITIONS_MAX).len(), PARTITIONS_MAX as usize - 1);
    }

    #[test]
    fn a_rank_gives_as_many_keys_as_its_part_calls_for() {
        let mut balance = Balance::new(4, Vec::new());
        (0..1000u64).for_each(|key| balance.see(&key.to_be_bytes()));
        // A tenth of all records, so a tenth of 1,024 keys.
        assert_eq!(balance.own_share(10_000).len(), 103);
        assert_eq!(balance.own_share(10_000).len(), 0, "the sample is empty afterwards");
    }
}
