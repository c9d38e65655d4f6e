//! Looking up many keys: as many as fit the memory, each batch in file order.
//!
//! ```text
//!   keys ─▶ batch ─▶ find ─▶ values, handed over by key
//!             ├─ too little memory: its halves, one after the other
//!             └─ something missing or damaged (lenient): key by key, then epoch by epoch
//! ```
//!
//! Invariants: the reader's memory cap includes answers until they are handed over. A value longer than a
//! small part of that memory is not loaded by the search. If the short values of a single key do not fit, all
//! its values stay in the files.

use std::ops::Range;

use ascot_io::Reservation;

use crate::error::{IndexError, Result};
use crate::read::stored::{Content, Inline, StoredValue};
use crate::read::{Directory, Value};

/// Maximum number of keys searched at once, and of pairs of key and epoch.
const KEYS_AT_ONCE: usize = 1024;
const WANTS_AT_ONCE: u64 = 1 << 16;

/// Epochs in which the values of a key are unknown.
#[derive(Debug)]
pub struct UnknownEpochs {
    /// The epochs, counted from 0.
    pub epochs: Range<u64>,
    /// The reason.
    pub error: IndexError,
}

/// Receives the number of a key, its values, and the epochs that are unknown.
type Take<'a> = &'a mut dyn FnMut(usize, Vec<StoredValue>, Vec<UnknownEpochs>) -> Result<()>;

/// The treatment of long values before they are handed over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    /// They are loaded.
    Read,
    /// Their checksums are verified.
    Checked,
    /// They are not read.
    Left,
}

/// A query of many keys.
struct Query<'a, K> {
    keys: &'a [K],
    epoch: Option<u64>,
    lenient: bool,
    long: Long,
}

impl Directory {
    /// All values of `key`, by epoch, within an epoch in the order in which their writer appended them; empty
    /// if the key was never written.
    ///
    /// # Errors
    /// A key of another length than the directory's; missing, truncated or damaged files.
    pub fn get(&self, key: &[u8]) -> Result<Vec<Value>> {
        self.one(key, None, Long::Read).map(whole)
    }

    /// The values of `key` in one epoch.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_at(&self, key: &[u8], epoch: u64) -> Result<Vec<Value>> {
        self.one(key, Some(epoch), Long::Read).map(whole)
    }

    fn one(&self, key: &[u8], epoch: Option<u64>, long: Long) -> Result<Vec<StoredValue>> {
        self.layout().check_key(key)?;
        let (values, _memory) = self.find_as(&[key], epoch, long)?;
        Ok(values.into_iter().flatten().collect())
    }

    /// The values of many keys, of all epochs or one. They are read in file order and handed to `take` in the
    /// order of `keys`, with the number of the key.
    ///
    /// # Errors
    /// As [`get`](Self::get), and errors of `take`.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        epoch: Option<u64>,
        mut take: impl FnMut(usize, Vec<Value>) -> Result<()>,
    ) -> Result<()> {
        let query = Query { keys, epoch, lenient: false, long: Long::Read };
        self.get_all(&query, &mut |number, values, _| take(number, whole(values)))
    }

    /// As [`get_many`](Self::get_many) for incomplete directories and values of any length: hands over the
    /// values that can be found, and the epochs that are unknown because a file is missing or damaged. `take`
    /// reads long values part by part; each was verified before, so a damaged one is left out, never cut off.
    ///
    /// # Errors
    /// A key of another length than the directory's; too little memory; errors of `take`.
    pub fn stored_many_there<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        epoch: Option<u64>,
        mut take: impl FnMut(usize, Vec<StoredValue>, Vec<UnknownEpochs>) -> Result<()>,
    ) -> Result<()> {
        self.get_all(&Query { keys, epoch, lenient: true, long: Long::Checked }, &mut take)
    }

    /// The values of `key`, of all epochs or one, without loading long ones: for callers that read parts of
    /// them.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn stored(&self, key: &[u8], epoch: Option<u64>) -> Result<Vec<StoredValue>> {
        self.one(key, epoch, Long::Left)
    }

    /// As [`stored`](Self::stored), but a value is in memory only if it takes no more memory than its
    /// location does.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn stored_places(&self, key: &[u8], epoch: Option<u64>) -> Result<Vec<StoredValue>> {
        self.layout().check_key(key)?;
        let (values, _memory) = self.find(&[key], epoch, Inline::Least)?;
        Ok(values.into_iter().flatten().collect())
    }

    /// As [`stored`](Self::stored), of many keys.
    pub(crate) fn stored_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        epoch: Option<u64>,
        mut take: impl FnMut(usize, Vec<StoredValue>) -> Result<()>,
    ) -> Result<()> {
        let query = Query { keys, epoch, lenient: false, long: Long::Left };
        self.get_all(&query, &mut |number, values, _| take(number, values))
    }

    fn get_all<K: AsRef<[u8]>>(&self, query: &Query<'_, K>, take: Take<'_>) -> Result<()> {
        let epochs = if query.epoch.is_some() { 1 } else { self.manifest.epochs.max(1) };
        // At most 1024.
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
        match self.find_as(&keys, query.epoch, query.long) {
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
                let (values, unknown) = self.get_epochs(key, query, error)?;
                take(numbers.start, values, unknown)
            }
            Err(error) => Err(error),
        }
    }

    /// Finds keys and treats long values as `long` requires; retries a single key with fewer values in
    /// memory.
    fn find_as(
        &self,
        keys: &[&[u8]],
        epoch: Option<u64>,
        long: Long,
    ) -> Result<(Vec<Vec<StoredValue>>, Reservation)> {
        match self.find_with(keys, epoch, long, Inline::Usual) {
            Err(IndexError::Memory(_)) if keys.len() == 1 && long != Long::Read => {
                self.find_with(keys, epoch, long, Inline::Least)
            }
            found => found,
        }
    }

    fn find_with(
        &self,
        keys: &[&[u8]],
        epoch: Option<u64>,
        long: Long,
        inline: Inline,
    ) -> Result<(Vec<Vec<StoredValue>>, Reservation)> {
        let before = self.pool.available();
        let (mut values, mut memory) = self.find(keys, epoch, inline)?;
        let has_long = values.iter().flatten().any(|value| matches!(value.content, Content::Long(_)));
        if has_long && long != Long::Read && inline == Inline::Usual {
            self.leave_half(before, &memory)?;
        }
        for value in values.iter_mut().flatten() {
            match long {
                Long::Read => {
                    if let Some(more) = value.content.load(self)? {
                        memory.absorb(more);
                    }
                }
                Long::Checked => value.content.check(self)?,
                Long::Left => {}
            }
        }
        Ok((values, memory))
    }

    /// Refuses answers that take more than half of the `before` bytes that were free, since `take` needs
    /// memory to read long values.
    ///
    /// # Errors
    /// [`IndexError::Memory`]: a smaller batch may fit.
    pub(crate) fn leave_half(&self, before: usize, answers: &Reservation) -> Result<()> {
        if answers.bytes() > before / 2 {
            // More than is free, so this is an error.
            self.pool.reserve(before, "values of keys")?;
        }
        Ok(())
    }

    /// Searches epoch by epoch if `error` prevents searching all at once.
    fn get_epochs<K>(
        &self,
        key: &[u8],
        query: &Query<'_, K>,
        error: IndexError,
    ) -> Result<(Vec<StoredValue>, Vec<UnknownEpochs>)> {
        let mut values = Vec::new();
        let mut unknown = Vec::<UnknownEpochs>::new();
        if let Some(epoch) = query.epoch {
            unknown.push(UnknownEpochs { epochs: epoch..epoch.saturating_add(1), error });
            return Ok((values, unknown));
        }
        for (section, _) in self.manifest.sections() {
            // The log confirms the number of epochs; the manifest alone may claim any number.
            if let Err(error) = self.check_held(key, &section) {
                unknown.push(UnknownEpochs { epochs: section, error });
                continue;
            }
            for epoch in section {
                match self.find_as(&[key], Some(epoch), query.long) {
                    Ok((found, _memory)) => values.extend(found.into_iter().flatten()),
                    Err(error @ IndexError::Memory(_)) => return Err(error),
                    Err(error) => match unknown.last_mut() {
                        Some(last)
                            if last.epochs.end == epoch && last.error.to_string() == error.to_string() =>
                        {
                            last.epochs.end = epoch + 1;
                        }
                        _ => unknown.push(UnknownEpochs { epochs: epoch..epoch + 1, error }),
                    },
                }
            }
        }
        Ok((values, unknown))
    }
}

/// The values that are in memory.
fn whole(values: Vec<StoredValue>) -> Vec<Value> {
    values.into_iter().filter_map(StoredValue::into_value).collect()
}
