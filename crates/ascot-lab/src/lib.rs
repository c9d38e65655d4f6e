//! The lab: studies that measure streams, merge sorts, disks and networks, and hold the results against the models.
//!
//! Every study predicts its time before it starts, keeps each finished measurement, and shows what was counted beside
//! what a formula predicts. Nothing here takes part in a job.

pub mod disk;
pub mod net;
