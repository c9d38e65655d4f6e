//! A file that is written forward, and takes its name when it is complete and durable.

use std::path::Path;

use ascot_io::{AtomicOutput, Backend, Buf, Disk, DiskOptions, IoError};

/// Bytes that one system call moves.
const BYTES_AT_ONCE: usize = 1 << 20;

/// The file, and the bytes not written yet.
pub struct Output {
    output: AtomicOutput,
    buffer: Vec<u8>,
    bytes: u64,
}

impl Output {
    /// Starts a file that will be `path`; `name` is that of its stream.
    pub fn create(path: &Path, name: &str) -> Result<Output, IoError> {
        let backend = Backend::Sized(BYTES_AT_ONCE);
        let disk = Disk::new(DiskOptions { backend, ..DiskOptions::default() });
        let output = AtomicOutput::create(&disk, path, name)?;
        Ok(Output { output, buffer: Vec::new(), bytes: 0 })
    }

    /// The bytes appended so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), IoError> {
        self.buffer.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        if self.buffer.len() >= BYTES_AT_ONCE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), IoError> {
        let mut block = Buf::heap(self.buffer.len());
        block.copy_from_slice(&self.buffer);
        self.output.stream()?.begin(block, self.buffer.len())?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest, and gives the file its name. Returns its length.
    pub fn commit(mut self) -> Result<u64, IoError> {
        if !self.buffer.is_empty() {
            self.flush()?;
        }
        self.output.commit()
    }
}
