//! Vectors whose allocation may fail: the caller gets an error instead of an abort.
//!
//! Invariant: the caller has reserved the same memory from the pool before.

use ascot_io::emergency::fallible;
use ascot_io::{Pool, PoolError};

/// errno for out of memory.
const ENOMEM: i32 = 12;

/// A vector with capacity for `count` elements.
///
/// # Errors
/// [`PoolError::Refused`] if the system has too little memory.
pub fn vec_with_capacity<T>(pool: &Pool, count: usize, purpose: &'static str) -> Result<Vec<T>, PoolError> {
    let mut list = Vec::new();
    fallible(|| list.try_reserve_exact(count)).map_err(|_| PoolError::Refused {
        purpose,
        asked: count.saturating_mul(size_of::<T>()),
        used: pool.used(),
        budget: pool.budget(),
        errno: ENOMEM,
    })?;
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let pool = Pool::new(1 << 20);
        assert_eq!(vec_with_capacity::<u64>(&pool, 100, "a test").unwrap().capacity(), 100);
        for count in [1 << 57, usize::MAX] {
            let error = vec_with_capacity::<u64>(&pool, count, "a test").unwrap_err().to_string();
            assert!(error.contains("allow less memory"), "{error}");
        }
    }
}
