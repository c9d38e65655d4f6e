//! Reading: lookups of keys in a few reads, range scans, full scans, and verification.
//!
//! ```text
//!   Directory ─ get ─▶ [auxiliary regions] ─▶ filter regions ─▶ blocks ─▶ [values]     each arrow: one round of reads
//!             ─ scan ─▶ tables, merged by key or one after the other
//!             ─ verify, info
//! ```
//!
//! ```text
//!   directory                    what is open: the manifest, segment lists and heads within a memory cap
//!   many, lookup                 values of keys: batches that fit in memory; rounds of reads
//!   scan, merge                  records of a range, in the order of files or of keys
//!   values, stored, long_value   values behind pointers, in memory, and read part by part
//!   log, block, files            logs, their blocks, and the files that stay open
//!   verify, covered              every byte checked; those that no checksum covers
//!   info, counters, notices, read_policy, stamp
//! ```
//!
//! Invariants: no byte is handed over before its checksum is verified; memory has a cap given on opening, and
//! segment heads are cached within it; epochs that the manifest does not name are ignored.

mod block;
mod counters;
mod covered;
mod directory;
pub(crate) mod files;
mod info;
pub(crate) mod log;
mod long_value;
mod lookup;
mod many;
mod merge;
mod notices;
mod read_policy;
mod scan;
mod stamp;
mod stored;
#[cfg(test)]
mod tests;
mod values;
mod verify;

pub use counters::QueryCounts;
pub use directory::{Directory, MIN_MEMORY_BYTES, USUAL_MEMORY_BYTES};
pub use info::{EpochInfo, Info};
pub(crate) use log::Segment;
pub use long_value::LongValue;
pub use many::UnknownEpochs;
pub use notices::Notices;
pub use read_policy::Unread;
pub use scan::{Condition, Scan, ScanRecord, Sign, StoredRecord};
pub use stored::{Content, RecordValue, StoredValue, Value};
pub use verify::Verified;
