//! How full the bucket of an input is made: theorems 6 and 8, kept up while inputs are consumed at different rates.
//!
//! The optimal state of a merge does not come about by itself (section III.C). Each filling therefore aims at the
//! occupancy with which the input runs out one step of the staircase after all others:
//!
//! ```text
//!   blocks
//!     |#                        input filled now: it runs out last
//!     |# #
//!     |# # #                    each other input runs out one step before the one on its left
//!     |# # # #
//!     +--------- inputs, by the time at which they run out
//! ```
//!
//! Buckets to fill and to drain wait in a queue of tasks between two decisions. The first task that has anything to do
//! says which block moves next:
//!
//! ```text
//!   Fill { input, target }    read until the input's bucket holds `target` blocks
//!   Drain { output }          write until the output's bucket holds no full block, with what arrives meanwhile
//! ```

use std::collections::VecDeque;

use ascot_model::run_length::{Groups, Scheme, occupancies};

use crate::constants::{
    FEW_GROUPS, FILL_SHARE, FULL_ENOUGH, GROUPED_SPACING, MAX_EXCESS, MAX_SHORTFALL, MIN_RATE, ROUND_SPACING,
    STREAMED_SPACING,
};
use crate::schedule::view::{BlockedOn, Move, SchedulerView};

/// The sizes that a scheme gives to the buckets of inputs.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    pub(super) scheme: Scheme,
    /// Blocks of the inputs' memory.
    pub(super) read_blocks: u32,
}

impl Targets {
    /// Live inputs, n.
    pub(super) fn inputs(&self) -> f64 {
        f64::from(self.scheme.shape.inputs.max(1))
    }

    pub(super) fn groups(&self) -> Groups {
        Groups::new(self.scheme.shape.inputs.max(1), self.scheme.read_group)
    }

    /// Inputs that are filled together, `c_r`.
    pub(super) fn group_size(&self) -> usize {
        (self.scheme.read_group.round() as usize).max(1)
    }

    /// The largest bucket of a streamed input, in blocks: `z_0` of theorem 6 at equal rates. At other rates it grows
    /// with the square root of the input's rate: this division costs the fewest switches, as the economic order
    /// quantity does in stock keeping.
    pub(super) fn largest(&self, view: &SchedulerView<'_>, input: usize) -> u32 {
        let live = self.inputs();
        let equal = 2.0 * (f64::from(self.read_blocks) - live / 2.0).max(live) * FILL_SHARE / live;
        let roots: f64 = view.shares.iter().map(|share| share.sqrt()).sum();
        let weight = view.shares[input].sqrt() * live / roots.max(MIN_RATE);
        (equal * weight).floor().max(1.0) as u32
    }

    /// The target of an input that was streamed: it runs out one step after the last of the others, if that needs
    /// nearly the largest bucket. Inputs that run out together would leave memory empty first and too small later.
    fn streamed(&self, view: &SchedulerView<'_>, input: usize) -> u32 {
        let largest = self.largest(view, input);
        let share = view.shares[input].max(MIN_RATE);
        let lasts = f64::from(largest) / share;
        let step = lasts / (self.inputs() - 1.0).max(1.0);
        let others = (0..view.held.len()).filter(|&other| other != input);
        let last = others.map(|other| view.runs_out[other]).filter(|&end| end <= lasts).fold(0.0, f64::max);
        let in_rounds = self.scheme.is_overlapping_interconnect();
        let (spacing, excess) = if in_rounds { (ROUND_SPACING, MAX_EXCESS) } else { (STREAMED_SPACING, 0.0) };
        let max = lasts + excess * step;
        let wanted = (last + spacing * step).clamp(lasts * (1.0 - MAX_SHORTFALL), max);
        ((wanted * share).round() as u32).max(1)
    }

    /// Fills up an input that was streamed, unless its bucket is nearly full; says when it runs out then.
    pub(super) fn fill_up(&self, view: &SchedulerView<'_>, input: usize, tasks: &mut Tasks) -> f64 {
        let target = self.streamed(view, input);
        if f64::from(view.held[input]) >= FULL_ENOUGH * f64::from(target) {
            return view.runs_out[input];
        }
        tasks.fill(input, target);
        f64::from(target) / view.shares[input].max(MIN_RATE)
    }

    /// Blocks consumed of all inputs together while each group is filled once (theorem 8). Groups with shares S that
    /// run out one after the other, as in [`fill_group`](Self::fill_group), hold half a cycle times the sum of S (1 +
    /// S).
    fn cycle(&self, shares: &[f64]) -> f64 {
        let live = self.inputs();
        // Part of every input's first block is consumed, half of it on average.
        let memory = (f64::from(self.read_blocks) - live / 2.0).max(live) * FILL_SHARE;
        let squares: f64 =
            balanced(shares, self.groups()).iter().map(|group| share_of(group, shares).powi(2)).sum();
        2.0 * memory / (1.0 + squares)
    }

    /// Fills the inputs of `group` so that they run out one step after all `others`.
    pub(super) fn fill_group(
        &self,
        view: &SchedulerView<'_>,
        group: &[usize],
        others: &[usize],
        tasks: &mut Tasks,
    ) {
        let cycle = self.cycle(view.shares);
        // What the group consumes in a cycle: memory is then equally full whenever a group runs out.
        let step = cycle * share_of(group, view.shares);
        let before = others.iter().map(|&other| view.runs_out[other]).filter(|&end| end <= cycle);
        let last = before.fold(0.0, f64::max);
        let mut lasts = (last + GROUPED_SPACING * step).clamp(cycle * (1.0 - MAX_SHORTFALL), cycle);
        if self.groups().number <= FEW_GROUPS {
            // Memory that does not hold all of it is shared out, so that the group runs out together.
            let held: u32 = group.iter().map(|&input| view.held[input]).sum();
            let share = share_of(group, view.shares);
            lasts = lasts.min(f64::from(held + view.free_to_read) / share.max(MIN_RATE));
        }
        for &input in group {
            let target = (lasts * view.shares[input]).floor() as u32;
            tasks.fill(input, target.max(1));
        }
    }

    /// Fills all inputs to the optimal initial state of theorem 6 or 8.
    pub(super) fn preload(&self, view: &SchedulerView<'_>, tasks: &mut Tasks) {
        if !self.scheme.algorithm.reads_in_groups() {
            // A single stream is read as it is consumed.
            if self.scheme.shape.inputs == 1 {
                return;
            }
            let targets = occupancies(view.held.len() as u32, None, f64::from(self.read_blocks) * FILL_SHARE);
            for (input, target) in targets.into_iter().enumerate() {
                tasks.fill(input, (target.floor() as u32).max(1));
            }
            return;
        }
        let cycle = self.cycle(view.shares);
        let mut ends = 0.0;
        for group in balanced(view.shares, self.groups()) {
            ends += share_of(&group, view.shares);
            let lasts = cycle * ends;
            for input in group {
                let target = (lasts * view.shares[input]).floor() as u32;
                tasks.fill(input, target.max(1));
            }
        }
    }
}

/// The share of a group in the consumed bytes.
fn share_of(group: &[usize], shares: &[f64]) -> f64 {
    group.iter().map(|&input| shares[input]).sum()
}

/// Divides inputs among groups that are consumed at nearly the same rate for each input: memory is then equally full
/// whenever a group runs out.
fn balanced(shares: &[f64], groups: Groups) -> Vec<Vec<usize>> {
    let mut inputs: Vec<usize> = (0..shares.len()).collect();
    // Stable: equal inputs stay in order.
    inputs.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
    let sizes: Vec<usize> = (0..groups.number).map(|group| groups.size(group) as usize).collect();
    let mut divided: Vec<Vec<usize>> = vec![Vec::new(); sizes.len()];
    let is_even =
        inputs.first().zip(inputs.last()).is_none_or(|(&most, &least)| shares[most] <= shares[least]);
    if is_even {
        let mut inputs = inputs.into_iter();
        return sizes.into_iter().map(|size| inputs.by_ref().take(size).collect()).collect();
    }
    for input in inputs {
        let sum = |group: &Vec<usize>| group.iter().map(|&input| shares[input]).sum::<f64>();
        let open = (0..sizes.len()).filter(|&group| divided[group].len() < sizes[group]);
        let least = open.min_by(|&a, &b| sum(&divided[a]).total_cmp(&sum(&divided[b])));
        if let Some(group) = least {
            divided[group].push(input);
        }
    }
    divided
}

#[derive(Clone, Copy, Debug)]
enum Task {
    Fill { input: usize, target: u32 },
    Drain { output: usize },
}

impl Task {
    /// The block that the task moves now.
    fn next(self, view: &SchedulerView<'_>) -> Option<Move> {
        match self {
            Task::Fill { input, target } => {
                (view.held[input] < target && view.may_read(input)).then_some(Move::Read(input))
            }
            Task::Drain { output } => (view.full[output] > 0).then_some(Move::Write(output)),
        }
    }

    /// Whether the task may have more to do before another is planned. While the last blocks of an output are being
    /// written, the function fills the memory that they free, and part of that is for the same output.
    fn may_go_on(self, view: &SchedulerView<'_>) -> bool {
        matches!(self, Task::Drain { .. }) && view.blocked_on == BlockedOn::Nothing
    }
}

/// Tasks in the order in which they are done.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks(VecDeque<Task>);

impl Tasks {
    pub(super) fn fill(&mut self, input: usize, target: u32) {
        self.0.push_back(Task::Fill { input, target });
    }

    pub(super) fn drain(&mut self, outputs: impl IntoIterator<Item = usize>) {
        self.0.extend(outputs.into_iter().map(|output| Task::Drain { output }));
    }

    /// The block that the first task with anything to do moves; tasks before it are done. With `lingers` the last one
    /// is not done as long as it may go on. If the first task would read from a busy device, a later one that reads
    /// from an idle device goes first.
    pub(super) fn next(&mut self, view: &SchedulerView<'_>, lingers: bool) -> Option<Move> {
        let reads_on = |task: &Task, busy: bool| match task.next(view) {
            Some(Move::Read(input)) if view.is_busy(input) == busy => Some(Move::Read(input)),
            _ => None,
        };
        if self.0.front().and_then(|task| reads_on(task, true)).is_some()
            && let Some(other) = self.0.iter().find_map(|task| reads_on(task, false))
        {
            return Some(other);
        }
        loop {
            let first = *self.0.front()?;
            let step = first.next(view);
            if step.is_some() || (lingers && self.0.len() == 1 && first.may_go_on(view)) {
                return step;
            }
            self.0.pop_front();
        }
    }
}
