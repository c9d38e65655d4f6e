//! The vector sort and the public functions compared with the standard sort.

use proptest::prelude::*;

use super::*;

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[expect(unsafe_code, reason = "calls a vector kernel that the processor has")]
fn check(v: &[u64]) {
    let mut wanted = v.to_vec();
    wanted.sort_unstable();
    let mut sorted = v.to_vec();
    sort(&mut sorted);
    assert!(sorted == wanted);

    let narrow: Vec<u32> = v.iter().map(|x| *x as u32).collect();
    let mut wanted_narrow = narrow.clone();
    wanted_narrow.sort_unstable();
    let mut sorted_narrow = narrow.clone();
    sort(&mut sorted_narrow);
    assert!(sorted_narrow == wanted_narrow);

    #[cfg(target_arch = "x86_64")]
    if quick::available() {
        let mut vectored = v.to_vec();
        // SAFETY: just checked.
        unsafe { quick::sort::<lanes::U64x8>(&mut vectored) };
        assert!(vectored == wanted);
        let mut vectored = narrow;
        // SAFETY: just checked.
        unsafe { quick::sort::<lanes::U32x16>(&mut vectored) };
        assert!(vectored == wanted_narrow);
    }
}

/// Inputs of `n` elements that have defeated quicksorts before.
fn shapes(n: usize) -> Vec<Vec<u64>> {
    let mut next = random(n as u64 + 1);
    let n64 = n as u64;
    vec![
        (0..n).map(|_| next()).collect(),
        (0..n64).collect(),
        (0..n64).rev().collect(),
        vec![7; n],
        vec![u64::MAX; n],
        (0..n).map(|_| next() % 2).collect(),
        (0..n).map(|_| if next() & 1 == 0 { u64::MAX } else { 0 }).collect(),
        (0..n).map(|_| next() % 16).collect(),
        (0..n).map(|_| next() >> (next() % 64)).collect(),
        (0..n64).map(|at| at.min(n64 - at)).collect(),
        (0..n64).map(|at| at % 8).collect(),
        (0..n64).map(|at| at ^ 1).collect(),
        (0..n64).map(|at| if at + 1 == n64 { 0 } else { at + 1 }).collect(),
    ]
}

#[test]
fn every_size_up_to_600() {
    for n in 0..=600 {
        let mut next = random(n as u64);
        check(&(0..n).map(|_| next()).collect::<Vec<_>>());
        check(&(0..n).map(|_| next() % 5).collect::<Vec<_>>());
    }
}

#[test]
fn hostile_shapes() {
    for n in [2, 127, 128, 129, 255, 256, 257, 300, 1000, 4096, 20_000, 100_003] {
        shapes(n).iter().for_each(|v| check(v));
    }
}

/// A network sorts everything if it sorts all sequences of zeros and ones.
#[test]
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls a vector kernel that the processor has")]
fn columns_of_zeros_and_ones() {
    if !quick::available() {
        return;
    }
    for mask in 0..1u64 << 16 {
        for height in [1, 2, 4, 8, 16] {
            if mask >> height != 0 {
                continue;
            }
            // Every eighth element belongs to one column; the other columns are all ones.
            let mut v: Vec<u64> =
                (0..height * 8).map(|at| if at % 8 == 3 { mask >> (at / 8) & 1 } else { 1 }).collect();
            // SAFETY: just checked.
            unsafe { network::sort_small::<lanes::U64x8>(v.as_mut_ptr(), v.len()) };
            assert!(v.is_sorted());
        }
    }
}

proptest! {
    #[test]
    fn any_numbers(v in proptest::collection::vec(any::<u64>(), 0..2000)) {
        check(&v);
    }

    #[test]
    fn few_numbers(v in proptest::collection::vec(0u64..7, 0..2000)) {
        check(&v);
    }
}
