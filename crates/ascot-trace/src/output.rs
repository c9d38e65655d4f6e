//! A file that is written forward, and takes its name when it is complete and durable; or a file that is open, such as
//! standard output or a temporary file without a name.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use ascot_io::{Action, AtomicOutput, Backend, Buf, Disk, DiskOptions, IoError};

/// Bytes that one system call moves.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Names of standard output. A file that it was redirected to is written where it stands: replacing it would lose what
/// other commands wrote.
const STANDARD_OUTPUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Whether a path is standard output.
pub fn is_standard_output(path: &Path) -> bool {
    STANDARD_OUTPUT.iter().any(|standard| path.as_os_str() == *standard)
}

/// The file, and the bytes not written yet.
pub struct Output {
    destination: Destination,
    buffer: Vec<u8>,
    bytes: u64,
}

enum Destination {
    Whole(AtomicOutput),
    Open(File),
}

impl Output {
    /// Starts a file that will be `path`; `name` is that of its stream.
    pub fn create(path: &Path, name: &str) -> Result<Output, IoError> {
        let destination = if is_standard_output(path) {
            let copy = rustix::io::dup(rustix::stdio::stdout());
            let copy = copy.map_err(|error| IoError::from_os(Action::Open, path, 0, error.into()))?;
            Destination::Open(File::from(copy))
        } else {
            let backend = Backend::Sized(BYTES_AT_ONCE);
            let disk = Disk::new(DiskOptions { backend, ..DiskOptions::default() });
            Destination::Whole(AtomicOutput::create(&disk, path, name)?)
        };
        Ok(Output { destination, buffer: Vec::new(), bytes: 0 })
    }

    /// Appends to a file that is open.
    pub fn to_file(file: File) -> Output {
        Output { destination: Destination::Open(file), buffer: Vec::new(), bytes: 0 }
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
        match &mut self.destination {
            Destination::Whole(output) => {
                let mut block = Buf::heap(self.buffer.len());
                block.copy_from_slice(&self.buffer);
                output.stream()?.begin(block, self.buffer.len())?;
            }
            Destination::Open(file) => {
                let at = self.bytes - self.buffer.len() as u64;
                let written = file.write_all(&self.buffer);
                let name = Path::new("standard output or a temporary file");
                written.map_err(|error| IoError::from_os(Action::Write, name, at, error))?;
            }
        }
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest. The file then lacks only its name; none if it never gets one.
    pub fn seal(mut self) -> Result<Option<AtomicOutput>, IoError> {
        if !self.buffer.is_empty() {
            self.flush()?;
        }
        match self.destination {
            Destination::Whole(mut output) => {
                output.seal()?;
                Ok(Some(output))
            }
            Destination::Open(_) => Ok(None),
        }
    }

    /// Writes the rest, and gives the file its name. Returns its length.
    pub fn commit(mut self) -> Result<u64, IoError> {
        if !self.buffer.is_empty() {
            self.flush()?;
        }
        match self.destination {
            Destination::Whole(output) => output.commit(),
            Destination::Open(_) => Ok(self.bytes),
        }
    }
}
