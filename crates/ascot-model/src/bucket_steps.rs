//! The staircase of the buckets of one side of a bowtie: how full each of them is in the steady state, and how far
//! measured buckets are from that.

use serde::{Deserialize, Serialize};

use crate::run_length::occupancies;

/// The staircase of the buckets of one side of a bowtie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// Buckets.
    pub streams: u32,
    /// The number of streams that move together; `None` if one stream moves at a time.
    pub group: Option<f64>,
    /// What all of them hold together when memory is full, in any unit.
    pub memory: f64,
}

impl Steps {
    /// The occupancy of each bucket, descending ([`occupancies`]).
    pub fn sizes(&self) -> Vec<f64> {
        occupancies(self.streams, self.group, self.memory)
    }

    /// The distance of occupancies from the staircase: the sum of the absolute differences, both sorted, as a share of
    /// the staircase. 0 is the staircase; two staircases without a common part have a distance of 2.
    pub fn distance(&self, occupied: &[u64]) -> f64 {
        let mut sorted = occupied.to_vec();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let sizes = self.sizes();
        let pairs = 0..sizes.len().max(sorted.len());
        let difference = |at: usize| {
            let size = sizes.get(at).copied().unwrap_or_default();
            (sorted.get(at).copied().unwrap_or_default() as f64 - size).abs()
        };
        pairs.map(difference).sum::<f64>() / sizes.iter().sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_that_of_the_sorted_sizes() {
        let steps = Steps { streams: 3, group: None, memory: 300.0 };
        assert_eq!(steps.sizes(), [200.0, 100.0, 0.0]);
        assert_eq!(steps.distance(&[100, 200, 0]), 0.0);
        assert_eq!(steps.distance(&[100; 3]), 200.0 / 300.0);
        assert_eq!(steps.distance(&[]), 1.0);
    }
}
