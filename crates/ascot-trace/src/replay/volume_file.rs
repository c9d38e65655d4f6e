//! One preallocated file that stands for a volume.
//!
//! Invariants: the file has no name, so that nothing of it stays, however the process ends. All of it was written
//! before the first request, because a file system does not read what was never written. Requests bypass the page
//! cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ascot_io::{Buf, Pool};
use ascot_model::random::SplitMix64;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::blocks::BLOCK_BYTES;
use crate::error::{Result, TraceError};
use crate::fiemap;

/// Bytes of the buffer; longer requests are divided.
const BUFFER_BYTES: usize = 4 << 20;
/// Places on the device that are tried for a file that does not lie in one piece.
const PLACES: usize = 4;
/// Kinds of file systems in memory, as statfs names them.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
/// What fails where no file can be made.
const MAKE: &str = "make";

/// Where a file lies on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extents {
    /// Pieces that are contiguous on the device.
    pub pieces: u64,
    /// The first byte on the device, if the file system tells.
    pub physical_offset: Option<u64>,
}

/// The file.
pub struct VolumeFile {
    file: File,
    buffer: Buf,
    bytes: u64,
}

impl VolumeFile {
    /// Makes a file of `bytes` in a directory, and writes all of it.
    pub fn create(directory: &Path, bytes: u64, stop: &AtomicBool) -> Result<VolumeFile> {
        let failed = |doing| move |source| TraceError::Volume { doing, path: directory.to_owned(), source };
        let state = rustix::fs::statvfs(directory).map_err(io::Error::from).map_err(failed("inspect"))?;
        let free = state.f_bavail.saturating_mul(state.f_frsize);
        // File systems without data, such as /proc, have no blocks; a tmpfs without a limit does not count its own.
        let counts_blocks = state.f_blocks > 0;
        if counts_blocks && free < bytes {
            return Err(TraceError::VolumeTooSmall { path: directory.to_owned(), needed: bytes, free });
        }
        let file = most_contiguous(directory, bytes.max(BLOCK_BYTES)).map_err(|error| match error {
            TraceError::Volume { doing: MAKE, path, .. } if !counts_blocks => {
                TraceError::NoSpaceForData { path }
            }
            error => error,
        })?;
        let direct = rustix::fs::fcntl_getfl(&file)
            .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT));
        direct.map_err(|error| TraceError::NoDirect { path: directory.to_owned(), source: error.into() })?;
        let buffer = Pool::new(BUFFER_BYTES).region(BUFFER_BYTES, "requests of a replay")?;
        let mut volume = VolumeFile { file, buffer, bytes };
        volume.fill(stop).map_err(failed("write"))?;
        Ok(volume)
    }

    /// Writes bytes that do not compress.
    fn fill(&mut self, stop: &AtomicBool) -> io::Result<()> {
        SplitMix64::default().fill(&mut self.buffer);
        let mut offset = 0;
        while offset < self.bytes && !stop.load(Ordering::Relaxed) {
            let bytes = (self.bytes - offset).min(BUFFER_BYTES as u64);
            self.file.write_all_at(&self.buffer[..bytes as usize], offset)?;
            offset += bytes;
        }
        self.file.sync_all()
    }

    /// Performs a request of whole blocks, and waits for it.
    pub fn perform(&mut self, writes: bool, mut offset: u64, mut bytes: u64) -> io::Result<()> {
        while bytes > 0 {
            let now = bytes.min(BUFFER_BYTES as u64);
            let part = &mut self.buffer[..now as usize];
            if writes {
                self.file.write_all_at(part, offset)?;
            } else {
                self.file.read_exact_at(part, offset)?;
            }
            offset += now;
            bytes -= now;
        }
        Ok(())
    }

    /// Waits until the device has all writes.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Whether the file is in memory, and on no disk.
    pub fn is_in_memory(&self) -> bool {
        let kind = rustix::fs::fstatfs(&self.file).map(|state| state.f_type as u64);
        kind.is_ok_and(|kind| [TMPFS, RAMFS].contains(&kind))
    }

    /// Where the file lies; none if the file system does not tell.
    pub fn extents(&self) -> Option<Extents> {
        extents_of(&self.file)
    }
}

fn extents_of(file: &File) -> Option<Extents> {
    let mapped = fiemap::extents(file, false).ok()?;
    let mut pieces = 0;
    let mut end = None;
    for extent in &mapped {
        pieces += u64::from(end.is_none() || end != extent.physical);
        end = extent.physical.map(|physical| physical.saturating_add(extent.length));
    }
    let first = mapped.first()?;
    Some(Extents { pieces, physical_offset: first.physical })
}

/// Allocates a file. If it lies in several pieces, others are allocated while it keeps its place, so that they lie
/// elsewhere, as long as the volume has space for them; the one with fewest pieces stays.
fn most_contiguous(directory: &Path, bytes: u64) -> Result<File> {
    let failed = |doing| move |source| TraceError::Volume { doing, path: directory.to_owned(), source };
    let make = || tempfile::tempfile_in(directory).map_err(failed(MAKE));
    let mut kept = vec![make()?];
    match kept.first().map(|file| allocate(file, bytes)) {
        Some(Err(error)) if error != Errno::OPNOTSUPP => return Err(failed("allocate")(error.into())),
        _ => {}
    }
    let pieces = |file: &File| extents_of(file).map(|extents| extents.pieces);
    while kept.len() < PLACES && kept.last().and_then(pieces).is_some_and(|pieces| pieces > 1) {
        let other = make()?;
        if allocate(&other, bytes).is_err() {
            break;
        }
        kept.push(other);
    }
    kept.into_iter().min_by_key(pieces).map_or_else(make, Ok)
}

fn allocate(file: &File, bytes: u64) -> Result<(), Errno> {
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)
}
