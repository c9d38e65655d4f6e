//! The linear generator of the benchmark's records: X(0) = 0, X(i+1) = A X(i) + C modulo 2^128.

/// The multiplier A.
const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

/// The increment C.
const INCREMENT: u128 = 0x4a69_6d47_7261_7952_4950_2020_2020_2001;

/// The state after `x`.
#[inline(always)]
pub(super) fn next(x: u128) -> u128 {
    x.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)
}

/// X(i), in at most 128 doublings.
///
/// Two steps of `x -> a x + c` are one of `x -> a^2 x + (a + 1) c`, so step sizes double while the bits of `i` select
/// the steps to take.
pub(super) fn state(i: u128) -> u128 {
    let mut multiplier = MULTIPLIER;
    let mut increment = INCREMENT;
    let mut remaining = i;
    let mut x = 0_u128;
    while remaining != 0 {
        if remaining & 1 == 1 {
            x = x.wrapping_mul(multiplier).wrapping_add(increment);
        }
        increment = multiplier.wrapping_add(1).wrapping_mul(increment);
        multiplier = multiplier.wrapping_mul(multiplier);
        remaining >>= 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumping_is_the_same_as_walking() {
        let mut x = 0;
        for i in 0..2000_u128 {
            assert_eq!(state(i), x, "state {i}");
            x = next(x);
        }
    }

    #[test]
    fn a_jump_continues_anywhere() {
        for i in [u64::MAX as u128, 1 << 64, (1 << 100) + 12345, u128::MAX - 1] {
            assert_eq!(next(state(i)), state(i + 1));
        }
        assert_eq!(next(state(u128::MAX)), 0, "the period is 2^128");
    }
}
