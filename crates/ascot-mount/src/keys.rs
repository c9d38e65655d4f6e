//! The kernel's requests to a file system with one file for each key of an indexed directory.
//!
//! ```text
//!   MNT/0000000000012345     name: the key in hexadecimal; content: all values appended to it, by epoch
//! ```
//!
//! A file exists if its key was written: looking a name up is a query, and no list is stored. Listing works, and reads
//! all keys.
//!
//! The directory may be written at the same time. Every name lookup and every opening of the list checks the
//! manifest's file, and opens the directory again if it changed. So the file system shows the epochs that are complete
//! at that moment.
//!
//! Invariants: an inode number belongs to one key with one content while the kernel knows it, so an open file never
//! changes; if epochs are dropped, all files get new numbers. Short values are kept for open files, and a bounded
//! amount besides, because a name is looked up right before it is opened. Long values are read from the directory on
//! request, a part at a time.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use ascot_index::{Content, Directory, IndexError, Manifest, Scan, StoredValue, Unread};
use ascot_io::Unpoisoned;
use ascot_record::hex::{from_hex, to_hex};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

use crate::{Shown, attributes};

/// How long the kernel may cache the meaning of an inode number: it never changes.
const NUMBER_TTL: Duration = Duration::from_secs(3600);
/// How long it may cache names of a closed directory, which might be continued later; names of a directory being
/// written are not cached.
const CLOSED_TTL: Duration = Duration::from_secs(1);
/// Block size reported to programs.
const BLOCK_BYTES: u32 = 4096;
/// Maximum bytes of a file name.
const NAME_MAX: usize = 255;
/// Bytes of contents cached besides those of open files.
const KEPT_MAX: usize = 16 << 20;
/// Maximum bytes of one file in memory.
const CONTENT_MAX: usize = KEPT_MAX / 4;
/// Names read at a time while listing.
const NAMES_AT_ONCE: usize = 4096;
/// The names before keys in a listing.
const DOTS: [&str; 2] = [".", ".."];

/// The files of an indexed directory, by key.
pub struct KeyFiles {
    directory: Mutex<Arc<Directory>>,
    shown: Shown,
    state: Mutex<State>,
    next: AtomicU64,
}

/// A file that the kernel knows.
struct Known {
    key: Vec<u8>,
    size: u64,
    /// Number of epochs whose values it has.
    epochs: u64,
    modified: SystemTime,
    /// Lookups minus forgets.
    uses: u64,
    /// Its epochs may have changed: open handles keep it, new lookups do not get it.
    outdated: bool,
}

/// The content of a file: the values of its key, concatenated.
#[derive(Default)]
struct FileContent {
    /// Each value with its end offset in the file.
    values: Vec<(u64, StoredValue)>,
}

impl FileContent {
    fn new(values: Vec<StoredValue>) -> Self {
        let mut end = 0;
        let ended = values.into_iter().map(|value| {
            end += value.content.length();
            (end, value)
        });
        Self { values: ended.collect() }
    }

    /// Bytes of the content.
    fn size(&self) -> u64 {
        self.values.last().map_or(0, |(end, _)| *end)
    }

    /// Bytes of memory it takes.
    fn memory(&self) -> usize {
        let bytes = |value: &StoredValue| match &value.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Long(_) => 0,
        };
        self.values.iter().map(|(_, value)| bytes(value) + size_of::<(u64, StoredValue)>()).sum()
    }

    /// Up to `size` bytes from `offset`.
    fn read(&self, directory: &Directory, offset: u64, size: usize) -> Result<Vec<u8>, IndexError> {
        let left = usize::try_from(self.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut read = vec![0; size.min(left)];
        let mut filled = 0;
        let mut at = offset;
        let first = self.values.partition_point(|(end, _)| *end <= offset);
        for (end, value) in &self.values[first..] {
            if filled == read.len() {
                break;
            }
            let start = end - value.content.length();
            let more = value.content.read_at(directory, at - start, &mut read[filled..])?;
            filled += more;
            at += more as u64;
        }
        Ok(read)
    }
}

#[derive(Default)]
struct State {
    files: HashMap<u64, Known>,
    numbers: HashMap<Vec<u8>, u64>,
    open: HashMap<u64, Arc<FileContent>>,
    lists: HashMap<u64, List>,
    /// Cached contents by key: the number of epochs, and the content.
    kept: HashMap<Vec<u8>, (u64, Arc<FileContent>)>,
    kept_bytes: usize,
}

/// A listing in progress.
struct List {
    /// The directory as it was when the list was opened.
    directory: Arc<Directory>,
    /// Position of the first name in memory, from the start of the list.
    start: u64,
    names: Vec<Vec<u8>>,
    /// Whether no further names follow.
    ended: bool,
    /// Whether some files could not be read, so that names are missing.
    is_incomplete: bool,
}

impl State {
    /// Drops cached contents. If `another` directory has replaced this one, or epochs were dropped, also drops all
    /// inode numbers, because a file of equal size may now have other content.
    fn begin_anew(&mut self, another: bool) {
        self.kept.clear();
        self.kept_bytes = 0;
        if another {
            self.files.values_mut().for_each(|known| known.outdated = true);
            self.numbers.clear();
        }
    }

    fn keep(&mut self, key: &[u8], epochs: u64, content: &Arc<FileContent>) {
        let bytes = content.memory() + key.len();
        if bytes > CONTENT_MAX {
            return;
        }
        if self.kept_bytes + bytes > KEPT_MAX {
            self.kept.clear();
            self.kept_bytes = 0;
        }
        self.kept_bytes += bytes;
        self.kept.insert(key.to_vec(), (epochs, Arc::clone(content)));
    }
}

impl KeyFiles {
    /// The files of `directory`.
    pub fn new(directory: Arc<Directory>, shown: &Shown) -> Self {
        let directory = Mutex::new(directory);
        // 1 is the root.
        Self { directory, shown: shown.clone(), state: Mutex::default(), next: AtomicU64::new(2) }
    }

    /// The current directory, opened again if its manifest changed.
    fn directory(&self) -> Arc<Directory> {
        let mut directory = self.directory.lock().unpoisoned();
        if directory.has_gone_on() {
            match directory.open_again() {
                Ok(now) => {
                    let of = |manifest: &Manifest| (manifest.id, manifest.history);
                    let another = of(now.manifest()) != of(directory.manifest());
                    *directory = Arc::new(now);
                    self.state().begin_anew(another);
                }
                // The state opened before is still readable.
                Err(error) => (self.shown.log)(&error.to_string()),
            }
        }
        Arc::clone(&directory)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// All values appended to `key` in the first `epochs` epochs; `None` if it was never written.
    fn content(
        &self,
        directory: &Directory,
        key: &[u8],
        epochs: u64,
    ) -> Result<Option<Arc<FileContent>>, IndexError> {
        let all = directory.manifest().epochs == epochs;
        if let Some((_, kept)) = self.state().kept.get(key).filter(|(of, _)| *of == epochs) {
            return Ok(Some(Arc::clone(kept)));
        }
        let mut content = FileContent::new(directory.stored(key, None)?);
        if content.memory() > CONTENT_MAX {
            content = FileContent::new(directory.stored_places(key, None)?);
        }
        directory.take_notices().texts.iter().for_each(|notice| (self.shown.log)(notice));
        content.values.retain(|(_, value)| value.epoch < epochs);
        if content.values.is_empty() {
            return Ok(None);
        }
        let content = Arc::new(content);
        if all {
            self.state().keep(key, epochs, &content);
        }
        Ok(Some(content))
    }

    fn failed(&self, error: &IndexError) -> Errno {
        (self.shown.log)(&error.to_string());
        Errno::EIO
    }

    fn attributes(&self, number: INodeNo, size: u64, modified: SystemTime) -> FileAttr {
        attributes(number, size, modified, self.shown.owner, BLOCK_BYTES)
    }

    /// When the directory shown was last written.
    fn modified(&self, directory: &Directory) -> SystemTime {
        directory.modified().unwrap_or(self.shown.modified)
    }

    /// The inode number of a key's file: the previous one if the content is the same.
    fn number_of(&self, key: Vec<u8>, size: u64, epochs: u64, modified: SystemTime) -> (u64, SystemTime) {
        let state = &mut *self.state();
        let had = state.numbers.get(&key).copied();
        // A key only gains values unless epochs are dropped, and that drops all numbers: equal size means equal
        // content.
        let same = had.filter(|number| state.files.get(number).is_some_and(|known| known.size == size));
        let number = same.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        state.numbers.insert(key.clone(), number);
        let known = state.files.entry(number).or_insert(Known {
            key,
            size,
            epochs,
            modified,
            uses: 0,
            outdated: false,
        });
        known.uses += 1;
        (number, known.modified)
    }

    /// Fills a list from position `from`: with names after those it has, or from the start.
    fn fill(&self, list: &mut List, from: u64) -> Result<(), IndexError> {
        if from < list.start {
            list.start = 0;
            list.names = Vec::new();
            list.ended = false;
        }
        while from >= list.start + list.names.len() as u64 && !list.ended {
            let after = list.names.last().map_or(Vec::new(), |last| [last.as_slice(), &[0]].concat());
            list.start += list.names.len() as u64;
            let mut unread = Unread::default();
            let names = names_from(&list.directory, after, &mut unread);
            if !list.is_incomplete {
                unread.errors.iter().for_each(|error| (self.shown.log)(&error.to_string()));
            }
            list.is_incomplete |= !unread.is_nothing();
            list.names = names?;
            list.ended = list.names.len() < NAMES_AT_ONCE;
        }
        Ok(())
    }
}

/// The next keys from `from` that have a name, from the files that can be read.
fn names_from(directory: &Directory, from: Vec<u8>, unread: &mut Unread) -> Result<Vec<Vec<u8>>, IndexError> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut enough = false;
    let scan = Scan { from, by_key: true, ..Scan::default() };
    let done = directory.scan_stored_there(&scan, unread, |record| {
        let named = !record.key.is_empty() && 2 * record.key.len() <= NAME_MAX;
        if named && names.last().is_none_or(|last| last != record.key) {
            enough = names.len() == NAMES_AT_ONCE;
            if enough {
                return Err(IndexError::Request("there are names enough".into()));
            }
            names.push(record.key.to_vec());
        }
        Ok(())
    });
    if enough { Ok(names) } else { done.map(|()| names) }
}

/// The key of a name: lower-case hexadecimal digits only.
fn key_of(name: &OsStr) -> Option<Vec<u8>> {
    let text = name.to_str()?;
    from_hex(text).filter(|key| !key.is_empty() && to_hex(key) == text)
}

impl Filesystem for KeyFiles {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let directory = self.directory();
        let manifest = directory.manifest();
        let key =
            key_of(name).filter(|key| parent == INodeNo::ROOT && manifest.layout.check_key(key).is_ok());
        let Some(key) = key else { return reply.error(Errno::ENOENT) };
        let content = match self.content(&directory, &key, manifest.epochs) {
            Ok(Some(content)) => content,
            Ok(None) => return reply.error(Errno::ENOENT),
            Err(error) => return reply.error(self.failed(&error)),
        };
        let size = content.size();
        let (number, modified) = self.number_of(key, size, manifest.epochs, self.modified(&directory));
        let ttl = if manifest.closed { CLOSED_TTL } else { Duration::ZERO };
        reply.entry(&ttl, &self.attributes(INodeNo(number), size, modified), Generation(0));
    }

    fn forget(&self, _: &Request, number: INodeNo, uses: u64) {
        let state = &mut *self.state();
        let Some(known) = state.files.get_mut(&number.0) else { return };
        known.uses = known.uses.saturating_sub(uses);
        if known.uses == 0 {
            if state.numbers.get(&known.key) == Some(&number.0) {
                state.numbers.remove(&known.key);
            }
            state.files.remove(&number.0);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if number == INodeNo::ROOT {
            let directory = self.directory();
            return reply.attr(&CLOSED_TTL, &self.attributes(number, 0, self.modified(&directory)));
        }
        let known = self.state().files.get(&number.0).map(|known| (known.size, known.modified));
        match known {
            Some((size, modified)) => reply.attr(&NUMBER_TTL, &self.attributes(number, size, modified)),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // First, because it may drop numbers.
        let directory = self.directory();
        let state = self.state();
        let known = state.files.get(&number.0).filter(|known| !known.outdated);
        let known = known.map(|known| (known.key.clone(), known.epochs));
        drop(state);
        let Some((key, epochs)) = known else {
            // The kernel looks the name up again.
            return reply.error(if number == INodeNo::ROOT { Errno::EISDIR } else { Errno::ESTALE });
        };
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        match self.content(&directory, &key, epochs) {
            Ok(content) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                self.state().open.insert(handle, content.unwrap_or_default());
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(self.failed(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let content = self.state().open.get(&handle.0).cloned();
        let Some(content) = content else { return reply.error(Errno::EBADF) };
        // The current directory has all values that the file had when it was opened, unless epochs were dropped since:
        // then checksums do not match, and reading a long value fails.
        let directory = Arc::clone(&self.directory.lock().unpoisoned());
        match content.read(&directory, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(self.failed(&error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.state().open.remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if number != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory();
        let list = List { directory, start: 0, names: Vec::new(), ended: false, is_incomplete: false };
        self.state().lists.insert(handle, list);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let dots = DOTS.len() as u64;
        let mut place = offset;
        for name in DOTS.iter().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            place += 1;
            if reply.add(INodeNo::ROOT, place, FileType::Directory, name) {
                return reply.ok();
            }
        }
        // Removed while it is read: no other call has this handle.
        let taken = self.state().lists.remove(&handle.0);
        let Some(mut list) = taken else { return reply.error(Errno::EBADF) };
        let mut done = self.fill(&mut list, place - dots);
        'full: while done.is_ok() {
            let from = usize::try_from(place - dots - list.start).unwrap_or(usize::MAX);
            let Some(names) = list.names.get(from..).filter(|names| !names.is_empty()) else { break };
            for key in names {
                place += 1;
                // Lookups assign inode numbers; this one only must not be 0.
                if reply.add(INodeNo(u64::MAX), place, FileType::RegularFile, to_hex(key)) {
                    break 'full;
                }
            }
            done = self.fill(&mut list, place - dots);
        }
        // After all names, a last call reports that the list is incomplete.
        let lacks = list.is_incomplete && list.ended && place == offset;
        self.state().lists.insert(handle.0, list);
        match done {
            Ok(()) if lacks => reply.error(Errno::EIO),
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.failed(&error)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.state().lists.remove(&handle.0);
        reply.ok();
    }
}
