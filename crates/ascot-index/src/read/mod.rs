//! Reading: a key's values in a few reads, ranges, everything, and whether all of it is whole.
//!
//! ```text
//!   Directory ─ get ─▶ [auxiliary regions] ─▶ filter regions ─▶ blocks ─▶ [values]     each arrow: one round of reads
//!             ─ scan ─▶ tables, merged by key or one after the other
//!             ─ verify, info
//! ```
//!
//! Invariants: nothing is given out whose checksum was not looked at; memory is a cap given on opening, of which heads
//! of segments are kept as long as they fit; epochs that the manifest does not name are not there.

mod block;
mod cache;
mod counters;
mod covered;
mod directory;
mod fetch;
pub(crate) mod files;
mod info;
mod log;
mod long_value;
mod lookup;
mod many;
mod merge;
mod notices;
mod open_logs;
mod read_policy;
mod scan;
mod stamp;
mod stored;
pub(crate) mod tail;
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
pub use scan::{Condition, RecordValue, Scan, ScanRecord, Sign, StoredRecord};
pub use stored::{Content, StoredValue, Value};
pub use verify::Verified;
