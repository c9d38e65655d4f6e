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

/// Sorts ascending, in place, without allocating.
#[expect(unsafe_code, reason = "calls a vector kernel that the processor has")]
pub fn sort_u64(v: &mut [u64]) {
    if sort_runs(v) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if has_vectors(v.len()) {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { quick::sort::<lanes::U64x8>(v) };
    }
    v.sort_unstable();
}

/// Sorts ascending, in place, without allocating.
#[expect(unsafe_code, reason = "calls a vector kernel that the processor has")]
pub fn sort_u32(v: &mut [u32]) {
    if sort_runs(v) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if has_vectors(v.len()) {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { quick::sort::<lanes::U32x16>(v) };
    }
    v.sort_unstable();
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
