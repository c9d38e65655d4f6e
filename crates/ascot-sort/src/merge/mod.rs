//! Merging sorted sources: as a flow of the bowtie, in parallel tasks.

pub mod emit;
pub mod flow;
