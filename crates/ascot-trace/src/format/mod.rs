//! The trace file: columns of events in compressed sections, tables of files and processes, an index, a footer.
//!
//! Traces of Ascot's own jobs also have sections of bowties and of their buckets, and traces of block requests a
//! section of what the disks saw.
//!
//! docs/formats/trace.md describes all versions byte for byte. The writer keeps one section of events and one of turns
//! in memory; the reader keeps the tables and one section. A reader allocates nothing by a length that it has not
//! checked.

mod columns;
mod reader;
mod section;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;
mod turns;
pub(crate) mod varint;
mod writer;

pub use reader::{Entries, TraceReader};
pub use writer::TraceWriter;
