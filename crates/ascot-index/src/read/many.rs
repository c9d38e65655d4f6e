//! Many keys at once: as many as fit the memory, each batch in the order of files.
//!
//! ```text
//!   keys ─▶ batch ─▶ find ─▶ values, handed over by key
//!             ├─ too little memory: its halves, one after the other
//!             └─ something missing or damaged (lenient): key by key, then epoch by epoch
//! ```
//!
//! Invariant: answers are part of the reader's memory until they are handed over.

use std::ops::Range;

use crate::error::{IndexError, Result};
use crate::read::{Directory, Value};

/// Most keys looked for at once, and most keys in epochs.
const KEYS_AT_ONCE: usize = 1024;
const WANTS_AT_ONCE: u64 = 1 << 16;

/// Epochs in which it is not known whether a key has values.
#[derive(Debug)]
pub struct Gap {
    /// Which, counted from 0.
    pub epochs: Range<u64>,
    /// What keeps from knowing.
    pub error: IndexError,
}

/// Who gets values, and what is not known of them, with the number of the key.
type Take<'a> = &'a mut dyn FnMut(usize, Vec<Value>, Vec<Gap>) -> Result<()>;

/// What is looked for.
struct Query<'a, K> {
    keys: &'a [K],
    epoch: Option<u64>,
    lenient: bool,
}

impl Directory {
    /// The values of many keys, of all epochs or one: read in the order of files, handed to `take` in the order of `keys`, with the
    /// number of the key.
    ///
    /// # Errors
    /// As [`get`](Self::get), and those of `take`.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        epoch: Option<u64>,
        mut take: impl FnMut(usize, Vec<Value>) -> Result<()>,
    ) -> Result<()> {
        let query = Query { keys, epoch, lenient: false };
        self.get_all(&query, &mut |number, values, _| take(number, values))
    }

    /// As [`get_many`](Self::get_many), where not all of the directory is there: what can be found is handed over, with what is not
    /// known because a file is missing or damaged.
    ///
    /// # Errors
    /// A key of another length than the directory's; too little memory; those of `take`.
    pub fn get_many_there<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        epoch: Option<u64>,
        mut take: impl FnMut(usize, Vec<Value>, Vec<Gap>) -> Result<()>,
    ) -> Result<()> {
        self.get_all(&Query { keys, epoch, lenient: true }, &mut take)
    }

    fn get_all<K: AsRef<[u8]>>(&self, query: &Query<'_, K>, take: Take<'_>) -> Result<()> {
        let epochs = if query.epoch.is_some() { 1 } else { self.manifest.epochs.max(1) };
        // No more than 1024.
        let at_once = (WANTS_AT_ONCE / epochs).clamp(1, KEYS_AT_ONCE as u64) as usize;
        let mut first = 0;
        while first < query.keys.len() {
            let end = query.keys.len().min(first + at_once);
            query.keys[first..end].iter().try_for_each(|key| self.layout().check_key(key.as_ref()))?;
            self.get_batch(query, first..end, take)?;
            first = end;
        }
        Ok(())
    }

    fn get_batch<K: AsRef<[u8]>>(
        &self,
        query: &Query<'_, K>,
        numbers: Range<usize>,
        take: Take<'_>,
    ) -> Result<()> {
        let keys: Vec<&[u8]> = query.keys[numbers.clone()].iter().map(AsRef::as_ref).collect();
        match self.find(&keys, query.epoch) {
            Ok((values, _memory)) => {
                numbers.zip(values).try_for_each(|(number, values)| take(number, values, Vec::new()))
            }
            Err(IndexError::Memory(_)) if keys.len() > 1 => {
                let middle = numbers.start + keys.len() / 2;
                self.get_batch(query, numbers.start..middle, take)?;
                self.get_batch(query, middle..numbers.end, take)
            }
            Err(error @ IndexError::Memory(_)) => Err(error),
            Err(_) if query.lenient && keys.len() > 1 => {
                numbers.into_iter().try_for_each(|number| self.get_batch(query, number..number + 1, take))
            }
            Err(error) if query.lenient => {
                let Some(key) = keys.first() else { return Ok(()) };
                let (values, gaps) = self.get_epochs(key, query.epoch, error)?;
                take(numbers.start, values, gaps)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks epoch by epoch where `error` keeps from asking all at once.
    fn get_epochs(
        &self,
        key: &[u8],
        epoch: Option<u64>,
        error: IndexError,
    ) -> Result<(Vec<Value>, Vec<Gap>)> {
        let (mut values, mut gaps) = (Vec::new(), Vec::<Gap>::new());
        if let Some(epoch) = epoch {
            gaps.push(Gap { epochs: epoch..epoch.saturating_add(1), error });
            return Ok((values, gaps));
        }
        for (section, _) in self.manifest.sections() {
            // The files themselves say how many epochs there are; a manifest may say anything.
            if let Err(error) = self.check_held(key, &section) {
                gaps.push(Gap { epochs: section, error });
                continue;
            }
            for epoch in section {
                match self.find(&[key], Some(epoch)) {
                    Ok((found, _memory)) => values.extend(found.into_iter().flatten()),
                    Err(error @ IndexError::Memory(_)) => return Err(error),
                    Err(error) => match gaps.last_mut() {
                        Some(gap)
                            if gap.epochs.end == epoch && gap.error.to_string() == error.to_string() =>
                        {
                            gap.epochs.end = epoch + 1;
                        }
                        _ => gaps.push(Gap { epochs: epoch..epoch + 1, error }),
                    },
                }
            }
        }
        Ok((values, gaps))
    }
}
