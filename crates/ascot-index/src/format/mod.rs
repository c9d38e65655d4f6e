//! The bytes of an indexed directory (docs/formats/index.md), shared by writers and readers. Only the manifest opens
//! files.

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
