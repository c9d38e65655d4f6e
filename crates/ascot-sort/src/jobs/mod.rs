//! The entries: a request becomes a plan, the plan a job, the job a report.

pub mod explanation;
pub mod generate;
pub mod leftovers;
pub mod sort;
pub mod sort_plan;
