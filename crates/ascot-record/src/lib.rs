//! Records and keys: layouts, key normalisation, in-memory sort, merging.

pub mod checksum;
pub mod chunk;
pub mod cursor;
pub mod file_format;
pub mod framing;
pub mod gensort;
pub mod hex;
pub mod keys;
pub mod layout;
pub mod merge;
pub mod number;
pub mod order;
pub mod vsort;
