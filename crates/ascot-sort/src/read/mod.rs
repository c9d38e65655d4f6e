//! From inputs to whole records.
//!
//! ```text
//!   inputs ─▶ open (formats, headers) ─▶ record_reader ─▶ pieces of whole records
//! ```

pub mod damage;
pub mod inputs;
pub mod misfits;
pub mod open;
pub mod record_reader;
