//! Space for the log of strace, allocated ahead of it.
//!
//! strace goes on without an error when the volume of its log is full: lines are lost, and the log looks complete if
//! space comes back. So this program allocates the space before strace writes to it, and looks at the log every few
//! milliseconds.
//!
//! Invariant: until the volume counts as full, at least half of [`LEAST_AHEAD_BYTES`] were allocated after the end of
//! the log at every look. Afterwards the log is emptied at every look, and takes no space from the program.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Bytes that are allocated ahead, but at most half of those that are free: strace takes longer to write them than a
/// busy machine keeps this program waiting.
const AHEAD_BYTES: u64 = 4 << 20;
/// Bytes with which the volume still counts as not full, twice the least that stay allocated ahead.
const LEAST_AHEAD_BYTES: u64 = 256 << 10;

/// The space of a log.
pub struct LogSpace {
    log: File,
    /// The end of the allocated bytes.
    allocated: u64,
    /// The length of the log when its volume was full.
    full_at: Option<u64>,
}

impl LogSpace {
    /// Allocates the first bytes for a log that is empty.
    pub fn new(log: &Path) -> io::Result<LogSpace> {
        let log = File::options().write(true).open(log)?;
        let mut space = LogSpace { log, allocated: 0, full_at: None };
        space.look()?;
        Ok(space)
    }

    /// The length of the log when its volume was full; none while it is not.
    pub fn full_at(&self) -> Option<u64> {
        self.full_at
    }

    /// Allocates bytes ahead of the log, or empties it if there are none.
    pub fn look(&mut self) -> io::Result<()> {
        let length = self.log.metadata()?.len();
        if self.full_at.is_none() && !self.keeps_ahead(length)? {
            self.full_at = Some(length);
        }
        if self.full_at.is_some() { self.log.set_len(0) } else { Ok(()) }
    }

    /// Whether enough bytes are allocated after the end of the log.
    fn keeps_ahead(&mut self, length: u64) -> io::Result<bool> {
        if self.allocated >= length + AHEAD_BYTES / 2 {
            return Ok(true);
        }
        let mut ahead = AHEAD_BYTES.min(self.free_bytes()? / 2).max(LEAST_AHEAD_BYTES);
        while ahead >= LEAST_AHEAD_BYTES {
            let from = self.allocated.max(length);
            let bytes = (length + ahead).saturating_sub(from);
            match self.allocate(from, bytes) {
                Ok(()) => {
                    self.allocated = from + bytes;
                    return Ok(true);
                }
                Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => ahead /= 2,
                // A file system that allocates nothing ahead.
                Err(Errno::OPNOTSUPP) => return Ok(self.free_bytes()? >= LEAST_AHEAD_BYTES),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.allocated >= length + LEAST_AHEAD_BYTES / 2)
    }

    fn allocate(&self, from: u64, bytes: u64) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        rustix::fs::fallocate(&self.log, FallocateFlags::KEEP_SIZE, from, bytes)
    }

    /// Bytes that are free on the volume.
    fn free_bytes(&self) -> io::Result<u64> {
        let volume = rustix::fs::fstatvfs(&self.log)?;
        Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
    }

    /// Gives back what is allocated after the end of the log. The log is complete.
    pub fn finish(self) -> io::Result<()> {
        let length = self.log.metadata()?.len();
        self.log.set_len(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn space_is_ahead_of_the_log_and_given_back() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let mut space = LogSpace::new(log.path()).unwrap();
        for _ in 0..5 {
            log.write_all(&vec![7; 3 << 20]).unwrap();
            space.look().unwrap();
            let metadata = log.as_file().metadata().unwrap();
            assert!(metadata.blocks() * 512 >= metadata.len() + AHEAD_BYTES / 2);
        }
        assert_eq!(space.full_at(), None);
        space.finish().unwrap();
        let metadata = log.as_file().metadata().unwrap();
        assert_eq!(metadata.len(), 15 << 20);
        assert!(metadata.blocks() * 512 < metadata.len() + AHEAD_BYTES / 4);
    }
}
