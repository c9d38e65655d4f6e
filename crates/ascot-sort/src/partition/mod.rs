//! The partitioned write: records are written to several streams at once, each to the stream of its key.
//!
//! ```text
//!   chunks ─▶ route: records grouped by part ─▶ write_parts: runs, or files
//!                                  key_sample ◀─╯ a sample of each part's keys, for sorting the part later
//! ```

pub mod boundaries;
pub mod key_sample;
pub mod route;
pub mod write_parts;

pub(crate) use boundaries::{Boundaries, Boundary};
pub(crate) use key_sample::KeySample;
pub(crate) use route::{
    Grouped, HashGroups, Router, SPLIT_CHUNK_BYTES, files_of_parts, part_of_hash, split_chunks,
};
pub(crate) use write_parts::{
    AfterChunk, BetweenChunks, OpenParts, PartFile, PartRun, PartStream, open_parts, write_partitioned,
};
