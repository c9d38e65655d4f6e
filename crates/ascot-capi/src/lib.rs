//! The C interface (`include/ascot.h`): it parses, calls and reports. It contains no algorithm.
//!
//! ```text
//!   writer, reader, streams   the functions of ascot.h, by what they work on
//!   transport                 a transport whose functions the program brings
//!   arguments, options        what C passes: strings, bytes, options as text
//!   handles, fault            what C gets: numbers for open things, codes and texts of errors
//! ```
//!
//! Invariants at the boundary:
//!
//! - No panic crosses it: every function runs inside [`guard`](fault::guard), which returns `ASCOT_INTERNAL` for a
//!   panic and keeps the text of the thread's last error.
//! - Pointers that must not be null are checked; their targets are trusted, as everywhere in C.
//! - A [handle](handles) is a number: one that is closed, or was never open, is an error.

mod arguments;
mod fault;
mod handles;
mod options;
mod reader;
mod streams;
mod transport;
mod writer;

pub use fault::{ascot_code_name, ascot_error_text, ascot_version};
pub use reader::{
    ascot_epochs, ascot_get, ascot_get_at, ascot_iterate, ascot_reader_close, ascot_reader_get_many,
    ascot_reader_open, ascot_reader_range, ascot_reader_warnings, ascot_values_at, ascot_values_count,
    ascot_values_free,
};
pub use streams::{
    ascot_stream_close_in, ascot_stream_close_out, ascot_stream_create, ascot_stream_next_in,
    ascot_stream_next_out, ascot_stream_open,
};
pub use writer::{
    ascot_append, ascot_end_epoch, ascot_progress, ascot_writer_abandon, ascot_writer_close,
    ascot_writer_open, ascot_writer_stats,
};
