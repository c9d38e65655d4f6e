//! The native half of a sort on a cluster: everything that touches bytes. Who runs what on which node is decided by the
//! caller, which needs nothing but the results.
//!
//! ```text
//!   check_inputs     what all nodes must know of the inputs
//!   sample           some keys of a chunk ─▶ bounds: where the partitions begin
//!   chunk_reader     a byte range of a file as blocks of whole records
//!   chunk_mapper     one chunk in memory, its records grouped by partition ─▶ batches for each destination
//!   batch            the bytes that travel: pieces of partitions, each with its checksum
//!   connect          batches from a worker to the writers of all destinations over TCP
//!   partition_files  a destination: appends batches to the files of its partitions, each batch once
//!   cached_files     these files: what of them the device gets when
//!   received         which batches of a chunk a destination has
//!   reduce           the pieces of one partition, in the order of the inputs, sorted to a part of the output
//! ```
//!
//! These push what is mapped to destinations. The other shuffle leaves sorted chunks where they are made, and reducers
//! pull from them:
//!
//! ```text
//!   spill_chunk      one chunk sorted to a view, and the bytes of each partition in it
//!   spilled_chunks   consecutive chunks of a node as one merged sequence, any part of any partition of which is read
//! ```
//!
//! A *chunk* is a byte range of an input, a *destination* a set of partitions kept in one directory of one node.
//! Batches are numbered (chunk, destination, number), and the same chunk always makes the same batches, so that a chunk
//! may be mapped again after a fault.
//!
//! Invariants: a record belongs to the chunk in which it begins. Partitions are ranges of the order of the sort, which
//! the position in the inputs completes, so that also equal keys are divided, and parts one after another are the
//! result of a sort on one machine.

pub mod batch;
pub mod bounds;
mod cached_files;
mod check_inputs;
pub mod chunk_mapper;
pub mod chunk_reader;
pub mod connect;
mod entries;
pub mod partition_files;
mod received;
pub mod reduce;
pub mod sample;
pub mod spill_chunk;
pub mod spilled_chunks;

pub use batch::{BatchNumber, JobId};
pub use bounds::{Bounds, SortPosition};
pub use cached_files::WaitingControl;
pub use check_inputs::{CheckedFile, CheckedInputs, check_inputs};
pub use chunk_mapper::{ChunkMapper, MappedChunk};
pub use chunk_reader::{ChunkSpan, read_chunk};
pub use partition_files::PartitionFiles;
pub use reduce::{PartitionPieces, sort_partition, view_partition};
pub use sample::sample_chunk;
pub use spill_chunk::{SpillChunks, join_chunks, seal_chunk};
pub use spilled_chunks::SpilledChunks;

use std::path::Path;

use ascot_record::checksum::RecordSum;

use crate::api::{Result, SortError, SortRequest};
use crate::records::{AnyRecords, InputHead, Records, title, with_records};

/// The records of a sort on a cluster.
pub struct Shuffle {
    records: AnyRecords,
    /// Whether a value that is not of its column's type is an error.
    is_strict: bool,
}

/// The sum of whole records of `request`.
///
/// # Errors
/// [`SortError::Request`] if the request has no records of one kind.
pub fn sum_records(request: &SortRequest, bytes: &[u8]) -> Result<RecordSum> {
    let mut sum = RecordSum::new();
    let records = AnyRecords::new(request, &InputHead::default())?;
    with_records!(&records, records => records.sum(bytes, &mut sum));
    Ok(sum)
}

impl Shuffle {
    /// The records of `request`.
    ///
    /// # Errors
    /// [`SortError::Request`] if the keys do not fit the layout. Keys that are columns must have a number and a type,
    /// as [`check_inputs()`] gives them, so that all nodes take the same.
    pub fn new(request: &SortRequest) -> Result<Shuffle> {
        let records = AnyRecords::new(request, &InputHead::default())?;
        Ok(Shuffle { records, is_strict: request.checks.strict })
    }

    /// If the request is strict, refuses a value in whole records, the first of which is at `offset` of a file, that is
    /// not of its column's type.
    fn check_types<R: Records>(&self, records: &R, bytes: &[u8], path: &Path, offset: u64) -> Result<()> {
        if !self.is_strict {
            return Ok(());
        }
        let misfits = records.misfits(bytes);
        let Some((key, record, value)) = misfits.first() else { return Ok(()) };
        let at = offset + records.cut(bytes, record).bytes as u64;
        let column = records.key_columns().get(key);
        let (name, kind) =
            column.map_or_else(Default::default, |column| (title(column), column.kind.to_string()));
        let problem = format!(
            "in the row at offset {at}, '{value}' in column {name} is not of type {kind}\n  name another type, name \
             the spellings of null, or leave out strict: such values then sort last"
        );
        Err(SortError::InChunk { input: path.display().to_string(), offset: at, problem })
    }
}
