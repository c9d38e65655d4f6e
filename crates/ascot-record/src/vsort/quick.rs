//! Quicksort on vectors.
//!
//! ```text
//!  writeL ->  readL ->                      <- readR        <- writeR
//! | <= pivot | free | not yet read ..........| free | > pivot |
//! ```
//!
//! Blocks are read from the side with less free space, so that both sides have a block of free space after every
//! read. A vector is permuted to have the small elements first and stored whole on both sides: elements stored on the
//! wrong side fall into free space and are overwritten later. The first and last block and the remainder are set
//! aside at the start, which makes the free space, and are partitioned last.

use std::mem::MaybeUninit;

use super::lanes::{Lanes, first_lanes};
use super::network::{ROWS_MAX, sort_small};

/// Vectors of a block.
const BLOCK: usize = 8;

/// Whether the processor has the features that [`sort`] is compiled for.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("lzcnt")
}

/// Sorts ascending.
///
/// # Safety
/// [`available`] has returned true.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn sort<L: Lanes>(v: &mut [L::Item]) {
    let depth = 2 * v.len().max(1).ilog2() + 4;
    // SAFETY: the caller guarantees it.
    unsafe { sort_to_depth::<L>(v, depth) };
}

/// # Safety
/// AVX-512F.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn sort_to_depth<L: Lanes>(mut v: &mut [L::Item], mut depth: u32) {
    // SAFETY: the caller guarantees it; lengths are checked against the callees' requirements.
    unsafe {
        while v.len() > ROWS_MAX * L::COUNT {
            if depth == 0 {
                return v.sort_unstable();
            }
            depth -= 1;
            let pivot = choose_pivot::<L>(v);
            let middle = partition::<L, false>(v, pivot);
            if middle == v.len() {
                // The pivot is the greatest: split off all elements equal to it, which are in place.
                let less = partition::<L, true>(v, pivot);
                v = &mut v[..less];
                continue;
            }
            let (left, right) = v.split_at_mut(middle);
            let (short, long) = if left.len() < right.len() { (left, right) } else { (right, left) };
            sort_to_depth::<L>(short, depth);
            v = long;
        }
        sort_small::<L>(v.as_mut_ptr(), v.len());
    }
}

/// The median of a sample of vectors from all over `v`: the longer `v`, the more vectors.
///
/// # Safety
/// AVX-512F, and `v` is longer than `ROWS_MAX` vectors.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline]
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn choose_pivot<L: Lanes>(v: &[L::Item]) -> L::Item {
    let vectors = match v.len() {
        0..1024 => 2,
        1024..16384 => 4,
        _ => 16,
    };
    let mut sample = [MaybeUninit::<L>::uninit(); ROWS_MAX];
    let items: *mut L::Item = sample.as_mut_ptr().cast();
    let stride = (v.len() - L::COUNT) / vectors;
    let mut noise = v.len() as u64;
    // SAFETY: a vector starts at most at `stride * vectors <= v.len() - COUNT`, and the sample holds all of them.
    unsafe {
        for at in 0..vectors {
            noise = noise.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let within = (((noise >> 32) * stride as u64) >> 32) as usize;
            L::load(v.as_ptr().add(at * stride + within)).store(items.add(at * L::COUNT));
        }
        sort_small::<L>(items, vectors * L::COUNT);
        *items.add(vectors * L::COUNT / 2)
    }
}

/// The write positions of the two sides.
struct Sides<T> {
    base: *mut T,
    left: usize,
    right: usize,
}

impl<T> Sides<T> {
    /// Stores a whole vector; touches only as much free space.
    ///
    /// # Safety
    /// AVX-512F; the free space between the sides holds a vector.
    #[expect(unsafe_code, reason = "vector instructions that the processor has")]
    #[inline(always)]
    unsafe fn put_whole<L: Lanes<Item = T>, const STRICT: bool>(&mut self, lanes: L, pivot: L) {
        // SAFETY: of the two stores, the one keeps the small lanes and the other the rest.
        unsafe {
            let below = lanes.below::<STRICT>(pivot);
            let parted = lanes.split(below);
            let small = first_lanes(below.count_ones() as usize);
            parted.store_masked(self.base.add(self.left), small);
            parted.store_masked(self.base.wrapping_add(self.right).wrapping_sub(L::COUNT), !small);
            self.left += below.count_ones() as usize;
            self.right -= L::COUNT - below.count_ones() as usize;
        }
    }

    /// Stores the first `count` lanes; touches only as much free space.
    ///
    /// # Safety
    /// AVX-512F; the free space between the sides holds the `count` first lanes.
    #[expect(unsafe_code, reason = "vector instructions that the processor has")]
    #[inline(always)]
    unsafe fn put<L: Lanes<Item = T>, const STRICT: bool>(&mut self, lanes: L, pivot: L, count: usize) {
        // SAFETY: stores exactly `count` elements into the free space between the sides.
        unsafe {
            let below = lanes.below::<STRICT>(pivot) & first_lanes(count);
            let above = !below & first_lanes(count);
            let small = below.count_ones() as usize;
            let great = above.count_ones() as usize;
            // The lanes below the pivot, those above it, and those without an item.
            let parted = lanes.split(below);
            parted.store_masked(self.base.add(self.left), first_lanes(small));
            self.left += small;
            self.right -= great;
            let above = first_lanes(small + great) & !first_lanes(small);
            parted.store_masked(self.base.wrapping_add(self.right).wrapping_sub(small), above);
        }
    }
}

/// Moves the elements that are at most `pivot` (less than it if `STRICT`) to the front; returns their number.
///
/// # Safety
/// AVX-512F, and `v` has two blocks or more.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline]
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn partition<L: Lanes, const STRICT: bool>(v: &mut [L::Item], pivot: L::Item) -> usize {
    let block = BLOCK * L::COUNT;
    let remainder = v.len() % block;
    let whole = v.len() - remainder;
    let base = v.as_mut_ptr();
    let mut aside = [MaybeUninit::<L>::uninit(); 3 * BLOCK];
    // SAFETY: reads are of whole blocks below `whole`; see `partition_blocks` for its stores. The elements set aside
    // are as many as the free space left between the sides holds.
    unsafe {
        for at in 0..BLOCK {
            aside[at].write(L::load(base.add(at * L::COUNT)));
            aside[BLOCK + at].write(L::load(base.add(whole - block + at * L::COUNT)));
        }
        let rest = base.add(whole);
        for at in 0..remainder.div_ceil(L::COUNT) {
            let count = (remainder - at * L::COUNT).min(L::COUNT);
            aside[2 * BLOCK + at].write(L::load_first(rest.add(at * L::COUNT), count));
        }
        let mut sides = Sides { base, left: 0, right: v.len() };
        let pivot = L::splat(pivot);
        partition_blocks::<L, STRICT>(&mut sides, block, whole - block, pivot);
        for lanes in &aside[..2 * BLOCK] {
            sides.put_whole::<L, STRICT>(lanes.assume_init(), pivot);
        }
        for at in 0..remainder.div_ceil(L::COUNT) {
            let count = (remainder - at * L::COUNT).min(L::COUNT);
            sides.put::<L, STRICT>(aside[2 * BLOCK + at].assume_init(), pivot, count);
        }
        sides.left
    }
}

/// Partitions the blocks in `read_left..read_right`.
///
/// # Safety
/// AVX-512F; the range is whole blocks, with at least a block of free space on either side of it.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn partition_blocks<L: Lanes, const STRICT: bool>(
    sides: &mut Sides<L::Item>,
    mut read_left: usize,
    mut read_right: usize,
    pivot: L,
) {
    let block = BLOCK * L::COUNT;
    let base = sides.base;
    let mut left = sides.left;
    let mut right = sides.right;
    // SAFETY: before a read, the two free spaces together hold at least two blocks, so that after it each holds at
    // least one; each of the block's vectors takes at most its own width of it.
    unsafe {
        while read_left < read_right {
            // Branch-free: which side is next cannot be predicted.
            let from_left = usize::from(read_left - left <= right - read_right);
            read_right -= block * (1 - from_left);
            let at = base.add(read_right ^ ((read_right ^ read_left) & from_left.wrapping_neg()));
            read_left += block * from_left;
            let mut rows = [pivot; BLOCK];
            for (row, lanes) in rows.iter_mut().enumerate() {
                *lanes = L::load(at.add(row * L::COUNT));
            }
            for lanes in rows {
                let below = lanes.below::<STRICT>(pivot);
                let parted = lanes.split(below);
                let small = below.count_ones() as usize;
                parted.store(base.add(left));
                parted.store(base.add(right - L::COUNT));
                left += small;
                right -= L::COUNT - small;
            }
        }
    }
    sides.left = left;
    sides.right = right;
}
