//! An open view, read like one file: its size, any of its bytes, and streams; and keys as a user writes them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ascot_io::sync::Unpoisoned;
use ascot_io::{Buf, Disk, Ledger, Pool, directory_of, threads};
use ascot_model::plan::{Moved, PassPlan};
use ascot_model::stages;
use ascot_record::checksum::RecordSum;
use ascot_record::hex::from_hex;
use ascot_record::layout::{Endian, Layout, NumberFormat, NumberType};

use crate::api::{Cancel, Keys, Result, SortError, SortRequest, Volumes};
use crate::merge::EmitThreads;
use crate::plan::{MIN_MEMORY_BYTES, RunOptions, default_memory, host_of, too_little, view_disk};
use crate::records::{AnyRecords, Records, Rules, Task, with_records};
use crate::resources::{Lease, Turns, descriptors};
use crate::runs::{RunKeys, RunStart};
use crate::view::kept::{Batch, IndexAndKeys};
use crate::view::load::{Loader, Measure, ViewRun};
use crate::view::manifest::{Member, ViewManifest};
use crate::view::selection::Selection;
use crate::view::stream::{Reading, Stream, StreamPlan, ViewRange};

/// A view as a file: the header, then the records of all runs, merged.
pub trait View: Send + Sync {
    /// Bytes of the file.
    fn bytes(&self) -> u64;
    /// Bytes before the first record.
    fn header_bytes(&self) -> u64;
    /// Name of the file.
    fn name(&self) -> &str;
    /// Offset of record `record`, bytes; the end of the file if there are fewer records.
    fn offset_of_record(&self, record: u64) -> Result<u64>;
    /// The normalised key for a user's text: hexadecimal after 0x, the text itself, or a number.
    fn key(&self, text: &str) -> Result<Vec<u8>>;
    /// Offset of the first record with at least this normalised key, bytes.
    fn offset_of_key(&self, key: &[u8]) -> Result<u64>;
    /// Number of blocks of each run that finding the byte at `offset` reads.
    fn seek_cost(&self, offset: u64) -> Result<Vec<u64>>;
    /// At most `len` bytes from `offset` on, fewer at the end: for short random reads.
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// The bytes from `from` to `to` in sequence, merged ahead.
    fn stream(&self, from: u64, to: u64, reading: Reading) -> Result<Stream>;
    /// Whether reading and writing `output` take turns: both are on one volume, whose switches cost much.
    fn takes_turns_with(&self, output: &Path) -> bool;
    /// The prediction of reading `bytes` bytes, and of writing them to a file on its volume, if any, in blocks of
    /// `output_block` bytes.
    fn predicted(&self, bytes: u64, output_block: Option<u64>, reading: &StreamPlan) -> PassPlan;
    /// How [`stream`](Self::stream) would read the bytes from `from` to `to`. It reads no block, so that the blocks
    /// with which a part begins and ends are estimates.
    fn plan_stream(&self, from: u64, to: u64, reading: Reading) -> Result<StreamPlan>;
    /// An estimate of [`offset_of_record`](Self::offset_of_record) that reads no block.
    fn about_offset_of_record(&self, record: u64) -> u64;
    /// An estimate of [`offset_of_key`](Self::offset_of_key) that reads no block.
    fn about_offset_of_key(&self, key: &[u8]) -> u64;
    /// The request by which it was made, with the volumes by which it is read.
    fn request(&self) -> &SortRequest;
    /// Number of threads that merge for one reader.
    fn threads(&self) -> usize;
    /// Sum of all records, whatever their order.
    fn sum(&self) -> RecordSum;
    /// The pool of all its memory.
    fn pool(&self) -> &Pool;
    /// Number of its runs.
    fn runs(&self) -> u64;
    /// The I/O that reading it has caused.
    fn ledger(&self) -> &Ledger;
}

/// Options for opening a view.
#[derive(Clone, Debug, Default)]
pub struct OpenView {
    /// Maximum memory for it and all its readers, bytes; none: a share of the machine's memory.
    pub memory_bytes: Option<u64>,
    /// Threads that merge for one reader; none: one per core.
    pub threads: Option<usize>,
    /// How its files are read.
    pub options: RunOptions,
    /// The volume of the view, as far as it is known; none: the one on which it was made. A volume that the user
    /// described when making the view stays, unless the user describes another one now.
    pub volumes: Option<Volumes>,
}

impl OpenView {
    /// Opens the view `dir`, and verifies every run against the view's manifest.
    pub fn open(&self, dir: &Path) -> Result<Arc<dyn View>> {
        self.open_manifest(ViewManifest::load(dir)?, dir)
    }

    /// Opens the view that `manifest` describes; `dir` is its directory, or a name for messages.
    pub fn open_manifest(&self, mut manifest: ViewManifest, dir: &Path) -> Result<Arc<dyn View>> {
        let memory = self.memory_bytes.unwrap_or_else(default_memory);
        if memory < MIN_MEMORY_BYTES {
            return Err(too_little(memory, MIN_MEMORY_BYTES));
        }
        let bad = || SortError::view(dir, ErrorKind::InvalidData, "its manifest has no valid header");
        let head = manifest.head().ok_or_else(bad)?;
        let replaces = |found: &&Volumes| found.are_given() || !manifest.request.volumes.are_given();
        if let Some(volumes) = self.volumes.as_ref().filter(replaces) {
            manifest.request.volumes = volumes.clone();
        }
        let pool = Pool::new(usize::try_from(memory).unwrap_or(usize::MAX));
        let records = AnyRecords::new(&manifest.request, &head)?;
        let header = head.header.unwrap_or_default();
        with_records!(records, records => self.open_records(records, manifest, header, dir, pool))
    }

    fn open_records<R: Records>(
        &self,
        records: Arc<R>,
        manifest: ViewManifest,
        header: Vec<u8>,
        dir: &Path,
        pool: Pool,
    ) -> Result<Arc<dyn View>> {
        let disk = view_disk(&self.options);
        let ViewManifest { name, request, sum, members, .. } = manifest;
        let stay_open = members.len() + OTHER_DESCRIPTORS <= descriptors();
        let open = |batch: &Batch<'_>, member: &Member| {
            let IndexAndKeys { index, keys, .. } = batch.of(member, &disk, dir)?;
            let run = member.open(dir, &index)?;
            let keys = RunKeys::read(&*records, &pool, &member.keys_path(dir), &keys, run.number)?;
            let end = keys.unit(usize::MAX);
            if (end.bytes, end.records, end.block) != (member.bytes, member.records, index.blocks.len())
                || index.bytes != member.bytes
            {
                let why = "this run does not match the view's record of it\n  make the view again";
                return Err(SortError::view(run.path, ErrorKind::InvalidData, why));
            }
            Ok(ViewRun::new(run, index, keys, stay_open))
        };
        let mut runs = Vec::with_capacity(members.len());
        while let Some(batch) = Batch::first_of(&members[runs.len()..], &disk, dir)? {
            runs.extend(open_all(batch.members, &|member| open(&batch, member))?);
        }
        let bytes = runs.iter().map(|run| run.run.bytes).sum();
        let count: u64 = runs.iter().map(|run| run.run.records).sum();
        if (bytes, count) != (sum.bytes, sum.count) {
            let why = "the numbers of records of its runs do not add up\n  make the view again";
            return Err(SortError::view(dir, ErrorKind::InvalidData, why));
        }
        let few = EmitThreads::start(&records, &pool, 1, FEW_BLOCKS, FEW_BLOCK_BYTES)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Arc::new(Opened {
            records,
            request: Arc::new(request),
            disk,
            pool,
            runs: Arc::new(runs),
            header,
            name,
            bytes,
            sum,
            threads: self.threads.unwrap_or(cores).max(1),
            few: Mutex::new(few),
            cancel: Cancel::new(),
        }))
    }
}

/// Number of threads that open runs.
const OPENED_AT_ONCE: usize = 8;
/// Descriptors reserved for other uses if runs stay open.
const OTHER_DESCRIPTORS: usize = 64;

/// Opens the runs of a view, several at a time: each takes a few small reads that wait for the device.
fn open_all(members: &[Member], open: &(dyn Fn(&Member) -> Result<ViewRun> + Sync)) -> Result<Vec<ViewRun>> {
    let share = members.len().div_ceil(OPENED_AT_ONCE).max(1);
    let open_some = |members: &[Member]| members.iter().map(open).collect::<Vec<_>>();
    threads::scope(|scope| {
        let start = |members| (members, scope.spawn(stages::READ, move || open_some(members)));
        let started: Vec<_> = members.chunks(share).map(start).collect();
        let mut runs = Vec::with_capacity(members.len());
        for (members, thread) in started {
            let opened = match thread {
                Ok(thread) => thread.join()?,
                Err(_refused) => open_some(members),
            };
            for run in opened {
                runs.push(run?);
            }
        }
        Ok(runs)
    })
}

/// Memory of the merge of a few bytes: number and size of its blocks.
const FEW_BLOCKS: usize = 4;
const FEW_BLOCK_BYTES: usize = 32 << 10;

struct Opened<R: Records> {
    records: Arc<R>,
    request: Arc<SortRequest>,
    disk: Disk,
    pool: Pool,
    runs: Arc<Vec<ViewRun>>,
    header: Vec<u8>,
    name: String,
    /// Bytes of records.
    bytes: u64,
    sum: RecordSum,
    threads: usize,
    /// Merges a few bytes at a time; callers take turns.
    few: Mutex<EmitThreads>,
    cancel: Cancel,
}

impl<R: Records> Opened<R> {
    fn loader(&self) -> Loader<'_, R> {
        Loader::new(&self.records, &self.disk, &self.pool, &self.runs)
    }

    /// Bytes of records before a position.
    fn bytes_before(&self, starts: &[RunStart]) -> u64 {
        let before = |(run, start): (&ViewRun, &RunStart)| {
            let unit = run.keys.unit(run.keys.unit_of(start.block));
            // The unit of a block begins at it or before, and its run has all blocks up to a start.
            let blocks = &run.index.blocks[unit.block..start.block];
            unit.bytes
                + blocks.iter().map(|block| u64::from(block.raw)).sum::<u64>()
                + u64::from(start.offset)
        };
        self.runs.iter().zip(starts).map(before).sum()
    }

    /// Bytes of records before one unit of each run.
    fn bytes_before_units(&self, units: impl Iterator<Item = usize>) -> u64 {
        self.runs.iter().zip(units).map(|(run, unit)| run.keys.unit(unit).bytes).sum()
    }

    /// At most `len` bytes of records from `from` on, merged in memory.
    fn merge_few(&self, from: u64, len: usize) -> Result<Vec<u8>> {
        let to = (from + len as u64).min(self.bytes);
        if from >= to {
            return Ok(Vec::new());
        }
        let mut loader = self.loader();
        let records = &*self.records;
        let loaded = loader.load_windows(&[from, to.min(self.bytes - 1)], Measure::Bytes)?;
        let first = loader.select_in_memory(&loaded, None, from, Measure::Bytes);
        let mut last = loader.select_in_memory(&loaded, Some(&first), to, Measure::Bytes);
        if last.beyond > 0 {
            // Include the record that contains the last byte.
            let at = last.starts[last.next];
            let window = &loaded[last.next];
            last.starts[last.next] = window.go_on(records, at, 1, Measure::Records).0;
        }
        let sources = (0..loaded.len()).map(|run| loaded[run].between(first.starts[run], last.starts[run]));
        let sources: Vec<_> = sources.filter(|source| !source.is_empty()).collect();
        let task = Task { sources, previous: None, last: false, limit: u64::MAX };
        let mut bytes = Vec::with_capacity(len + first.beyond as usize);
        let few = self.few.lock().unpoisoned();
        few.run(vec![task], Rules::default(), &self.cancel, &mut |block| {
            bytes.extend_from_slice(&block.buf[..block.len]);
            Ok(())
        })?;
        records.finish(&mut bytes);
        bytes.drain(..(first.beyond as usize).min(bytes.len()));
        bytes.truncate((to - from) as usize);
        Ok(bytes)
    }

    /// The block of each run at which reading ends for the records before `to`.
    fn end_blocks(&self, to: u64) -> Result<Vec<usize>> {
        if to >= self.bytes {
            return Ok(self.runs.iter().map(|run| run.index.blocks.len()).collect());
        }
        let Selection { starts, beyond, next } = self.loader().select(to, Measure::Bytes)?;
        let end = |(number, start): (usize, &RunStart)| {
            let keys = &self.runs[number].keys;
            let unit = keys.unit_of(start.block);
            let inside =
                start.offset > 0 || start.block > keys.unit(unit).block || (number == next && beyond > 0);
            if inside { keys.unit(unit + 1).block } else { start.block }
        };
        Ok(starts.iter().enumerate().map(end).collect())
    }
}

impl<R: Records> View for Opened<R> {
    fn bytes(&self) -> u64 {
        self.header_bytes() + self.bytes
    }

    fn header_bytes(&self) -> u64 {
        self.header.len() as u64
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn offset_of_record(&self, record: u64) -> Result<u64> {
        let bytes = match self.records.record_bytes() {
            _ if record >= self.sum.count => self.bytes,
            Some(len) => record * len as u64,
            None => self.bytes_before(&self.loader().select(record, Measure::Records)?.starts),
        };
        Ok(self.header_bytes() + bytes)
    }

    fn key(&self, text: &str) -> Result<Vec<u8>> {
        let mut record = record_with_key(&self.request, text)?;
        self.records.normalise(&mut record);
        let mut buf = Buf::heap(record.len());
        buf[..record.len()].copy_from_slice(&record);
        let sorted = self.records.index(Lease::plain(buf), 0..record.len());
        let whole = self.records.whole(Arc::new(sorted));
        Ok(self.records.key_of(&self.records.first(&whole)))
    }

    fn offset_of_key(&self, key: &[u8]) -> Result<u64> {
        Ok(self.header_bytes() + self.bytes_before(&self.loader().select_key(key)?.starts))
    }

    fn seek_cost(&self, offset: u64) -> Result<Vec<u64>> {
        let mut loader = self.loader();
        loader.select(offset.saturating_sub(self.header_bytes()), Measure::Bytes)?;
        Ok(loader.blocks_read)
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let header = self.header.get(offset as usize..).unwrap_or_default();
        let mut bytes = header[..header.len().min(len)].to_vec();
        let from = (offset + bytes.len() as u64).saturating_sub(self.header_bytes());
        if bytes.len() < len {
            bytes.extend(self.merge_few(from, len - bytes.len())?);
        }
        Ok(bytes)
    }

    fn stream(&self, from: u64, to: u64, reading: Reading) -> Result<Stream> {
        let from = from.min(self.bytes());
        let to = to.min(self.bytes());
        let header_end = to.min(self.header_bytes());
        let front = self.header.get(from as usize..header_end as usize).unwrap_or_default().to_vec();
        let first = from.max(self.header_bytes()) - self.header_bytes();
        let last = to.max(self.header_bytes()) - self.header_bytes();
        if first >= last {
            return Ok(Stream::from_bytes(front));
        }
        let selected = self.loader().select(first, Measure::Bytes)?;
        let part = ViewRange {
            request: Arc::clone(&self.request),
            runs: Arc::clone(&self.runs),
            ends: self.end_blocks(last)?,
            starts: selected.starts,
            skip: selected.beyond,
            bytes: last - first,
            reading,
        };
        Stream::start(front, &self.records, &self.disk, &self.pool, part, self.threads)
    }

    fn takes_turns_with(&self, output: &Path) -> bool {
        let runs: Vec<PathBuf> = self.runs.iter().map(|run| run.run.path.clone()).collect();
        let dir = directory_of(output).to_path_buf();
        Turns::between(self.request.volumes.volume.as_ref(), &runs, &[dir]).is_some()
    }

    fn predicted(&self, bytes: u64, output_block: Option<u64>, reading: &StreamPlan) -> PassPlan {
        let record_bytes = self.bytes as f64 / self.sum.count.max(1) as f64;
        let host = host_of(&self.request, record_bytes, self.threads).within(self.pool.budget() as u64);
        let blocks: u64 = self.runs.iter().map(|run| run.index.blocks.len() as u64).sum();
        let block = (self.bytes / blocks.max(1)).max(1);
        let written_bytes = if output_block.is_some() { bytes } else { 0 };
        let writes = output_block.map_or(0, |block| written_bytes.div_ceil(block.max(1)));
        let requests = bytes.div_ceil(block) + writes;
        let inputs = self.runs.len() as u64;
        let outputs = u64::from(output_block.is_some());
        let switches = reading.long_run_switches(written_bytes).unwrap_or(inputs);
        let moved = Moved {
            read_bytes: bytes,
            written_bytes,
            inputs,
            outputs,
            switches,
            requests,
            ..Moved::default()
        };
        PassPlan::new(
            "read",
            moved,
            &[(bytes, host.rates.merge_runs_bytes_per_s)],
            &self.request.volumes.profile(),
            &host,
        )
        .reading_view()
    }

    fn plan_stream(&self, from: u64, to: u64, reading: Reading) -> Result<StreamPlan> {
        let of_records = |offset: u64| offset.saturating_sub(self.header_bytes()).min(self.bytes);
        let first = of_records(from);
        let last = of_records(to);
        let starts = self.loader().units_near(first, Measure::Bytes).into_iter().map(|units| units.start);
        let ends = self.loader().units_near(last, Measure::Bytes).into_iter().map(|units| units.end);
        let block = |(run, unit): (&ViewRun, usize)| run.keys.unit(unit).block;
        let start = |block| RunStart { block, offset: 0 };
        let part = ViewRange {
            request: Arc::clone(&self.request),
            runs: Arc::clone(&self.runs),
            starts: self.runs.iter().zip(starts).map(block).map(start).collect(),
            ends: self.runs.iter().zip(ends).map(block).collect(),
            skip: 0,
            bytes: last.saturating_sub(first),
            reading,
        };
        if part.bytes == 0 { Ok(StreamPlan::default()) } else { part.plan(&self.pool, self.threads) }
    }

    fn about_offset_of_record(&self, record: u64) -> u64 {
        if let Some(len) = self.records.record_bytes() {
            return self.header_bytes() + record.min(self.sum.count) * len as u64;
        }
        let units = self.loader().units_near(record, Measure::Records).into_iter().map(|units| units.start);
        self.header_bytes() + self.bytes_before_units(units)
    }

    fn about_offset_of_key(&self, key: &[u8]) -> u64 {
        let units = self.runs.iter().map(|run| run.keys.unit_for_key(&*self.records, key));
        self.header_bytes() + self.bytes_before_units(units)
    }

    fn request(&self) -> &SortRequest {
        &self.request
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn sum(&self) -> RecordSum {
        self.sum
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn runs(&self) -> u64 {
        self.runs.len() as u64
    }

    fn ledger(&self) -> &Ledger {
        self.disk.ledger()
    }
}

/// A record with the key that a user wrote, in the layout of the input: hexadecimal digits after 0x, or the text
/// itself; a number as a number.
pub fn record_with_key(request: &SortRequest, text: &str) -> Result<Vec<u8>> {
    let bytes = match text.strip_prefix("0x").map(from_hex) {
        Some(Some(bytes)) if !matches!(request.layout, Layout::Number(_)) => bytes,
        Some(None) if !matches!(request.layout, Layout::Number(_)) => {
            return Err(SortError::Request(format!(
                "'{text}' is not a hexadecimal key\n  write two digits for each byte, as in 0x41ff"
            )));
        }
        _ => text.as_bytes().to_vec(),
    };
    match (request.layout, &request.keys) {
        (Layout::Lines { delimiter }, Keys::Command(options)) if options.keys.is_empty() => {
            Ok([&bytes[..], &[delimiter]].concat())
        }
        (Layout::Fixed { len }, Keys::Ranges(ranges)) if ranges.len() <= 1 => {
            let start = ranges.first().map_or(0, |range| range.start);
            let end = ranges.first().map_or(len, |range| range.end.min(len));
            too_long(text, bytes.len(), end.saturating_sub(start))?;
            let mut record = vec![0; len];
            record[start..start + bytes.len()].copy_from_slice(&bytes);
            Ok(record)
        }
        (Layout::Prefixed { width, endian, keyed }, Keys::Ranges(ranges)) if ranges.len() <= 1 => {
            let start = ranges.first().map_or(0, |range| range.start);
            let end = ranges.first().map(|range| range.end).filter(|&end| end != usize::MAX);
            too_long(text, bytes.len(), end.map_or(usize::MAX, |end| end - start))?;
            let mut body = vec![0; start];
            body.extend_from_slice(&bytes);
            body.resize(body.len().max(end.unwrap_or(0)), 0);
            let length = |len: usize| {
                let mut digits = (len as u64).to_le_bytes()[..usize::from(width)].to_vec();
                if endian == Endian::Big {
                    digits.reverse();
                }
                digits
            };
            if keyed {
                body.splice(0..0, length(body.len()));
            }
            Ok([length(body.len()), body].concat())
        }
        (Layout::Number(format), _) => number_bytes(format, text).ok_or_else(|| {
            SortError::Request(format!(
                "'{text}' is not a number of the view's format, {}\n  write it in decimal digits",
                request.layout
            ))
        }),
        _ => Err(SortError::Request(
            "ranges of keys are possible for numbers, for lines ordered as a whole, and for keys of one byte \
             range\n  ask for records or bytes instead: --at-record N, --range A..B"
                .into(),
        )),
    }
}

/// A number in the representation of the input.
fn number_bytes(format: NumberFormat, text: &str) -> Option<Vec<u8>> {
    let mut bytes = match (format.kind, text.strip_prefix("0x")) {
        (NumberType::U32, Some(digits)) => u32::from_str_radix(digits, 16).ok()?.to_le_bytes().to_vec(),
        (NumberType::U64, Some(digits)) => u64::from_str_radix(digits, 16).ok()?.to_le_bytes().to_vec(),
        (NumberType::U32, None) => text.parse::<u32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::U64, None) => text.parse::<u64>().ok()?.to_le_bytes().to_vec(),
        (NumberType::I32, _) => text.parse::<i32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::I64, _) => text.parse::<i64>().ok()?.to_le_bytes().to_vec(),
        (NumberType::F32, _) => text.parse::<f32>().ok()?.to_le_bytes().to_vec(),
        (NumberType::F64, _) => text.parse::<f64>().ok()?.to_le_bytes().to_vec(),
    };
    if format.endian == Endian::Big {
        bytes.reverse();
    }
    Some(bytes)
}

fn too_long(text: &str, have: usize, max_bytes: usize) -> Result<()> {
    if have <= max_bytes {
        return Ok(());
    }
    Err(SortError::Request(format!(
        "the key '{text}' has {have} bytes, but keys of the view have {max_bytes}\n  give a shorter key"
    )))
}
