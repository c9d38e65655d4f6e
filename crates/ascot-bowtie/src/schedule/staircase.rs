//! The algorithms A1 to A6: the fullest outputs are written to the end, the emptiest inputs are filled
//! to the top of the staircase, and both as few at a time as [`Scheme`] says.
//!
//! Source: Stella and Loguinov, "On High-Latency Bowtie Data Streaming", sections III and IV. Ours: the
//! top to which inputs are filled (their state does not come about by itself, and filling up all that
//! is free drifts away from it), how it follows inputs that are consumed at different rates, and what
//! happens where the two sides of an interconnect do not run out at the same time.
//!
//! Two tasks are all there is. The front one says what moves next; when the queue is empty, the reason
//! why the function stands still says which come.
//!
//! ```text
//!   Fill(input, level)    read until it holds so much
//!   Drain(output)         write until it holds no full block; what arrives meanwhile goes along
//!
//!   function waits for   | streaming side (A3, A1, a file)      | grouped side (A4, A2)
//!   an input             | fill up the last one, then stream it | fill the c that run out first
//!   room                 | drain the fullest                    | drain the c fullest
//! ```
//!
//! Invariant: the answer depends on nothing but what was seen.

use std::collections::VecDeque;

use ascot_model::run_length::{Algorithm, Scheme, Shape, Turns};

use super::{Move, Schedule, Sight, Stall};

/// Inputs are filled to this share of the staircase's top. Without a margin, rounding alone makes
/// fillings ever longer at the expense of those that follow, down to half of the run length.
const TOP: f64 = 0.99;

/// How much below the top an input may be filled so that inputs run out one by one.
const EVEN: f64 = 0.10;
/// An input that holds so much of what it would be filled up to is not come back to for the rest.
const FULL: f64 = 0.8;
/// How far behind the others it should run out, in stairs. A little more than one drifts towards the top
/// where all is even.
const STAIR: f64 = 1.2;
/// The same for groups, and where outputs keep step with the inputs: uneven stairs cost more there than low ones.
const EVEN_STAIR: f64 = 1.02;
/// So few groups share out memory that is short.
const FEW: u32 = 5;
/// What is left of a round when its end may as well come now.
const EARLY: f64 = 0.1;
/// What a round may come short by where the other side would have to do without a run.
const SOON: f64 = 0.05;
/// Blocks by which an input that is to last for a round may fail to.
const SPARE: f64 = 0.5;

#[derive(Clone, Copy, Debug)]
enum Task {
    Fill { input: usize, level: u32 },
    Drain { output: usize },
}

/// A1 to A6, whichever the scheme names.
#[derive(Clone, Debug)]
pub struct Staircase {
    scheme: Scheme,
    /// Blocks of the inputs' memory.
    read_blocks: u32,
    tasks: VecDeque<Task>,
    /// The input being streamed into the function.
    current: Option<usize>,
    /// Groups of outputs written so far, and the turn of inputs that comes next.
    groups_written: usize,
    groups_read: u32,
    begun: bool,
}

impl Schedule for Staircase {
    fn next(&mut self, sight: &Sight<'_>) -> Option<Move> {
        self.follow_ends(sight);
        if !self.begun {
            self.begun = true;
            self.preload(sight);
        }
        // Twice: what is planned may turn out to be nothing to do.
        for _ in 0..2 {
            if let Some(step) = self.front(sight) {
                return Some(step);
            }
            self.plan(sight);
        }
        self.front(sight)
    }
}

impl Staircase {
    /// The schedule of a scheme with so many blocks for inputs. (Outputs are written when theirs is full,
    /// however much it is.)
    pub fn new(scheme: Scheme, read_blocks: u32) -> Self {
        Staircase {
            scheme,
            read_blocks,
            tasks: VecDeque::new(),
            current: None,
            groups_written: 0,
            groups_read: 0,
            begun: false,
        }
    }

    /// What the first task with anything to do moves. An input whose device has enough to do is passed over
    /// for one whose device has not.
    fn front(&mut self, sight: &Sight<'_>) -> Option<Move> {
        let fills = |task: &Task| match *task {
            Task::Fill { input, level } if sight.held[input] < level && sight.may_read(input) => Some(input),
            _ => None,
        };
        if self.tasks.front().and_then(fills).is_some_and(|input| sight.is_busy(input))
            && let Some(other) = self.tasks.iter().filter_map(fills).find(|&input| !sight.is_busy(input))
        {
            return Some(Move::Read(other));
        }
        while let Some(&task) = self.tasks.front() {
            match task {
                Task::Fill { input, level } if sight.held[input] < level && sight.may_read(input) => {
                    return Some(Move::Read(input));
                }
                Task::Drain { output } if sight.full[output] > 0 => return Some(Move::Write(output)),
                Task::Fill { .. } | Task::Drain { .. } => self.tasks.pop_front(),
            };
        }
        None
    }

    /// The function waits for an input that is streamed. When it is another than before, the last one
    /// is filled up while the device is there, and then (A6r) room is made for what the new one brings.
    fn stream(&mut self, sight: &Sight<'_>, input: usize) {
        if let Some(last) = self.current.replace(input).filter(|&last| last != input) {
            let filled = self.fill_up(sight, last);
            if self.scheme.in_step() {
                let others = (0..sight.held.len()).filter(|&other| other != input && other != last);
                self.make_room(sight, others.map(|other| sight.runs_out[other]).fold(filled, f64::min));
            }
        }
        self.tasks.push_back(Task::Fill { input, level: sight.held[input] + 1 });
    }

    /// An input that was streamed is filled up to the staircase; says when it will run out.
    fn fill_up(&mut self, sight: &Sight<'_>, input: usize) -> f64 {
        let level = self.evenly(sight, input);
        if f64::from(sight.held[input]) >= FULL * f64::from(level) {
            return sight.runs_out[input];
        }
        self.tasks.push_back(Task::Fill { input, level });
        f64::from(level) / sight.shares[input].max(1e-12)
    }

    /// There is no room while an input is streamed (A6r). If another is about to run out, its time has come a
    /// little early; else as few outputs are written as will do until then.
    fn interrupt(&mut self, sight: &Sight<'_>) {
        let mut others: Vec<usize> = (0..sight.held.len())
            .filter(|&input| Some(input) != self.current && sight.remaining[input] > 0)
            .collect();
        others.sort_by(|&a, &b| sight.runs_out[a].total_cmp(&sight.runs_out[b]).then(a.cmp(&b)));
        let Some(&first) = others.first() else { return self.drain_group(sight) };
        let round = f64::from(self.top(sight, first))
            / sight.shares[first].max(1e-12)
            / (self.live_inputs() - 1.0).max(1.0);
        let mut until = sight.runs_out[first];
        if let Some(current) = self.current
            && until < EARLY * round
        {
            let filled = self.fill_up(sight, current);
            until = others.get(1).map_or(filled, |&second| sight.runs_out[second]).min(filled);
        }
        self.make_room(sight, until);
    }

    /// Writes as few of the fullest outputs as will do until so many blocks are consumed; one where there is no
    /// room at all.
    fn make_room(&mut self, sight: &Sight<'_>, until: f64) {
        let mut outputs: Vec<usize> =
            (0..sight.full.len()).filter(|&output| sight.full[output] > 0).collect();
        outputs.sort_by_key(|&output| (std::cmp::Reverse(sight.full[output]), output));
        let wanted = until * sight.gain * (1.0 - SOON);
        let mut free = f64::from(sight.free_to_write);
        for output in outputs {
            if free >= wanted && free > 0.0 {
                break;
            }
            free += f64::from(sight.full[output]);
            self.tasks.push_back(Task::Drain { output });
        }
    }

    fn plan(&mut self, sight: &Sight<'_>) {
        let algorithm = self.scheme.algorithm;
        match sight.stall {
            Stall::Running => {}
            // Of what is streamed anyway the next block may come at once.
            Stall::Arriving(input) if self.current == Some(input) => {
                self.tasks.push_back(Task::Fill { input, level: sight.held[input] + 1 });
            }
            Stall::Arriving(_) => {}
            Stall::Ended => self.drain_fullest(sight),
            Stall::Input(input) if algorithm == Algorithm::A6w && self.scheme.in_step() => {
                self.fill_before(sight, Some(input));
            }
            Stall::Input(input) if algorithm.reads_in_groups() => self.fill_group(sight, input),
            Stall::Input(input) => self.stream(sight, input),
            Stall::Room if algorithm == Algorithm::A6r && self.scheme.in_step() => self.interrupt(sight),
            Stall::Room if algorithm.writes_in_groups() => self.drain_group(sight),
            Stall::Room => {
                if algorithm == Algorithm::A6w && self.scheme.in_step() {
                    self.fill_before(sight, None);
                }
                self.drain_fullest(sight);
            }
        }
    }

    /// An output is written now (A6w): inputs that would run out while it is, are filled before, each for as
    /// many rounds as memory has for them; and so that in each of those rounds as many run out as in any
    /// other.
    fn fill_before(&mut self, sight: &Sight<'_>, waited: Option<usize>) {
        let outputs = sight.full.len() as f64;
        let gain = sight.gain.max(1e-9);
        let full = sight.full.iter().sum::<u32>() + sight.free_to_write;
        let round = 2.0 * (f64::from(full) + outputs / 2.0) / (outputs - 1.0) / gain;
        // What is consumed until the output after this one is written; or this one, if that is yet to come.
        let fullest = sight.fullest().map_or(0.0, |fullest| f64::from(sight.full[fullest]));
        let this = fullest * outputs / (outputs - 1.0) / gain;
        let left = (f64::from(sight.free_to_write) / gain).min(round);
        let now = if waited.is_none() || left < EARLY * round { left + this } else { left };
        let group = self.read_group();
        let live = self.scheme.shape.inputs as usize;
        let (whole, rest) = ((live / group).max(1), live % group);
        // How many run out in each of the rounds to come; those of the first are filled now.
        let mut running_out = vec![0; whole + 2];
        let mut forced = Vec::new();
        for input in 0..sight.held.len() {
            let rounds = (sight.runs_out[input] - now) / round + 1.0 + SOON;
            match rounds.max(0.0).floor() as usize {
                _ if waited == Some(input) => forced.push(input),
                0 if sight.remaining[input] > 0 => forced.push(input),
                slot => running_out[slot.min(whole + 1)] += 1,
            }
        }
        forced.sort_by(|&a, &b| sight.runs_out[a].total_cmp(&sight.runs_out[b]).then(a.cmp(&b)));
        let mut last_for = Vec::with_capacity(forced.len());
        for _ in &forced {
            let slot = if running_out[whole + 1] < rest {
                whole + 1
            } else {
                (1..=whole).rev().find(|&slot| running_out[slot] < group).unwrap_or(whole)
            };
            running_out[slot] += 1;
            last_for.push(slot);
        }
        let level = |input: usize, slot: usize| {
            let blocks = (now + (slot as f64 - 1.0) * round) * sight.shares[input] + SPARE;
            (blocks.ceil() as u32).clamp(1, self.read_blocks.max(1))
        };
        // Where memory does not hold all that, some last for fewer rounds, but for whole ones, and until one in
        // which fewer than a group run out: groups that grow need ever more memory at once.
        loop {
            let filled = forced.iter().zip(&last_for);
            let more = |(&input, &slot)| u64::from(level(input, slot).saturating_sub(sight.held[input]));
            let needed: u64 = filled.map(more).sum();
            let longest = (0..forced.len()).max_by_key(|&at| last_for[at]).filter(|&at| last_for[at] > 1);
            match longest {
                Some(at) if needed > u64::from(sight.free_to_read) + forced.len() as u64 => {
                    let slot = last_for[at];
                    running_out[slot] -= 1;
                    last_for[at] =
                        (1..slot).rev().find(|&slot| running_out[slot] < group).unwrap_or(slot - 1);
                    running_out[last_for[at]] += 1;
                }
                _ => break,
            }
        }
        for (input, slot) in forced.into_iter().zip(last_for) {
            self.tasks.push_back(Task::Fill { input, level: level(input, slot) });
        }
    }

    fn live_inputs(&self) -> f64 {
        f64::from(self.scheme.shape.inputs.max(1))
    }

    /// The level a streamed input is filled up to, blocks: the top of the staircase, higher for those
    /// consumed faster. Reading rarely from the slow ones and often from the fast ones costs the fewest
    /// switches when fillings are as the square roots of the rates (as lots are in stock keeping).
    fn top(&self, sight: &Sight<'_>, input: usize) -> u32 {
        let live = self.live_inputs();
        let equal = 2.0 * (f64::from(self.read_blocks) - live / 2.0).max(live) * TOP / live;
        let roots: f64 = sight.shares.iter().map(|share| share.sqrt()).sum();
        let weight = sight.shares.get(input).map_or(1.0, |share| share.sqrt() * live / roots.max(1e-9));
        (equal * weight).floor().max(1.0) as u32
    }

    /// The level a streamed input is filled up to so that it runs out a stair after the last of the
    /// others, if that is near the top: where rates vary, inputs that run out together would leave
    /// memory empty first, and too small then.
    fn evenly(&self, sight: &Sight<'_>, input: usize) -> u32 {
        let top = self.top(sight, input);
        let share = sight.shares.get(input).copied().unwrap_or(1.0).max(1e-12);
        let lasts = f64::from(top) / share;
        let behind = if self.scheme.in_step() { EVEN_STAIR } else { STAIR };
        let stair = behind * lasts / (self.live_inputs() - 1.0).max(1.0);
        let others = (0..sight.held.len()).filter(|&other| other != input);
        let before =
            others.map(|other| sight.runs_out[other]).filter(|&end| end <= lasts).fold(0.0, f64::max);
        let wanted = (before + stair).clamp(lasts * (1.0 - EVEN), lasts);
        ((wanted * share).round() as u32).clamp(1, top)
    }

    /// Inputs are preloaded to the staircase, so that they run out one after the other.
    fn preload(&mut self, sight: &Sight<'_>) {
        use ascot_model::run_length::staircase;
        let streamed_one = self.scheme.shape.inputs == 1 && !self.scheme.algorithm.reads_in_groups();
        if sight.held.is_empty() || streamed_one {
            return;
        }
        let inputs = sight.held.len();
        if self.scheme.algorithm.reads_in_groups() {
            let (turns, cycle) = (self.read_turns(), self.read_cycle());
            let (mut turn, mut last) = (0, turns.size(0));
            for input in 0..inputs {
                if input as u32 == last && input > 0 {
                    turn += 1;
                    last += turns.size(turn);
                }
                let lasts = cycle * f64::from(last) / inputs as f64;
                let level = (lasts * sight.shares[input]).floor() as u32;
                self.tasks.push_back(Task::Fill { input, level: level.max(1) });
            }
        } else {
            let stairs = staircase(inputs as u32, None, f64::from(self.read_blocks) * TOP);
            for (input, stair) in stairs.into_iter().enumerate() {
                self.tasks.push_back(Task::Fill { input, level: (stair.floor() as u32).max(1) });
            }
        }
    }

    /// The inputs whose turn it is: those that run out first, the one that is waited for among them. Each is
    /// filled to last until all others have had their turn.
    fn fill_group(&mut self, sight: &Sight<'_>, waited: usize) {
        let mut others: Vec<usize> = (0..sight.held.len())
            .filter(|&i| i != waited && (sight.remaining[i] > 0 || sight.held[i] > 0))
            .collect();
        others.sort_by(|&a, &b| sight.runs_out[a].total_cmp(&sight.runs_out[b]).then(a.cmp(&b)));
        let turns = self.read_turns();
        let group = turns.size(self.groups_read) as usize;
        self.groups_read = (self.groups_read + 1) % turns.groups;
        let more = others.iter().copied().filter(|&input| sight.remaining[input] > 0).take(group - 1);
        let filled: Vec<usize> = std::iter::once(waited).chain(more).collect();
        others.retain(|other| !filled.contains(other));
        let cycle = self.read_cycle();
        let stair = cycle * group as f64 / self.live_inputs();
        let before = others.iter().map(|&other| sight.runs_out[other]).filter(|&end| end <= cycle);
        let lasts = (before.fold(0.0, f64::max) + EVEN_STAIR * stair).clamp(cycle * (1.0 - EVEN), cycle);
        // Memory that does not hold all that is shared out, so that they run out together. Of many groups rather
        // one input is short: it has its turn again soon, and disturbs one group less.
        let held: u32 = filled.iter().map(|&input| sight.held[input]).sum();
        let share: f64 = filled.iter().map(|&input| sight.shares[input]).sum();
        let shared_out = f64::from(held + sight.free_to_read) / share.max(1e-12);
        let lasts = if turns.groups <= FEW { lasts.min(shared_out) } else { lasts };
        for input in filled {
            let blocks = lasts * sight.shares.get(input).copied().unwrap_or(0.0);
            self.tasks.push_back(Task::Fill { input, level: (blocks.floor() as u32).max(1) });
        }
    }

    fn read_turns(&self) -> Turns {
        Turns::of(self.scheme.shape.inputs.max(1), self.scheme.read_group)
    }

    /// How many inputs are filled together.
    fn read_group(&self) -> usize {
        (self.scheme.read_group.round() as usize).max(1)
    }

    /// Blocks consumed of all inputs together while each of them is filled once.
    fn read_cycle(&self) -> f64 {
        let live = self.live_inputs();
        // Of every input's first block a part is consumed, one half on the average.
        let memory = (f64::from(self.read_blocks) - live / 2.0).max(live) * TOP;
        self.read_turns().each(memory) * live
    }

    /// The `c` fullest outputs.
    fn drain_group(&mut self, sight: &Sight<'_>) {
        let mut outputs: Vec<usize> =
            (0..sight.full.len()).filter(|&output| sight.full[output] > 0).collect();
        outputs.sort_by_key(|&output| (std::cmp::Reverse(sight.full[output]), output));
        let group = self.write_group(sight.full.len());
        self.groups_written += 1;
        self.tasks.extend(outputs.into_iter().take(group).map(|output| Task::Drain { output }));
    }

    /// How many of so many outputs are written now. Groups are as equal as can be, so that each output has
    /// one turn in a cycle of all; and at first, when all hold the same, as many are written as hold what a
    /// group does later.
    fn write_group(&self, outputs: usize) -> usize {
        let turns = Turns::of(outputs as u32, self.scheme.write_group);
        match self.groups_written.checked_sub(1) {
            None => (2.0 * outputs as f64 / f64::from(turns.groups + 1)).round() as usize,
            Some(later) => turns.size((later % turns.groups as usize) as u32) as usize,
        }
    }

    fn drain_fullest(&mut self, sight: &Sight<'_>) {
        if let Some(output) = sight.fullest() {
            self.tasks.push_back(Task::Drain { output });
        }
    }

    /// Fewer inputs are left than the scheme was made for: theirs is the memory, in groups that fit.
    fn follow_ends(&mut self, sight: &Sight<'_>) {
        let live =
            (0..sight.held.len()).filter(|&i| sight.held[i] > 0 || sight.remaining[i] > 0).count() as u32;
        if live == 0 || live >= self.scheme.shape.inputs {
            return;
        }
        let shape = Shape { inputs: live, ..self.scheme.shape };
        let algorithm = self.scheme.algorithm;
        self.scheme = Scheme::best_of(shape, algorithm).unwrap_or(Scheme { shape, ..self.scheme });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Filling goes on with an input whose device is idle, and waits for a busy one only if all are.
    #[test]
    fn a_busy_device_is_passed_over() {
        let shape = Shape { inputs: 4, outputs: 0, alpha: 1.0 };
        let scheme = Scheme::new(shape, Algorithm::A3, 1.0, 1.0);
        let next = |busy: &[bool]| {
            let sight = Sight {
                held: &[0; 4],
                remaining: &[100; 4],
                free_to_read: 64,
                full: &[],
                free_to_write: 0,
                shares: &[0.25; 4],
                runs_out: &[0.0; 4],
                gain: 1.0,
                busy,
                stall: Stall::Input(0),
            };
            Staircase::new(scheme, 64).next(&sight)
        };
        assert_eq!(next(&[false; 4]), Some(Move::Read(0)));
        assert_eq!(next(&[true, true, false, true]), Some(Move::Read(2)));
        assert_eq!(next(&[true; 4]), Some(Move::Read(0)));
    }
}
