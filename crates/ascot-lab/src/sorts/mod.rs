//! The study of merge sorts (Heinrich et al., section 4): time and I/Os against N, M and d.
//!
//! ```text
//!   cell            one measurement, and the I/Os that formulas predict
//!   parameters      cells from flags and from files of parameters
//!   integers        the integers to sort: made, summed up, checked
//!   external_sort   the merge sort, over element streams
//!   measure         the loops of a cell, timed, and the sorts that it is compared with
//!   forecast        the time of the study
//!   results         the table of finished cells
//!   study           all of it
//!   summary         the tables of Heinrich et al., as text
//! ```
//!
//! A page needs [`read_results`] and the fields of [`SortResult`].

pub mod cell;
pub mod external_sort;
pub mod forecast;
pub mod integers;
pub mod measure;
pub mod parameters;
pub mod results;
pub mod study;
pub mod summary;
#[cfg(test)]
mod tests;

pub use cell::{SortCell, Source, StreamChoice};
pub use parameters::{SortGrid, StreamRange};
pub use results::{PlannedSort, SortResult, read_results};
pub use study::SortStudy;
