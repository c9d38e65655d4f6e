//! Reading: lookups of keys in a few reads, range scans, full scans, and verification.
//!
//! ```text
//!   Directory ─ get ─▶ [auxiliary regions] ─▶ filter regions ─▶ blocks ─▶ [values]     each arrow: one round of reads
//!             ─ scan ─▶ tables, merged by key or one after the other
//!             ─ verify, info
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
