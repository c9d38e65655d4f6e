//! The entries of the library. Each takes a request, opens its inputs, makes a plan, runs a job and returns a report.
//!
//! ```text
//!   sort          inputs opened, memory divided, the plan, and the passes of its method, with progress: the report
//!   resume        the same from the state of a killed job
//!   explanation   the plan in words, for inputs that exist or are only imagined
//! ```

pub mod explanation;
pub mod generate;
pub mod leftovers;
pub mod resume;
pub mod sort;
