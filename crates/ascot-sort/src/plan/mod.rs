//! The plan of a job: its memory, volumes, disk space and method.
//!
//! ```text
//!   budget                 divides the memory
//!   find_volumes, volumes  profiles, directories and devices
//!   lengths                lengths of records, and how they fill blocks
//!   planner                the job, described for the model, which chooses the method
//!   long_runs              the schedules of passes on volumes whose switches cost time
//!   simulated              switches of merges and splits, counted by simulation
//!   disk_space             refuses a job that cannot fit
//!   corrected              profiles corrected by the job's own requests
//! ```

pub mod budget;
mod corrected;
pub mod disk_space;
pub mod find_volumes;
mod lengths;
mod long_runs;
pub mod planner;
mod simulated;
pub mod volumes;

pub(crate) use budget::{
    BLOCK_FACTS_BYTES, Budget, ChunkShare, MIN_MEMORY_BYTES, MergeShare, default_memory, max_intermediates,
    max_parts, merge_fan_in, part_block, too_little,
};
pub(crate) use corrected::{MergeBytes, corrected, merge_factor, volumes_seen};
pub(crate) use disk_space::{
    Shortage, check_output_space, disk_is_estimate, explain_view_space, free_of_plan, keep_within,
    no_space_for_spills, refuse_without_space, shortage,
};
pub(crate) use lengths::Lengths;
pub(crate) use long_runs::{
    inputs_want_runs, merge_inputs_in_long_runs, merges_in_long_runs, partition_in_long_runs,
    split_again_in_long_runs,
};
pub(crate) use planner::{
    ASSUMED_RECORD_BYTES, Ahead, budget_of, host_of, make_plan, merge_buffers, plan_ahead, plan_split,
    sort_budget_of,
};
pub(crate) use simulated::{Buffers, equal_parts_switches, merge_switches, scheduled_switches};
pub(crate) use volumes::{
    RunOptions, check_apart, devices, disk_for, job_disk, output_dir, output_disk, temp_dirs, view_disk,
    within_memory, written_dirs,
};
