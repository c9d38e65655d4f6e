//! Where the finished records go: a file that appears whole or not at all, several of them, or a pipe.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_io::{
    Action, AtomicOutput, BlockPool, Buf, Disk, IoError, PAGE_BYTES, STANDARD_OUTPUT, WriteStream,
};
use serde::{Deserialize, Serialize};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::api::request::Output;
use crate::output::rolling::Parting;
use crate::records::Records;
use crate::records::emitter::Chunk;

/// The part of an output file that is safe on disk, and what follows it up to a record's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableOutput {
    /// The temporary file.
    pub temporary: PathBuf,
    /// Bytes durable in it, a multiple of the page size.
    pub bytes: u64,
    /// The bytes behind them, fewer than a page.
    pub tail: Vec<u8>,
    /// The file's number on its volume: another file in its place is not gone on with.
    #[serde(default)]
    pub inode: Option<u64>,
}

/// Something that takes a job's records, and is there whole once it is committed.
pub trait Commit {
    /// Bytes taken so far.
    fn bytes(&self) -> u64;
    /// The temporary name of the file being written, if there is just one.
    fn temporary(&self) -> Option<&Path>;
    /// Writes what is left and makes it durable, so that only the names of files are missing.
    fn seal(&mut self) -> Result<(), SortError>;
    /// Seals what is not sealed, and gives files their names. Returns the bytes in all.
    fn commit(self) -> Result<u64, SortError>;
}

enum Sink {
    File(AtomicOutput),
    Pipe(Box<dyn WriteStream>),
    /// The last of several files is complete.
    Closed,
}

/// The output of a job.
pub struct Target<R> {
    records: Arc<R>,
    sink: Sink,
    blocks: BlockPool,
    cancel: Cancel,
    current: Option<Buf>,
    len: usize,
    /// Bytes handed to the stream.
    handed: u64,
    /// Where one file ends and the next begins, if there are several.
    parting: Option<Parting>,
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
        (blocks, cancel): (BlockPool, &Cancel),
    ) -> Result<Self, SortError> {
        let sink = match output {
            Output::Path(path) => Sink::File(match temporary {
                Some(temporary) => AtomicOutput::create_named(disk, path, temporary, "output")?,
                None => AtomicOutput::create(disk, path, "output")?,
            }),
            Output::Parts(_) => return Err(SortError::Internal("parts without a parting")),
            Output::Stdout => {
                let name = Path::new(STANDARD_OUTPUT);
                let fd = std::io::stdout().as_fd().try_clone_to_owned();
                let fd = fd.map_err(|error| IoError::from_os(Action::Open, name, 0, error))?;
                Sink::Pipe(disk.to_writer(fd, name, "output")?)
            }
        };
        Ok(Self::new(records, sink, blocks, cancel))
    }

    /// Starts an output of several files.
    pub fn create_parts(
        records: &Arc<R>,
        parting: Parting,
        (blocks, cancel): (BlockPool, &Cancel),
    ) -> Result<Self, SortError> {
        let mut this = Self::new(records, Sink::File(parting.create()?), blocks, cancel);
        this.append(parting.header().unwrap_or_default())?;
        this.parting = Some(parting);
        Ok(this)
    }

    /// Goes on with the output of a killed job.
    pub fn resume(
        records: &Arc<R>,
        disk: &Disk,
        path: &Path,
        durable: &DurableOutput,
        (blocks, cancel): (BlockPool, &Cancel),
    ) -> Result<Self, SortError> {
        let DurableOutput { temporary, bytes, inode, .. } = durable;
        let output = AtomicOutput::resume(disk, path, temporary, *bytes, *inode, "output")?;
        let mut this = Self::new(records, Sink::File(output), blocks, cancel);
        this.handed = durable.bytes;
        let none = SortError::Internal("an output that goes on has no memory");
        let mut block = this.blocks.try_take().ok_or(none)?;
        block[..durable.tail.len()].copy_from_slice(&durable.tail);
        this.current = Some(block);
        this.len = durable.tail.len();
        Ok(this)
    }

    fn new(records: &Arc<R>, sink: Sink, blocks: BlockPool, cancel: &Cancel) -> Self {
        let (records, cancel) = (Arc::clone(records), cancel.clone());
        Target {
            records,
            sink,
            blocks,
            cancel,
            current: None,
            len: 0,
            handed: 0,
            parting: None,
            waited: Duration::ZERO,
        }
    }

    /// Appends merged records.
    pub fn write(&mut self, chunk: Chunk) -> Result<(), SortError> {
        if self.parting.is_some() {
            return self.write_records(&chunk.buf[..chunk.len], chunk.first_record, chunk.records > 0);
        }
        let straight = matches!(self.sink, Sink::Pipe(_)) || chunk.len.is_multiple_of(PAGE_BYTES);
        if straight && self.len == 0 {
            return self.hand_on(chunk.buf, chunk.len);
        }
        self.append(&chunk.buf[..chunk.len])
    }

    /// Appends records in the form of spills, of which `first` is the first that starts; the last one is
    /// whole where `whole` says so.
    pub fn write_records(&mut self, bytes: &[u8], first: usize, whole: bool) -> Result<(), SortError> {
        let Some(mut parting) = self.parting.take() else { return self.append(bytes) };
        let records = Arc::clone(&self.records);
        let mut from = 0;
        while let Some(at) = parting.cut(&*records, bytes, from, first) {
            self.append(&bytes[from..at])?;
            parting.took(&*records, &bytes[from..at], 0, false);
            self.open_next(&mut parting)?;
            from = at;
        }
        self.append(&bytes[from..])?;
        parting.took(&*records, &bytes[from..], first.saturating_sub(from), whole);
        self.parting = Some(parting);
        Ok(())
    }

    /// Completes the open part and opens the next; false where it was the last.
    fn open_next(&mut self, parting: &mut Parting) -> Result<bool, SortError> {
        self.flush()?;
        let Sink::File(done) = std::mem::replace(&mut self.sink, Sink::Closed) else {
            return Err(SortError::Internal("a part is no file"));
        };
        if !parting.next(done)? {
            return Ok(false);
        }
        self.sink = Sink::File(parting.create()?);
        self.append(parting.header().unwrap_or_default())?;
        Ok(true)
    }

    /// Appends bytes that are records (or a header) already in the form of the output.
    pub fn write_finished(&mut self, bytes: &[u8]) -> Result<(), SortError> {
        self.append(bytes)
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<(), SortError> {
        while !bytes.is_empty() {
            let since = Instant::now();
            let blocks = &self.blocks;
            let block = match &mut self.current {
                Some(block) => block,
                // Blocks that a pipe's reader does not take come back only when the job stops.
                empty => {
                    let block = blocks.take(|| self.cancel.is_cancelled()).ok_or(SortError::Cancelled)?;
                    empty.insert(block)
                }
            };
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
            Sink::Closed => {
                Err(IoError::Misuse { path: PathBuf::new(), offset: 0, what: "the output is closed" })
            }
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
        let inode = if let Sink::File(output) = &self.sink { output.inode() } else { None };
        let durable = DurableOutput { temporary, bytes: self.handed, tail, inode };
        self.append(&durable.tail)?;
        Ok(Some(durable))
    }

    /// The sealed file, to be given its name with others.
    pub fn into_file(self) -> Option<AtomicOutput> {
        match self.sink {
            Sink::File(output) => Some(output),
            Sink::Pipe(_) | Sink::Closed => None,
        }
    }

    /// Leaves the unfinished file for a later resume.
    pub fn keep(&mut self) {
        if let Sink::File(output) = &mut self.sink {
            output.keep();
        }
    }
}

impl<R: Records> Commit for Target<R> {
    fn bytes(&self) -> u64 {
        self.handed + self.len as u64
    }

    fn temporary(&self) -> Option<&Path> {
        match &self.sink {
            Sink::File(output) => output.persist_name(),
            Sink::Pipe(_) | Sink::Closed => None,
        }
    }

    fn seal(&mut self) -> Result<(), SortError> {
        self.flush()?;
        if let Some(mut parting) = self.parting.take() {
            // Where there was less than expected, the last parts are empty.
            while !parting.is_complete() && self.open_next(&mut parting)? {}
            self.parting = Some(parting);
            return Ok(());
        }
        match &mut self.sink {
            Sink::File(output) => output.seal().map(|_| ())?,
            Sink::Pipe(stream) => stream.drain()?,
            Sink::Closed => {}
        }
        Ok(())
    }

    fn commit(mut self) -> Result<u64, SortError> {
        self.seal()?;
        if let Some(parting) = self.parting {
            parting.commit()?;
            return Ok(self.handed);
        }
        match self.sink {
            Sink::File(output) => Ok(output.commit()?),
            Sink::Pipe(stream) => Ok(stream.finish()?),
            Sink::Closed => Ok(self.handed),
        }
    }
}
