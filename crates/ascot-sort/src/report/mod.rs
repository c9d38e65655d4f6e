//! The account of a job while it runs and after it.

pub mod account;
pub mod progress;
pub mod watch;
