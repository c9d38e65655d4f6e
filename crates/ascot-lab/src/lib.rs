//! The lab: studies that measure streams, merge sorts, disks and networks, and hold the results against the models.
//!
//! ```text
//!   streams/     element streams: back-ends x N x k x B, reading and writing (papers/2, section 3)
//!   sorts/       the merge sort of those streams over N, M and d (papers/2, section 4)
//!   table        results as they are kept: one row for each finished measurement
//!   observe      progress, and the way to stop
//!   error        errors of all studies
//! ```
//!
//! Every study predicts its time before it starts, keeps each finished measurement, continues after the last one when
//! it is started again, and shows what was counted beside what a formula predicts. Nothing here takes part in a job.

pub mod error;
pub mod observe;
pub mod table;

pub use error::LabError;
pub use observe::{Observer, Progress, Stop};
