//! A view as an input that is read in sequence, merged as it is read.
//!
//! Invariants: runs are opened when the view is read, and closed at its end, so that any number of views, one after
//! another, take the memory of one. A file that is missing is reported before anything is read.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{Action, Buf, Filled, IoError, ReadStream};

use crate::api::{Result, SortError};
use crate::plan::default_memory;
use crate::read::{InputFile, MergedInput};
use crate::view::manifest::ViewManifest;
use crate::view::reader::OpenView;
use crate::view::stream::{Reading, Stream};

/// Memory of a view that is read, bytes. One whose runs need more gets the usual share of the machine's memory.
const MEMORY_BYTES: u64 = 256 << 20;

/// The view in the directory `dir` as an input.
pub fn input_of(dir: &Path) -> Result<InputFile> {
    let manifest = ViewManifest::load(dir)?;
    for member in &manifest.members {
        member.find(dir)?;
    }
    let head = manifest.head().ok_or_else(|| {
        SortError::view(
            dir,
            ErrorKind::InvalidData,
            "its manifest has no valid header\n  make the view again",
        )
    })?;
    let header_bytes = head.header.map_or(0, |header| header.len() as u64);
    let bytes = header_bytes + manifest.sum.bytes;
    Ok(InputFile::from_merged(Arc::new(ViewInput { dir: dir.to_path_buf(), bytes, header_bytes })))
}

struct ViewInput {
    dir: PathBuf,
    bytes: u64,
    header_bytes: u64,
}

impl ViewInput {
    fn merge(&self, from: u64, to: u64) -> Result<Stream> {
        let usual = default_memory();
        match self.merge_within(from, to, MEMORY_BYTES.min(usual)) {
            Err(SortError::TooLittleMemory { .. }) if usual > MEMORY_BYTES => {
                self.merge_within(from, to, usual)
            }
            done => done,
        }
    }

    fn merge_within(&self, from: u64, to: u64, memory: u64) -> Result<Stream> {
        let view = OpenView { memory_bytes: Some(memory), ..OpenView::default() }.open(&self.dir)?;
        view.stream(from, to, Reading { memory: view.pool().available(), ..Reading::default() })
    }
}

impl MergedInput for ViewInput {
    fn path(&self) -> &Path {
        &self.dir
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    fn peek(&self, bytes: usize) -> Result<Vec<u8>> {
        let end = self.bytes.min(bytes as u64);
        let mut head = vec![0; end as usize];
        let len = self.merge(0, end)?.read(&mut head)?;
        head.truncate(len);
        Ok(head)
    }

    fn open(&self, offset: u64) -> Result<Box<dyn ReadStream>> {
        let merged = self.merge(offset, self.bytes)?;
        Ok(Box::new(ViewStream { dir: self.dir.clone(), merged, at: offset, begun: VecDeque::new() }))
    }
}

/// The merged bytes, which are merged ahead whether or not they have been requested.
struct ViewStream {
    dir: PathBuf,
    merged: Stream,
    at: u64,
    begun: VecDeque<Buf>,
}

impl ReadStream for ViewStream {
    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        self.begun.push_back(buf);
        Ok(())
    }

    fn complete(&mut self) -> Result<Filled, IoError> {
        let mut buf = self.begun.pop_front().unwrap_or_else(|| Buf::heap(0));
        let end = self.merged.read(&mut buf).map_err(|error| match error {
            SortError::Io(error) => error,
            other => IoError::from_os(Action::Read, &self.dir, self.at, io::Error::other(other)),
        })?;
        self.at += end as u64;
        Ok(Filled { buf, start: 0, end })
    }

    fn ready(&mut self) -> bool {
        false
    }

    fn in_flight(&self) -> usize {
        self.begun.len()
    }
}
