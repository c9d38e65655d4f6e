//! Where finished records go: files that appear whole or not at all, or a pipe.

pub mod rolling;
pub mod target;
