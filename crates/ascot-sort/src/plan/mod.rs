//! The plan of a job: its memory, volumes, disk space and method.

pub mod budget;
pub mod disk_space;
pub mod long_runs;
pub mod order_sample;
pub mod planner;
pub mod volumes;
