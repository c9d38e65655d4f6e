//! Views: sorted runs that are merged when they are read.
//!
//! ```text
//!   make      a sort that stops after its runs, which become a directory   (docs/formats/view.md)
//!   manifest  the contents of that directory, and the check that they have not changed
//!   kept      the indexes and keys of its runs, read with few requests
//!   load      some units of runs in memory
//!   selection the position in every run of a byte, a record or a key of the merged sequence
//!   refer     a view of views and of sorted files, by reference
//!   sorted_file   the facts that a view keeps about a file that is part of it
//!   cost      the cost of a view, compared with a file
//!   reader    the merged bytes from any position on: a stream, or a few of them
//!   copy      a part, written to a file or to standard output
//!   as_input  a view as an input that is read in sequence
//!   explanation   how a part would be read (`--explain`)
//! ```

mod as_input;
pub mod block_size;
mod copy;
pub mod cost;
mod explanation;
mod kept;
#[cfg(test)]
mod kept_tests;
#[cfg(test)]
mod liveness_tests;
mod load;
pub mod make;
pub mod manifest;
mod reader;
mod refer;
mod selection;
mod sorted_file;
mod stream;
#[cfg(test)]
mod switches_tests;
#[cfg(test)]
mod tests;

pub(crate) use as_input::input_of;
pub(crate) use block_size::kept_bytes;
pub(crate) use cost::ViewCost;

pub use copy::write_part;
pub use explanation::{ReadExplanation, explain_part};
pub use load::Measure;
pub use manifest::ViewManifest;
pub use reader::{OpenView, View};
pub use refer::{is_view, join_parts, join_views, same_order};
pub use selection::MAX_UNITS;
pub use stream::{ReadOrder, Reading, Stream, StreamPlan};
