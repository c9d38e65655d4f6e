//! The partitioned write: records are written to several streams at once, each to the stream of its key.
//!
//! ```text
//!   chunks ─▶ route: records grouped by part ─▶ write_parts: runs, or files
//!                                  key_sample ◀─╯ a sample of each part's keys, for sorting the part later
//! ```

pub mod key_sample;
pub mod route;
pub mod write_parts;

pub(crate) use key_sample::KeySample;
pub(crate) use route::{Grouped, Router, SPLIT_CHUNK_BYTES, part_of_hash, split_chunks};
pub(crate) use write_parts::{BetweenChunks, PartFile, Parts, open_parts, write_partitioned};
