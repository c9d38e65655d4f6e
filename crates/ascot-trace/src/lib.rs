//! Traces: the I/O of any program, recorded, counted and exported.
//!
//! ```text
//!   record       runs a program under strace, and converts its log to a trace
//!   log_space    space for its log, allocated ahead
//!   own_file     a recording replaces no file of its program
//!   rights       rights that a traced program does not get
//!   block/       records what the disk sees, by the kernel's block tracepoints
//!   strace/      the log: its lines, and the files, descriptors and positions behind them
//!   job          the requests of a job of Ascot itself, from its ledger
//!   buckets      what the streams of a job's bowties hold in memory
//!   bucket_census  how full these were, and how far from the staircase of the theory
//!   ranges       sets of ranges
//!   blocks       the blocks that files take on a volume: live data
//!   census       programs, opens, requests, bytes, seeks, switches, runs
//!   replay/      the requests on a real volume or on the virtual disk
//!   page/        seek charts, rates and tables as an HTML page
//!   compare      the measures of several traces
//!   export       a trace as CSV, or as a log that fio replays
//!   cut          the events of a time range
//!   fiemap       the extents of a file on its device
//!   holes        the data of a file, and its holes
//!   format/      the trace file: compressed columns in checksummed sections
//!   event        the plain types of a trace
//!   output       files that are written whole or not at all
//!   pipe         inputs that come through a pipe
//!   error        errors of all of them
//! ```
//!
//! The method follows Stella and Loguinov, section VI: calls that failed are left out, calls that moved fewer bytes
//! than requested count with the bytes moved, and every request gets its file and its offset, whatever descriptor it
//! used. A request that continues where the previous one ended belongs to the same run, also if another process made
//! it.

mod awake;
mod block;
mod blocks;
pub mod bucket_census;
pub mod buckets;
pub mod census;
pub mod compare;
pub mod cut;
pub mod error;
pub mod event;
pub mod export;
mod fiemap;
pub mod format;
mod holes;
pub mod job;
mod log_space;
mod output;
mod own_file;
pub mod page;
mod pipe;
mod ranges;
pub mod record;
pub mod replay;
mod rights;
pub mod strace;
#[cfg(test)]
mod tests;

pub use buckets::{TracedBowtie, Turn};
pub use error::TraceError;
pub use event::{Event, Kind, Recording, TracedFile, TracedProcess};
pub use format::{TraceReader, TraceWriter};
pub use output::is_standard_output;
pub use ranges::RangeSet;
