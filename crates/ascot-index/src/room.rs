//! Memory of the heap that is asked for, and not taken for granted: what the system refuses is an error, and the program goes on.
//!
//! Invariant: what is asked for here is counted in the pool beforehand.

use ascot_io::emergency::fallible;
use ascot_io::{Pool, PoolError};

/// The system's number for that there is no memory.
const ENOMEM: i32 = 12;

/// A list with room for `count`.
///
/// # Errors
/// [`PoolError::Refused`] where the system has not as much.
pub fn room<T>(pool: &Pool, count: usize, purpose: &'static str) -> Result<Vec<T>, PoolError> {
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
    fn what_nobody_has_is_an_error() {
        let pool = Pool::new(1 << 20);
        assert_eq!(room::<u64>(&pool, 100, "a test").unwrap().capacity(), 100);
        for count in [1 << 57, usize::MAX] {
            let error = room::<u64>(&pool, count, "a test").unwrap_err().to_string();
            assert!(error.contains("allow less memory"), "{error}");
        }
    }
}
