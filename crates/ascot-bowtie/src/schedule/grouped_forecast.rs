//! A4 with forecasting: for merges on devices whose switches cost more than moving a block, if the first keys of all
//! blocks are known.
//!
//! A merge needs a block when everything smaller than its first key has been consumed, so it needs blocks in the order
//! of their first keys (Knuth, volume 3, section 5.4.6). The position of a block in this order is the number of blocks
//! of all inputs that the merge begins before it:
//!
//! ```text
//!   first keys   input 0   a  d  g        input 1   b  c  z
//!   order        a  b  c  d  g  z
//!   positions    input 0   0  3  4        input 1   1  2  5
//! ```
//!
//! When an input runs out, the group of inputs that run out first is filled until one step after the group that was
//! filled last (section III.D):
//!
//! ```text
//!   filled        group 0        group 1        group 2        group 0        group 1   ...
//!   until      step |     2 steps |     3 steps |     4 steps |     5 steps |
//! ```
//!
//! [`Staircase`](super::Staircase) estimates from rates when inputs run out, and its errors add up: groups drift
//! together or apart. Here positions are exact, and each step begins where the one before ends.
//!
//! Invariant: every input that is not read to its end holds a block after a filling.

use ascot_model::run_length::{Algorithm, Groups, Scheme, Shape};

use super::split::Split;
use super::targets::Tasks;
use super::view::{BlockedOn, Move, Schedule, SchedulerView, Staircases};
use crate::constants::{FILL_SHARE, PARTLY_USED_BLOCKS};

/// The inputs of all blocks, in the order in which a merge needs the blocks. `first_keys[i]` holds the prefixes of the
/// first keys of input `i`, ascending.
///
/// Equal prefixes tell no order: keys may share a head, such as the date of a log. A merge is taken to need blocks of
/// equal prefixes evenly from all inputs. In the order of inputs, the first one would get all of the memory, and the
/// others would be read block by block. If it is the keys that are equal, inputs are needed one after the other, and
/// are read in runs of their shares of the memory.
pub(super) fn order_of_need(first_keys: &[Vec<u64>]) -> Vec<u32> {
    let mut blocks: Vec<(u64, u64, u32)> = Vec::with_capacity(first_keys.iter().map(Vec::len).sum());
    for (input, keys) in first_keys.iter().enumerate() {
        for equal in keys.chunk_by(|a, b| a == b) {
            // The middle of each block among the blocks of its prefix, as a fraction of 2^32.
            let place = |at: usize| ((2 * at as u64 + 1) << 31) / equal.len() as u64;
            blocks.extend(equal.iter().enumerate().map(|(at, &key)| (key, place(at), input as u32)));
        }
    }
    blocks.sort_unstable();
    blocks.into_iter().map(|(_, _, input)| input).collect()
}

/// The positions of the blocks of each input in that order, ascending.
pub(super) fn positions_of_need(first_keys: &[Vec<u64>]) -> Vec<Vec<u32>> {
    let mut positions: Vec<Vec<u32>> = first_keys.iter().map(|keys| Vec::with_capacity(keys.len())).collect();
    for (position, input) in order_of_need(first_keys).into_iter().enumerate() {
        positions[input as usize].push(position as u32);
    }
    positions
}

/// Fills groups of inputs, knowing when each block is needed.
#[derive(Clone, Debug)]
pub struct GroupedForecast {
    /// The positions of the blocks of each input, ascending.
    positions: Vec<Vec<u32>>,
    /// Blocks of all inputs.
    end: u32,
    /// Blocks of memory.
    memory: u32,
    tasks: Tasks,
    /// The position until which the group filled last lasts; none before the beginning. A group runs out up to a block
    /// later, but the next step begins here, so that rounding does not add up.
    filled_until: Option<f64>,
}

impl Schedule for GroupedForecast {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        if let Some(step) = self.tasks.next(view, false) {
            return Some(step);
        }
        if let BlockedOn::Input(waited) = view.blocked_on {
            self.fill(view, waited);
            return self.tasks.next(view, false);
        }
        view.fullest().map(Move::Write)
    }

    fn staircases(&self, live_inputs: u32, _split: Split) -> Staircases {
        let group = group_size(live_inputs);
        Staircases { inputs: Staircases::of_inputs(live_inputs, Some(group), self.memory), outputs: None }
    }
}

impl GroupedForecast {
    /// For a merge into a file on the same device (A4). `first_keys[i]` holds the prefixes of the first keys of all
    /// blocks of input `i`, ascending; `memory` is in blocks.
    pub fn new(first_keys: &[Vec<u64>], memory: u32) -> Self {
        let positions = positions_of_need(first_keys);
        let end = positions.iter().map(Vec::len).sum::<usize>() as u32;
        GroupedForecast { positions, end, memory, tasks: Tasks::default(), filled_until: None }
    }

    /// Fills the group that runs out first, or at the beginning all groups.
    fn fill(&mut self, view: &SchedulerView<'_>, waited: usize) {
        let requested =
            |(blocks, &remaining): (&Vec<u32>, &u32)| blocks.len().saturating_sub(remaining as usize);
        let ends: Vec<usize> = self.positions.iter().zip(view.remaining).map(requested).collect();
        let mut state = State { positions: &self.positions, end: self.end, ends, now: 0 };
        state.now = state.runs_out(waited);
        let live = view.remaining.iter().filter(|&&remaining| remaining > 0).count() as u32;
        let groups = groups_of(live);
        let memory = (f64::from(self.memory) - PARTLY_USED_BLOCKS * f64::from(live)).max(f64::from(live));
        let cycle = groups.bytes_per_stream(memory * FILL_SHARE) * f64::from(live);
        let filling = match self.filled_until {
            Some(until) => state.next_group(groups, cycle, until, view.free_to_read),
            None => state.staircase(groups, cycle),
        };
        self.filled_until = Some(filling.until);
        for Target { input, end } in filling.targets {
            self.tasks.fill(input, view.held[input] + (end - state.ends[input]) as u32);
        }
        // Every input needs a block before the merge can begin.
        (0..view.held.len())
            .filter(|&input| view.held[input] == 0)
            .for_each(|input| self.tasks.fill(input, 1));
    }
}

/// The groups of a merge of `inputs` inputs into a file.
fn groups_of(inputs: u32) -> Groups {
    Groups::new(inputs.max(1), group_size(inputs))
}

/// The size of these groups.
fn group_size(inputs: u32) -> f64 {
    let shape = Shape { inputs: inputs.max(1), outputs: 1, alpha: 0.5 };
    Scheme::best_of(shape, Algorithm::A4).map_or(1.0, |scheme| scheme.read_group)
}

/// Inputs to be filled, and the position until which they last then.
struct Filling {
    targets: Vec<Target>,
    until: f64,
}

/// An input to be filled, and the number of its blocks that are requested then.
struct Target {
    input: usize,
    end: usize,
}

/// A state of the merge: how far it has come, and the number of blocks of each input that were requested.
struct State<'a> {
    positions: &'a [Vec<u32>],
    end: u32,
    ends: Vec<usize>,
    now: u32,
}

impl State<'_> {
    /// The position at which an input runs out; the end if all its blocks were requested.
    fn runs_out(&self, input: usize) -> u32 {
        self.positions[input].get(self.ends[input]).copied().unwrap_or(self.end)
    }

    /// The number of blocks of an input that are needed before a position, but at least one more than were requested.
    fn end_at(&self, input: usize, position: f64) -> usize {
        let blocks = &self.positions[input];
        let before = blocks.partition_point(|&at| f64::from(at) < position);
        before.max(self.ends[input] + 1).min(blocks.len())
    }

    /// The inputs that have blocks that were not requested.
    fn unread_inputs(&self) -> Vec<usize> {
        (0..self.ends.len()).filter(|&input| self.ends[input] < self.positions[input].len()).collect()
    }

    /// The time between two groups: the blocks that a group consumes in a cycle. Memory is then equally full whenever
    /// a group runs out.
    fn step(&self, group: &[usize], cycle: f64) -> f64 {
        let now = f64::from(self.now);
        let consumed = |&input: &usize| {
            let before = |end: f64| self.positions[input].partition_point(|&at| f64::from(at) < end);
            before(now + cycle) - before(now)
        };
        group.iter().map(consumed).sum::<usize>() as f64
    }

    /// The targets of inputs that last until `position`.
    fn targets(&self, inputs: &[usize], position: f64) -> Vec<Target> {
        inputs.iter().map(|&input| Target { input, end: self.end_at(input, position) }).collect()
    }

    /// All inputs, in groups that run out one step after the other: theorem 8.
    fn staircase(&self, groups: Groups, cycle: f64) -> Filling {
        let inputs = self.unread_inputs();
        let mut rest = inputs.as_slice();
        let mut until = 0.0;
        let mut targets = Vec::with_capacity(inputs.len());
        for number in 0..groups.number {
            let (group, others) = rest.split_at(rest.len().min(groups.size(number) as usize));
            until += self.step(group, cycle);
            targets.extend(self.targets(group, until));
            rest = others;
        }
        Filling { targets, until }
    }

    /// The inputs that run out first, until one step after the group filled last, or as far as `free` blocks of memory
    /// go.
    fn next_group(&self, groups: Groups, cycle: f64, filled_until: f64, free: u32) -> Filling {
        let mut inputs = self.unread_inputs();
        let unread: usize = inputs.iter().map(|&input| self.positions[input].len() - self.ends[input]).sum();
        if unread <= free as usize {
            let until = f64::from(self.end);
            return Filling { targets: self.targets(&inputs, until), until };
        }
        inputs.sort_by_key(|&input| self.runs_out(input));
        let now = f64::from(self.now);
        let soon = now + cycle / f64::from(2 * groups.number);
        let soon = |&&input: &&usize| f64::from(self.runs_out(input)) <= soon;
        let size = inputs.iter().take(groups.size(0) as usize).take_while(soon).count();
        let group = &inputs[..size];
        let wanted = (filled_until.max(now) + self.step(group, cycle)).min(now + cycle);
        let fits = |position: f64| {
            let blocks: usize = group.iter().map(|&it| self.end_at(it, position) - self.ends[it]).sum();
            blocks <= free as usize
        };
        let mut longest = now;
        let mut too_long = wanted + 1.0;
        while too_long - longest > 1.0 {
            let middle = f64::midpoint(longest, too_long);
            if fits(middle) {
                longest = middle;
            } else {
                too_long = middle;
            }
        }
        Filling { targets: self.targets(group, longest), until: longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Staircase;
    use crate::schedule::played::{play, uniform};

    fn staircase(inputs: usize, memory: u32) -> (Scheme, Staircase) {
        let shape = Shape { inputs: inputs as u32, outputs: 1, alpha: 0.5 };
        let scheme = Scheme::best_of(shape, Algorithm::A4).expect("A4 fits every merge");
        (scheme, Staircase::new(scheme, memory))
    }

    /// Keys that share a head are merged in runs, too, though their prefixes tell no order.
    #[test]
    fn equal_prefixes_make_runs() {
        let lengths = vec![206; 7];
        let keys = uniform(&lengths, 3);
        let prefixes: Vec<Vec<u64>> = lengths.iter().map(|&len| vec![7; len]).collect();
        let by_keys = play(&mut GroupedForecast::new(&keys, 491), &keys, 491).with_writes;
        let by_prefixes = play(&mut GroupedForecast::new(&prefixes, 491), &keys, 491).with_writes;
        assert!(f64::from(by_prefixes) < 1.3 * f64::from(by_keys), "{by_prefixes}, by keys {by_keys}");
        // Equal keys are consumed input by input: no worse than equal parts of the memory.
        let equal = play(&mut GroupedForecast::new(&prefixes, 491), &prefixes, 491).with_writes;
        let parts = 2 * 7 * 206 / (491 / 7);
        assert!(equal < parts as u32, "{equal}, equal parts {parts}");
    }

    /// Switches are those of the formula but for the rounding to whole blocks, the beginning and the end; and fewer
    /// than where rates say when inputs run out.
    #[test]
    fn switches_are_those_of_the_formula() {
        let mut uneven = vec![206; 18];
        uneven.push(52);
        let shapes = [(uneven, 491), (vec![400; 16], 640), (vec![1000; 32], 1920), (vec![1000; 64], 1920)];
        let mut all = 0;
        let mut all_by_rates = 0;
        for (lengths, memory) in shapes {
            let keys = uniform(&lengths, 3);
            let runs = play(&mut GroupedForecast::new(&keys, memory), &keys, memory).with_writes;
            let (scheme, mut by_rates) = staircase(lengths.len(), memory);
            let blocks = 2.0 * lengths.iter().sum::<usize>() as f64;
            let formula = blocks / scheme.run_length(f64::from(memory));
            assert!(f64::from(runs) < 1.25 * formula, "{} inputs: {runs}, formula {formula}", lengths.len());
            all += runs;
            all_by_rates += play(&mut by_rates, &keys, memory).with_writes;
        }
        assert!(f64::from(all) < 0.95 * f64::from(all_by_rates), "{all}, by rates {all_by_rates}");
    }
}
