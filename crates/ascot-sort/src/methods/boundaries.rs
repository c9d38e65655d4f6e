//! Boundaries that a user names: a file of records, whose keys say where the parts of a split begin.
//!
//! ```text
//!   boundaries   c     g     t
//!   parts      a..b | c..f | g..s | t..z       a record whose key is a boundary's begins a part
//! ```
//!
//! Invariant: what is given ascends in the order asked for, so that every part may have records.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ascot_io::{Action, IoError};

use crate::api::error::SortError;
use crate::job::Job;
use crate::records::Records;

/// Of the memory of a job, what the boundaries may take: one part in so many.
const MEMORY_SHARE: usize = 16;

/// The normalised keys of the records in `path`, one fewer than `parts`.
pub fn read<R: Records>(job: &Job<'_, R>, path: &Path, parts: u32) -> Result<Vec<Vec<u8>>, SortError> {
    let most = job.budget.memory / MEMORY_SHARE;
    let refused = |what: String| SortError::Request(format!("{}: {what}", path.display()));
    let failed = |error| SortError::from(IoError::from_os(Action::Read, path, 0, error));
    // A pipe does not tell its length beforehand.
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        return Err(refused(
            "boundaries of more than a sixteenth of the memory\n  allow more memory, or name fewer".into(),
        ));
    }
    let mut whole = job.records.cut(&bytes, usize::MAX).bytes;
    if whole < bytes.len() {
        bytes.extend(job.records.completion());
        whole = job.records.cut(&bytes, usize::MAX).bytes;
    }
    if whole < bytes.len() {
        return Err(refused(format!("its last boundary, at offset {whole}, is cut short")));
    }
    if job.records.keyless(&bytes).is_some() {
        return Err(refused("a boundary ends before its key does".into()));
    }
    job.records.normalise(&mut bytes);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    job.records.each_key(&bytes, &mut |_, key| keys.push(key.to_vec()));
    check(&keys, job.records.descending(), parts).map_err(refused)?;
    Ok(keys)
}

/// What is wrong with boundaries, if anything is.
fn check(keys: &[Vec<u8>], descending: bool, parts: u32) -> Result<(), String> {
    if keys.len() + 1 != parts as usize {
        let (count, wanted) = (keys.len(), keys.len() + 1);
        return Err(format!(
            "it has {count} boundaries, which make {wanted} parts\n  write: --parts {wanted}"
        ));
    }
    let ascend = |pair: &[Vec<u8>]| if descending { pair[0] > pair[1] } else { pair[0] < pair[1] };
    match keys.windows(2).position(|pair| !ascend(pair)) {
        None => Ok(()),
        Some(at) => Err(format!(
            "boundary {} does not come after the one ahead of it\n  sort them by the same keys and options, each once \
             (ascot sort -u)",
            at + 2
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_ascend_and_are_one_fewer_than_parts() {
        let keys = |text: &str| text.bytes().map(|byte| vec![byte]).collect::<Vec<_>>();
        assert_eq!(check(&keys("cgt"), false, 4), Ok(()));
        assert_eq!(check(&keys("tgc"), true, 4), Ok(()));
        assert_eq!(check(&[], false, 1), Ok(()));
        assert!(check(&keys("cgt"), false, 3).is_err_and(|told| told.contains("--parts 4")));
        for (wrong, at) in [("cgg", "boundary 3"), ("gct", "boundary 2")] {
            assert!(check(&keys(wrong), false, 4).is_err_and(|told| told.contains(at)), "{wrong}");
        }
    }
}
