//! The partitioned write: records go to several streams at once, each to that of its key.
//!
//! ```text
//!   pieces ─▶ route: records grouped by part ─▶ write_parts ─▶ part_streams: runs, or files
//!                                  key_sample ◀─╯ a sample of each part's keys, for sorting the part later
//! ```

pub mod key_sample;
pub mod route;
pub mod write_parts;
