//! Loading files of records into a directory: a byte range of a record is its key, all other bytes are its value.
//!
//! ```text
//!   record   | before | key | after |       value = before, after
//! ```
//!
//! Invariant: at most two blocks and one record of a file are in memory; a longer record grows the buffer by its
//! length.

use std::ops::Range;
use std::path::{Path, PathBuf};

use ascot_io::{Action, Buf, Disk, During, ReadStream};
use ascot_record::layout::{FixedFraming, Framing, Layout, LineFraming, PrefixedFraming};

use crate::error::{IndexError, Result};
use crate::read::files::missing;
use crate::write::DirectoryWriter;

/// Bytes read at a time, and number of such blocks.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCKS: usize = 2;

/// Memory for loading in addition to the writer's, bytes.
pub const MEMORY_BYTES: usize = (BLOCKS + 1) * BLOCK_BYTES;

/// How a file divides into keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFiles {
    /// How a file divides into records.
    pub layout: Layout,
    /// The byte range of the key in a record.
    pub key: Range<usize>,
}

impl RecordFiles {
    /// A loader of such records.
    ///
    /// # Errors
    /// A layout whose records have no byte ranges; an empty key, or one outside records of fixed length.
    pub fn new(layout: Layout, key: Range<usize>) -> Result<Self> {
        let wrong = |text: String| Err(IndexError::Request(text));
        if key.is_empty() {
            return wrong("a key has one byte at least".into());
        }
        match layout {
            Layout::Fixed { len } if key.end > len => {
                wrong(format!("the key ends at byte {}, and records have {len}", key.end))
            }
            Layout::Csv { .. } | Layout::Number(_) | Layout::Prefixed { keyed: true, .. } => wrong(format!(
                "records of {layout} cannot be indexed: write fixed:BYTES, lines or prefixed:u32-le"
            )),
            _ => Ok(Self { layout, key }),
        }
    }

    /// Bytes of every value, if records have one length.
    pub fn value_bytes(&self) -> Option<u32> {
        match self.layout {
            Layout::Fixed { len } => u32::try_from(len - self.key.len()).ok(),
            _ => None,
        }
    }

    /// A description of how files are divided, stored in the directory's layout.
    pub fn described(&self) -> String {
        format!("{} {}..{}", self.layout, self.key.start, self.key.end)
    }

    /// Refuses a directory whose records were divided in another manner.
    ///
    /// # Errors
    /// Another format or key than the directory was made with; if that is unknown, other lengths.
    pub fn check_same(&self, there: &crate::Layout) -> Result<()> {
        let own = self.described();
        if let Some(source) = there.source.as_ref().filter(|source| **source != own) {
            return Err(IndexError::Request(format!(
                "the directory was made of records of {source} (format, bytes of the key), and these are of {own}"
            )));
        }
        let lengths = [
            ("key", there.key_bytes, u32::try_from(self.key.len()).ok()),
            ("value", there.value_bytes, self.value_bytes()),
        ];
        for (what, expected, got) in lengths {
            if let (Some(expected), Some(got)) = (expected, got)
                && expected != got
            {
                return Err(IndexError::Length { what, got: got as usize, expected: expected as usize });
            }
        }
        Ok(())
    }

    /// Appends the records of a file to the epoch; returns their number. `between` is called between blocks, and may
    /// stop the load with an error.
    ///
    /// # Errors
    /// A file or record that is refused; a record that is truncated, or too short for its key.
    pub fn append(
        &self,
        disk: &Disk,
        path: &Path,
        writer: &mut DirectoryWriter,
        between: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let stream =
            disk.open_read(path, 0..u64::MAX, "index input").map_err(|error| missing(error, path))?;
        let mut file =
            File { path: path.to_path_buf(), key: self.key.clone(), at: 0, records: 0, value: Vec::new() };
        match self.layout {
            Layout::Fixed { len } => file.append(FixedFraming(len), stream, writer, between),
            Layout::Lines { delimiter } => file.append(LineFraming(delimiter), stream, writer, between),
            Layout::Prefixed { width, endian, keyed } => {
                file.append(PrefixedFraming { width, endian, keyed }, stream, writer, between)
            }
            // `new` refuses these layouts.
            Layout::Csv { .. } | Layout::Number(_) => Ok(0),
        }
    }
}

/// A file being loaded.
struct File {
    path: PathBuf,
    key: Range<usize>,
    /// The offset of the next record.
    at: u64,
    records: u64,
    value: Vec<u8>,
}

impl File {
    fn append<F: Framing>(
        &mut self,
        framing: F,
        mut stream: Box<dyn ReadStream>,
        writer: &mut DirectoryWriter,
        between: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        for _ in 0..BLOCKS {
            let buf = Buf::try_heap(BLOCK_BYTES);
            stream.begin(buf.during(Action::Read, &self.path)?)?;
        }
        let mut held: Vec<u8> = Vec::new();
        loop {
            let filled = stream.complete()?;
            if filled.is_empty() {
                break;
            }
            held.extend_from_slice(filled.bytes());
            self.records(framing, &mut held, writer)?;
            between(filled.len() as u64)?;
            stream.begin(filled.buf)?;
        }
        if let Some(last) = framing.completes().filter(|_| !held.is_empty()) {
            held.push(last);
            self.records(framing, &mut held, writer)?;
        }
        if held.is_empty() {
            Ok(self.records)
        } else {
            Err(IndexError::damaged(&self.path, self.at, "the last record is cut short"))
        }
    }

    /// Appends the whole records of `held` and leaves the rest in it.
    fn records<F: Framing>(
        &mut self,
        framing: F,
        held: &mut Vec<u8>,
        writer: &mut DirectoryWriter,
    ) -> Result<()> {
        let mut start = 0;
        while let Some(end) = framing.end(held, start) {
            self.record(framing, &held[start..end], writer)?;
            start = end;
        }
        held.drain(..start);
        Ok(())
    }

    fn record<F: Framing>(&mut self, framing: F, record: &[u8], writer: &mut DirectoryWriter) -> Result<()> {
        let body = framing.body(record);
        let Some(key) = body.get(self.key.clone()) else {
            return Err(IndexError::damaged(
                &self.path,
                self.at,
                "the record that starts here is too short for the key",
            ));
        };
        if self.key.start == 0 {
            writer.append_record(key, &body[self.key.end..])?;
        } else {
            self.value.clear();
            self.value.extend_from_slice(&body[..self.key.start]);
            self.value.extend_from_slice(&body[self.key.end..]);
            writer.append_record(key, &self.value)?;
        }
        self.at += record.len() as u64;
        self.records += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Directory, Scheme};

    #[test]
    fn records_of_files_are_found_by_their_keys() {
        let scratch = tempfile::tempdir().unwrap();
        let disk = Disk::default();
        let lines =
            (0..200_000).map(|number| format!("line {:06} of many\n", number * 7)).collect::<String>();
        let input = scratch.path().join("in");
        std::fs::write(&input, lines.trim_end()).unwrap();
        let files = RecordFiles::new(Layout::LINES, 5..11).unwrap();
        let mut layout = crate::Layout::new(Scheme::Records, 2, 1);
        layout.key_bytes = Some(6);
        let path = scratch.path().join("run.dir");
        let mut writer = DirectoryWriter::create(&disk, &path, layout, 16 << 20).unwrap();
        let mut seen = 0;
        let records = files
            .append(&disk, &input, &mut writer, &mut |bytes| {
                seen += bytes;
                Ok(())
            })
            .unwrap();
        assert_eq!((records, seen), (200_000, lines.len() as u64 - 1));
        std::fs::write(&input, "line 12").unwrap();
        let error = files.append(&disk, &input, &mut writer, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("at byte 0") && error.contains("too short for the key"), "{error}");
        writer.end_epoch().unwrap();
        writer.close().unwrap();
        let directory = Directory::open(&disk, &path, 16 << 20).unwrap();
        assert_eq!(directory.get(b"001400").unwrap()[0].bytes, b"line  of many");
        assert_eq!(directory.get(b"001401").unwrap(), vec![]);
        assert!(RecordFiles::new(Layout::Fixed { len: 8 }, 4..9).is_err());
    }
}
