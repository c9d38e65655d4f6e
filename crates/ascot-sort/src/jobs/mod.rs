//! The entry points of the library. Each takes a request, opens its inputs, makes a plan, runs a job and returns a
//! report.
//!
//! ```text
//!   sort          opens inputs, divides memory, makes the plan, runs the passes of its method with progress
//!   resume        the same from the state of a killed job
//!   explanation   the plan in words, for inputs that exist or are assumed
//!   job_plan      plans of jobs on files that need not exist   (files_plan: of a merge, split or reshape)
//!   probe         measures a volume and the processors into a profile
//!   measure_host  the speeds of the processors, from the accounts of small jobs
//! ```

pub mod explanation;
mod files_plan;
pub mod generate;
pub mod job_plan;
pub mod leftovers;
mod measure_host;
pub mod probe;
pub mod resume;
pub mod sort;
