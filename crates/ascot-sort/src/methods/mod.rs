//! The methods of a job, each a short list of passes.
//!
//! ```text
//!   small               sorts in one buffer, on one thread
//!   run_and_merge       forms runs and merges them, or sorts in memory
//!   partition_and_sort  distributes: splits into parts by key, and sorts each
//!                       (distribute_in_passes: its splits; held_rest: the end of the inputs, in memory)
//!   merge_inputs        merges sorted inputs
//!   reshape_by          merges sorted inputs into files by another key
//!   split               splits into files, in one pass or in several (split_in_passes, part_files)
//!
//!   split_to_runs       the first pass of a split or a distribution
//!   freeing_sink        the end of a merge of runs: stores progress, frees what is consumed
//! ```

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
