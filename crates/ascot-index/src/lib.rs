//! Indexed directories: many writers append keyed records in bursts; a few keys are found again among billions without
//! sorting afterwards.
//!
//! ```text
//!   records ─▶ write ─▶ data logs, index logs, MANIFEST ─▶ read ─▶ values of a key, with their epochs
//!                │          (format)                         ▲
//!                ╰─ routing: which process owns a key        ╰─ a few reads for each epoch
//! ```
//!
//! * [`mod@format`]: the bytes (docs/formats/index.md).
//! * [`mod@write`]: tables, epochs, schemes; by one process, or one of many.
//! * [`routing`]: messages between ranks; [`rank_writer`]: a directory that many ranks write.
//! * [`read`]: lookups, scans, verification.
//! * [`load`]: loads files of records into a directory.
//! * [`auxiliary`]: the ranks that may have a key.
//!
//! An epoch is complete when the manifest names it. Complete epochs stay readable whatever happens to a writer.

pub mod auxiliary;
mod error;
pub mod format;
#[cfg(test)]
mod golden_tests;
pub mod hash;
pub mod load;
pub mod rank_writer;
pub mod read;
mod reserve;
pub mod routing;
pub mod write;

pub use error::{IndexError, Result};
pub use format::layout::{Attribute, AuxiliaryKind, Layout, Named, NumberKind, PartitionBy, Scheme};
pub use format::manifest::Manifest;
pub use format::pointer::Pointer;
pub use format::shape::{Earlier, Shape};
pub use read::{
    Condition, Content, Directory, EpochInfo, Info, LongValue, Notices, QueryCounts, RecordValue, Scan,
    ScanRecord, Sign, StoredRecord, StoredValue, UnknownEpochs, Unread, Value, Verified,
};
pub use write::{
    Coordinator, DirectoryWriter, EpochCounts, LayoutRequest, LocalWriter, OpenMode, Opening, RolledBack,
    Sampler, Share, roll_back,
};
