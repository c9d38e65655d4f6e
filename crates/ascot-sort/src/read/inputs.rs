//! A job's inputs: files that can be read again from any offset, and pipes that cannot.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ascot_io::sync::Unpoisoned;
use ascot_io::{Action, Disk, During, IoError, Pool, ReadStream, RunId, RunIndex, read_index};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::part_stream::PartStream;
use crate::api::{FileRange, Input, Result, SortError};

/// All inputs of a job, in order.
#[derive(Clone)]
pub struct Inputs {
    files: Arc<Vec<InputFile>>,
}

/// One input. Offsets in it are counted from its first byte, which need not be that of its file.
pub struct InputFile {
    source: Source,
    /// Size in bytes, if known.
    pub size: Option<u64>,
    /// Offset of its records, after a header.
    pub start: u64,
    /// Whether its rows end in CR LF, not in LF alone. Known only for rows of CSV.
    crlf: bool,
}

/// Name of records that the program makes or takes, for messages.
pub const PROGRAM_RECORDS: &str = "the records of the program";

/// Maximum length of the completion of a last record without its terminator.
pub const COMPLETION_BYTES: usize = 2;

enum Source {
    Regular(PathBuf),
    /// A range of a regular file.
    Range(FileRange),
    /// Opened once; the bytes read ahead of time come first.
    Pipe {
        name: PathBuf,
        rest: Mutex<Option<Pipe>>,
    },
    /// The program makes the records. They are opened once, and not peeked at.
    Program {
        /// Its number among the inputs that the program makes.
        number: usize,
        name: PathBuf,
    },
    /// A part of a partitioned write.
    Part {
        path: PathBuf,
        number: u64,
        /// Read from the file if none.
        index: Option<Arc<RunIndex>>,
        pool: Pool,
    },
    Merged(Arc<dyn MergedInput>),
}

/// An input whose bytes come from a merge, and can be read again from any offset on.
pub trait MergedInput: Send + Sync {
    /// Its name for messages.
    fn path(&self) -> &Path;
    /// Its bytes.
    fn bytes(&self) -> u64;
    /// Bytes of the header before its records.
    fn header_bytes(&self) -> u64;
    /// Its first `bytes` bytes, or fewer at its end.
    fn peek(&self, bytes: usize) -> Result<Vec<u8>>;
    /// The bytes from `offset` on.
    fn open(&self, offset: u64) -> Result<Box<dyn ReadStream>>;
}

struct Pipe {
    file: File,
    peeked: Vec<u8>,
}

/// Identifies an input file as the one with which a job began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The file.
    pub path: PathBuf,
    /// Its size at that time, bytes.
    pub size: u64,
    modified_ns: i128,
    /// The checksum of its ends; none if they were not read.
    ends: Option<u64>,
}

/// A position between two records of the inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputPosition {
    /// Number of the input.
    pub input: usize,
    /// Offset in it, bytes.
    pub offset: u64,
    /// Records of the input before it, if they have been counted.
    #[serde(default)]
    pub record: u64,
}

/// Bytes of an input file, whole records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Number of the input.
    pub input: usize,
    /// Offset in it, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// Whether the last record lacks its terminator.
    pub unfinished: bool,
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|stat| stat.file_type().is_socket())
}

/// Bytes at each end of a file that a fingerprint covers.
const FINGERPRINT_BYTES: u64 = 64 << 10;

impl Inputs {
    /// Opens the inputs of a request. An empty list means standard input.
    pub fn open(inputs: &[Input]) -> Result<Inputs> {
        Ok(Inputs::from_files(inputs.iter().map(InputFile::open).collect::<Result<Vec<_>, _>>()?))
    }

    /// Inputs that were opened one by one. Those that the program makes are numbered in their order.
    pub fn from_files(mut files: Vec<InputFile>) -> Inputs {
        let inputs = files.len();
        let programs = files.iter_mut().enumerate().filter_map(|(at, file)| Some((at, file.program()?)));
        for (count, (at, (number, name))) in programs.enumerate() {
            *number = count;
            if inputs > 1 {
                *name = PathBuf::from(format!("{PROGRAM_RECORDS} in input {}", at + 1));
            }
        }
        Inputs { files: Arc::new(files) }
    }

    /// The same inputs, with each one's records starting after a header of the length that `header_bytes` returns.
    pub fn skip_headers(self, header_bytes: &dyn Fn(&[u8]) -> usize) -> Result<Inputs> {
        let mut files = Arc::try_unwrap(self.files).map_err(|_| SortError::Internal("inputs are in use"))?;
        for file in &mut files {
            let mut peek = 64 << 10;
            loop {
                let head = file.peek(peek)?;
                let header = header_bytes(&head);
                if header < head.len() || head.len() < peek {
                    file.start = header as u64;
                    break;
                }
                peek *= 4;
            }
        }
        Ok(Inputs { files: Arc::new(files) })
    }

    /// The same inputs with their row ends known; `end_of_row` finds the end of the first row of a head.
    pub fn with_row_ends(self, end_of_row: &dyn Fn(&[u8]) -> Option<usize>) -> Result<Inputs> {
        let mut files = Arc::try_unwrap(self.files).map_err(|_| SortError::Internal("inputs are in use"))?;
        for (number, file) in files.iter_mut().enumerate() {
            let looked_at = match file.size {
                // If the last row has its terminator, nothing has to be completed.
                Some(size) => size > 0 && file.sample(size - 1, 1)? != b"\n",
                // A pipe is peeked at, which may block, only if its head is needed anyway.
                None => number == 0 || file.start > 0,
            };
            if looked_at {
                let head = file.peek(64 << 10)?;
                file.crlf = end_of_row(&head).is_some_and(|end| head[..end].ends_with(b"\r\n"));
            }
        }
        Ok(Inputs { files: Arc::new(files) })
    }

    /// Input number `index`.
    pub fn get(&self, index: usize) -> Option<&InputFile> {
        self.files.get(index)
    }

    /// The paths of those that are files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.iter().filter_map(|input| input.path().map(Path::to_path_buf)).collect()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &InputFile> {
        self.files.iter()
    }

    /// Bytes of records in all inputs, if every input has a size.
    pub fn record_bytes(&self) -> Option<u64> {
        self.files.iter().map(|file| Some(file.size?.saturating_sub(file.start))).sum()
    }

    /// Bytes of records after `position`, if every input has a size.
    pub fn bytes_after(&self, position: InputPosition) -> Option<u64> {
        let left = self.files.iter().enumerate().skip(position.input).map(|(number, file)| {
            let offset = if number == position.input { position.offset.max(file.start) } else { file.start };
            Some(file.size?.saturating_sub(offset))
        });
        left.sum()
    }

    /// Whether all inputs can be read again.
    pub fn are_files(&self) -> bool {
        self.files.iter().all(|file| file.path().is_some())
    }

    /// Whether another process can open them again: they are files, and not under names that mean descriptors of this
    /// process.
    pub fn can_be_reopened(&self) -> bool {
        let own = ["/proc/self", "/dev/fd", "/dev/stdin"];
        let is_own = |path: &Path| own.iter().any(|name| path.starts_with(name));
        self.are_files() && !self.files.iter().filter_map(InputFile::path).any(is_own)
    }

    /// Fingerprints of the files, `with_ends` or without.
    pub fn fingerprints(&self, with_ends: bool) -> Result<Vec<Fingerprint>> {
        let paths = self.files.iter().filter_map(InputFile::path);
        paths.map(|path| Fingerprint::from_path(path, with_ends)).collect()
    }
}

impl InputFile {
    /// A part of a partitioned write: the run `number` at `path`, with `bytes` of records, read through buffers from
    /// `pool`.
    pub fn from_part(
        path: &Path,
        number: u64,
        index: Option<Arc<RunIndex>>,
        bytes: u64,
        pool: &Pool,
    ) -> InputFile {
        let source = Source::Part { path: path.to_path_buf(), number, index, pool: pool.clone() };
        InputFile { source, size: Some(bytes), start: 0, crlf: false }
    }

    /// An input that is merged as it is read.
    pub fn from_merged(input: Arc<dyn MergedInput>) -> InputFile {
        let size = Some(input.bytes());
        let start = input.header_bytes();
        InputFile { source: Source::Merged(input), size, start, crlf: false }
    }

    /// Opens the input of a request.
    pub fn open(input: &Input) -> Result<InputFile> {
        let (name, file) = match input {
            Input::Stdin => {
                let fd = std::io::stdin().as_fd().try_clone_to_owned();
                let name = PathBuf::from("standard input");
                let file = File::from(fd.during(Action::Open, &name)?);
                match path_of_whole(&file) {
                    Some(path) => (path, file),
                    None => return InputFile::pipe(name, file),
                }
            }
            Input::Program => {
                let source = Source::Program { number: 0, name: PROGRAM_RECORDS.into() };
                return Ok(InputFile { source, size: None, start: 0, crlf: false });
            }
            Input::Path(path) => match File::open(path) {
                Err(_) if is_socket(path) => {
                    let socket = UnixStream::connect(path).during(Action::Open, path)?;
                    return InputFile::pipe(path.clone(), File::from(OwnedFd::from(socket)));
                }
                opened => (path.clone(), opened.during(Action::Open, path)?),
            },
            Input::Range(range) => return InputFile::range(range),
        };
        let stat = file.metadata().during(Action::Open, &name)?;
        if stat.is_dir() {
            let error = std::io::Error::from_raw_os_error(libc::EISDIR);
            return Err(IoError::from_os(Action::Read, &name, 0, error).into());
        }
        if !stat.is_file() || is_made_as_read(&file, &stat) {
            return InputFile::pipe(name, file);
        }
        Ok(InputFile { source: Source::Regular(name), size: Some(stat.len()), start: 0, crlf: false })
    }

    fn range(range: &FileRange) -> Result<InputFile> {
        check_range(range)?;
        let size = Some(range.end - range.start);
        Ok(InputFile { source: Source::Range(range.clone()), size, start: 0, crlf: false })
    }

    fn pipe(name: PathBuf, file: File) -> Result<InputFile> {
        let rest = Mutex::new(Some(Pipe { file, peeked: Vec::new() }));
        Ok(InputFile { source: Source::Pipe { name, rest }, size: None, start: 0, crlf: false })
    }

    /// The completion of a last record of this input that lacks its terminator; none without a `delimiter`. If rows
    /// end in CR LF, it begins with a CR, unless that is the record's `last` byte already.
    pub fn completion(&self, delimiter: Option<u8>, last: Option<u8>) -> Option<Vec<u8>> {
        let cr = (self.crlf && last != Some(b'\r')).then_some(b'\r');
        delimiter.map(|delimiter| cr.into_iter().chain([delimiter]).collect())
    }

    /// Whether its rows are known to end in CR LF.
    pub fn ends_rows_with_crlf(&self) -> bool {
        self.crlf
    }

    /// Its name for messages.
    pub fn name(&self) -> String {
        match &self.source {
            Source::Range(range) => range.to_string(),
            _ => self.name_path().display().to_string(),
        }
    }

    /// Its number among the inputs that the program makes, and its name, if it is one of them.
    fn program(&mut self) -> Option<(&mut usize, &mut PathBuf)> {
        if let Source::Program { number, name } = &mut self.source { Some((number, name)) } else { None }
    }

    fn name_path(&self) -> &Path {
        match &self.source {
            Source::Regular(path) | Source::Range(FileRange { path, .. }) => path,
            Source::Pipe { name, .. } | Source::Program { name, .. } => name,
            Source::Part { path, .. } => path,
            Source::Merged(input) => input.path(),
        }
    }

    /// The path of its file, if it can be read again.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Regular(path) | Source::Range(FileRange { path, .. }) => Some(path),
            Source::Pipe { .. } | Source::Program { .. } | Source::Part { .. } | Source::Merged(_) => None,
        }
    }

    /// Its path, if it is a whole file that can be read again.
    pub fn whole_file(&self) -> Option<&Path> {
        if let Source::Regular(path) = &self.source { Some(path) } else { None }
    }

    /// The offset in its file of the byte at `offset` of the input.
    pub fn offset_in_file(&self, offset: u64) -> u64 {
        self.bytes_of_file(offset..offset).start
    }

    /// The bytes of its file that are these bytes of the input, as far as the input has them.
    fn bytes_of_file(&self, bytes: Range<u64>) -> Range<u64> {
        let Source::Range(FileRange { start, end, .. }) = &self.source else { return bytes };
        let at = |offset: u64| start.saturating_add(offset).min(*end);
        at(bytes.start)..at(bytes.end)
    }

    /// Its current size in bytes, if it is a file that others may append to; else 0.
    pub fn size_now(&self) -> u64 {
        self.whole_file().and_then(|path| std::fs::metadata(path).ok()).map_or(0, |stat| stat.len())
    }

    /// The first `bytes` bytes, or fewer at its end. A pipe returns them again when it is opened.
    pub fn peek(&self, bytes: usize) -> Result<Vec<u8>> {
        match &self.source {
            Source::Regular(path) | Source::Range(FileRange { path, .. }) => {
                let file = File::open(path).during(Action::Read, path)?;
                Ok(read_at_most(&file, self.bytes_of_file(0..bytes as u64)).during(Action::Read, path)?)
            }
            Source::Pipe { rest, .. } => {
                let mut rest = rest.lock().unpoisoned();
                let Some(pipe) = rest.as_mut() else { return Ok(Vec::new()) };
                let want = bytes.saturating_sub(pipe.peeked.len()) as u64;
                pipe.file
                    .by_ref()
                    .take(want)
                    .read_to_end(&mut pipe.peeked)
                    .during(Action::Read, self.name_path())?;
                Ok(pipe.peeked[..bytes.min(pipe.peeked.len())].to_vec())
            }
            Source::Merged(input) => input.peek(bytes),
            Source::Program { .. } | Source::Part { .. } => Ok(Vec::new()),
        }
    }

    /// Up to `bytes` bytes of a file from `offset` on; none of a pipe.
    pub fn sample(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let Some(path) = self.path() else { return Ok(Vec::new()) };
        let wanted = self.bytes_of_file(offset..offset.saturating_add(bytes as u64));
        let start = wanted.start;
        let file = File::open(path).during_at(Action::Read, path, start)?;
        // A hint, without which the system also reads what follows the sample.
        let _refused = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Ok(read_at_most(&file, wanted).during_at(Action::Read, path, start)?)
    }

    /// Opens it for reading from `offset` on; a pipe only once, from its start.
    pub fn stream(&self, disk: &Disk, offset: u64) -> Result<Box<dyn ReadStream>> {
        match &self.source {
            Source::Regular(path) => Ok(disk.open_read(path, offset..u64::MAX, "input")?),
            Source::Range(range) => {
                check_range(range)?;
                Ok(disk.open_read(&range.path, self.bytes_of_file(offset..u64::MAX), "input")?)
            }
            Source::Part { path, number, index, pool } => {
                let index = match index {
                    Some(index) => Arc::clone(index),
                    None => read_index_of(disk, path, RunId(*number))?,
                };
                Ok(Box::new(PartStream::open(disk, path, index, offset, pool)?))
            }
            Source::Merged(input) => input.open(offset),
            Source::Program { number, name } => Ok(disk.open_program_source(*number, name, "input")?),
            Source::Pipe { name, rest } => {
                let pipe = rest.lock().unpoisoned().take();
                let Some(pipe) = pipe else {
                    return Err(SortError::Request(format!(
                        "{}: a pipe can be read only once",
                        name.display()
                    )));
                };
                let skipped = (self.start.max(offset) as usize).min(pipe.peeked.len());
                let peeked = pipe.peeked[skipped..].to_vec();
                Ok(disk.from_reader(pipe.file, peeked, name, "input")?)
            }
        }
    }
}

/// An error if the file of a range is not regular, or ends before the range does.
fn check_range(range: &FileRange) -> Result<()> {
    let FileRange { path, start, end } = range;
    let stat = std::fs::metadata(path).during(Action::Open, path)?;
    if !stat.is_file() || start > end {
        return Err(SortError::Request(format!("{range}: only a regular file has ranges that can be read")));
    }
    if stat.len() < *end {
        return Err(IoError::Truncated { path: path.clone(), offset: stat.len(), expected: *end }.into());
    }
    Ok(())
}

/// Reads the index of run `id`; an error if the file holds another run. A misplaced run is valid in itself, so no
/// other check would find it.
pub fn read_index_of(disk: &Disk, path: &Path, id: RunId) -> Result<Arc<RunIndex>, IoError> {
    let index = read_index(disk, path)?;
    if index.id != id {
        let what = "it belongs to another run";
        return Err(IoError::BadIndex { path: path.to_path_buf(), offset: 0, what });
    }
    Ok(Arc::new(index))
}

/// The path of a regular file whose descriptor is at its start, as after `< FILE` in a shell: it can be read by its
/// name, in any order and again.
fn path_of_whole(mut file: &File) -> Option<PathBuf> {
    let stat = file.metadata().ok().filter(Metadata::is_file)?;
    if file.stream_position().ok()? != 0 {
        return None;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let named = std::fs::metadata(&path).ok()?;
    // A file that was removed or replaced has another inode under its name, or none; a file that may not be opened
    // by its name can still be read through the descriptor.
    let same = (named.dev(), named.ino()) == (stat.dev(), stat.ino());
    (same && File::open(&path).is_ok()).then_some(path)
}

/// Whether the length of a file says nothing about its contents, as in /proc and /sys.
fn is_made_as_read(file: &File, stat: &Metadata) -> bool {
    // From the kernel's list of file systems: proc, sysfs, debugfs, tracefs and both versions of cgroup.
    const MADE: [u64; 6] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x0027_e0eb, 0x6367_7270];
    stat.blocks() == 0
        && rustix::fs::fstatfs(file)
            .is_ok_and(|volume| u64::try_from(volume.f_type).is_ok_and(|kind| MADE.contains(&kind)))
}

/// Reads a range of a file, or as much of it as there is. Requests all bytes at once: a read that grows makes the
/// system read far ahead.
fn read_at_most(file: &File, range: Range<u64>) -> std::io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let wanted = range.end.min(size).saturating_sub(range.start) as usize;
    let mut data = vec![0; wanted];
    let mut filled = 0;
    while filled < wanted {
        match file.read_at(&mut data[filled..], range.start + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    data.truncate(filled);
    Ok(data)
}

impl Fingerprint {
    /// From its size, its time of change, and, `with_ends`, a checksum of both ends, which costs two switches.
    fn from_path(path: &Path, with_ends: bool) -> Result<Fingerprint> {
        let file = File::open(path).during(Action::Read, path)?;
        let stat = file.metadata().during(Action::Read, path)?;
        let ends = if with_ends { Some(sum_of_ends(&file, stat.len())) } else { None };
        let ends = ends.transpose().during(Action::Read, path)?;
        // A file without a name has only that of its descriptor.
        let path = path.canonicalize().or_else(|_| std::path::absolute(path)).during(Action::Read, path)?;
        let modified_ns = i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec());
        Ok(Fingerprint { path, size: stat.len(), modified_ns, ends })
    }

    /// Whether the file is the same now.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn holds(&self) -> Result<bool> {
        Ok(*self == Fingerprint::from_path(&self.path, self.ends.is_some())?)
    }
}

/// The checksum of the first and the last bytes of a file of `size` bytes.
fn sum_of_ends(file: &File, size: u64) -> io::Result<u64> {
    let mut ends = read_at_most(file, 0..FINGERPRINT_BYTES)?;
    ends.extend(read_at_most(file, size.saturating_sub(FINGERPRINT_BYTES)..size)?);
    Ok(xxh3_64(&ends))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_io::{Buf, DiskOptions};

    #[test]
    fn a_range_is_read_like_a_file_of_its_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"before,inside,after").unwrap();
        let range = FileRange { path: file.path().into(), start: 7, end: 13 };
        let input = InputFile::open(&Input::Range(range.clone())).unwrap();
        assert_eq!((input.size, input.path(), input.whole_file()), (Some(6), Some(file.path()), None));
        assert_eq!(input.peek(100).unwrap(), b"inside");
        assert_eq!(input.peek(2).unwrap(), b"in");
        assert_eq!(input.sample(4, 100).unwrap(), b"de");
        assert_eq!(input.sample(9, 1).unwrap(), b"");
        let disk = Disk::new(DiskOptions::default());
        let mut stream = input.stream(&disk, 2).unwrap();
        stream.begin(Buf::heap(100)).unwrap();
        assert_eq!(stream.complete().unwrap().bytes(), b"side");
        assert!(input.name().starts_with("bytes 7..13 of /"));
        // What is appended to the file is not appended to the range.
        assert_eq!(input.size_now(), 0);

        let beyond = Input::Range(FileRange { end: 100, ..range });
        assert!(matches!(
            InputFile::open(&beyond),
            Err(SortError::Io(IoError::Truncated { offset: 19, .. }))
        ));
        file.as_file().set_len(12).unwrap();
        assert!(input.stream(&disk, 0).is_err());
    }
}
