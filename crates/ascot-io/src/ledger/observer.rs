//! Requests one by one, for a record of them: the ledger itself only counts. An engine that divides memory among
//! streams reports to the same observer what each of them holds.

use std::fmt::Debug;
use std::path::Path;
use std::time::Instant;

use ascot_model::bucket_steps::Steps;

/// The direction in which a stream moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// A file, whatever its name. After it is removed, another file may have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileNumber {
    /// The device's number (`st_dev`; of a block device its own).
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

/// A request to a file, or several that continue each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IssuedRequest {
    /// The time of issue.
    pub at: Instant,
    /// The file.
    pub file: FileNumber,
    /// Reading or writing.
    pub direction: Direction,
    /// The first byte.
    pub offset: u64,
    /// Bytes to move.
    pub bytes: u64,
}

/// Streams that share a memory, each with a bucket of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharingStreams<'a> {
    /// The work, such as `merge`.
    pub name: &'a str,
    /// The number of inputs.
    pub inputs: u32,
    /// The number of outputs.
    pub outputs: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// The buckets of such streams when the device turns from one of them to another, or rests after such turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Occupancies<'a> {
    /// The time.
    pub at: Instant,
    /// The number that [`RequestObserver::share`] returned.
    pub sharing: u32,
    /// The stream of which the next block moves, an index of `bytes`; none if no block moves next.
    pub next: Option<u32>,
    /// The staircase that the schedule keeps for the inputs, bytes; none if it keeps none.
    pub input_steps: Option<Steps>,
    /// The same for the outputs.
    pub output_steps: Option<Steps>,
    /// Bytes that each input and then each output holds. A block of an input counts from its request until its
    /// bytes are consumed, a block of an output from its first byte until its write begins.
    pub bytes: &'a [u64],
}

/// Sees the requests of a job to regular files and block devices, in the order of issue. It is called under the lock of
/// the ledger: a slow observer delays all requests.
pub trait RequestObserver: Debug + Send + Sync {
    /// A stream of the file was opened.
    fn opened(&self, file: FileNumber, path: &Path);
    /// A file was renamed.
    fn renamed(&self, from: &Path, to: &Path);
    /// The only name of the file was removed.
    fn removed(&self, file: FileNumber);
    /// The space of the first `end` bytes of the file was given back; its length stays.
    fn freed(&self, file: FileNumber, end: u64) {
        let _ = (file, end);
    }
    /// A request was issued.
    fn issued(&self, request: &IssuedRequest);
    /// Streams begin to share a memory. Returns their number, which names them in [`Self::occupied`].
    fn share(&self, streams: &SharingStreams<'_>) -> u32 {
        let _ = streams;
        0
    }
    /// The buckets of streams. No lock of the ledger is held.
    fn occupied(&self, buckets: &Occupancies<'_>) {
        let _ = buckets;
    }
}
