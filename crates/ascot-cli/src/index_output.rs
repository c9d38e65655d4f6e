//! Prints the records of `ascot index get` and `range`: as text, as JSON or raw. Values are printed part by part.

use std::io::{self, BufWriter, Write};

use ascot_index::{Directory, IndexError, RecordValue, StoredRecord, StoredValue};
use ascot_record::hex::to_hex;
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::sys;
use crate::terminal;

/// Bytes of a value converted to hexadecimal at a time.
const HEX_BYTES: usize = 4096;

/// The form of printed records.
#[derive(Clone, Copy)]
pub enum Form {
    Text,
    Raw,
    Json,
}

impl Form {
    /// The requested form.
    pub fn requested(matches: &ArgMatches) -> Self {
        match (matches.get_flag("raw"), matches.get_flag("json")) {
            (true, _) => Form::Raw,
            (_, true) => Form::Json,
            _ => Form::Text,
        }
    }
}

/// Standard output, written in blocks.
pub struct Output<'a> {
    directory: &'a Directory,
    form: Form,
    out: BufWriter<io::StdoutLock<'static>>,
    failed: Option<io::Error>,
}

impl<'a> Output<'a> {
    /// Standard output for records of a directory.
    pub fn new(directory: &'a Directory, form: Form) -> Result<Self> {
        sys::standard_output().map_err(Failure::Output)?;
        Ok(Self { directory, form, out: BufWriter::new(io::stdout().lock()), failed: None })
    }

    /// Prints a value, with its key if several are requested.
    pub fn value(&mut self, key: Option<&[u8]>, value: &StoredValue) -> Result<(), IndexError> {
        let begun = match (self.form, key) {
            (Form::Raw, _) => Ok(()),
            (Form::Json, _) => self.begin_json(key, value.epoch),
            (Form::Text, None) => write!(self.out, "{}  ", value.epoch),
            (Form::Text, Some(key)) => write!(self.out, "0x{}  {}  ", to_hex(key), value.epoch),
        };
        self.taken(begun)?;
        self.rest((&value.content).into())
    }

    /// Prints a record of a range.
    pub fn record(&mut self, record: &StoredRecord<'_>) -> Result<(), IndexError> {
        let StoredRecord { epoch, key, value } = record;
        let begun = match self.form {
            Form::Raw => self.raw(key),
            Form::Json => self.begin_json(Some(key), *epoch),
            Form::Text => write!(self.out, "0x{}  {epoch}  ", to_hex(key)),
        };
        self.taken(begun)?;
        self.rest(*value)
    }

    /// A value, and the end of its line.
    fn rest(&mut self, value: RecordValue<'_>) -> Result<(), IndexError> {
        let directory = self.directory;
        value.for_each_part(directory, |part| self.part(part))?;
        self.end()
    }

    fn begin_json(&mut self, key: Option<&[u8]>, epoch: u64) -> io::Result<()> {
        write!(self.out, "{{\"epoch\":{epoch},")?;
        if let Some(key) = key {
            write!(self.out, "\"key\":\"{}\",", to_hex(key))?;
        }
        self.out.write_all(b"\"value\":\"")
    }

    /// Prints part of a value.
    fn part(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let written = match self.form {
            Form::Raw => self.raw(bytes),
            Form::Text | Form::Json => {
                bytes.chunks(HEX_BYTES).try_for_each(|some| self.out.write_all(to_hex(some).as_bytes()))
            }
        };
        self.taken(written)
    }

    /// Prints raw bytes, unless they are not text and would go to a terminal.
    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        terminal::spare(bytes).map_err(io::Error::other)?;
        self.out.write_all(bytes)
    }

    fn end(&mut self) -> Result<(), IndexError> {
        let ended = match self.form {
            Form::Raw => Ok(()),
            Form::Json => self.out.write_all(b"\"}\n"),
            Form::Text => self.out.write_all(b"\n"),
        };
        self.taken(ended)
    }

    /// Stops after a failed write, and keeps its error.
    fn taken(&mut self, written: io::Result<()>) -> Result<(), IndexError> {
        written.map_err(|error| {
            self.failed = Some(error);
            IndexError::Request("standard output cannot be written".into())
        })
    }

    /// Ends printing; `done` is the result of the lookup.
    pub fn finish(mut self, done: Result<(), IndexError>) -> Result<()> {
        if let Some(error) = self.failed.take() {
            // Buffered bytes belong to the refused output.
            drop(self.out.into_parts());
            let why = error.downcast::<Failure>();
            return Err(why.unwrap_or_else(Failure::Output));
        }
        let flushed = self.out.flush().map_err(Failure::Output);
        done.map_err(Failure::from)?;
        flushed
    }
}
