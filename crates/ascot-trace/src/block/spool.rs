//! Requests between their observation and their attribution, which waits until all extents are known.
//!
//! ```text
//!   32 bytes: u64 time | u64 sector | u32 device or file | u32 sectors | u32 issuer | u32 kind
//! ```
//!
//! The file has no name, so that nothing stays of it, and is read once by the process that wrote it. Invariant:
//! records come in the order of their times: those of a moment that all processors have passed are written in order.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ascot_io::{Action, IoError, u32_at, u64_at};

use super::processes::Issuer;
use crate::error::Result;

const RECORD_BYTES: usize = 32;
/// Bytes of a buffer of the file.
const BUFFER_BYTES: usize = 256 << 10;
/// Numbers of issuers that are not processes of the program.
const KERNEL: u32 = u32::MAX;
const OTHER: u32 = u32::MAX - 1;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request to a device.
    Request {
        /// The device.
        device: u32,
        /// The first sector.
        sector: u64,
        /// The number of sectors.
        sectors: u32,
        /// Whether it writes.
        writes: bool,
        /// Whether it is marked as metadata.
        metadata: bool,
    },
    /// A file was opened.
    Open {
        /// The file.
        file: u32,
    },
    /// A file is gone.
    Delete {
        /// The file.
        file: u32,
    },
}

/// An observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The monotonic clock of the system.
    pub time_ns: u64,
    /// Who did it.
    pub issuer: Issuer,
    /// What happened.
    pub what: What,
}

/// The file, and the records whose order is not known yet.
pub struct Spool {
    directory: PathBuf,
    file: BufWriter<File>,
    pending: Vec<Record>,
    bytes: u64,
}

impl Spool {
    /// Makes the file in a directory.
    pub fn create(directory: &Path) -> Result<Spool> {
        let file = tempfile::tempfile_in(directory)
            .map_err(|source| IoError::from_os(Action::Create, directory, 0, source))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(Spool { directory: directory.to_owned(), file, pending: Vec::new(), bytes: 0 })
    }

    /// Adds a record.
    pub fn push(&mut self, record: Record) {
        self.pending.push(record);
    }

    /// Writes the records before a time, after which none of an earlier time comes.
    pub fn write_before(&mut self, before_ns: u64) -> Result<()> {
        self.pending.sort_by_key(|record| record.time_ns);
        let complete = self.pending.partition_point(|record| record.time_ns < before_ns);
        for record in self.pending.drain(..complete) {
            self.file
                .write_all(&to_bytes(&record))
                .map_err(|source| IoError::from_os(Action::Write, &self.directory, self.bytes, source))?;
            self.bytes += RECORD_BYTES as u64;
        }
        Ok(())
    }

    /// Passes all records to `each`, in order.
    pub fn for_each(mut self, mut each: impl FnMut(Record) -> Result<()>) -> Result<()> {
        self.write_before(u64::MAX)?;
        let failed = |source| IoError::from_os(Action::Read, &self.directory, 0, source);
        let mut file = self.file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
        let mut record = [0; RECORD_BYTES];
        for _ in 0..self.bytes / RECORD_BYTES as u64 {
            file.read_exact(&mut record).map_err(failed)?;
            each(from_bytes(&record))?;
        }
        Ok(())
    }
}

fn to_bytes(record: &Record) -> [u8; RECORD_BYTES] {
    let issuer = match record.issuer {
        Issuer::Program(process) => process,
        Issuer::Kernel => KERNEL,
        Issuer::Other => OTHER,
    };
    let (sector, place, sectors, kind) = match record.what {
        What::Request { device, sector, sectors, writes, metadata } => {
            (sector, device, sectors, u32::from(writes) | u32::from(metadata) << 1)
        }
        What::Open { file } => (0, file, 0, 4),
        What::Delete { file } => (0, file, 0, 5),
    };
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&record.time_ns.to_le_bytes());
    bytes[8..16].copy_from_slice(&sector.to_le_bytes());
    for (to, number) in bytes[16..].chunks_exact_mut(4).zip([place, sectors, issuer, kind]) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Record {
    let place = u32_at(bytes, 16);
    let what = match u32_at(bytes, 28) {
        4 => What::Open { file: place },
        5 => What::Delete { file: place },
        kind => What::Request {
            device: place,
            sector: u64_at(bytes, 8),
            sectors: u32_at(bytes, 20),
            writes: kind & 1 != 0,
            metadata: kind & 2 != 0,
        },
    };
    let issuer = match u32_at(bytes, 24) {
        KERNEL => Issuer::Kernel,
        OTHER => Issuer::Other,
        process => Issuer::Program(process),
    };
    Record { time_ns: u64_at(bytes, 0), issuer, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_the_order_of_their_times() {
        let request = What::Request { device: 3, sector: 1 << 40, sectors: 8, writes: true, metadata: false };
        let metadata = What::Request { device: 4, sector: 9, sectors: 1, writes: false, metadata: true };
        let record = |time_ns, issuer, what| Record { time_ns, issuer, what };
        let expected = [
            record(1, Issuer::Program(0), What::Open { file: 7 }),
            record(2, Issuer::Kernel, request),
            record(3, Issuer::Other, metadata),
            record(4, Issuer::Program(5), What::Delete { file: 7 }),
        ];
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(directory.path()).unwrap();
        spool.push(expected[2]);
        spool.push(expected[0]);
        spool.write_before(2).unwrap();
        spool.push(expected[3]);
        spool.push(expected[1]);
        let mut found = Vec::new();
        spool
            .for_each(|record| {
                found.push(record);
                Ok(())
            })
            .unwrap();
        assert_eq!(found, expected);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the file has a name");
    }
}
