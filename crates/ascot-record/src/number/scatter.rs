//! Groups numbers whose parts are known: a counting sort's second half.
//!
//! ```text
//! parts   2 0 2 1 ...        counted ─▶ where each group begins in `out`
//! values  a b c d ...  ─▶  line of group 0 [b . . .]   lines stay in the cache; a full one goes to
//!                          line of group 1 [d . . .]   memory whole, past the cache, to where its
//!                          line of group 2 [a c . .]   group has come
//! ```
//!
//! A store to one of many groups brings a line of the output into the cache only to overwrite it; whole lines written
//! past the cache halve the time (measured from 64 groups on; with fewer, plain stores are faster). Lines are aligned
//! with the output's own: of the lines at the ends of a group, which it shares with its neighbours, only the group's
//! part is copied.
//!
//! All `unsafe` code is in [`lines`], under one rule: groups lie one after another in `out` and have exactly the
//! sizes of the counted parts; this file has counted them itself.

/// From this number of groups on, lines are gathered.
#[cfg(target_arch = "x86_64")]
const MANY_GROUPS: usize = 64;

/// Copies `values` to the front of `out`, grouped by `parts`, which holds the number of each value's group, below
/// `groups`; values of a group keep their order. Returns the size of each group.
///
/// # Panics
/// If `parts` or `out` is shorter than `values`, or a part is not below `groups`.
#[expect(unsafe_code, reason = "writes through pointers to ranges counted before")]
pub fn group_by_part<T: Copy>(values: &[T], parts: &[u16], groups: usize, out: &mut [T]) -> Vec<u32> {
    let parts = &parts[..values.len()];
    let out = &mut out[..values.len()];
    let mut sizes = vec![0u32; groups];
    parts.iter().for_each(|&part| sizes[usize::from(part)] += 1);
    #[cfg(target_arch = "x86_64")]
    if groups >= MANY_GROUPS && lines::whole::<T>() {
        // SAFETY: `parts` and `out` are as long as `values`; `sizes` counts `parts`, all of them.
        unsafe { lines::scatter(values, parts, &sizes, out) };
        return sizes;
    }
    let mut places: Vec<u32> = begins(&sizes, 0).collect();
    for (value, part) in values.iter().zip(parts) {
        let place = &mut places[usize::from(*part)];
        out[*place as usize] = *value;
        *place += 1;
    }
    sizes
}

/// The position at which each group begins, the first at `first`.
fn begins(sizes: &[u32], first: u32) -> impl Iterator<Item = u32> {
    sizes.iter().scan(first, |next, size| {
        *next += size;
        Some(*next - size)
    })
}

#[cfg(target_arch = "x86_64")]
mod lines {
    use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_sfence, _mm_stream_si128};
    use std::mem::MaybeUninit;
    use std::ptr;

    const LINE_BYTES: usize = 64;

    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line(#[expect(dead_code, reason = "written and read by address")] [u8; LINE_BYTES]);

    /// Whether a line holds a whole number of values, wherever they lie.
    pub(super) fn whole<T>() -> bool {
        size_of::<T>() > 0 && LINE_BYTES.is_multiple_of(size_of::<T>()) && align_of::<T>() == size_of::<T>()
    }

    /// # Safety
    /// `whole::<T>()`; `parts` and `out` are as long as `values`, and `sizes` counts `parts`.
    #[expect(unsafe_code, reason = "writes through pointers to ranges counted before")]
    pub(super) unsafe fn scatter<T: Copy>(values: &[T], parts: &[u16], sizes: &[u32], out: &mut [T]) {
        let per_line = LINE_BYTES / size_of::<T>();
        // Positions count from the line in which `out` begins.
        let before = out.as_ptr() as usize % LINE_BYTES / size_of::<T>();
        let begins: Vec<u32> = super::begins(sizes, before as u32).collect();
        let mut places = begins.clone();
        let mut lines: Vec<MaybeUninit<Line>> = vec![MaybeUninit::uninit(); sizes.len()];
        let base = out.as_mut_ptr().wrapping_sub(before);
        for (value, part) in values.iter().zip(parts) {
            let part = usize::from(*part);
            // SAFETY: every part was counted in `sizes`, so it is below their number; `slot` is below
            // `per_line`.
            let (place, line, begin) = unsafe {
                (places.get_unchecked_mut(part), lines.get_unchecked_mut(part), *begins.get_unchecked(part))
            };
            let slot = *place as usize % per_line;
            let line = line.as_mut_ptr().cast::<T>();
            // SAFETY: as above.
            unsafe { line.add(slot).write(*value) };
            *place += 1;
            if slot + 1 == per_line {
                let at = *place as usize - per_line;
                // SAFETY: positions from `begin` up to this one are the group's, within `out`; of a line that begins
                // earlier, the bytes after `begin` were written here.
                unsafe {
                    if at >= begin as usize {
                        stream(line.cast(), base.wrapping_add(at).cast());
                    } else {
                        let shared = begin as usize - at;
                        ptr::copy_nonoverlapping(
                            line.add(shared),
                            base.wrapping_add(at + shared),
                            per_line - shared,
                        );
                    }
                }
            }
        }
        for ((place, begin), line) in places.iter().zip(&begins).zip(&lines) {
            let end = *place as usize;
            let begin = *begin as usize;
            let from = (end / per_line * per_line).max(begin);
            let line = line.as_ptr().cast::<T>();
            // SAFETY: the last positions of the group, whose values are in its line and nowhere else yet.
            unsafe {
                ptr::copy_nonoverlapping(line.add(from % per_line), base.wrapping_add(from), end - from);
            }
        }
        // Makes the bytes written past the cache visible to the thread that takes over the values.
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { _mm_sfence() };
    }

    /// Writes a line past the cache.
    ///
    /// # Safety
    /// Both point to aligned lines; `to` may be written.
    #[expect(unsafe_code, reason = "writes through pointers to ranges counted before")]
    unsafe fn stream(line: *const __m128i, to: *mut __m128i) {
        for at in 0..LINE_BYTES / size_of::<__m128i>() {
            // SAFETY: within the line, which is aligned; every x86-64 processor has the instructions.
            unsafe { _mm_stream_si128(to.add(at), _mm_load_si128(line.add(at))) };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The expected result: a stable sort by part.
    fn grouped<T: Copy>(values: &[T], parts: &[u16]) -> Vec<T> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by_key(|&at| parts[at]);
        order.into_iter().map(|at| values[at]).collect()
    }

    fn check<T: Copy + Default + PartialEq + std::fmt::Debug>(
        values: &[T],
        parts: &[u16],
        groups: usize,
        skip: usize,
    ) {
        let mut room = vec![T::default(); skip + values.len() + 9];
        let sizes = group_by_part(values, parts, groups, &mut room[skip..]);
        assert_eq!(&room[skip..skip + values.len()], &grouped(values, parts));
        assert!(room[..skip].iter().chain(&room[skip + values.len()..]).all(|value| *value == T::default()));
        let counted =
            (0..groups).map(|part| parts.iter().filter(|&&p| usize::from(p) == part).count() as u32);
        assert_eq!(sizes, counted.collect::<Vec<_>>());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn groups_are_what_a_stable_sort_makes(
            groups in prop_oneof![1usize..5, 60..70usize, 200..300usize],
            length in 0usize..3000,
            skip in 0usize..20,
            skew in 1usize..4,
            seed in any::<u64>(),
        ) {
            let length = if cfg!(miri) { length / 10 } else { length };
            let mut state = seed | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let parts: Vec<u16> =
                (0..length).map(|_| (0..skew).map(|_| next() as usize % groups).min().unwrap_or(0) as u16).collect();
            let values: Vec<u64> = (0..length).map(|at| next() << 20 | at as u64 | 1).collect();
            check(&values, &parts, groups, skip);
            let halves: Vec<u32> = values.iter().map(|value| *value as u32).collect();
            check(&halves, &parts, groups, skip);
        }
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_part_that_is_no_group_is_refused() {
        group_by_part(&[1u64, 2], &[0, 64], 64, &mut [0; 2]);
    }
}
