//! The function in the middle, yours or ours: bytes of n streams in, bytes of m streams out.
//!
//! A flow sees its streams through the [`Bowtie`]. Of an input it sees what has arrived, up to the end of a
//! block ([`data`](Bowtie::data)), and says how much of it is done with ([`consume`](Bowtie::consume)). To an
//! output it appends ([`put`](Bowtie::put)), as far as there is [`room`](Bowtie::room). Where it cannot go
//! on it returns and says why ([`Step`]); it is called again when that has changed. So it keeps for itself
//! what spans two calls: the start of a record whose end is in the next block, a record half put. What it
//! keeps is not in the engine's memory; reserve it from the same pool.
//!
//! It need not read as much as it writes; with `alpha`, the share of reading, the engine divides its memory
//! accordingly. There may be no inputs (the flow brings the data) or no outputs (it takes them away).
//!
//! ```
//! use ascot_bowtie::engine::{Bowtie, Reader, Writer, run};
//! use ascot_bowtie::flow::{Flow, Step};
//! use ascot_io::{BlockPool, Disk, IoError, Pool};
//! use ascot_model::run_length::{Scheme, Shape};
//!
//! /// Deals bytes out to the outputs by their value.
//! struct Deal;
//!
//! impl Flow for Deal {
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
//! # let directory = std::env::temp_dir().join(format!("ascot-deal-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # std::fs::write(directory.join("in"), (0..=255).cycle().take(100_000).collect::<Vec<u8>>())?;
//! let (disk, pool) = (Disk::default(), Pool::new(1 << 20));
//! let blocks = BlockPool::new(pool.region(1 << 20, "blocks of streams")?, 16 << 10);
//! let input = Reader::new(disk.open_read(&directory.join("in"), 0..u64::MAX, "in")?, 16 << 10);
//! let outputs = (0..4)
//!     .map(|k| Ok(Writer::new(disk.create(&directory.join(format!("out{k}")), "out")?)))
//!     .collect::<Result<Vec<_>, IoError>>()?;
//! let scheme = Scheme::best(Shape { inputs: 1, outputs: 4, alpha: 0.5 });
//! let mut bowtie = Bowtie::new(vec![input], outputs, blocks, &scheme)?;
//! run(&mut bowtie, &mut Deal, || Ok(()))?;
//! assert_eq!((0..4).map(|k| bowtie.written(k)).sum::<u64>(), 100_000);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use ascot_io::IoError;

use crate::engine::{BlockInput, BlockOutput, Bowtie, Reader, Writer};

/// What the flow wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again; something may have been consumed.
    Progress,
    /// This input must give another block, or end, first.
    Need(usize),
    /// An output has no room: blocks must be written first.
    Full,
    /// All is consumed and put.
    Done,
}

/// The function in the middle.
pub trait Flow<I: BlockInput = Reader, O: BlockOutput = Writer> {
    /// What can go wrong in it, besides the streams.
    type Error: From<IoError>;

    /// Consumes and produces what it can.
    fn step(&mut self, streams: &mut Bowtie<I, O>) -> Result<Step, Self::Error>;

    /// The input that will run out first, where the flow can tell: of a merge, the one whose last record
    /// in memory is the smallest. Otherwise it is thought to be as fast as it was of late.
    fn runs_out_first(&self) -> Option<usize> {
        None
    }
}
