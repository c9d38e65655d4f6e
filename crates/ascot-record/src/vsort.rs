//! Sorting of bare integers, in place.

/// Sorts ascending, in place, without allocating.
pub fn sort_u64(v: &mut [u64]) {
    v.sort_unstable();
}

/// Sorts ascending, in place, without allocating.
pub fn sort_u32(v: &mut [u32]) {
    v.sort_unstable();
}
