//! The study of streams (Heinrich et al., section 3): time against back-end, k, N and B, for reading and for writing.
//!
//! ```text
//!   cell         one measurement, and the I/Os that the paper predicts
//!   parameters   cells from flags and from files of parameters
//!   grid         the cells of the paper
//!   measure      the loops of a cell, timed
//!   forecast     the time of the study
//!   results      the table of finished cells
//!   study        all of it
//!   analysis     fits of cost against N and k, the best B, cross-overs between back-ends
//! ```

pub mod analysis;
pub mod cell;
pub mod forecast;
pub mod grid;
pub mod measure;
pub mod parameters;
pub mod results;
pub mod study;

pub use analysis::Analysis;
pub use cell::{Backend, Cache, Cell};
pub use grid::Grid;
pub use measure::Measured;
pub use study::StreamStudy;
