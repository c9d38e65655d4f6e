//! The bytes of an indexed directory (docs/formats/index.md), shared by writers and readers. Only the manifest opens
//! files.
//!
//! ```text
//!   manifest   the layout and the complete epochs        (layout, shape, epochs, boundaries: parts of it)
//!   names      the files, and their numbers
//!   footer     the end of an epoch in an index log: its segments
//!   head       a segment: its tables and where their blocks are; filter: the tables that may have a key
//!   record     a record in a block; pointer: a value in a log of its own
//!   bytes      numbers in bytes
//! ```

mod boundaries;
pub mod bytes;
mod epochs;
pub mod filter;
pub mod footer;
pub mod head;
pub mod layout;
pub mod manifest;
pub mod names;
pub mod pointer;
pub mod record;
pub mod shape;

/// Version of the format; newer ones are refused.
pub const VERSION: u32 = 1;
