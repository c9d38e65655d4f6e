//! The plan of a job: its memory, volumes, disk space and method.

pub mod budget;
pub mod disk_space;
pub mod planner;
pub mod volumes;
