//! The output of a job, written block by block: to one file, to several of equal size, or to a pipe.
//!
//! ```text
//!   merged records ─▶ [block being filled] ─full─▶ brought into the form of the output ─▶ stream
//! ```
//!
//! A checkpoint makes the whole pages of a file durable and stores the bytes after them, fewer than a page, so
//! that a resumed job continues at a page boundary.
//!
//! [`OutputStream`] is one file that appears whole or not at all, or standard output.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{
    Action, AtomicOutput, BlockPool, Buf, Disk, During, IoError, PAGE_BYTES, STANDARD_OUTPUT, WriteStream,
};
use serde::{Deserialize, Serialize};

use crate::api::{Cancel, Output, Result, SortError};
use crate::output::Commit;
use crate::output::rolling::{DurableFiles, RollingFiles};
use crate::output::sealed_parts::SealedPart;
use crate::read::PROGRAM_RECORDS;
use crate::records::{MergedBlock, Records};

/// The durable bytes of an output file, and those after them up to a record's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableOutput {
    /// The temporary file.
    pub temporary: PathBuf,
    /// Bytes durable in it, a multiple of the page size.
    pub bytes: u64,
    /// The bytes after them, fewer than a page.
    pub tail: Vec<u8>,
    /// The inode number of the file, which distinguishes it from another file of this name.
    #[serde(default)]
    pub inode: Option<u64>,
    /// The files before it, if it is one of several.
    #[serde(default)]
    pub files: Option<DurableFiles>,
}

impl DurableOutput {
    /// Bytes durable in all files.
    pub fn all_bytes(&self) -> u64 {
        self.files.as_ref().map_or(self.bytes, |files| files.taken)
    }
}

/// Writes the output of a job.
pub struct OutputWriter<R> {
    records: Arc<R>,
    /// None after the last of several files is complete.
    stream: Option<OutputStream>,
    blocks: BlockPool,
    cancel: Cancel,
    /// The block being filled, and the bytes in it.
    block: Option<Buf>,
    len: usize,
    /// Bytes passed to streams; a resumed output of several files counts from the start of the open file on.
    written: u64,
    /// `written` where the open file begins.
    file_start: u64,
    /// The files, if there are several.
    rolling: Option<RollingFiles>,
}

impl<R: Records> OutputWriter<R> {
    /// Writes to `stream` through `blocks`.
    pub fn new(records: &Arc<R>, stream: OutputStream, blocks: BlockPool, cancel: &Cancel) -> Self {
        OutputWriter {
            records: Arc::clone(records),
            stream: Some(stream),
            blocks,
            cancel: cancel.clone(),
            block: None,
            len: 0,
            written: 0,
            file_start: 0,
            rolling: None,
        }
    }

    /// Writes to several files, one after another.
    pub fn rolling(
        records: &Arc<R>,
        files: RollingFiles,
        blocks: BlockPool,
        cancel: &Cancel,
    ) -> Result<Self> {
        let first = OutputStream::File(files.create()?);
        let mut this = Self::new(records, first, blocks, cancel);
        this.append(files.header())?;
        this.rolling = Some(files);
        Ok(this)
    }

    /// Continues the output of a killed job, whose final name is `path`.
    pub fn resume(
        records: &Arc<R>,
        disk: &Disk,
        path: &Path,
        durable: &DurableOutput,
        blocks: BlockPool,
        cancel: &Cancel,
    ) -> Result<Self> {
        let DurableOutput { temporary, bytes, tail, inode, .. } = durable;
        let file = AtomicOutput::resume(disk, path, temporary, *bytes, *inode, "output")?;
        let mut this = Self::new(records, OutputStream::File(file), blocks, cancel);
        this.written = *bytes;
        this.append(tail)?;
        Ok(this)
    }

    /// Continues the output of several files of a killed job; `files` are as they were before its first file.
    pub fn resume_rolling(
        records: &Arc<R>,
        disk: &Disk,
        files: RollingFiles,
        durable: &DurableOutput,
        blocks: BlockPool,
        cancel: &Cancel,
    ) -> Result<Self> {
        let files = files.resumed(durable.files.as_ref().unwrap_or(&DurableFiles::default()))?;
        let mut this = Self::resume(records, disk, &files.open_path(), durable, blocks, cancel)?;
        this.rolling = Some(files);
        Ok(this)
    }

    /// Replaces its blocks; none of the old ones may be in use.
    pub fn use_blocks(&mut self, blocks: BlockPool) {
        self.blocks = blocks;
    }

    /// Appends merged records.
    pub fn write(&mut self, block: MergedBlock) -> Result<()> {
        if self.rolling.is_some() {
            return self.write_records(&block.buf[..block.len], block.first_record, block.records > 0);
        }
        let is_pipe = matches!(self.stream, Some(OutputStream::Pipe(_)));
        if self.len == 0 && (is_pipe || block.len.is_multiple_of(PAGE_BYTES)) {
            return self.write_block(block.buf, block.len);
        }
        self.append(&block.buf[..block.len])
    }

    /// Appends records in the form of spills. The first record that starts in `bytes` starts at `first`; the last
    /// one is whole if `whole` is set.
    pub fn write_records(&mut self, bytes: &[u8], first: usize, whole: bool) -> Result<()> {
        let Some(mut files) = self.rolling.take() else { return self.append(bytes) };
        let records = Arc::clone(&self.records);
        let mut from = 0;
        while let Some(end) = files.cut(&*records, bytes, from, first) {
            self.append(&bytes[from..end])?;
            files.took(&*records, &bytes[from..end], 0, false);
            self.open_next(&mut files)?;
            from = end;
        }
        self.append(&bytes[from..])?;
        files.took(&*records, &bytes[from..], first.saturating_sub(from), whole);
        self.rolling = Some(files);
        Ok(())
    }

    /// Completes the open file and opens the next one, if there is one.
    fn open_next(&mut self, files: &mut RollingFiles) -> Result<()> {
        self.flush()?;
        let Some(OutputStream::File(done)) = self.stream.take() else {
            return Err(SortError::Internal("one of several outputs is not a file"));
        };
        files.complete(done)?;
        if !files.all_complete() {
            self.stream = Some(OutputStream::File(files.create()?));
            self.file_start = self.written;
            self.append(files.header())?;
        }
        Ok(())
    }

    /// Appends bytes of records or of a header.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let block = match &mut self.block {
                Some(block) => block,
                // A pipe's reader may keep blocks until the job stops.
                empty => {
                    let block = self.blocks.take(|| self.cancel.is_cancelled());
                    empty.insert(block.ok_or(SortError::Cancelled)?)
                }
            };
            let (now, later) = bytes.split_at(bytes.len().min(block.len() - self.len));
            block[self.len..self.len + now.len()].copy_from_slice(now);
            self.len += now.len();
            bytes = later;
            if self.len == block.len() {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let len = std::mem::take(&mut self.len);
        match self.block.take() {
            Some(block) if len > 0 => self.write_block(block, len),
            _ => Ok(()),
        }
    }

    fn write_block(&mut self, mut block: Buf, len: usize) -> Result<()> {
        self.records.finish(&mut block[..len]);
        self.written += len as u64;
        Ok(self.stream()?.begin(block, len)?)
    }

    fn stream(&mut self) -> Result<&mut dyn WriteStream, IoError> {
        match &mut self.stream {
            Some(stream) => stream.stream(),
            None => Err(IoError::Misuse { path: PathBuf::new(), offset: 0, what: "the output is closed" }),
        }
    }

    fn file(&self) -> Option<&AtomicOutput> {
        self.stream.as_ref().and_then(OutputStream::file)
    }

    /// Bytes taken so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.len as u64
    }

    /// The temporary name of the file being written, if it is one that has one.
    pub fn temporary(&self) -> Option<&Path> {
        self.file().and_then(AtomicOutput::persist_name)
    }

    /// Makes the whole pages written so far durable; none for a pipe.
    pub fn checkpoint(&mut self) -> Result<Option<DurableOutput>> {
        let Some(temporary) = self.temporary().map(Path::to_path_buf) else { return Ok(None) };
        let mut tail = Vec::new();
        if let Some(block) = self.block.take() {
            let whole = self.len / PAGE_BYTES * PAGE_BYTES;
            tail = block[whole..self.len].to_vec();
            self.len = 0;
            if whole > 0 {
                self.write_block(block, whole)?;
            }
        }
        self.stream()?.sync()?;
        let inode = self.file().and_then(AtomicOutput::inode);
        let files = self.rolling.as_mut().map(RollingFiles::checkpoint).transpose()?;
        let durable = DurableOutput { temporary, bytes: self.written - self.file_start, tail, inode, files };
        self.append(&durable.tail)?;
        Ok(Some(durable))
    }
}

impl<R: Records> Commit for OutputWriter<R> {
    fn unfinished(&self) -> Option<(&Path, u64)> {
        if self.rolling.is_some() { None } else { Some((self.temporary()?, self.bytes())) }
    }

    fn sealed_parts(&mut self) -> Result<Vec<SealedPart>> {
        Ok(self.rolling.as_mut().map(RollingFiles::checkpoint).transpose()?.unwrap_or_default().sealed)
    }

    fn keep(&mut self) {
        if let Some(OutputStream::File(file)) = &mut self.stream {
            file.keep();
        }
        self.rolling.iter_mut().for_each(RollingFiles::keep);
    }

    fn seal(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(mut files) = self.rolling.take() {
            // Files that get no records are empty.
            while !files.all_complete() {
                self.open_next(&mut files)?;
            }
            self.rolling = Some(files);
        }
        Ok(self.stream.as_mut().map_or(Ok(()), OutputStream::seal)?)
    }

    fn commit(mut self) -> Result<()> {
        self.seal()?;
        if let Some(files) = self.rolling {
            return files.into_sealed().commit();
        }
        self.stream.map_or(Ok(()), |stream| stream.commit().map(|_| ())).map_err(SortError::from)
    }
}

/// A file under its temporary name, or a descriptor.
pub enum OutputStream {
    /// The file.
    File(AtomicOutput),
    /// Standard output that is redirected to a file. Its blocks are filled, so that a switch moves as much as it can.
    Redirected(Box<dyn WriteStream>),
    /// Any other standard output, or the program.
    Pipe(Box<dyn WriteStream>),
}

impl OutputStream {
    /// Starts the output. `temporary`: the temporary name of its file, if one was chosen before.
    pub fn create(disk: &Disk, output: &Output, temporary: Option<&Path>) -> Result<Self> {
        match (output, temporary) {
            (Output::Path(path), Some(temporary)) => {
                Ok(OutputStream::File(AtomicOutput::create_named(disk, path, temporary, "output")?))
            }
            (Output::Path(path), None) => Ok(OutputStream::File(AtomicOutput::create(disk, path, "output")?)),
            (Output::Stdout, _) => {
                let name = Path::new(STANDARD_OUTPUT);
                let fd = std::io::stdout().as_fd().try_clone_to_owned();
                let fd = fd.during(Action::Open, name)?;
                let stream = disk.to_writer(fd, name, "output")?;
                let of_kind =
                    if output.is_redirected() { OutputStream::Redirected } else { OutputStream::Pipe };
                Ok(of_kind(stream))
            }
            (Output::Program, _) => {
                let stream = disk.open_program_sink(Path::new(PROGRAM_RECORDS), "output")?;
                Ok(OutputStream::Pipe(stream))
            }
            (Output::Parts(_), _) => Err(SortError::Internal("several files opened as one output")),
        }
    }

    /// The stream for its bytes.
    pub fn stream(&mut self) -> Result<&mut dyn WriteStream, IoError> {
        match self {
            OutputStream::File(file) => file.stream(),
            OutputStream::Redirected(stream) | OutputStream::Pipe(stream) => Ok(stream.as_mut()),
        }
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&AtomicOutput> {
        if let OutputStream::File(file) = self { Some(file) } else { None }
    }

    /// Makes the file durable and closes it, or waits until the pipe's reader has taken everything.
    pub fn seal(&mut self) -> Result<(), IoError> {
        match self {
            OutputStream::File(file) => file.seal().map(|_| ()),
            OutputStream::Redirected(stream) | OutputStream::Pipe(stream) => stream.drain(),
        }
    }

    /// Seals the output, and gives the file its name. Returns the total bytes written.
    pub fn commit(self) -> Result<u64, IoError> {
        match self {
            OutputStream::File(file) => file.commit(),
            OutputStream::Redirected(stream) | OutputStream::Pipe(stream) => stream.finish(),
        }
    }
}
