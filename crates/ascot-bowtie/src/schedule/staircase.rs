//! The algorithms A1 to A6: the fullest outputs are written to the end, the emptiest inputs are filled to the
//! optimal state, both with the group sizes that [`Scheme`] names.
//!
//! When no task is left, what the function is blocked on decides which come next:
//!
//! ```text
//!   blocked on   | side that streams                        | side that moves in groups
//!   an input     | A3, A6r: fill up the last one, then      | A4, A5: fill the group that runs out first
//!                | read this one as it is consumed          | A6w: fill_before
//!   memory       | A1, A6w: drain the fullest output        | A2, A5: drain the group of the fullest outputs
//!                |                                          | A6r: interrupt
//! ```
//!
//! The paper starts from an ideal state and equal rates; this schedule also follows inputs that are consumed at
//! different rates ([`targets`](super::targets)) and inputs that end.
//!
//! Invariant: the answer depends only on the views so far.

use ascot_model::run_length::{Algorithm, Groups, Scheme, Shape};

use super::interconnect;
use super::split::Split;
use super::targets::{Targets, Tasks};
use super::view::{BlockedOn, Move, Schedule, SchedulerView, Staircases};

/// A1 to A6, whichever the scheme names.
#[derive(Clone, Debug)]
pub struct Staircase {
    targets: Targets,
    tasks: Tasks,
    /// The input that is streamed into the function.
    current: Option<usize>,
    /// Groups of outputs written so far.
    groups_written: usize,
    /// The group of inputs that is filled next.
    next_read_group: u32,
    is_preloaded: bool,
}

impl Schedule for Staircase {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        self.follow_ends(view);
        if !self.is_preloaded {
            self.is_preloaded = true;
            self.targets.preload(view, &mut self.tasks);
        }
        // In A6w an output is written for a whole round. With a single input the schedule does not wait: the device
        // would turn to that input meanwhile.
        let Scheme { algorithm, shape, .. } = self.targets.scheme;
        let lingers = algorithm == Algorithm::A6w && shape.inputs > 1;
        // A plan may turn out to have nothing to do: then there is another one.
        for _ in 0..2 {
            if let Some(step) = self.tasks.next(view, lingers) {
                return Some(step);
            }
            self.plan(view);
        }
        self.tasks.next(view, lingers)
    }

    fn adapt(&mut self, scheme: &Scheme, read_blocks: u32) {
        if scheme.algorithm.reads_in_groups() {
            // No input is streamed any more.
            self.current = None;
        }
        // Inputs that ran out together before would go on doing so: the staircase begins anew.
        let before = self.targets.scheme;
        if (before.algorithm, before.write_group) != (scheme.algorithm, scheme.write_group) {
            self.is_preloaded = false;
        }
        self.targets = Targets { scheme: *scheme, read_blocks };
    }

    fn staircases(&self, live_inputs: u32, split: Split) -> Staircases {
        let scheme = &self.targets.scheme;
        let read_group = scheme.algorithm.reads_in_groups().then_some(scheme.read_group);
        let write_group = scheme.algorithm.writes_in_groups().then_some(scheme.write_group);
        Staircases {
            inputs: Staircases::of_inputs(live_inputs, read_group, self.targets.read_blocks),
            outputs: Staircases::of_outputs(scheme.shape.outputs, write_group, split.write),
        }
    }
}

impl Staircase {
    /// The schedule of a scheme, with this number of blocks for inputs. (Outputs are written when their memory is
    /// full, whatever its size.)
    pub fn new(scheme: Scheme, read_blocks: u32) -> Self {
        Staircase {
            targets: Targets { scheme, read_blocks },
            tasks: Tasks::default(),
            current: None,
            groups_written: 0,
            next_read_group: 0,
            is_preloaded: false,
        }
    }

    fn plan(&mut self, view: &SchedulerView<'_>) {
        let Scheme { algorithm, .. } = self.targets.scheme;
        let in_rounds = self.targets.scheme.is_overlapping_interconnect();
        match view.blocked_on {
            BlockedOn::Nothing => {}
            BlockedOn::InputInFlight(input) => {
                // The next block of the streamed input may follow at once.
                if self.current == Some(input) {
                    self.tasks.fill(input, view.held[input] + 1);
                }
            }
            BlockedOn::End => self.tasks.drain(view.fullest()),
            BlockedOn::Input(input) if algorithm == Algorithm::A6w && in_rounds => {
                interconnect::fill_before(view, &self.targets, Some(input), &mut self.tasks);
            }
            BlockedOn::Input(input) if algorithm.reads_in_groups() => self.fill_group(view, input),
            BlockedOn::Input(input) => self.stream(view, input),
            BlockedOn::OutputMemory if algorithm == Algorithm::A6r && in_rounds => {
                if !interconnect::interrupt(view, &self.targets, self.current, &mut self.tasks) {
                    self.drain_group(view);
                }
            }
            BlockedOn::OutputMemory if algorithm.writes_in_groups() => self.drain_group(view),
            BlockedOn::OutputMemory => {
                if algorithm == Algorithm::A6w && in_rounds {
                    interconnect::fill_before(view, &self.targets, None, &mut self.tasks);
                }
                self.tasks.drain(view.fullest());
            }
        }
    }

    /// Streams `input` into the function (A3, section III.C). If it is another input than before, the last one is
    /// filled up first, while its file is open, and (A6r) outputs are written for the round that begins.
    fn stream(&mut self, view: &SchedulerView<'_>, input: usize) {
        if let Some(last) = self.current.replace(input).filter(|&last| last != input) {
            let filled = self.targets.fill_up(view, last, &mut self.tasks);
            if self.targets.scheme.is_overlapping_interconnect() {
                let others = (0..view.held.len()).filter(|&other| other != input && other != last);
                let end = others.map(|other| view.runs_out[other]).fold(filled, f64::min);
                interconnect::make_room(view, &self.targets, end, &mut self.tasks);
            }
        }
        self.tasks.fill(input, view.held[input] + 1);
    }

    /// Fills the group of inputs that runs out first, `waited` among them (A4, section III.D).
    fn fill_group(&mut self, view: &SchedulerView<'_>, waited: usize) {
        let groups = self.targets.groups();
        let size = groups.size(self.next_read_group);
        self.next_read_group = (self.next_read_group + 1) % groups.number;
        let mut others =
            view.by_run_out(|input| input != waited && (view.remaining[input] > 0 || view.held[input] > 0));
        let more = others.iter().copied().filter(|&input| view.remaining[input] > 0).take(size as usize - 1);
        let group: Vec<usize> = std::iter::once(waited).chain(more).collect();
        others.retain(|other| !group.contains(other));
        self.targets.fill_group(view, &group, &others, &mut self.tasks);
    }

    /// Writes the `c_w` fullest outputs (A2, section III.B).
    fn drain_group(&mut self, view: &SchedulerView<'_>) {
        let size = self.write_group_size(view.full.len());
        self.groups_written += 1;
        self.tasks.drain(view.fullest_first().into_iter().take(size));
    }

    /// Size of the group of outputs that is written now. At first all buckets hold the same, so that the first group
    /// is larger: it holds as many bytes as later groups do.
    fn write_group_size(&self, outputs: usize) -> usize {
        let groups = Groups::new(outputs as u32, self.targets.scheme.write_group);
        match self.groups_written.checked_sub(1) {
            None => (2.0 * outputs as f64 / f64::from(groups.number + 1)).round() as usize,
            Some(later) => groups.size((later % groups.number as usize) as u32) as usize,
        }
    }

    /// When inputs have ended, divides their memory among those left, in groups that fit.
    fn follow_ends(&mut self, view: &SchedulerView<'_>) {
        let live = (0..view.held.len()).filter(|&i| view.held[i] > 0 || view.remaining[i] > 0).count() as u32;
        let scheme = &mut self.targets.scheme;
        if live == 0 || live >= scheme.shape.inputs {
            return;
        }
        let shape = Shape { inputs: live, ..scheme.shape };
        let fewer = Scheme::best_of(shape, scheme.algorithm);
        debug_assert!(fewer.is_some(), "an algorithm that fits several inputs fits fewer of them");
        *scheme = fewer.unwrap_or(Scheme { shape, ..*scheme });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filling goes on with an input whose device is idle, and reads from a busy device only if all are busy.
    #[test]
    fn a_busy_device_is_passed_over() {
        let shape = Shape { inputs: 4, outputs: 0, alpha: 1.0 };
        let scheme = Scheme::new(shape, Algorithm::A3, 1.0, 1.0);
        let next = |busy: &[bool]| {
            let view = SchedulerView {
                held: &[0; 4],
                remaining: &[100; 4],
                free_to_read: 64,
                full: &[],
                free_to_write: 0,
                shares: &[0.25; 4],
                runs_out: &[0.0; 4],
                gain: 1.0,
                busy,
                blocked_on: BlockedOn::Input(0),
            };
            Staircase::new(scheme, 64).next(&view)
        };
        assert_eq!(next(&[false; 4]), Some(Move::Read(0)));
        assert_eq!(next(&[true, true, false, true]), Some(Move::Read(2)));
        assert_eq!(next(&[true; 4]), Some(Move::Read(0)));
    }
}
