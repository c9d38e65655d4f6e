//! The queue of tasks between two decisions: buckets to fill and buckets to drain.
//!
//! ```text
//!   Fill { input, target }    read until the input's bucket holds `target` blocks
//!   Drain { output }          write until the output's bucket holds no full block, with what arrives meanwhile
//! ```
//!
//! The first task that has anything to do says which block moves next.

use std::collections::VecDeque;

use super::view::{Move, SchedulerView};

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

    /// The block that the first task with anything to do moves; tasks before it are done. If the first task would
    /// read from a busy device, a later one that reads from an idle device goes first.
    pub(super) fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
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
            if let Some(step) = self.0.front()?.next(view) {
                return Some(step);
            }
            self.0.pop_front();
        }
    }
}
