//! Writing: records accumulate in memory and become tables and complete epochs.
//!
//! ```text
//!   DirectoryWriter  one process, all partitions        Coordinator   makes the directory, commits epochs
//!         └─▶ LocalWriter  the logs of one process ◀── a rank, which receives records of others
//!               ├─ TableLog      buffer ─ sort ─▶ blocks, filters        ╮
//!               ├─ AuxiliaryLog  hashes and ranks ─▶ regions             ├─▶ Logs: the engine, 0 x m
//!               └─ ValueLog      values as they come                     ╯
//! ```
//!
//! `opening` makes or continues a directory as a `request` says, `rollback` drops its last epochs. `memory` divides the
//! memory of a writer, `buffer` and `segment` hold what a table log has not written yet, `index_log` ends epochs, and
//! `boundaries` divide keys by range.

mod auxiliary_log;
mod boundaries;
mod buffer;
mod coordinator;
mod directory;
mod index_log;
mod local;
mod logs;
mod memory;
mod opening;
mod request;
mod rollback;
mod segment;
mod table_log;
mod value_log;

pub use boundaries::Sampler;
pub use coordinator::{Coordinator, discard};
pub use directory::DirectoryWriter;
pub use local::{EpochCounts, LocalWriter, Share};
pub use memory::MIN_BYTES;
pub use opening::{OpenMode, Opening};
pub use request::LayoutRequest;
pub use rollback::{RolledBack, roll_back};
