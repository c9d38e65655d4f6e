//! Progress of a job while it runs, and the account of its passes for its report.

pub mod account;
pub mod progress;

pub(crate) use account::{JobSums, PassFacts, Passes, files_of, processors, report_of_records};
pub(crate) use progress::{Watch, with_progress};
