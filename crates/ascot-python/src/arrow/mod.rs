//! The bridge to Arrow: Python objects as streams of record batches, and record batches as Python objects.
//!
//! ```text
//!   pyarrow, polars, pandas, duckdb, a generator ──Source──> RecordBatch ──Batch, BatchStream──> the same
//!                                         __arrow_c_stream__, __arrow_c_array__
//! ```
//!
//! No data is copied: the libraries hand over pointers in capsules, and the memory lives as long as one of them uses it.
//!
//! A [`Source`] is read by the thread that calls the package, as its objects may be bound to this thread. Only a
//! [`ForeignStream`], which needs no interpreter, may be moved to another one. A [`BatchStream`] is read by whatever
//! thread its consumer uses, with or without the interpreter; its [`BatchReader`] must therefore never wait for the
//! interpreter, except in the function that is passed to it.

mod capsule;
mod columns;
mod export;
mod import;
mod job;
mod records;
mod sort;
mod stream;

pub use columns::{ArrowOptions, FirstRow, first_record};
pub use export::{Batch, BatchReader, BatchStream};
pub use sort::{StreamJob, sort_source, sort_to_batches};
