//! What a caller says to a job and hears from it: requests, errors, observers.

pub mod error;
pub mod observe;
pub mod request;
