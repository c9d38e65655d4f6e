//! The arithmetic of moving data: what a volume and a host can do, what a job would cost, what it
//! did cost. Plain types and functions; no files, no clock.
//!
//! * [`run_length`]: how long the runs of a bowtie are, by algorithm, group sizes and memory.
//! * [`sort_plan`]: the ways to sort, merge and split records, costed.
//! * [`switch_cost`]: what a switch between files costs, by their number.
//! * [`volume`]: speeds and switch cost of a volume, and the time a pass takes on it.
//! * [`disk_use`]: what a sort takes of the disk at once.
//! * [`multipass`]: in how many passes, and how many files at a time.
//! * [`host`]: speeds of the compute kernels by layout.
//! * [`measurement`]: what measuring a volume and a host found, with its spread.
//! * [`plan`]: ways to do a job, costed, and the one chosen.
//! * [`account`]: what each pass moved and where it waited.
//! * [`random`]: pseudo-random numbers that are the same in every run.
//! * [`report`]: plan and account together, as written by `--report`.
//! * [`routing_plan`]: what it takes to route records among many processes.
//! * [`units`]: bytes, rates and times as people read them.

pub mod account;
pub mod bowtie_plan;
pub mod columns;
pub mod disk_use;
pub mod host;
pub mod measurement;
pub mod multipass;
pub mod passes_plan;
pub mod plan;
pub mod random;
pub mod report;
pub mod routing_plan;
pub mod run_length;
pub mod sort_plan;
pub mod switch_cost;
pub mod units;
pub mod volume;
