//! Records and keys: layouts, normalised keys, sorting and merging in memory. No file, no clock.
//!
//! ```text
//!   layout       the layout of a file, as a user names it
//!   file_format  files of other formats, by their first bytes
//!   framing      where a record of a layout ends, and where its key may lie
//!   keys/        descriptions of keys, compiled to programs that write memcmp-ordered keys
//!   order        framing and key together: the order of records
//!   chunk        sorts the records of a chunk, and copies them in order
//!   vsort/       sorts integers, the codes of a chunk's records
//!   merge        merges sorted sources of records
//!   number/      the same for bare numbers, which are their own keys
//!   checksum     sums of records that do not depend on their order
//!   gensort/     the sort benchmark's records, and their check
//!   prefetch     memory that is read soon
//!   hex          bytes in hexadecimal
//! ```

pub mod checksum;
pub mod chunk;
pub mod file_format;
pub mod framing;
pub mod gensort;
pub mod hex;
pub mod keys;
pub mod layout;
pub mod merge;
pub mod number;
pub mod order;
pub mod prefetch;
pub mod vsort;
