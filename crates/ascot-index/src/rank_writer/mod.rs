//! A directory written by many processes: each appends its records, which go where their keys belong.
//!
//! ```text
//!   append ─▶ own tables or values (schemes ranks, pointers)      LocalWriter
//!      └────▶ message to the owner of the key's partition          Router ──▶ owner's LocalWriter
//!
//!   end_epoch   drain the messages ─▶ logs durable ─▶ allreduce ─▶ rank 0 commits ─▶ allreduce
//! ```
//!
//! What holds:
//!
//! - Rank `r` owns partition `r`; where there are fewer partitions than ranks, the first ranks own one each.
//! - An epoch is committed when every rank has made its part durable and as many records arrived as were
//!   appended. Until then readers do not see it. If a rank fails, no rank commits, and all ranks get its number and the reason.
//! - A rank that failed goes on taking part until the epoch's end, and drops what it is sent: others are
//!   not left waiting.
//! - All memory is within the cap given: what routing needs first, the rest for logs.

mod allreduce;
mod balance;
mod error;
mod message;
mod open;
mod writer;

pub use error::RankError;
pub use open::RankOptions;
pub use writer::{RankEpoch, RankMemory, RankWriter};
