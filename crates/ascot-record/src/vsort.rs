//! Sorts bare integers, in place and without allocating.
//!
//! If the processor has AVX-512: a quicksort that partitions whole vectors, down to the size that a sorting network
//! holds in registers. Otherwise: the standard library's unstable sort, which also takes over if pivots keep failing,
//! so that no input is quadratic.
//!
//! All `unsafe` code is in the submodules, under two rules: a function compiled for AVX-512 is entered only from
//! here, after a check of the processor; and every pointer stays within the slice given here, whose elements are
//! plain integers.

#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod network;
#[cfg(target_arch = "x86_64")]
mod quick;

/// Up to this count, sorting takes less time than the query of the processor's features, which leaves a virtual
/// machine.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 2048;

/// Whether vectors are available. A few numbers alone do not cause a query of the processor.
#[cfg(target_arch = "x86_64")]
fn has_vectors(count: usize) -> bool {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if count <= FEW && !cfg!(test) && !ASKED.load(Ordering::Relaxed) {
        return false;
    }
    ASKED.store(true, Ordering::Relaxed);
    quick::available()
}

/// An integer type that the vectors sort.
pub trait Sortable: Copy + Ord {
    /// Sorts ascending, in place, without allocating; [`sort`] also looks for runs.
    fn sort_unordered(v: &mut [Self]);
}

impl Sortable for u64 {
    fn sort_unordered(v: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        sort_lanes::<lanes::U64x8>(v);
        #[cfg(not(target_arch = "x86_64"))]
        v.sort_unstable();
    }
}

impl Sortable for u32 {
    fn sort_unordered(v: &mut [u32]) {
        #[cfg(target_arch = "x86_64")]
        sort_lanes::<lanes::U32x16>(v);
        #[cfg(not(target_arch = "x86_64"))]
        v.sort_unstable();
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls a vector kernel that the processor has")]
fn sort_lanes<L: lanes::Lanes>(v: &mut [L::Item]) {
    if has_vectors(v.len()) {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { quick::sort::<L>(v) };
    }
    v.sort_unstable();
}

/// Sorts ascending, in place, without allocating.
pub fn sort<T: Sortable>(v: &mut [T]) {
    if !sort_runs(v) {
        T::sort_unordered(v);
    }
}

/// Leaves ascending input unchanged and reverses strictly descending input; returns whether it was either. Other
/// input is abandoned at its first step against the direction.
fn sort_runs<T: Ord>(v: &mut [T]) -> bool {
    let [first, second, ..] = v else { return true };
    if first <= second {
        return v.is_sorted();
    }
    let descending = v.is_sorted_by(|a, b| a > b);
    if descending {
        v.reverse();
    }
    descending
}

#[cfg(test)]
mod tests;
