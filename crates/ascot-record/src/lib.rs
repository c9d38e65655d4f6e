//! Records and keys: layouts, key normalisation, in-memory sort, merging.

pub mod gensort;
