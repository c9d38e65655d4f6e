//! Blocks in the order in which they are needed: for merges on devices whose switches cost next to nothing. Outputs,
//! if there are any, are written as soon as a block is full.

use super::grouped_forecast::order_of_need;
use super::view::{Move, Schedule, SchedulerView};
use crate::constants::LOOK_AHEAD_BLOCKS;

/// Forecasting (Knuth, volume 3, section 5.4.6): blocks are read in the order in which a merge needs them. A merge
/// needs a block when everything smaller than its first key has been consumed, so this is the order of the first
/// keys.
///
/// Prefixes of keys tell no order if keys share a head, such as the date of a log. Among blocks whose prefixes are
/// equal, the input that holds the fewest blocks is read: in the order of inputs, the first one would take all of the
/// memory.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Inputs in the order in which their blocks are needed; those of equal prefixes take turns.
    order: Vec<u32>,
    /// Whether a block has the prefix of the one before it.
    equal: Vec<bool>,
    /// The next block in that order.
    next: usize,
    /// Blocks of each input that were read before their place in the order.
    ahead: Vec<u32>,
    /// The end of the blocks that have the prefix of the next one, or had that of the one before.
    equal_end: usize,
    /// Those of them that are not read, of each input.
    equal_left: Vec<u32>,
}

impl Forecast {
    /// `first_keys[i]` holds the key prefixes of all blocks of input `i` that are not yet read, ascending.
    pub fn new(first_keys: &[Vec<u64>]) -> Self {
        let order = order_of_need(first_keys);
        let mut at = vec![0; first_keys.len()];
        let mut before = None;
        let equal = order.iter().map(|&input| {
            let input = input as usize;
            let key = Some(first_keys[input][at[input]]);
            at[input] += 1;
            std::mem::replace(&mut before, key) == key
        });
        let equal = equal.collect();
        let inputs = first_keys.len();
        Forecast { order, equal, next: 0, ahead: vec![0; inputs], equal_end: 0, equal_left: vec![0; inputs] }
    }

    /// Counts the blocks that have the prefix of the next one.
    fn count_equal(&mut self) {
        let rest = self.equal.iter().skip(self.next + 1).take_while(|&&equal| equal).count();
        self.equal_end = self.next + 1 + rest;
        self.equal_left.fill(0);
        for &input in &self.order[self.next..self.equal_end] {
            self.equal_left[input as usize] += 1;
        }
        for (left, ahead) in self.equal_left.iter_mut().zip(&self.ahead) {
            *left = left.saturating_sub(*ahead);
        }
    }

    /// Of the inputs whose next block has the prefix of the next one in the order, the one that holds the fewest
    /// blocks.
    fn fewest_held(&self, view: &SchedulerView<'_>) -> Option<usize> {
        let left =
            (0..view.held.len()).filter(|&input| self.equal_left[input] > 0 && view.remaining[input] > 0);
        left.min_by_key(|&input| view.held[input])
    }

    /// Reads a block of `input` before its place in the order.
    fn read_ahead(&mut self, input: usize) -> Option<Move> {
        self.ahead[input] += 1;
        self.equal_left[input] = self.equal_left[input].saturating_sub(1);
        Some(Move::Read(input))
    }

    /// The input of the next block whose device is idle, among the blocks that follow soon.
    fn on_idle_device(&self, view: &SchedulerView<'_>) -> Option<usize> {
        let mut ahead = self.ahead.clone();
        let window = LOOK_AHEAD_BLOCKS * view.held.len();
        let rest = self.order.iter().skip(self.next).take(window).map(|&input| input as usize);
        rest.filter(|&input| {
            let read = ahead[input] > 0;
            ahead[input] = ahead[input].saturating_sub(1);
            !read
        })
        .find(|&input| !view.is_busy(input) && view.may_read(input))
    }
}

impl Schedule for Forecast {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        if let Some(output) = view.fullest() {
            return Some(Move::Write(output));
        }
        if view.free_to_read == 0 {
            return None;
        }
        while let Some(&input) = self.order.get(self.next) {
            let input = input as usize;
            if self.next >= self.equal_end {
                self.count_equal();
            }
            if self.ahead[input] > 0 {
                self.ahead[input] -= 1;
                self.next += 1;
                continue;
            }
            if view.remaining[input] == 0 {
                self.next += 1;
                continue;
            }
            let fewest = self.fewest_held(view).unwrap_or(input);
            if !view.may_read(fewest) {
                break;
            }
            if view.is_busy(fewest)
                && let Some(other) = self.on_idle_device(view)
            {
                return self.read_ahead(other);
            }
            return self.read_ahead(fewest);
        }
        let starved = (0..view.held.len()).find(|&i| view.held[i] == 0 && view.remaining[i] > 0)?;
        self.read_ahead(starved)
    }
}

/// For inputs whose keys are not known beforehand: reads the input that holds the fewest blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct FewestHeld;

impl Schedule for FewestHeld {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        if let Some(output) = view.fullest() {
            return Some(Move::Write(output));
        }
        let live = (0..view.held.len()).filter(|&input| view.remaining[input] > 0);
        // Inputs on busy devices come last, but an input that holds nothing comes first.
        let fewest =
            live.min_by_key(|&input| (view.held[input] > 0 && view.is_busy(input), view.held[input]))?;
        view.may_read(fewest).then_some(Move::Read(fewest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::view::BlockedOn;
    use proptest::prelude::*;

    fn view<'a>(held: &'a [u32], remaining: &'a [u32], free_to_read: u32) -> SchedulerView<'a> {
        SchedulerView {
            held,
            remaining,
            free_to_read,
            full: &[],
            free_to_write: 0,
            shares: &[],
            runs_out: &[],
            gain: 1.0,
            busy: &[],
            blocked_on: BlockedOn::Nothing,
        }
    }

    /// Simulates a merge: consumes blocks in key order and reads as the schedule says. Returns the number of reads;
    /// panics on deadlock.
    fn play(mut schedule: impl Schedule, keys: &[Vec<u64>], blocks: usize) -> usize {
        let mut held: Vec<Vec<u64>> = vec![Vec::new(); keys.len()];
        let mut next = vec![0usize; keys.len()];
        let mut reads = 0;
        loop {
            loop {
                let counts: Vec<u32> = held.iter().map(|h| h.len() as u32).collect();
                let remaining: Vec<u32> = (0..keys.len()).map(|i| (keys[i].len() - next[i]) as u32).collect();
                let used: usize = held.iter().map(Vec::len).sum();
                assert!(used <= blocks, "memory above the budget");
                let now = view(&counts, &remaining, (blocks - used) as u32);
                let Some(Move::Read(input)) = schedule.next(&now) else { break };
                held[input].push(keys[input][next[input]]);
                next[input] += 1;
                reads += 1;
            }
            let live: Vec<usize> =
                (0..keys.len()).filter(|&i| !held[i].is_empty() || next[i] < keys[i].len()).collect();
            if live.is_empty() {
                return reads;
            }
            assert!(live.iter().all(|&i| !held[i].is_empty()), "deadlock: a live input holds nothing");
            let smallest = live
                .into_iter()
                .min_by_key(|&i| held[i].get(1).copied().unwrap_or(u64::MAX).min(held[i][0] + 1));
            held[smallest.expect("one is live")].remove(0);
        }
    }

    proptest! {
        #[test]
        fn no_deadlock_and_every_block_once(
            mut keys in proptest::collection::vec(proptest::collection::vec(0u64..20, 0..12), 1..9),
            spare in 0usize..10,
        ) {
            keys.iter_mut().for_each(|run| run.sort_unstable());
            let total: usize = keys.iter().map(Vec::len).sum();
            let blocks = keys.len() + spare;
            prop_assert_eq!(play(Forecast::new(&keys), &keys, blocks), total);
            prop_assert_eq!(play(FewestHeld, &keys, blocks), total);
        }
    }

    #[test]
    fn forecasting_reads_in_the_order_of_need() {
        let keys = vec![vec![1, 2, 3], vec![10, 11, 12]];
        let mut schedule = Forecast::new(&keys);
        assert_eq!(schedule.next(&view(&[0, 0], &[3, 3], 4)), Some(Move::Read(0)));
        assert_eq!(schedule.next(&view(&[1, 0], &[2, 3], 3)), Some(Move::Read(0)));
        assert_eq!(schedule.next(&view(&[2, 0], &[1, 3], 2)), Some(Move::Read(0)));
        // One block is left, and input 1 has none: it is kept for it.
        assert_eq!(schedule.next(&view(&[3, 0], &[0, 3], 1)), Some(Move::Read(1)));
    }

    /// Prefixes of keys that share a head tell nothing: memory is shared out evenly, and not to the first input.
    #[test]
    fn inputs_of_equal_prefixes_share_the_memory() {
        let keys = vec![vec![7; 20], vec![7; 20], [vec![7; 20], vec![9; 5]].concat()];
        let mut schedule = Forecast::new(&keys);
        let mut held = [0, 0, 0];
        let mut remaining = [20, 20, 25];
        for free in (1..=30).rev() {
            let Some(Move::Read(input)) = schedule.next(&view(&held, &remaining, free)) else { panic!() };
            held[input] += 1;
            remaining[input] -= 1;
        }
        assert_eq!(held, [10, 10, 10]);
        // What is consumed is read again, whichever input it is of.
        held[1] -= 1;
        assert_eq!(schedule.next(&view(&held, &remaining, 1)), Some(Move::Read(1)));
    }
}
