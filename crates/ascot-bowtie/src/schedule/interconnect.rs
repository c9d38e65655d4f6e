//! Keeping both sides of an interconnect in step. This part is not in the paper.
//!
//! Section IV.B assumes that the two sides of A6 run out at the same moments: whenever an input's bucket is empty,
//! the outputs' memory is full. With whole blocks, whole groups and uneven rates they do not, and each side would
//! stop the other in the middle of its runs. Here the side that streams sets the pace. One of its runs is a *round*,
//! and the groups of the other side move only where a round ends.
//!
//! **A6r**: inputs are streamed. Time is counted in blocks consumed of all inputs together.
//!
//! ```text
//!   inputs    |-- stream input 4 --|-- stream input 2 --|-- stream input 7 --|
//!   outputs   ^ make_room          ^ make_room          ^ make_room
//!             write as few of the fullest outputs as give memory for the next round
//!
//!   `interrupt`: the outputs' memory is full although the round has not ended
//!             |-- stream input 4 ------x-|
//!   less than `early` left:   fill input 4 up and end the round now; make room for the next round
//!   more left:                make room for the rest of this round
//! ```
//!
//! **A6w**: outputs are streamed. An output written is a round, and inputs that would run out while it is written are
//! filled before ([`fill_before`]), each for a whole number of rounds:
//!
//! ```text
//!             now       round 1   round 2   round 3
//!   outputs   |-write 5-|-write 1-|-write 6-|-write 3-|
//!   input a   ####|                                      runs out now: filled now, for 3 rounds
//!   input b   #########|                                 runs out now: filled now, for 2 rounds
//!   input c   ##################|                        runs out in round 1: filled at the end of `now`
//!   input d   ###########################|               runs out in round 2
//! ```
//!
//! Fillings are spread so that a group of inputs runs out in every round, and the rest, if groups do not divide the
//! number of inputs, in the round after the last. If memory does not hold them all, those that would last longest
//! are filled for fewer rounds.

use super::targets::{Targets, Tasks};
use super::view::SchedulerView;
use crate::constants::{
    EARLY_BLOCKS, EARLY_BUCKET, EARLY_END, EARLY_FILL, MIN_GAIN, MIN_RATE, MIN_ROUND_SLACK, ROUND_SLACK,
    RUN_OUT_SLACK, SPARE_BLOCKS,
};

/// Writes as few of the fullest outputs as make room until `end`, a time in blocks consumed. At least one is written
/// if there is no free block at all.
///
/// An output more than needed leaves half of its bucket empty in the mean, the less of all memory the more outputs
/// there are: then a round may be less short.
pub(super) fn make_room(view: &SchedulerView<'_>, targets: &Targets, end: f64, tasks: &mut Tasks) {
    let groups = view.full.len() as f64 / targets.scheme.write_group;
    let slack = (1.0 / groups.max(1.0)).clamp(MIN_ROUND_SLACK, ROUND_SLACK);
    let wanted = end * view.gain * (1.0 - slack);
    let mut free = f64::from(view.free_to_write);
    for output in view.fullest_first() {
        if free >= wanted && free > 0.0 {
            break;
        }
        free += f64::from(view.full[output]);
        tasks.drain([output]);
    }
}

/// The outputs' memory is full while the input `current` is streamed (A6r). Says whether it had anything to do with
/// rounds: if no other input has blocks to come, there are none.
pub(super) fn interrupt(
    view: &SchedulerView<'_>,
    targets: &Targets,
    current: Option<usize>,
    tasks: &mut Tasks,
) -> bool {
    let others = view.by_run_out(|input| Some(input) != current && view.remaining[input] > 0);
    let Some(&first) = others.first() else { return false };
    // The time between two inputs that run out: a step of the staircase of A3 (theorem 6), of which the largest bucket
    // has n - 1.
    let largest = f64::from(targets.largest(view, first));
    let share = view.shares[first].max(MIN_RATE);
    let round = largest / share / (targets.inputs() - 1.0).max(1.0);
    // Inputs are streamed in whole blocks, which are a large part of a round of many inputs.
    let early = (EARLY_END * round).max(EARLY_BLOCKS.min(EARLY_BUCKET * largest) / share);
    let mut end = view.runs_out[first];
    if let Some(current) = current
        && end < early
    {
        let filled = targets.fill_up(view, current, tasks);
        end = others.get(1).map_or(filled, |&second| view.runs_out[second]).min(filled);
    }
    make_room(view, targets, end, tasks);
    true
}

/// The rounds ahead of an A6w, in blocks consumed of all inputs together.
struct Rounds {
    /// The end of the round that goes on now.
    now: f64,
    /// Length of each later round.
    length: f64,
    /// Inputs that may run out in each round.
    group: usize,
    /// Rounds in which a whole group runs out.
    whole: usize,
    /// Inputs that run out in the round after those.
    rest: usize,
}

impl Rounds {
    fn new(view: &SchedulerView<'_>, targets: &Targets, waited: Option<usize>) -> Self {
        let outputs = view.full.len() as f64;
        let gain = view.gain.max(MIN_GAIN);
        let blocks = view.full.iter().sum::<u32>() + view.free_to_write;
        // A run of A1 in the outputs' memory (theorem 2), in blocks consumed. Half a block of each output is being
        // filled on average.
        let length = 2.0 * (f64::from(blocks) + outputs / 2.0) / (outputs - 1.0) / gain;
        let fullest = view.fullest().map_or(0.0, |fullest| f64::from(view.full[fullest]));
        // The same run, from the size of its bucket, the largest one (theorem 1).
        let this = fullest * outputs / (outputs - 1.0) / gain;
        let left = (f64::from(view.free_to_write) / gain).min(length);
        // An output is written now, or as soon as this round ends. An input filled only until then would take a run
        // for a few blocks, and another one when the round ends.
        let now = if waited.is_none() || left < EARLY_FILL * length { left + this } else { left };
        let live = targets.scheme.shape.inputs as usize;
        let group = targets.group_size();
        Rounds { now, length, group, whole: (live / group).max(1), rest: live % group }
    }

    /// The round in which something runs out at `time`; 0 is now. Something that runs out a little before a round
    /// begins belongs to that round.
    fn round_of(&self, time: f64) -> usize {
        let rounds = (time - self.now) / self.length + 1.0 + RUN_OUT_SLACK;
        (rounds.max(0.0).floor() as usize).min(self.whole + 1)
    }

    /// The last of the rounds before `end` in which fewer than a group run out.
    fn last_not_full(&self, running_out: &[usize], end: usize) -> Option<usize> {
        (1..end).rev().find(|&round| running_out[round] < self.group)
    }

    /// Blocks that an input needs to last until `round` begins, to the nearest block.
    fn target(&self, view: &SchedulerView<'_>, input: usize, round: usize, read_blocks: u32) -> u32 {
        let blocks = (self.now + (round as f64 - 1.0) * self.length) * view.shares[input] + SPARE_BLOCKS;
        (blocks.round() as u32).clamp(1, read_blocks.max(1))
    }
}

/// An input to be filled, and the round in which it runs out then.
struct Filling {
    input: usize,
    round: usize,
}

/// An output is written now or soon (A6w): fills the inputs that would run out meanwhile, and `waited`, the one that
/// the function waits for.
pub(super) fn fill_before(
    view: &SchedulerView<'_>,
    targets: &Targets,
    waited: Option<usize>,
    tasks: &mut Tasks,
) {
    let rounds = Rounds::new(view, targets, waited);
    // Inputs that run out in each round; those of round 0 are filled now.
    let mut running_out = vec![0; rounds.whole + 2];
    let runs_out_now = |input: usize| {
        waited == Some(input) || (view.remaining[input] > 0 && rounds.round_of(view.runs_out[input]) == 0)
    };
    for input in (0..view.held.len()).filter(|&input| !runs_out_now(input)) {
        running_out[rounds.round_of(view.runs_out[input])] += 1;
    }
    let mut fillings = Vec::new();
    for input in view.by_run_out(runs_out_now) {
        let after = rounds.whole + 1;
        let round = if running_out[after] < rounds.rest {
            after
        } else {
            rounds.last_not_full(&running_out, after).unwrap_or(rounds.whole)
        };
        running_out[round] += 1;
        fillings.push(Filling { input, round });
    }
    shorten(view, targets, &rounds, &mut running_out, &mut fillings);
    for Filling { input, round } in fillings {
        tasks.fill(input, rounds.target(view, input, round, targets.read_blocks));
    }
}

/// Lets the longest fillings last for fewer rounds until memory holds all of them. They move to a round in which
/// fewer than a group run out: larger groups would need ever more memory at once.
fn shorten(
    view: &SchedulerView<'_>,
    targets: &Targets,
    rounds: &Rounds,
    running_out: &mut [usize],
    fillings: &mut [Filling],
) {
    loop {
        let missing = |filling: &Filling| {
            let target = rounds.target(view, filling.input, filling.round, targets.read_blocks);
            u64::from(target.saturating_sub(view.held[filling.input]))
        };
        let needed: u64 = fillings.iter().map(missing).sum();
        if needed <= u64::from(view.free_to_read) + fillings.len() as u64 {
            return;
        }
        let Some(longest) = fillings.iter_mut().max_by_key(|filling| filling.round) else { return };
        if longest.round <= 1 {
            return;
        }
        running_out[longest.round] -= 1;
        longest.round = rounds.last_not_full(running_out, longest.round).unwrap_or(longest.round - 1);
        running_out[longest.round] += 1;
    }
}
