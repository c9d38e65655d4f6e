//! Writes the sort benchmark's records to a file or a pipe.
//!
//! Records are pure functions of their numbers, so workers make blocks in any order and one
//! thread writes them in the right one:
//!
//! ```text
//! worker ─┐ take a block, then a number
//! worker ─┼──> (number, block) ──> put in order ──> write stream
//! worker ─┘                        up to POOL_BYTES
//! ```
//!
//! Invariant: a worker takes its block before it takes its number. So the block that is to be
//! written next always has its memory already, and a full pool can only wait for writes.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ascot_io::{
    Action, AtomicOutput, BlockPool, Buf, Disk, IoError, Pool, STANDARD_OUTPUT, WriteStream, threads,
};
use ascot_record::gensort::{Encoding, RECORD_LEN, RecordGenerator};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use crate::api::error::SortError;
use crate::api::observe::{Cancel, Observer};
use crate::api::request::Output;
use crate::report::watch::Watch;
use crate::resources::control_group::lowered;
use crate::resources::threads::{Alarm, compute_threads};

/// Memory of all blocks together.
const POOL_BYTES: usize = 64 << 20;

/// Bytes of a block: whole records and whole pages, so that blocks can be written directly.
const BLOCK_BYTES: usize = 20 * RECORD_LEN * 1024;

/// Records of a block.
const BLOCK_RECORDS: u64 = (BLOCK_BYTES / RECORD_LEN) as u64;

/// How long to wait before asking whether to stop.
const PATIENCE: Duration = Duration::from_millis(2);

/// Which records to make, and where to put them.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// How many records.
    pub count: u64,
    /// Number of the first one.
    pub start: u128,
    /// Binary or printable records.
    pub encoding: Encoding,
    /// Whether many keys share hot prefixes.
    pub skewed: bool,
    /// Where they go; a file appears whole or not at all.
    pub output: Output,
    /// Threads to compute with; none: one a core.
    pub threads: Option<usize>,
}

/// Writes the records asked for and returns their bytes.
pub fn generate(
    request: &GenerateRequest,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<u64, SortError> {
    let total_bytes = request
        .count
        .checked_mul(RECORD_LEN as u64)
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or_else(|| {
            SortError::Request(format!("{} records are more than a file can hold", request.count))
        })?;
    let bytes = pool_bytes(total_bytes, lowered(POOL_BYTES as u64));
    let pool = Pool::new(bytes);
    let blocks = BlockPool::new(pool.region(bytes, "records being made")?, BLOCK_BYTES);
    let mut watch = Watch::new(observer, cancel, "make records", Some(total_bytes));
    make(request, &blocks, Sink::open(&request.output, total_bytes, cancel)?, &mut watch)?.finish()
}

/// Memory for the blocks: no more than there are bytes to make, and at least one block within `most`.
fn pool_bytes(total_bytes: u64, most: u64) -> usize {
    let blocks = total_bytes.div_ceil(BLOCK_BYTES as u64).min(most / BLOCK_BYTES as u64).max(1);
    usize::try_from(blocks).unwrap_or(1) * BLOCK_BYTES
}

/// Makes all records, on several threads, and writes them in order; gives the sink back.
fn make(
    request: &GenerateRequest,
    blocks: &BlockPool,
    mut sink: Sink,
    watch: &mut Watch<'_>,
) -> Result<Sink, SortError> {
    let threads = compute_threads(request.threads).min(blocks.total());
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    threads::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let (sender, receiver) = crossbeam_channel::unbounded();
        threads::start_some(threads, |number| {
            let (next, stop, sender) = (&next, &stop, sender.clone());
            scope.spawn(&format!("make {number}"), move || {
                let _alarm = Alarm::new(&sender, || Message::Died);
                work(request, blocks, (next, stop), &sender);
            })
        })?;
        drop(sender);
        write_in_order(&receiver, sink.stream()?, blocks, watch)?;
        Ok(sink)
    })
}

/// Tells workers that nobody wants their blocks any more, however the writer ends.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

enum Message {
    Made(Made),
    /// A worker has died.
    Died,
}

/// A block of records on its way to its place.
struct Made {
    number: u64,
    block: Buf,
    len: usize,
}

/// Makes block after block until there are enough or nobody wants them.
fn work(
    request: &GenerateRequest,
    blocks: &BlockPool,
    (next, stop): (&AtomicU64, &AtomicBool),
    sender: &Sender<Message>,
) {
    let all = request.count.div_ceil(BLOCK_RECORDS);
    while next.load(Ordering::Relaxed) < all {
        let Some(mut block) = blocks.take(|| stop.load(Ordering::Relaxed)) else { return };
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= all {
            return;
        }
        let first = number * BLOCK_RECORDS;
        let len = (request.count - first).min(BLOCK_RECORDS) as usize * RECORD_LEN;
        let start = request.start.wrapping_add(u128::from(first));
        RecordGenerator::new(request.encoding, request.skewed, start).fill(&mut block[..len]);
        if sender.send(Message::Made(Made { number, block, len })).is_err() {
            return;
        }
    }
}

/// Hands blocks to the stream in the order of their numbers, and waits until they are written.
fn write_in_order(
    made: &Receiver<Message>,
    stream: &mut dyn WriteStream,
    blocks: &BlockPool,
    watch: &mut Watch<'_>,
) -> Result<(), SortError> {
    let mut early = BTreeMap::new();
    let mut next = 0;
    loop {
        match made.recv_timeout(PATIENCE) {
            Ok(Message::Made(block)) => early.insert(block.number, block),
            Ok(Message::Died) => return Err(SortError::Internal("a thread that makes records ended early")),
            // Whoever reads our pipe may be slow, and the caller may want to stop.
            Err(RecvTimeoutError::Timeout) => {
                watch.moved(0)?;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        while let Some(Made { block, len, .. }) = early.remove(&next) {
            stream.begin(block, len)?;
            next += 1;
            watch.moved(len)?;
        }
    }
    while blocks.free() < blocks.total() {
        std::thread::sleep(PATIENCE);
        watch.moved(0)?;
    }
    Ok(stream.drain()?)
}

/// Where the records go.
enum Sink {
    File(AtomicOutput),
    Descriptor(Box<dyn WriteStream>),
}

impl Sink {
    fn open(output: &Output, total_bytes: u64, cancel: &Cancel) -> Result<Sink, SortError> {
        let disk = Disk::default();
        disk.stop_when(cancel.flag());
        disk.expect(total_bytes);
        match output {
            Output::Parts(_) => Err(SortError::Internal("records are made into one file")),
            Output::Path(path) => Ok(Sink::File(AtomicOutput::create(&disk, path, "output")?)),
            Output::Stdout => {
                let name = Path::new(STANDARD_OUTPUT);
                let descriptor = std::io::stdout()
                    .as_fd()
                    .try_clone_to_owned()
                    .map_err(|error| IoError::from_os(Action::Open, name, 0, error))?;
                Ok(Sink::Descriptor(disk.to_writer(descriptor, name, "output")?))
            }
        }
    }

    fn stream(&mut self) -> Result<&mut dyn WriteStream, SortError> {
        match self {
            Sink::File(file) => Ok(file.stream()?),
            Sink::Descriptor(stream) => Ok(stream.as_mut()),
        }
    }

    /// Makes the output what was written; says how many bytes.
    fn finish(self) -> Result<u64, SortError> {
        match self {
            Sink::File(file) => Ok(file.commit()?),
            Sink::Descriptor(stream) => Ok(stream.finish()?),
        }
    }
}
