//! How a job goes about its work: memory, volumes, disk space, the method.

pub mod budget;
pub mod disk_space;
pub mod long_runs;
pub mod order_sample;
pub mod planner;
pub mod volumes;
