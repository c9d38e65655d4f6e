//! The entries of the library. Each takes a request, opens its inputs, makes a plan, runs a job and returns a report.
//!
//! ```text
//!   sort, resume        a request, or the state of a killed job
//!     └▶ prepare        inputs open, their head read, memory divided: the plan
//!         └▶ execute    the job, by the method of the plan, with progress: the report
//!   explanation         prepare, and the plan in words
//! ```

pub mod explanation;
pub mod generate;
pub mod leftovers;
pub mod resume;
pub mod sort;
