//! The bridge to Arrow: Python objects as streams of record batches, and record batches as Python objects.
//!
//! ```text
//!   pyarrow, polars, pandas, duckdb, a generator ──Source──> RecordBatch ──Batch, BatchStream──> the same
//!                                         __arrow_c_stream__, __arrow_c_array__
//! ```
//!
//! `sort` runs jobs whose inputs or output are batches, and `check` checks batches: `records` makes records of batches,
//! `job` passes both on between the threads, and `stream` makes batches of records. `export` gives batches to programs,
//! and `handover` to other libraries. `columns` says which columns the records of files have.
//!
//! `flow` runs a function of the program on files: `flow_input` gives it their batches, `flow_output` writes those that
//! it yields, and `passed` are batches of its other sources. `fit` lets batches of several libraries share an output.
//!
//! No data is copied on the way in and out: the libraries hand over pointers in capsules, and the memory lives as long
//! as one of them uses it.
//!
//! A [`Source`](import::Source) is read by the thread that calls the package, as its objects may be bound to this
//! thread. Only a [`ForeignStream`](capsule::ForeignStream), which needs no interpreter, may be moved to another one. A
//! [`BatchStream`] is read by whatever thread its consumer uses, with or without the interpreter. Its [`BatchReader`]
//! must therefore never wait for the interpreter, except in the function that is passed to it; where a library reads,
//! that does so in the main thread only. Only the batches of a Python object that a flow passes on need the
//! interpreter, as those of `pyarrow.RecordBatchReader` do.

mod batch_reader;
mod capsule;
mod check;
mod columns;
mod descriptors;
mod export;
mod fit;
mod flow;
mod flow_engine;
mod flow_input;
mod flow_output;
mod handover;
mod import;
mod job;
mod passed;
mod records;
mod sort;
mod stream;

pub use batch_reader::BatchReader;
pub use check::check_batches;
pub use columns::{ArrowOptions, FirstRow, decoder_of, first_record};
pub use export::{Batch, BatchStream, StreamEnd};
pub use flow::{Flow, begin_flow};
pub use passed::pass_batches;
pub use sort::{StreamJob, run_on_batches, sort_to_batches};
