//! Merges of keys in memory, for tests of the schedules that know first keys.

use ascot_model::random::SplitMix64;
use proptest::prelude::*;

use super::grouped_forecast::{GroupedForecast, order_of_need};
use super::planned_reads::PlannedReads;
use super::view::{BlockedOn, Move, Schedule, SchedulerView};

/// Runs of a merge.
pub(super) struct Played {
    /// Runs of reads, if nothing else moves.
    pub(super) reads: u32,
    /// Runs of reads, and runs of writes whenever the merge goes on.
    pub(super) with_writes: u32,
}

/// Merges inputs in memory, and asks the schedule before each block. Panics on deadlock.
pub(super) fn play(schedule: &mut dyn Schedule, keys: &[Vec<u64>], memory: u32) -> Played {
    let mut merge = Merging::new(keys, memory);
    for &input in &order_of_need(keys) {
        let input = input as usize;
        if std::mem::replace(&mut merge.begun[input], true) {
            merge.held[input] -= 1;
        }
        let starves = merge.held[input] == 0;
        merge.read(schedule, input);
        assert!(merge.held[input] > 0, "deadlock");
        if starves {
            merge.played.with_writes += 1;
            merge.last_before_write = None;
        }
    }
    assert!(merge.remaining.iter().all(|&remaining| remaining == 0), "blocks are left");
    merge.played
}

struct Merging {
    memory: u32,
    held: Vec<u32>,
    begun: Vec<bool>,
    remaining: Vec<u32>,
    last: Option<usize>,
    last_before_write: Option<usize>,
    played: Played,
}

impl Merging {
    fn new(keys: &[Vec<u64>], memory: u32) -> Self {
        Merging {
            memory,
            held: vec![0; keys.len()],
            begun: vec![false; keys.len()],
            remaining: keys.iter().map(|keys| keys.len() as u32).collect(),
            last: None,
            last_before_write: None,
            played: Played { reads: 0, with_writes: 0 },
        }
    }

    /// Reads while the schedule says so; the merge waits for `input` if it holds none.
    fn read(&mut self, schedule: &mut dyn Schedule, input: usize) {
        let inputs = self.held.len();
        let shares = vec![1.0 / inputs as f64; inputs];
        loop {
            let used: u32 = self.held.iter().sum();
            assert!(used <= self.memory, "memory above the budget");
            let runs_out: Vec<f64> = self.held.iter().map(|&held| f64::from(held) * inputs as f64).collect();
            let waits = self.held[input] == 0;
            let view = SchedulerView {
                held: &self.held,
                remaining: &self.remaining,
                free_to_read: self.memory - used,
                full: &[],
                free_to_write: 0,
                shares: &shares,
                runs_out: &runs_out,
                gain: 1.0,
                busy: &[],
                blocked_on: if waits { BlockedOn::Input(input) } else { BlockedOn::Nothing },
            };
            let Some(Move::Read(read)) = schedule.next(&view) else { break };
            self.held[read] += 1;
            self.remaining[read] -= 1;
            self.played.reads += u32::from(self.last.replace(read) != Some(read));
            self.played.with_writes += u32::from(self.last_before_write.replace(read) != Some(read));
        }
    }
}

/// First keys of inputs with these numbers of blocks, spread evenly over all keys but for a random offset.
pub(super) fn uniform(blocks: &[usize], seed: u64) -> Vec<Vec<u64>> {
    let mut random = SplitMix64(seed);
    let keys = |&blocks: &usize| {
        let step = u64::MAX / blocks as u64;
        (0..blocks as u64).map(|block| block * step + random.below(step / 4)).collect()
    };
    blocks.iter().map(keys).collect()
}

proptest! {
    /// No deadlock, every block is read once, and memory is not exceeded, whatever the keys.
    #[test]
    fn any_keys_are_merged(
        mut keys in proptest::collection::vec(proptest::collection::vec(0u64..50, 0..30), 1..9),
        spare in 0u32..40,
    ) {
        keys.iter_mut().for_each(|run| run.sort_unstable());
        let memory = keys.len() as u32 + spare;
        play(&mut GroupedForecast::new(&keys, memory), &keys, memory);
        play(&mut PlannedReads::new(&keys, memory), &keys, memory);
    }
}
