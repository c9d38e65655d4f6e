//! Sorts one chunk of the input to a view of its own, which stays where it is made.
//!
//! ```text
//!   chunk ─ blocks ─▶ partition of each record, counted ─▶ sort ─▶ chunk-00012/   view.json view.index run-*.run
//!                                                                                 partitions
//! ```
//!
//! Partitions are ranges of the order of the sort, so each is a range of bytes of the merged view. The file
//! `partitions` has their lengths:
//!
//! ```text
//!   0   magic "ASCOTPAR", version 1, number of partitions     8 + 4 + 4
//!   16  bytes of each partition                               8 each
//!       CRC-32C of the bytes before                           4
//! ```
//!
//! The *check* of a chunk is the CRC-32C of this file and of the manifest of the view, which has the checksums of the
//! indexes, which have those of the blocks: it stands for all bytes of the chunk.
//!
//! Invariant: nothing is merged on disk, so the records of a chunk are written once.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ascot_io::waits::{Need, receive_looking};
use ascot_io::{Action, ByteSource, Disk, During, IoError, ProgramStreams, crc32c, directory_of, threads};
use ascot_model::report::Report;
use ascot_record::checksum::RecordSum;
use ascot_record::hex::to_hex;
use crossbeam_channel::{Receiver, bounded};

use super::Shuffle;
use super::bounds::Bounds;
use super::chunk_reader::{BLOCK_BYTES, ChunkSpan, read_chunk};
use super::entries::Entries;
use crate::api::{Cancel, Observer, Result, SortRequest};
use crate::jobs;
use crate::plan::RunOptions;
use crate::records::{Records, with_records};
use crate::runs::VIEW_MANIFEST;
use crate::view::join_parts;

const SIZES: &str = "partitions";
const MAGIC: &[u8; 8] = b"ASCOTPAR";
const VERSION: u32 = 1;

/// Interval at which a sort that waits for a block checks whether it is to stop.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A job that sorts chunks.
pub struct SpillChunks<'a> {
    /// The records.
    pub shuffle: &'a Shuffle,
    /// Their order, and the memory of a sort, bytes. Its input is the program.
    pub request: &'a SortRequest,
    /// Where partitions begin.
    pub bounds: &'a Bounds,
    /// Maximum length of a record, bytes. Blocks on their way to the sort take about four times as much, besides the
    /// memory of the sort.
    pub longest: usize,
    /// Observer of the sort.
    pub observer: &'a dyn Observer,
    /// Stops it.
    pub cancel: &'a Cancel,
}

impl SpillChunks<'_> {
    /// Sorts a chunk to the new view `view`. Returns the report and the bytes of each partition.
    ///
    /// # Errors
    /// Those of reading the chunk, and of making a view.
    pub fn spill(&self, span: &ChunkSpan, view: &Path) -> Result<(Report, Vec<u64>)> {
        let (send, receive) = bounded(1);
        // Set if the sort ends before the chunk does.
        let unread = Cancel::new();
        let mut sizes = vec![0; self.bounds.partitions()];
        let counted = &mut sizes;
        let report = threads::scope(|scope| {
            let reader = scope.spawn("chunk", || {
                let read =
                    read_chunk(self.shuffle, span, BLOCK_BYTES, self.longest, &unread, |bytes, offset| {
                        let mut block = bytes.to_vec();
                        self.count(&mut block, span.position + (offset - span.start), counted);
                        if send.send(Some(block)).is_err() {
                            unread.cancel();
                        }
                    });
                if read.is_ok() {
                    // A sort that has ended needs no end.
                    let _ = send.send(None);
                }
                drop(send);
                read
            })?;
            let source = Blocks {
                blocks: receive,
                block: Vec::new(),
                done: 0,
                ended: false,
                stop: self.cancel.clone(),
            };
            let program = ProgramStreams::new([Box::new(source) as Box<dyn ByteSource>], None);
            let options = RunOptions { program, ..RunOptions::default() };
            let made = jobs::sort::make_view(self.request, view, &options, self.observer, self.cancel);
            drop(options);
            match reader.join()? {
                // The sort only says that its input failed.
                Err(error) if !unread.is_cancelled() => Err(error),
                _ => made,
            }
        })?;
        Ok((report, sizes))
    }

    /// Adds the bytes of records, the first of which is at `position` of the inputs, to those of their partitions.
    fn count(&self, block: &mut [u8], position: u64, sizes: &mut [u64]) {
        with_records!(&self.shuffle.records, records => {
            records.normalise(block);
            records.each_key(block, &mut |range, key| {
                let at = position + range.start as u64;
                sizes[self.bounds.partition(&**records, &block[range.clone()], key, at)] += range.len() as u64;
            });
            records.finish(block);
        });
    }
}

/// The blocks of a chunk, as another thread reads them.
struct Blocks {
    /// None: the end of the chunk. Without it the reading has failed.
    blocks: Receiver<Option<Vec<u8>>>,
    block: Vec<u8>,
    /// Bytes of the block that were passed on.
    done: usize,
    ended: bool,
    stop: Cancel,
}

impl ByteSource for Blocks {
    fn fill(&mut self, out: &mut [u8]) -> Option<usize> {
        let mut filled = 0;
        while filled < out.len() && !self.ended {
            let rest = &self.block[self.done..];
            if rest.is_empty() {
                let mut look = || self.stop.check();
                let next =
                    receive_looking(&self.blocks, "blocks of a chunk", Need::WORK, BETWEEN_LOOKS, &mut look);
                match next.ok()?? {
                    Some(block) => (self.block, self.done) = (block, 0),
                    None => self.ended = true,
                }
                continue;
            }
            let count = rest.len().min(out.len() - filled);
            out[filled..filled + count].copy_from_slice(&rest[..count]);
            self.done += count;
            filled += count;
        }
        Some(filled)
    }
}

/// Stores the bytes of each partition beside the view of a chunk, durably. Returns the check of the chunk.
///
/// # Errors
/// Those of the file system.
pub fn seal_chunk(view: &Path, sizes: &[u64]) -> Result<u32> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((sizes.len() as u32).to_le_bytes());
    bytes.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
    bytes.extend(crc32c(&[&bytes]).to_le_bytes());
    let path = view.join(SIZES);
    let mut file = File::create(&path).during(Action::Create, &path)?;
    file.write_all(&bytes).during(Action::Write, &path)?;
    file.sync_all().during(Action::Sync, &path)?;
    Disk::default().sync_dir(view)?;
    Ok(crc32c(&[&bytes, &manifest(view)?]))
}

fn manifest(view: &Path) -> Result<Vec<u8>, IoError> {
    let path = view.join(VIEW_MANIFEST);
    std::fs::read(&path).during(Action::Read, &path)
}

/// The bytes of each partition in the chunk of the view `view`, whose check is `check`.
///
/// # Errors
/// [`IoError::Corrupt`] if they or the manifest are not those that were written; those of the file system.
pub(super) fn partition_sizes(view: &Path, check: u32) -> Result<Vec<u64>> {
    let path = view.join(SIZES);
    let bytes = std::fs::read(&path).during(Action::Read, &path)?;
    let own = parsed(&bytes).filter(|_| manifest(view).is_ok_and(|text| crc32c(&[&bytes, &text]) == check));
    let what = "this chunk is not the one that was written";
    own.ok_or_else(|| IoError::Corrupt { path, offset: 0, block: 0, what }.into())
}

fn parsed(bytes: &[u8]) -> Option<Vec<u64>> {
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    let mut entries = Entries(body);
    let is_ours = entries.take(MAGIC.len())? == MAGIC && entries.u32()? == VERSION;
    let count = entries.u32()? as usize;
    if !is_ours || crc32c(&[body]).to_le_bytes() != *sum || entries.0.len() != count.checked_mul(8)? {
        return None;
    }
    Some(std::iter::from_fn(|| entries.u64()).collect())
}

/// Makes the new view `view` of the views of chunks, in this order, with a header if it is not empty. No record is read
/// or written: the view refers to the chunks, which are in directories beside it or in those, and may be moved together
/// with it. Returns its records.
///
/// # Errors
/// [`IoError::Corrupt`] if a chunk is not the one that was written; those of joining views.
pub fn join_chunks(
    chunks: &[(PathBuf, u32)],
    view: &Path,
    header: &[u8],
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<RecordSum> {
    for (dir, check) in chunks {
        partition_sizes(dir, *check)?;
    }
    let views: Vec<PathBuf> = chunks.iter().map(|(dir, _)| dir.clone()).collect();
    let mut manifest = join_parts(&views, None, view, observer, cancel)?;
    let beside = directory_of(view);
    let beside = beside.canonicalize().during(Action::Inspect, beside)?;
    for member in &mut manifest.members {
        if let Ok(inside) = member.path.strip_prefix(&beside) {
            member.path = Path::new("..").join(inside);
        }
    }
    if !header.is_empty() {
        manifest.header = Some(to_hex(header));
        manifest.request.header = true;
    }
    let disk = Disk::default();
    disk.remove_file(&view.join(VIEW_MANIFEST))?;
    manifest.store(&disk, view)?;
    Ok(manifest.sum)
}

#[cfg(test)]
mod tests {
    use super::super::SpilledChunks;
    use super::super::bounds::{self, SortPosition};
    use super::*;
    use crate::api::SortError;
    use crate::api::observe::Silent;
    use crate::api::{Input, Keys, Output};
    use crate::view::OpenView;
    use ascot_record::keys::parse_ranges;
    use ascot_record::layout::Layout;

    const MEMORY: u64 = 16 << 20;

    /// Records of one byte of key and seven of a number; the key "k" is frequent.
    fn records(count: u32) -> Vec<u8> {
        let key = |number: u32| if number.is_multiple_of(3) { b'a' + (number * 7 % 26) as u8 } else { b'k' };
        (0..count).flat_map(|number| format!("{}{number:07}", char::from(key(number))).into_bytes()).collect()
    }

    fn request() -> SortRequest {
        let keys = Keys::Ranges(parse_ranges("0..1").expect("a key"));
        SortRequest {
            memory_bytes: Some(MEMORY),
            ..SortRequest::new(vec![Input::Program], Output::Stdout, Layout::Fixed { len: 8 }, keys)
        }
    }

    /// The chunks of a file with these records, each with its check.
    fn spilled(
        dir: &Path,
        content: &[u8],
        chunk_bytes: usize,
        places: &[SortPosition],
    ) -> Vec<(PathBuf, u32)> {
        std::fs::write(dir.join("in"), content).expect("a disk");
        let request = request();
        let shuffle = Shuffle::new(&request).expect("records");
        let bounds = Bounds::decode(&bounds::encode(places)).expect("bounds");
        let (observer, cancel) = (&Silent, &Cancel::new());
        let job = SpillChunks {
            shuffle: &shuffle,
            request: &request,
            bounds: &bounds,
            longest: 8,
            observer,
            cancel,
        };
        let size = content.len() as u64;
        let starts = (0..content.len()).step_by(chunk_bytes);
        let spill = |start: usize| {
            let view = dir.join(format!("chunk-{start:08}"));
            let (start, end) = (start as u64, (start + chunk_bytes).min(content.len()) as u64);
            let span = ChunkSpan { path: dir.join("in"), start, end, records_at: 0, size, position: start };
            let (report, sizes) = job.spill(&span, &view).expect("spilled");
            assert_eq!(report.records_in * 8, end - start);
            let check = seal_chunk(&view, &sizes).expect("sealed");
            (view, check)
        };
        starts.map(spill).collect()
    }

    fn places() -> Vec<SortPosition> {
        let place = |key: u8, position| SortPosition { key: vec![key], record: None, position };
        // The frequent key has two partitions.
        vec![place(b'e', 0), place(b'k', 1_000_000), place(b'q', 0)]
    }

    fn sorted(content: &[u8]) -> Vec<u8> {
        let mut records: Vec<&[u8]> = content.chunks(8).collect();
        records.sort_by_key(|record| record[0]);
        records.concat()
    }

    #[test]
    fn partitions_of_chunks_one_after_another_are_the_sort_of_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let content = records(300_000);
        let chunks = spilled(dir.path(), &content, 800_000, &places());
        let opened = SpilledChunks::open(&chunks, MEMORY, 2).expect("opened");
        let mut found = Vec::new();
        for partition in 0..4 {
            // Two readers of a partition take turns, and one of them asks for everything twice.
            let mut own = Vec::new();
            while own.len() < opened.bytes_of(partition) as usize {
                let read = |len| opened.read(partition, own.len() as u64, len).expect("read");
                let bytes = read(100_000);
                assert_eq!(read(100_000), bytes);
                own.extend(bytes);
            }
            assert!(!own.is_empty() && opened.read(partition, own.len() as u64, 9).expect("read").is_empty());
            found.extend(own);
        }
        assert!(found == sorted(&content));
    }

    #[test]
    fn a_changed_byte_is_found_wherever_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let chunks = spilled(dir.path(), &records(20_000), 1 << 20, &places());
        let all = |chunks: &[(PathBuf, u32)]| -> Result<(), SortError> {
            let opened = SpilledChunks::open(chunks, MEMORY, 1)?;
            (0..4).try_for_each(|partition| opened.read(partition, 0, 1 << 20).map(drop))
        };
        all(&chunks).expect("whole");
        for file in std::fs::read_dir(&chunks[0].0).expect("a directory") {
            let path = file.expect("a file").path();
            let whole = std::fs::read(&path).expect("a file");
            std::fs::write(&path, vec![0; whole.len()]).expect("a disk");
            let error = all(&chunks).expect_err("zeros").to_string();
            assert!(error.contains("chunk-00000000"), "{error}");
            std::fs::write(&path, &whole).expect("a disk");
        }
        let other: Vec<_> = chunks.iter().map(|(dir, check)| (dir.clone(), check ^ 1)).collect();
        assert!(all(&other).is_err(), "another chunk");
    }

    #[test]
    fn chunks_are_one_view_that_moves_with_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let (before, after) = (dir.path().join("before"), dir.path().join("after"));
        std::fs::create_dir(&before).expect("a directory");
        let content = records(50_000);
        let chunks = spilled(&before, &content, 100_000, &places());
        let sum = join_chunks(&chunks, &before.join("part"), &[], &Silent, &Cancel::new()).expect("joined");
        assert_eq!(sum.count, 50_000);
        std::fs::rename(&before, &after).expect("moved");
        let view = OpenView { memory_bytes: Some(MEMORY), ..OpenView::default() };
        let view = view.open(&after.join("part")).expect("opened");
        assert!(view.read_at(0, content.len()).expect("read") == sorted(&content));
    }
}
