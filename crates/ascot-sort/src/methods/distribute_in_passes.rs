//! The splits of a distribution: one, or several where fewer files at once are faster or memory allows no more.
//!
//! ```text
//!   pass 1   inputs ─▶ group 0: parts 0..11 │ group 1: parts 12..23 │ ...
//!   pass 2   group 0 ─▶ part 0 │ part 1 │ ... part 11, group 1 ─▶ part 12 │ ...
//! ```
//!
//! Invariant: `runs` of the manifest are groups and parts in the order of their keys. While there are groups, `groups`
//! of the manifest says which parts each of `runs` holds; a killed job continues with the groups that are left.

use crate::api::{Result, SortError};
use crate::job::Job;
use crate::methods::split_in_passes::{FileRule, children};
use crate::partition::{Router, files_of_parts};
use crate::plan::max_intermediates;
use crate::records::{Records, Splitters};
use crate::runs::{SplitNode, StoredMethod};

/// The file of each part, if each of `files` holds the parts of one of them.
fn file_of_parts(parts: usize, files: &[SplitNode]) -> Vec<usize> {
    let firsts: Vec<usize> = files.iter().map(|file| file.first as usize).collect();
    files_of_parts(parts, &firsts)
}

impl<R: Records> Job<'_, R> {
    /// The fan-outs of the splits of the plan.
    pub(super) fn planned_fan_outs(&self) -> Vec<usize> {
        self.plan.chosen.splits().map(|pass| pass.outputs as usize).collect()
    }

    /// Pass one of a distribution in several: the inputs into groups of parts.
    pub(super) fn split_to_groups(&mut self, splitters: &Splitters) -> Result<()> {
        let all = SplitNode { first: 0, count: splitters.parts() as u32, pass: 0 };
        if self.manifest.groups.is_empty() {
            let count = self.planned_fan_outs().first().copied().unwrap_or(2);
            self.manifest.groups = children(all, count);
        }
        let file_of = file_of_parts(splitters.parts(), &self.manifest.groups);
        let count = self.manifest.groups.len();
        self.store()?;
        self.split_to_runs("split some", Router::RangeGroups(splitters, &file_of), count)
    }

    /// Further passes: groups into parts.
    pub(super) fn split_groups(&mut self) -> Result<()> {
        while let Some(at) = self.manifest.groups.iter().position(|group| group.count > 1) {
            self.split_group(at)?;
        }
        self.manifest.groups.clear();
        Ok(())
    }

    /// Splits a group into parts, or into smaller groups.
    fn split_group(&mut self, at: usize) -> Result<()> {
        let missing = SortError::Internal("a group of parts is missing");
        let (Some(group), Some(run)) = (self.manifest.groups.get(at).copied(), self.manifest.runs.get(at))
        else {
            return Err(missing);
        };
        let run = run.clone();
        let StoredMethod::Distribute(keys) = &self.manifest.method else {
            return Err(SortError::Internal("parts without splitters"));
        };
        let splitters = Splitters::new(keys, self.records.descending());
        let fan_outs = self.planned_fan_outs();
        let is_last = group.pass + 1 >= fan_outs.len();
        let planned = fan_outs.get(group.pass).copied().filter(|_| !is_last).unwrap_or(group.count as usize);
        // A resumed job may have less memory.
        let files = children(group, planned.min(max_intermediates(&self.budget)).max(2));
        let file_of = file_of_parts(splitters.parts(), &files);
        let rule = FileRule::RangeGroups(splitters, file_of);
        let pass = if is_last { "split" } else { "split some again" };
        let runs = self.split_run_to_runs(&run, &rule, files.len(), pass)?;
        self.manifest.runs.splice(at..=at, runs);
        self.manifest.groups.splice(at..=at, files);
        self.manifest.limit_indexes();
        self.store()?;
        self.remove_runs(&[run])
    }
}
