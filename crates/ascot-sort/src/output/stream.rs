//! One file that appears whole or not at all, or standard output.

use std::os::fd::AsFd;
use std::path::Path;

use ascot_io::{Action, AtomicOutput, Disk, IoError, STANDARD_OUTPUT, WriteStream};

use crate::api::error::SortError;
use crate::api::request::Output;

/// A file under its temporary name, or a pipe.
pub enum OutputStream {
    /// The file.
    File(AtomicOutput),
    /// Standard output.
    Pipe(Box<dyn WriteStream>),
}

impl OutputStream {
    /// Starts the output. `temporary`: the name of its file until it is committed, where one was chosen before.
    pub fn create(disk: &Disk, output: &Output, temporary: Option<&Path>) -> Result<Self, SortError> {
        match (output, temporary) {
            (Output::Path(path), Some(temporary)) => {
                Ok(OutputStream::File(AtomicOutput::create_named(disk, path, temporary, "output")?))
            }
            (Output::Path(path), None) => Ok(OutputStream::File(AtomicOutput::create(disk, path, "output")?)),
            (Output::Stdout, _) => {
                let name = Path::new(STANDARD_OUTPUT);
                let fd = std::io::stdout().as_fd().try_clone_to_owned();
                let fd = fd.map_err(|error| IoError::from_os(Action::Open, name, 0, error))?;
                Ok(OutputStream::Pipe(disk.to_writer(fd, name, "output")?))
            }
            (Output::Parts(_), _) => Err(SortError::Internal("several files opened as one output")),
        }
    }

    /// What takes its bytes.
    pub fn stream(&mut self) -> Result<&mut dyn WriteStream, IoError> {
        match self {
            OutputStream::File(file) => file.stream(),
            OutputStream::Pipe(pipe) => Ok(pipe.as_mut()),
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
            OutputStream::Pipe(pipe) => pipe.drain(),
        }
    }

    /// Seals the output, and gives the file its name. The bytes written in all.
    pub fn commit(self) -> Result<u64, IoError> {
        match self {
            OutputStream::File(file) => file.commit(),
            OutputStream::Pipe(pipe) => pipe.finish(),
        }
    }
}
