//! Distributing records over outputs by their keys.
//!
//! ```text
//!   pieces ─▶ route: records grouped by part ─▶ write_parts ─▶ parts (runs or files)
//! ```

pub mod parts;
pub mod refine;
pub mod route;
pub mod write_parts;
