//! The trace file: columns of events in compressed sections, tables of files and processes, an index, a footer.
//!
//! docs/formats/trace.md describes versions 1 and 2 byte for byte. The writer keeps one section of events in memory; the
//! reader keeps the tables and one section. A reader allocates nothing by a length that it has not checked.

mod columns;
mod reader;
mod section;
#[cfg(test)]
mod tests;
pub(crate) mod varint;
mod writer;

pub use reader::{Events, TraceReader};
pub use writer::TraceWriter;
