//! The interface for callers: requests, observers, errors.

pub mod error;
pub mod observe;
pub mod request;

pub(crate) use error::{Missing, Result, SortError};
pub(crate) use observe::{Caller, Cancel, Observer, Progress};
pub(crate) use request::{
    FileRange, Input, Keys, Method, Output, Parts, Route, RouteBy, SortRequest, SplitBy, Volumes,
};
