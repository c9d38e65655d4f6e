//! Quicksort on vectors.
//!
//! ```text
//!  writeL ->  readL ->                      <- readR        <- writeR
//! | <= pivot | free | not yet read ..........| free | > pivot |
//! ```
//!
//! Blocks are read from the side with less room, so that there is a block's room on both sides
//! after every read. A vector is permuted to have the small ones first and stored whole on both
//! sides: what is not meant there falls into free room and is overwritten later. The first and
//! last block and the remainder are set aside at the start, which makes the room, and go last.

#![expect(unsafe_code, reason = "vector instructions that the processor has, on slices split before")]

use std::mem::MaybeUninit;

use super::lanes::{Lanes, first_lanes};
use super::network::{ROWS_MAX, sort_small};

/// Vectors of a block.
const BLOCK: usize = 8;

/// Whether the processor has what [`sort`] is compiled for.
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
/// [`available`] has said yes.
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn sort<L: Lanes>(v: &mut [L::Item]) {
    let depth = 2 * v.len().max(1).ilog2() + 4;
    // SAFETY: the caller's promise.
    unsafe { sort_to_depth::<L>(v, depth) };
}

/// # Safety
/// AVX-512F.
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn sort_to_depth<L: Lanes>(mut v: &mut [L::Item], mut depth: u32) {
    // SAFETY: the caller's promise; lengths are checked against what the callees want.
    unsafe {
        while v.len() > ROWS_MAX * L::COUNT {
            if depth == 0 {
                return v.sort_unstable();
            }
            depth -= 1;
            let pivot = choose_pivot::<L>(v);
            let middle = partition::<L, false>(v, pivot);
            if middle == v.len() {
                // The pivot is the greatest: split off all that equal it, which are in place.
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

/// The median of a sample of some vectors from all over `v`: more, the longer it is.
///
/// # Safety
/// AVX-512F, and `v` is longer than `ROWS_MAX` vectors.
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
    // SAFETY: a vector starts at most at `stride * vectors <= v.len() - COUNT`, and the sample
    // has room for all of them.
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

/// Where the two sides are written.
struct Sides<T> {
    base: *mut T,
    left: usize,
    right: usize,
}

impl<T> Sides<T> {
    /// Stores a whole vector, touching nothing but as much room.
    ///
    /// # Safety
    /// AVX-512F; between the sides there is room for a vector.
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

    /// Stores the first `count` lanes, touching nothing but as much room.
    ///
    /// # Safety
    /// AVX-512F; between the sides there is room for the `count` first lanes.
    #[inline(always)]
    unsafe fn put<L: Lanes<Item = T>, const STRICT: bool>(&mut self, lanes: L, pivot: L, count: usize) {
        // SAFETY: stores exactly `count` elements into the room between the sides.
        unsafe {
            let below = lanes.below::<STRICT>(pivot) & first_lanes(count);
            let above = !below & first_lanes(count);
            let (small, great) = (below.count_ones() as usize, above.count_ones() as usize);
            lanes.compress(below).store_masked(self.base.add(self.left), first_lanes(small));
            self.left += small;
            self.right -= great;
            lanes.compress(above).store_masked(self.base.add(self.right), first_lanes(great));
        }
    }
}

/// Moves what is at most `pivot` (less than it if `STRICT`) to the front; how many those are.
///
/// # Safety
/// AVX-512F, and `v` has two blocks or more.
#[inline]
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn partition<L: Lanes, const STRICT: bool>(v: &mut [L::Item], pivot: L::Item) -> usize {
    let block = BLOCK * L::COUNT;
    let remainder = v.len() % block;
    let whole = v.len() - remainder;
    let base = v.as_mut_ptr();
    let mut aside = [MaybeUninit::<L>::uninit(); 3 * BLOCK];
    // SAFETY: reads are of whole blocks below `whole`; see `partition_blocks` for its stores. What
    // was set aside is as many elements as the room that is left between the sides.
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
/// AVX-512F; the range is whole blocks, with a block of room or more on either side of it.
#[inline(always)]
unsafe fn partition_blocks<L: Lanes, const STRICT: bool>(
    sides: &mut Sides<L::Item>,
    mut read_left: usize,
    mut read_right: usize,
    pivot: L,
) {
    let block = BLOCK * L::COUNT;
    let base = sides.base;
    let (mut left, mut right) = (sides.left, sides.right);
    // SAFETY: the two rooms are two blocks or more together before a read, so that after it either
    // has a block at least; each of the block's vectors takes its own width of it at most.
    unsafe {
        while read_left < read_right {
            // Which side is a coin toss no branch predictor can call.
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
    (sides.left, sides.right) = (left, right);
}
