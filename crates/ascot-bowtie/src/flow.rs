//! The function in the middle, Ascot's or yours: bytes of n streams in, bytes of m streams out.
//!
//! A flow uses its streams through the [`Bowtie`]. Of an input it gets the data that have arrived, up to the end of a
//! block ([`data`](Bowtie::data)), and consumes them ([`consume`](Bowtie::consume)). To an output it appends bytes
//! ([`put`](Bowtie::put)) as far as there is memory ([`free_bytes`](Bowtie::free_bytes)). When it cannot go on, it
//! returns and says why ([`Step`]); it is called again when that has changed. It keeps whatever spans two calls: the
//! start of a record whose end is in the next block, or a record that is half written. That memory is not the
//! engine's; reserve it from the same pool.
//!
//! A flow need not read as much as it writes: `alpha` is the share of reading, by which the engine divides its
//! memory. There may be no inputs (the flow brings the data) or no outputs (it takes them away).
//!
//! ```
//! use ascot_bowtie::engine::{Bowtie, Reader, Writer};
//! use ascot_bowtie::flow::{Flow, Step, run};
//! use ascot_io::{BlockPool, Disk, IoError, Pool};
//! use ascot_model::run_length::{Scheme, Shape};
//!
//! /// Distributes bytes to the outputs by their value.
//! struct Distribute;
//!
//! impl Flow for Distribute {
//!     type Error = IoError;
//!
//!     fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
//!         let Some(&byte) = streams.data(0).first() else {
//!             return Ok(if streams.exhausted(0) { Step::Done } else { Step::Need(0) });
//!         };
//!         if streams.put(usize::from(byte) % streams.outputs(), &[byte]) == 0 {
//!             return Ok(Step::Full);
//!         }
//!         streams.consume(0, 1);
//!         Ok(Step::Progress)
//!     }
//! }
//!
//! # let directory = std::env::temp_dir().join(format!("ascot-distribute-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # std::fs::write(directory.join("in"), (0..=255).cycle().take(100_000).collect::<Vec<u8>>())?;
//! let disk = Disk::default();
//! let pool = Pool::new(1 << 20);
//! let blocks = BlockPool::new(pool.region(1 << 20, "blocks of streams")?, 16 << 10);
//! let input = Reader::new(disk.open_read(&directory.join("in"), 0..u64::MAX, "in")?, 16 << 10);
//! let outputs = (0..4)
//!     .map(|k| Ok(Writer::new(disk.create(&directory.join(format!("out{k}")), "out")?)))
//!     .collect::<Result<Vec<_>, IoError>>()?;
//! let scheme = Scheme::best(Shape { inputs: 1, outputs: 4, alpha: 0.5 });
//! let mut bowtie = Bowtie::new(vec![input], outputs, blocks, &scheme)?;
//! run(&mut bowtie, &mut Distribute, || Ok(()))?;
//! assert_eq!((0..4).map(|k| bowtie.written(k)).sum::<u64>(), 100_000);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use ascot_io::IoError;

use crate::engine::{BlockInput, BlockOutput, Bowtie, Reader, Writer};
use crate::schedule::BlockedOn;

/// What the flow wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again; something may have been consumed.
    Progress,
    /// This input must bring another block, or end, first.
    Need(usize),
    /// An output has no memory left: blocks must be written first.
    Full,
    /// Everything is consumed and put.
    Done,
}

/// The function in the middle.
pub trait Flow<I: BlockInput = Reader, O: BlockOutput = Writer> {
    /// What can go wrong in it, besides the streams.
    type Error: From<IoError>;

    /// Consumes and produces as much as it can.
    fn step(&mut self, streams: &mut Bowtie<I, O>) -> Result<Step, Self::Error>;

    /// The input that will run out first, if the flow knows: for a merge, the one whose last record in memory is the
    /// smallest. Otherwise the schedule expects inputs to be consumed as fast as they were of late.
    fn runs_out_first(&self) -> Option<usize> {
        None
    }
}

/// Runs a flow over its streams until it is done and all its output is written. `between` is called between steps
/// (progress, cancelling); its error ends the run.
pub fn run<I, O, F>(
    bowtie: &mut Bowtie<I, O>,
    flow: &mut F,
    mut between: impl FnMut() -> Result<(), F::Error>,
) -> Result<(), F::Error>
where
    I: BlockInput,
    O: BlockOutput,
    F: Flow<I, O>,
{
    loop {
        bowtie.pump()?;
        bowtie.queue_full_blocks();
        let step = flow.step(bowtie)?;
        bowtie.set_first_out(flow.runs_out_first());
        match step {
            Step::Progress => {}
            Step::Need(index) => bowtie.wait(BlockedOn::Input(index))?,
            Step::Full => bowtie.wait(BlockedOn::OutputMemory)?,
            Step::Done => return Ok(bowtie.finish()?),
        }
        between()?;
    }
}
