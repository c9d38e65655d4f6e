//! The sort benchmark's records: generates them, and checks a sort of them.
//!
//! Every record has 100 bytes, the first ten of which are its key, and every record is a pure function of its number,
//! so that any range of any data set can be generated anywhere:
//!
//! ```text
//! number n ──> X(n+1) .. X(n+10), 128-bit states of one linear generator ──> 100 bytes
//!
//! binary   key 10 | nine more blocks of 10
//! ASCII    key 10 | 2 spaces | n as 32 hex digits | 2 spaces | 13 digits four times | CR LF
//! ```
//!
//! A sort is right if its output is in order and holds the same records as its input. Comparing neighbours checks the
//! order; a checksum that does not depend on the order checks the records: the sum of the CRC-32 of every record.
//! Both can be computed over parts of a file on any number of threads and combined afterwards
//! ([`Validation::combine`]).
//!
//! Nothing here does I/O or allocates in proportion to the data.

mod crc;
mod crc_tables;
#[cfg(target_arch = "x86_64")]
mod crc_x86;
mod generator;
mod lcg;
mod validate;

pub use crc::RecordCrc;
pub use generator::{Encoding, RecordGenerator};
pub use validate::{Validation, Validator};

/// Bytes of one record.
pub const RECORD_LEN: usize = 100;

/// Bytes of its key, which come first.
pub const KEY_LEN: usize = 10;
