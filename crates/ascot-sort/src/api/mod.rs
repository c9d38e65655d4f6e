//! What callers give a job and get from it: requests, observers, errors.

pub mod error;
pub mod observe;
pub mod request;
