//! Sorts a partition: its pieces, in the order of the inputs, are the input of a sort within the memory of one node.
//!
//! ```text
//!   batches (log) ─▶ pieces of the partition, by chunk and number ─▶ bytes, checked ─▶ sort ─▶ part of the output
//! ```
//!
//! A part is a sorted file, or a view: the sorted runs of the partition, which are merged when they are read.
//!
//! Invariants: the sort gets the records in the order of the inputs, so that equal keys keep it. Every piece is read
//! whole and its checksum is that of the mapper, or the sort fails and writes nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ascot_io::{Action, ByteSource, Crc32c, During, IoError, ProgramStreams, Unpoisoned};
use ascot_model::report::Report;

use super::batch::{BatchNumber, JobId};
use super::partition_files::{StoredPiece, partition_path, read_log};
use super::received::Received;
use crate::api::{Cancel, Observer, Result, SortError, SortRequest};
use crate::jobs;
use crate::plan::RunOptions;

/// The pieces of a partition.
pub struct PartitionPieces {
    path: PathBuf,
    /// The header of the part; empty without one.
    header: Vec<u8>,
    /// In the order of the inputs.
    pieces: Vec<StoredPiece>,
}

impl PartitionPieces {
    /// The pieces of `partition` in a destination, which has all batches of `chunks` chunks.
    ///
    /// # Errors
    /// [`IoError::Corrupt`] if batches are missing; [`SortError::Request`] for the directory of another job.
    pub fn open(
        dir: &Path,
        job: JobId,
        destination: u32,
        partition: u32,
        chunks: u32,
    ) -> Result<PartitionPieces> {
        let mut received = vec![Received::default(); chunks as usize];
        let mut found: Vec<(BatchNumber, StoredPiece)> = Vec::new();
        read_log(dir, job, destination, |entry| {
            if let Some(received) = received.get_mut(entry.number.chunk as usize) {
                received.note(entry.number);
            }
            found.extend(
                entry
                    .pieces
                    .iter()
                    .filter(|piece| piece.partition == partition)
                    .map(|piece| (entry.number, *piece)),
            );
        })?;
        let path = partition_path(dir, partition);
        if let Some(missing) = received.iter().position(|received| !received.is_complete()) {
            let what = "batches of the chunk of this number are missing";
            return Err(IoError::Corrupt { path, offset: 0, block: missing as u64, what }.into());
        }
        found.sort_by_key(|(number, _)| (number.chunk, number.number));
        let pieces = found.into_iter().map(|(_, piece)| piece).collect();
        Ok(PartitionPieces { path, header: Vec::new(), pieces })
    }

    /// The same pieces for a part with a header.
    #[must_use]
    pub fn with_header(self, header: Vec<u8>) -> PartitionPieces {
        PartitionPieces { header, ..self }
    }

    /// Bytes of the partition.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// Sorts a partition to the output of `request`, whose input is the program.
///
/// # Errors
/// [`IoError::Corrupt`] or the error of the file system if a piece cannot be read; those of a sort.
pub fn sort_partition(
    request: &SortRequest,
    pieces: PartitionPieces,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report> {
    with_pieces(pieces, |options| jobs::sort::sort(request, options, observer, cancel))
}

/// Sorts a partition to runs, which become the view `view`; otherwise as [`sort_partition`].
///
/// # Errors
/// Those of [`sort_partition`] and of making a view.
pub fn view_partition(
    request: &SortRequest,
    pieces: PartitionPieces,
    view: &Path,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report> {
    with_pieces(pieces, |options| jobs::sort::make_view(request, view, options, observer, cancel))
}

/// Runs a job whose input is a partition.
fn with_pieces(pieces: PartitionPieces, job: impl FnOnce(&RunOptions) -> Result<Report>) -> Result<Report> {
    let failure = Arc::new(Mutex::new(None));
    let header = (!pieces.header.is_empty()).then(|| pieces.header.clone());
    let source = PieceSource {
        pieces,
        file: None,
        next: 0,
        done: 0,
        sum: Crc32c::default(),
        failure: failure.clone(),
    };
    let program = ProgramStreams::new([Box::new(source) as Box<dyn ByteSource>], None);
    let result = job(&RunOptions { program, header, ..RunOptions::default() });
    match failure.lock().unpoisoned().take() {
        Some(error) => Err(SortError::Io(error)),
        None => result,
    }
}

/// Reads the pieces one after another.
struct PieceSource {
    pieces: PartitionPieces,
    file: Option<File>,
    /// Number of the next piece, bytes of it that were read, and their checksum.
    next: usize,
    done: u64,
    sum: Crc32c,
    /// The error that ended the reading.
    failure: Arc<Mutex<Option<IoError>>>,
}

impl PieceSource {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, IoError> {
        let mut filled = 0;
        while filled < out.len()
            && let Some(piece) = self.pieces.pieces.get(self.next).copied()
        {
            let wanted = ((piece.bytes - self.done).min((out.len() - filled) as u64)) as usize;
            let own = &mut out[filled..filled + wanted];
            read_exact(&mut self.file, &self.pieces.path, own, piece.offset + self.done)?;
            self.sum.update(own);
            self.done += wanted as u64;
            filled += wanted;
            if self.done == piece.bytes {
                if std::mem::take(&mut self.sum).finish() != piece.sum {
                    let path = self.pieces.path.clone();
                    let what = "its bytes are not those that were written";
                    return Err(IoError::Corrupt {
                        path,
                        offset: piece.offset,
                        block: self.next as u64,
                        what,
                    });
                }
                self.next += 1;
                self.done = 0;
            }
        }
        Ok(filled)
    }
}

fn read_exact(file: &mut Option<File>, path: &Path, out: &mut [u8], offset: u64) -> Result<(), IoError> {
    let file = match file {
        Some(file) => file,
        None => file.insert(File::open(path).during_at(Action::Open, path, offset)?),
    };
    match file.read_exact_at(out, offset) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(IoError::Truncated { path: path.to_path_buf(), offset, expected: offset + out.len() as u64 })
        }
        done => done.during_at(Action::Read, path, offset),
    }
}

impl ByteSource for PieceSource {
    fn fill(&mut self, out: &mut [u8]) -> Option<usize> {
        match self.read(out) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                *self.failure.lock().unpoisoned() = Some(error);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::{batch_bytes, write_batch};
    use super::super::partition_files::PartitionFiles;
    use super::*;
    use crate::api::observe::Silent;
    use crate::api::{Input, Keys, Output};
    use ascot_record::keys::parse_ranges;
    use ascot_record::layout::Layout;

    const JOB: JobId = [5; 16];

    fn append(files: &mut PartitionFiles, chunk: u32, number: u32, last: bool, bytes: &[u8]) {
        let lengths = [(6, bytes.len())];
        let mut batch = vec![0; batch_bytes(&lengths)];
        let number = BatchNumber { chunk, destination: 0, number, last };
        write_batch(JOB, number, &lengths, &mut batch, |_, out| out.copy_from_slice(bytes));
        files.append(&batch).expect("appended");
    }

    /// Records of a key and a value, 2 bytes, one of which spans two batches.
    fn destination(dir: &Path) {
        let mut files = PartitionFiles::open(dir, JOB, 0).expect("a destination");
        append(&mut files, 1, 0, true, b"b5a6");
        append(&mut files, 0, 0, false, b"b1a2b");
        append(&mut files, 0, 1, true, b"3c4");
    }

    fn sorted(dir: &Path, output: &Path) -> Result<Report, SortError> {
        let keys = Keys::Ranges(parse_ranges("0..1").expect("a key"));
        let (layout, output) = (Layout::Fixed { len: 2 }, Output::Path(output.into()));
        let request = SortRequest::new(vec![Input::Program], output, layout, keys);
        let pieces = PartitionPieces::open(dir, JOB, 0, 6, 2)?;
        sort_partition(&request, pieces, &Silent, &Cancel::new())
    }

    #[test]
    fn equal_keys_are_in_the_order_of_the_inputs_not_of_arrival() {
        let dir = tempfile::tempdir().expect("a directory");
        let (own, output) = (dir.path().join("d"), dir.path().join("part"));
        destination(&own);
        let report = sorted(&own, &output).expect("sorted");
        assert_eq!(std::fs::read(&output).expect("a part"), b"a2a6b1b3b5c4");
        assert_eq!(report.records_out, 6);
    }

    #[test]
    fn a_changed_piece_and_a_missing_batch_are_found_and_nothing_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let (own, output) = (dir.path().join("d"), dir.path().join("part"));
        destination(&own);
        assert!(PartitionPieces::open(&own, JOB, 0, 6, 3).is_err(), "chunk 2 never came");
        let path = partition_path(&own, 6);
        let whole = std::fs::read(&path).expect("a file");
        for broken in [vec![0; whole.len()], whole[..whole.len() - 1].to_vec()] {
            std::fs::write(&path, &broken).expect("a disk");
            let error = sorted(&own, &output).expect_err("damaged");
            assert!(error.to_string().contains("partition-00006"), "{error}");
            assert!(!output.exists());
        }
        std::fs::write(&path, &whole).expect("a disk");
        assert!(sorted(&own, &output).is_ok());
    }
}
