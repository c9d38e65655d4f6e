//! Sorts integers that fit registers by networks: no branch depends on the data.
//!
//! ```text
//!            lane 0  1  ..                 1. every lane is a column: sort columns, row against row
//! row 0          .   .                     2. merge columns in pairs, fours, .. until one sorted
//! row 1          .   .                        sequence runs down column after column
//!  ..                                      3. transpose, so that it runs along the rows, and store
//! row R-1        .   .
//! ```
//!
//! Merging is bitonic: the one half is compared with the other read backwards (rows reversed and
//! lanes flipped), then distances halve, first across lanes, then down rows.

use super::lanes::{Lanes, first_lanes};

/// Rows that registers hold.
pub(super) const ROWS_MAX: usize = 16;

/// Sorts `v[..n]`, `n <= ROWS_MAX * L::COUNT`.
///
/// # Safety
/// AVX-512F, and `v[..n]` is valid.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline]
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn sort_small<L: Lanes>(v: *mut L::Item, n: usize) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match n.div_ceil(L::COUNT) {
            0 | 1 => sort_rows::<L, 1>(v, n),
            2 => sort_rows::<L, 2>(v, n),
            3..=4 => sort_rows::<L, 4>(v, n),
            5..=8 => sort_rows::<L, 8>(v, n),
            _ => sort_rows::<L, ROWS_MAX>(v, n),
        }
    }
}

/// # Safety
/// AVX-512F, and `v[..n]` is valid, `n <= R * L::COUNT`.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline]
#[target_feature(enable = "avx512f,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn sort_rows<L: Lanes, const R: usize>(v: *mut L::Item, n: usize) {
    // SAFETY: rows beyond `n` touch no element, and are given an address within `v`.
    unsafe {
        let place = |row: usize| {
            let at = row * L::COUNT;
            if at < n { (v.add(at), (n - at).min(L::COUNT)) } else { (v, 0) }
        };
        let mut rows = [L::load_first(v, 0); R];
        for (row, lanes) in rows.iter_mut().enumerate() {
            let (from, count) = place(row);
            *lanes = L::load_first(from, count);
        }
        sort_columns(&mut rows);
        merge_columns(&mut rows);
        transpose(&mut rows);
        for (row, lanes) in rows.iter().enumerate() {
            let (to, count) = place(destination::<L, R>(row));
            lanes.store_masked(to, first_lanes(count));
        }
    }
}

macro_rules! exchanges {
    ($rows:ident $base:literal: $(($low:literal $high:literal))*) => {
        $(exchange($rows, $base + $low, $base + $high);)*
    };
}

/// # Safety
/// AVX-512F, here and below.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn exchange<L: Lanes, const R: usize>(rows: &mut [L; R], low: usize, high: usize) {
    // SAFETY: the caller guarantees it.
    unsafe { (rows[low], rows[high]) = (rows[low].min(rows[high]), rows[low].max(rows[high])) };
}

/// Sorts every column: the networks with the fewest exchanges known.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn sort_columns<L: Lanes, const R: usize>(rows: &mut [L; R]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match R {
            2 => exchange(rows, 0, 1),
            4 => {
                exchanges!(rows 0: (0 1)(2 3) (0 2)(1 3) (1 2));
            }
            8 => {
                exchanges!(rows 0: (0 1)(2 3)(4 5)(6 7) (0 2)(1 3)(4 6)(5 7) (1 2)(5 6)(0 4)(3 7));
                exchanges!(rows 0: (1 5)(2 6) (1 4)(3 6) (2 4)(3 5) (3 4));
            }
            16 => {
                exchanges!(rows 0: (0 1)(2 3)(4 5)(6 7)(8 9)(10 11)(12 13)(14 15));
                exchanges!(rows 0: (0 2)(4 6)(8 10)(12 14)(1 3)(5 7)(9 11)(13 15));
                exchanges!(rows 0: (0 4)(8 12)(1 5)(9 13)(2 6)(10 14)(3 7)(11 15));
                exchanges!(rows 0: (0 8)(1 9)(2 10)(3 11)(4 12)(5 13)(6 14)(7 15));
                exchanges!(rows 0: (5 10)(6 9)(3 12)(13 14)(4 8)(7 11)(1 2));
                exchanges!(rows 0: (1 4)(7 13)(2 8)(11 14));
                exchanges!(rows 0: (2 4)(5 6)(9 10)(11 13)(3 8)(7 12));
                exchanges!(rows 0: (6 8)(10 12)(3 5)(7 9));
                exchanges!(rows 0: (3 4)(5 6)(7 8)(9 10)(11 12) (6 7)(8 9));
            }
            _ => {}
        }
    }
}

/// Merges sorted columns to one sequence down column after column.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn merge_columns<L: Lanes, const R: usize>(rows: &mut [L; R]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        merge_halves::<L, R, 0>(rows);
        merge_halves::<L, R, 1>(rows);
        merge_halves::<L, R, 2>(rows);
        if L::BITS > 3 {
            merge_halves::<L, R, 3>(rows);
        }
    }
}

/// Merges the sequences in groups of `2^BIT` columns in pairs.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn merge_halves<L: Lanes, const R: usize, const BIT: u32>(rows: &mut [L; R]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        for low in 0..R.div_ceil(2) {
            let high = R - 1 - low;
            let a = rows[low];
            let b = rows[high];
            let flipped_a = a.flip::<BIT>();
            let flipped_b = b.flip::<BIT>();
            rows[low] = a.min(flipped_b).blend::<BIT>(a.max(flipped_b));
            if high > low {
                rows[high] = b.min(flipped_a).blend::<BIT>(b.max(flipped_a));
            }
        }
        if BIT > 2 {
            clean_lanes::<L, R, 2>(rows);
        }
        if BIT > 1 {
            clean_lanes::<L, R, 1>(rows);
        }
        if BIT > 0 {
            clean_lanes::<L, R, 0>(rows);
        }
        clean_rows(rows);
    }
}

/// Compares columns whose numbers differ in `BIT`.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn clean_lanes<L: Lanes, const R: usize, const BIT: u32>(rows: &mut [L; R]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        for row in rows {
            let swapped = row.swap::<BIT>();
            *row = row.min(swapped).blend::<BIT>(row.max(swapped));
        }
    }
}

/// Compares rows at distances R/2, R/4, .., 1: sorts bitonic columns.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn clean_rows<L: Lanes, const R: usize>(rows: &mut [L; R]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        if R >= 16 {
            exchanges!(rows 0: (0 8)(1 9)(2 10)(3 11)(4 12)(5 13)(6 14)(7 15));
            exchanges!(rows 8: (0 4)(1 5)(2 6)(3 7) (0 2)(1 3)(4 6)(5 7) (0 1)(2 3)(4 5)(6 7));
        }
        if R >= 8 {
            exchanges!(rows 0: (0 4)(1 5)(2 6)(3 7));
            exchanges!(rows 4: (0 2)(1 3) (0 1)(2 3));
        }
        if R >= 4 {
            exchanges!(rows 0: (0 2)(1 3));
            exchanges!(rows 2: (0 1));
        }
        if R >= 2 {
            exchange(rows, 0, 1);
        }
    }
}

/// Moves the sequence from columns to rows, except for the order of the rows.
///
/// Element i is in lane `i / R`, row `i % R`: the bits of i are the lane's over the row's. Each
/// step trades one bit of the lane for one of the row.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn transpose<L: Lanes, const R: usize>(rows: &mut [L; R]) {
    if R == 1 {
        return;
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        trade_bit::<L, R, 0>(rows);
        trade_bit::<L, R, 1>(rows);
        trade_bit::<L, R, 2>(rows);
        if L::BITS > 3 {
            trade_bit::<L, R, 3>(rows);
        }
    }
}

/// Trades bit `BIT` of the lane for the row's bit of that number, counted round.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[inline(always)]
unsafe fn trade_bit<L: Lanes, const R: usize, const BIT: u32>(rows: &mut [L; R]) {
    let distance = 1 << (BIT % R.ilog2());
    // SAFETY: the caller guarantees it.
    unsafe {
        for low in 0..R {
            if low & distance == 0 {
                let a = rows[low];
                let b = rows[low | distance];
                rows[low] = a.blend::<BIT>(b.swap::<BIT>());
                rows[low | distance] = a.swap::<BIT>().blend::<BIT>(b);
            }
        }
    }
}

/// The output position of a transposed row: the trades have rotated the row's bits.
#[inline(always)]
fn destination<L: Lanes, const R: usize>(row: usize) -> usize {
    if R == 1 {
        return row;
    }
    let turn = L::BITS % R.ilog2();
    (row >> turn) | (row << (R.ilog2() - turn)) & (R - 1)
}
