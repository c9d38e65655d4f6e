//! Open files that a job reads by their numbers, as `/proc/self/fd/N`, after the call that began it has returned.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use pyo3::prelude::*;

/// Descriptors that the caller gave up. They are closed when this is dropped, in any thread and without the
/// interpreter.
#[derive(Debug, Default)]
pub struct Descriptors(#[expect(dead_code, reason = "held to be closed")] Vec<OwnedFd>);

impl<'py> FromPyObject<'_, 'py> for Descriptors {
    type Error = PyErr;

    #[expect(unsafe_code, reason = "the package opened the descriptors and gives up its numbers")]
    fn extract(numbers: Borrowed<'_, 'py, PyAny>) -> PyResult<Descriptors> {
        let numbers: Vec<RawFd> = numbers.extract()?;
        // SAFETY: `Sources.give_up_descriptors` made each of them by `dup` or `memfd_create`, and forgets it.
        Ok(Descriptors(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect()))
    }
}
