//! The methods of a job, each a short list of passes.

pub mod distribute_in_passes;
pub mod freeing_sink;
pub mod held_rest;
pub mod merge_inputs;
pub mod part_files;
pub mod partition_and_sort;
pub mod reshape_by;
pub mod run_and_merge;
pub mod small;
pub mod split;
pub mod split_in_passes;
pub mod split_to_runs;

pub(crate) use merge_inputs::{RawInput, merge_inputs, straddling};
pub(crate) use reshape_by::{plan_reshape_by, reshape_buffers, reshape_by};
pub(crate) use small::SmallJob;
pub(crate) use split::split_inputs;
