//! Sorting of bare integers, in place and without allocating.
//!
//! Where the processor has AVX-512: a quicksort that partitions whole vectors, down to what a
//! sorting network holds in registers. Elsewhere: the standard library's unstable sort, which also
//! takes over where pivots keep failing, so that no input is quadratic.
//!
//! All `unsafe` code is in the submodules, under two rules: a function marked for AVX-512 is
//! entered only from here, after the processor was asked; and every pointer stays within the slice
//! given here, whose elements are plain integers.

#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod network;
#[cfg(target_arch = "x86_64")]
mod quick;

/// So few numbers are sorted in less time than it takes to ask the processor what it can do, a
/// question that leaves a virtual machine.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 2048;

/// Whether vectors are at hand. A few numbers alone do not make it ask the processor.
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

/// Leaves ascending input as it is and turns strictly descending input round; whether it was
/// either. Other input is given up at its first step the wrong way.
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
