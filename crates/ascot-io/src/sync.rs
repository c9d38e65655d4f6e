//! Locks that panic if another thread panicked while it held them.
//!
//! A thread that panics while it holds a lock may leave the value half changed. No result of such a value may reach a
//! user's file, so the next thread that takes the lock panics too. Only a thread that is already panicking, and cleans
//! up, takes the value as it is.

use std::sync::LockResult;

/// The guard or value of a lock, or a panic if another thread panicked while it held the lock.
pub trait Unpoisoned {
    /// The guard or value.
    type Value;

    /// Asserts that no thread panicked while it held the lock.
    fn unpoisoned(self) -> Self::Value;
}

impl<T> Unpoisoned for LockResult<T> {
    type Value = T;

    #[track_caller]
    fn unpoisoned(self) -> T {
        self.unwrap_or_else(|poisoned| {
            assert!(std::thread::panicking(), "a thread panicked while it held this lock");
            poisoned.into_inner()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_broken_value_goes_no_further() {
        let lock = Mutex::new(1);
        let broken = || {
            let _guard = lock.lock().unpoisoned();
            panic!("while the lock is held");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(broken)).is_err());
        assert!(lock.is_poisoned());
        let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| *lock.lock().unpoisoned()));
        assert!(next.is_err());
    }
}
