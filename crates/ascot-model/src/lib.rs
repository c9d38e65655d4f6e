//! The arithmetic of moving data: what a volume and a host can do, what a job would cost, what it
//! did cost. Plain types and functions; no files, no clock.
//!
//! * [`volume`]: speeds and switch cost of a volume, and the time a pass takes on it.
//! * [`host`]: speeds of the compute kernels by layout.
//! * [`plan`]: ways to do a job, costed, and the one chosen.
//! * [`account`]: what each pass moved and where it waited.
//! * [`report`]: plan and account together, as written by `--report`.
//! * [`units`]: bytes, rates and times as people read them.

pub mod account;
pub mod host;
pub mod plan;
pub mod report;
pub mod units;
pub mod volume;
