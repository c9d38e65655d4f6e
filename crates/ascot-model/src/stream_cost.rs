//! I/Os that Heinrich et al. predict for k streams of N elements each (sections 3.2.1, 3.4.1 and 3.5.1).

/// I/Os of k streams of `elements` each that move one element at a time: kN.
pub fn plain_ios(streams: u64, elements: u64) -> u64 {
    streams.saturating_mul(elements)
}

/// I/Os of k streams of `elements` of `element_bytes` each that move blocks, or windows, of `block_bytes`:
/// ceil(4kN/B) for integers of four bytes. A block of no bytes counts as one byte.
pub fn block_ios(streams: u64, elements: u64, element_bytes: u64, block_bytes: u64) -> u64 {
    streams.saturating_mul(elements).saturating_mul(element_bytes).div_ceil(block_bytes.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_are_those_of_the_paper() {
        assert_eq!(plain_ios(30, 10_000_000), 300_000_000);
        assert_eq!(block_ios(1, 1000, 4, 1), 4000);
        assert_eq!(block_ios(2, 1000, 4, 4096), 2);
        assert_eq!(block_ios(1, 250_000_000, 4, 1 << 30), 1);
        assert_eq!(block_ios(1, 0, 4, 8192), 0);
        assert_eq!(block_ios(u64::MAX, 2, 4, 0), u64::MAX);
    }
}
