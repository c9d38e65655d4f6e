//! The value log of the scheme `pointers`: a writer appends values in order of arrival and returns pointers to them.
//!
//! ```text
//!   data log   | crc [length] value | crc [length] value | ... |0|    zeros up to a multiple of 4096 at an epoch's end
//!   index log  epochs: the end of each epoch's values, and their number
//! ```

use crate::error::{IndexError, Result};
use crate::format::footer::LogRange;
use crate::format::pointer::{Pointer, value_head};
use crate::write::index_log::IndexLog;
use crate::write::logs::{LogNumber, Logs};

/// The writer of a value log.
pub struct ValueLog {
    data: LogNumber,
    index: IndexLog,
    writer: u32,
    fixed: bool,
    values: u64,
}

impl ValueLog {
    /// The log of `writer`; `fixed` if all values have one length.
    pub fn new(data: LogNumber, index: IndexLog, writer: u32, fixed: bool) -> Self {
        Self { data, index, writer, fixed, values: 0 }
    }

    /// Appends a value.
    pub fn push(&mut self, logs: &mut Logs, value: &[u8]) -> Result<Pointer> {
        let offset = logs.end(self.data);
        let full = || IndexError::Request("a log of values holds 256 TiB at most".into());
        let pointer = Pointer::new(self.writer, offset, value.len() as u64).ok_or_else(full)?;
        logs.append(self.data, &value_head(self.index.id, offset, self.fixed, value))?;
        logs.append(self.data, value)?;
        self.values += 1;
        Ok(pointer)
    }

    /// Ends the epoch.
    pub fn end_epoch(&mut self, logs: &mut Logs) -> Result<u64> {
        logs.pad(self.data, 0)?;
        let data_end = logs.end(self.data);
        if self.values > 0 {
            self.index.note(LogRange::default(), self.values, data_end);
        }
        self.index.end_epoch(logs, data_end)?;
        Ok(std::mem::take(&mut self.values))
    }
}
