//! Where the finished records go: a file that appears whole or not at all, or a pipe.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_io::{
    Action, AtomicOutput, BlockPool, Buf, Disk, IoError, PAGE_BYTES, STANDARD_OUTPUT, WriteStream,
};
use serde::{Deserialize, Serialize};

use crate::emit::Chunk;
use crate::error::SortError;
use crate::records::Records;
use crate::request::Output;

/// The part of an output file that is safe on disk, and what follows it up to a record's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableOutput {
    /// The temporary file.
    pub temporary: PathBuf,
    /// Bytes durable in it, a multiple of the page size.
    pub bytes: u64,
    /// The bytes behind them, fewer than a page.
    pub tail: Vec<u8>,
}

enum Sink {
    File(AtomicOutput),
    Pipe(Box<dyn WriteStream>),
}

/// The output of a job.
pub struct Target<R> {
    records: Arc<R>,
    sink: Sink,
    blocks: BlockPool,
    current: Option<Buf>,
    len: usize,
    /// Bytes handed to the stream.
    handed: u64,
    /// Time spent waiting for the device or the reader.
    pub waited: Duration,
}

impl<R: Records> Target<R> {
    /// Starts the output, under a name chosen before if there is one. `blocks` are its buffers.
    pub fn create(
        records: &Arc<R>,
        disk: &Disk,
        output: &Output,
        temporary: Option<&Path>,
        blocks: BlockPool,
    ) -> Result<Self, SortError> {
        let sink = match output {
            Output::Path(path) => Sink::File(match temporary {
                Some(temporary) => AtomicOutput::create_named(disk, path, temporary, "output")?,
                None => AtomicOutput::create(disk, path, "output")?,
            }),
            Output::Stdout => {
                let name = Path::new(STANDARD_OUTPUT);
                let fd = std::io::stdout().as_fd().try_clone_to_owned();
                let fd = fd.map_err(|error| IoError::from_os(Action::Open, name, 0, error))?;
                Sink::Pipe(disk.to_writer(fd, name, "output")?)
            }
        };
        Ok(Self::new(records, sink, blocks))
    }

    /// Goes on with the output of a killed job.
    pub fn resume(
        records: &Arc<R>,
        disk: &Disk,
        path: &Path,
        durable: &DurableOutput,
        blocks: BlockPool,
    ) -> Result<Self, SortError> {
        let output = AtomicOutput::resume(disk, path, &durable.temporary, durable.bytes, "output")?;
        let mut this = Self::new(records, Sink::File(output), blocks);
        this.handed = durable.bytes;
        let mut block = this.blocks.take();
        block[..durable.tail.len()].copy_from_slice(&durable.tail);
        this.current = Some(block);
        this.len = durable.tail.len();
        Ok(this)
    }

    fn new(records: &Arc<R>, sink: Sink, blocks: BlockPool) -> Self {
        let records = Arc::clone(records);
        Target { records, sink, blocks, current: None, len: 0, handed: 0, waited: Duration::ZERO }
    }

    /// Bytes taken so far.
    pub fn bytes(&self) -> u64 {
        self.handed + self.len as u64
    }

    /// The temporary name of the file being written, if it has one.
    pub fn temporary(&self) -> Option<&Path> {
        match &self.sink {
            Sink::File(output) => output.persist_name(),
            Sink::Pipe(_) => None,
        }
    }

    /// Appends merged records.
    pub fn write(&mut self, chunk: Chunk) -> Result<(), SortError> {
        let straight = matches!(self.sink, Sink::Pipe(_)) || chunk.len.is_multiple_of(PAGE_BYTES);
        if straight && self.len == 0 {
            return self.hand_on(chunk.buf, chunk.len);
        }
        self.append(&chunk.buf[..chunk.len])
    }

    /// Appends bytes that are records (or a header) already in the form of the output.
    pub fn write_finished(&mut self, bytes: &[u8]) -> Result<(), SortError> {
        self.append(bytes)
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<(), SortError> {
        while !bytes.is_empty() {
            let since = Instant::now();
            let blocks = &self.blocks;
            let block = self.current.get_or_insert_with(|| blocks.take());
            self.waited += since.elapsed();
            let room = (block.len() - self.len).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            block[self.len..self.len + room].copy_from_slice(now);
            self.len += room;
            bytes = later;
            if self.len == block.len() {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SortError> {
        let Some(block) = self.current.take() else { return Ok(()) };
        let len = std::mem::take(&mut self.len);
        if len == 0 {
            return Ok(());
        }
        self.hand_on(block, len)
    }

    fn hand_on(&mut self, mut buf: Buf, len: usize) -> Result<(), SortError> {
        self.records.finish(&mut buf[..len]);
        self.handed += len as u64;
        let since = Instant::now();
        let result = self.stream()?.begin(buf, len);
        self.waited += since.elapsed();
        Ok(result?)
    }

    fn stream(&mut self) -> Result<&mut dyn WriteStream, IoError> {
        match &mut self.sink {
            Sink::File(output) => output.stream(),
            Sink::Pipe(stream) => Ok(stream.as_mut()),
        }
    }

    /// Makes what has been written durable, as far as it fills pages; none for a pipe.
    pub fn checkpoint(&mut self) -> Result<Option<DurableOutput>, SortError> {
        let Some(temporary) = self.temporary().map(Path::to_path_buf) else { return Ok(None) };
        let mut tail = Vec::new();
        if let Some(block) = self.current.take() {
            let whole = self.len / PAGE_BYTES * PAGE_BYTES;
            tail = block[whole..self.len].to_vec();
            self.len = 0;
            if whole > 0 {
                self.hand_on(block, whole)?;
            }
        }
        self.stream()?.sync()?;
        let durable = DurableOutput { temporary, bytes: self.handed, tail };
        self.append(&durable.tail)?;
        Ok(Some(durable))
    }

    /// Writes what is left and, for a file, gives it its name. Returns the bytes in all.
    pub fn commit(mut self) -> Result<u64, SortError> {
        self.flush()?;
        match self.sink {
            Sink::File(output) => Ok(output.commit()?),
            Sink::Pipe(stream) => Ok(stream.finish()?),
        }
    }

    /// Leaves the unfinished file for a later resume.
    pub fn keep(&mut self) {
        if let Sink::File(output) = &mut self.sink {
            output.keep();
        }
    }
}
