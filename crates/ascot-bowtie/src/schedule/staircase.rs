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

use ascot_model::run_length::{Algorithm, Scheme, Shape};

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
    /// Groups of outputs written so far.
    groups_written: usize,
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
            begun: false,
        }
    }

    /// What the first task with anything to do moves.
    fn front(&mut self, sight: &Sight<'_>) -> Option<Move> {
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
    /// is filled up while the device is there, and outputs that would soon interrupt the new one are
    /// written first.
    fn stream(&mut self, sight: &Sight<'_>, input: usize) {
        if let Some(last) = self.current.replace(input).filter(|&last| last != input) {
            let level = self.evenly(sight, last);
            if f64::from(sight.held[last]) < FULL * f64::from(level) {
                self.tasks.push_back(Task::Fill { input: last, level });
            }
            // What is written until yet another input runs out.
            let others = (0..sight.held.len()).filter(|&other| other != input && other != last);
            let filled = f64::from(level) / sight.shares[last].max(1e-12);
            let until = others.map(|other| sight.runs_out[other]).fold(filled, f64::min);
            let soon = f64::from(sight.free_to_write) < until * sight.gain;
            if self.scheme.algorithm.writes_in_groups() && soon {
                self.drain_group(sight);
            }
        }
        self.tasks.push_back(Task::Fill { input, level: sight.held[input] + 1 });
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
            Stall::Input(input) if algorithm.reads_in_groups() => self.fill_group(sight, input),
            Stall::Input(input) => self.stream(sight, input),
            Stall::Room if algorithm.writes_in_groups() => self.drain_group(sight),
            Stall::Room => {
                self.fill_group_before(sight);
                self.drain_fullest(sight);
            }
        }
    }

    /// An output is written now (A6w): inputs that would run out while it is, are filled before.
    fn fill_group_before(&mut self, sight: &Sight<'_>) {
        let outputs = sight.full.len() as f64;
        if !self.scheme.algorithm.reads_in_groups() || outputs < 2.0 {
            return;
        }
        let Some(fullest) = sight.fullest() else { return };
        let live = (0..sight.held.len()).filter(|&input| sight.remaining[input] > 0);
        let Some(first) = live.min_by(|&a, &b| sight.runs_out[a].total_cmp(&sight.runs_out[b])) else {
            return;
        };
        let written = f64::from(sight.full[fullest]) * outputs / (outputs - 1.0);
        let lasts = (self.live_inputs() / self.read_group() as f64).floor() * self.read_round();
        let needed = (lasts - sight.runs_out[first]) * sight.shares[first] * self.read_group() as f64;
        if sight.runs_out[first] * sight.gain < written && f64::from(sight.free_to_read) > needed {
            self.fill_group(sight, first);
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
        let stair = STAIR * lasts / (self.live_inputs() - 1.0).max(1.0);
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
            let (round, group) = (self.read_round(), self.read_group());
            for input in 0..inputs {
                let rounds = (input / group + 1) as f64;
                let level = (rounds * round * sight.shares[input]).floor() as u32;
                self.tasks.push_back(Task::Fill { input, level: level.max(1) });
            }
        } else {
            let stairs = staircase(inputs as u32, None, f64::from(self.read_blocks) * TOP);
            for (input, stair) in stairs.into_iter().enumerate() {
                self.tasks.push_back(Task::Fill { input, level: (stair.floor() as u32).max(1) });
            }
        }
    }

    /// The `c` inputs that run out first, the one that is waited for among them. Each is filled to last
    /// for as many rounds as there are groups; where `c` does not divide their number, some last a round
    /// longer than the others of their group, so that in every round `c` run out, and no more.
    fn fill_group(&mut self, sight: &Sight<'_>, waited: usize) {
        let mut others: Vec<usize> = (0..sight.held.len())
            .filter(|&i| i != waited && (sight.remaining[i] > 0 || sight.held[i] > 0))
            .collect();
        others.sort_by(|&a, &b| sight.runs_out[a].total_cmp(&sight.runs_out[b]).then(a.cmp(&b)));
        let (group, round) = (self.read_group(), self.read_round());
        let live = self.scheme.shape.inputs as usize;
        let (whole, rest) = ((live / group).max(1), live % group);
        let lasts = |&input: &usize| sight.runs_out[input] > (whole as f64 - 0.5) * round;
        let last_as_long = others.iter().filter(|input| lasts(input)).count();
        let more = others.iter().copied().filter(|&input| sight.remaining[input] > 0).take(group - 1);
        let filled: Vec<usize> = std::iter::once(waited).chain(more).collect();
        others.retain(|other| !filled.contains(other));
        for (place, input) in filled.into_iter().enumerate() {
            let longer = rest > 0 && last_as_long + place >= group;
            let most = (whole + usize::from(longer)) as f64 * round;
            let before = others.iter().map(|&other| sight.runs_out[other]).filter(|&end| end <= most);
            let lasts = (before.fold(0.0, f64::max) + STAIR * round).clamp(most * (1.0 - EVEN), most);
            let blocks = lasts * sight.shares.get(input).copied().unwrap_or(0.0);
            self.tasks.push_back(Task::Fill { input, level: (blocks.floor() as u32).max(1) });
        }
    }

    /// How many inputs are filled together.
    fn read_group(&self) -> usize {
        (self.scheme.read_group.round() as usize).max(1)
    }

    /// Blocks consumed in a round, of all inputs together: as many as memory holds for inputs that run
    /// out by groups.
    fn read_round(&self) -> f64 {
        let (live, group) = (self.live_inputs(), self.read_group() as f64);
        // Of every input's first block a part is consumed, one half on the average.
        let memory = (f64::from(self.read_blocks) - live / 2.0).max(live) * TOP;
        let whole = (live / group).floor();
        let rest = live - whole * group;
        live * memory / (group * whole * (whole + 1.0) / 2.0 + rest * (whole + 1.0))
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

    /// How many of so many outputs are written now. Where the pace is the outputs' own (A2) groups are as
    /// equal as can be if `c` does not divide the number, so that in every round each output is written
    /// once; and at first, when all hold the same, as many are written as hold what a group does later.
    fn write_group(&self, outputs: usize) -> usize {
        let group = self.scheme.write_group.round().max(1.0);
        if self.scheme.algorithm != Algorithm::A2 {
            return group as usize;
        }
        let Some(later) = self.groups_written.checked_sub(1) else {
            let all = outputs as f64;
            return (2.0 * all / (all / group + 1.0)).round() as usize;
        };
        let groups = outputs.div_ceil(group as usize).max(1);
        outputs / groups + usize::from(later % groups < outputs % groups)
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
