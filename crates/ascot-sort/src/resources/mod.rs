//! What a process has to work with: memory and its control group, threads, descriptors, the turn on a device.

pub mod control_group;
pub mod limits;
pub mod pieces;
pub mod turns;
