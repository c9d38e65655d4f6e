//! Reading: a key's values in a few reads, ranges, everything, and whether all of it is whole.
pub mod fetch;
pub mod tail;
