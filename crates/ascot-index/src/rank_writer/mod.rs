//! A directory that many processes write: each appends its records, which are routed to the owners of their keys'
//! partitions.
//!
//! ```text
//!   append ─▶ own tables or values (schemes ranks, pointers)      LocalWriter
//!      └────▶ message to the owner of the key's partition          Router ──▶ owner's LocalWriter
//!
//!   end_epoch   drain the messages ─▶ logs durable ─▶ allreduce ─▶ rank 0 commits ─▶ allreduce
//! ```
//!
//! Invariants:
//!
//! - Rank `r` owns partition `r`; if there are fewer partitions than ranks, the first ranks own one each.
//! - An epoch is committed when every rank has made its part durable and as many records arrived as were appended.
//!   Until then readers do not see it. If a rank fails, no rank commits, and all ranks get its number and the reason.
//! - A rank that failed takes part until the end of the epoch and drops the records it receives, so that no rank waits
//!   for it.
//! - Memory stays within the given cap: routing takes its share first, logs get the rest.

mod allreduce;
mod balance;
mod error;
mod message;
mod open;
mod writer;

pub use error::RankError;
pub use open::RankOptions;
pub use writer::{RankEpoch, RankMemory, RankWriter};
