//! Progress of a job while it runs, and the account of its passes for its report.

pub mod account;
pub mod progress;
