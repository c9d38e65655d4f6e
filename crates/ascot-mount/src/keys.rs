//! What the kernel asks of a file system with one file for each key of an indexed directory.
//!
//! ```text
//!   MNT/0000000000012345     name: the key in hexadecimal; content: all that was appended to it, by epoch
//! ```
//!
//! A file exists where its key was written: looking a name up is a query, and no list is kept. Listing works, and reads all keys.
//!
//! Invariants: a number of a file belongs to one key for as long as the kernel knows it; contents are kept for who has a file open, and
//! besides them a bounded amount, because a name is looked up right before it is opened.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ascot_index::format::manifest::{from_hex, to_hex};
use ascot_index::{Directory, IndexError, Scan};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

use crate::Shown;

/// How long the kernel may remember names and sizes: the epochs of an open directory never change.
const TTL: Duration = Duration::from_secs(3600);
/// Longest name of a file.
const NAME_MOST: usize = 255;
/// Contents kept besides those of open files, bytes.
const KEPT_MOST: usize = 16 << 20;
/// Names read at a time while listing.
const NAMES_AT_ONCE: usize = 4096;
/// What files and the directory are called in a list, before keys.
const DOTS: [&str; 2] = [".", ".."];

/// Files by their keys.
pub struct KeyFiles {
    directory: Arc<Directory>,
    shown: Shown,
    state: Mutex<State>,
    next: AtomicU64,
}

/// A file the kernel knows.
struct Known {
    key: Vec<u8>,
    size: u64,
    /// Times it was looked up and not forgotten.
    uses: u64,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, Known>,
    numbers: HashMap<Vec<u8>, u64>,
    open: HashMap<u64, Arc<Vec<u8>>>,
    lists: HashMap<u64, List>,
    /// Contents read last, by key.
    kept: HashMap<Vec<u8>, Arc<Vec<u8>>>,
    kept_bytes: usize,
}

/// A list of names under way.
#[derive(Default)]
struct List {
    /// Place of the first name in memory, counted from the list's start.
    start: u64,
    names: Vec<Vec<u8>>,
    /// There are no names behind those.
    ended: bool,
}

impl State {
    fn keep(&mut self, key: &[u8], content: &Arc<Vec<u8>>) {
        if content.len() > KEPT_MOST / 4 {
            return;
        }
        if self.kept_bytes + content.len() + key.len() > KEPT_MOST {
            self.kept.clear();
            self.kept_bytes = 0;
        }
        self.kept_bytes += content.len() + key.len();
        self.kept.insert(key.to_vec(), Arc::clone(content));
    }
}

impl KeyFiles {
    /// The files of `directory`.
    pub fn new(directory: Arc<Directory>, shown: &Shown) -> Self {
        // 1 is the root.
        Self { directory, shown: shown.clone(), state: Mutex::default(), next: AtomicU64::new(2) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was appended to `key`; none where it was never written.
    fn content(&self, key: &[u8]) -> Result<Option<Arc<Vec<u8>>>, IndexError> {
        if let Some(kept) = self.state().kept.get(key) {
            return Ok(Some(Arc::clone(kept)));
        }
        let values = self.directory.get(key)?;
        self.directory.take_notices().iter().for_each(|notice| (self.shown.log)(notice));
        if values.is_empty() {
            return Ok(None);
        }
        let content = Arc::new(values.into_iter().flat_map(|value| value.bytes).collect::<Vec<u8>>());
        self.state().keep(key, &content);
        Ok(Some(content))
    }

    fn failed(&self, error: &IndexError) -> Errno {
        (self.shown.log)(&error.to_string());
        Errno::EIO
    }

    fn attributes(&self, number: INodeNo, size: u64) -> FileAttr {
        let (kind, perm, nlink) = if number == INodeNo::ROOT {
            (FileType::Directory, 0o555, 2)
        } else {
            (FileType::RegularFile, 0o444, 1)
        };
        let modified = self.shown.modified;
        FileAttr {
            ino: number,
            size,
            blocks: size.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind,
            perm,
            nlink,
            uid: self.shown.owner.0,
            gid: self.shown.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn known(&self, number: INodeNo) -> Option<(Vec<u8>, u64)> {
        self.state().files.get(&number.0).map(|known| (known.key.clone(), known.size))
    }

    /// Fills a list from the place `from` on: names behind those it has, or from the start.
    fn fill(&self, list: &mut List, from: u64) -> Result<(), IndexError> {
        if from < list.start {
            *list = List::default();
        }
        while from >= list.start + list.names.len() as u64 && !list.ended {
            let after = list.names.last().map_or(Vec::new(), |last| [last.as_slice(), &[0]].concat());
            let start = list.start + list.names.len() as u64;
            let names = self.names_from(after)?;
            *list = List { start, ended: names.len() < NAMES_AT_ONCE, names };
        }
        Ok(())
    }

    /// The next keys from `from` on that have a name.
    fn names_from(&self, from: Vec<u8>) -> Result<Vec<Vec<u8>>, IndexError> {
        const ENOUGH: &str = "enough";
        let mut names: Vec<Vec<u8>> = Vec::new();
        let scan = Scan { from, by_key: true, ..Scan::default() };
        let done = self.directory.scan(&scan, |record| {
            let named = !record.key.is_empty() && 2 * record.key.len() <= NAME_MOST;
            if named && names.last().is_none_or(|last| last != record.key) {
                if names.len() == NAMES_AT_ONCE {
                    return Err(IndexError::Request(ENOUGH.into()));
                }
                names.push(record.key.to_vec());
            }
            Ok(())
        });
        match done {
            Err(IndexError::Request(text)) if text == ENOUGH => Ok(names),
            Err(error) => Err(error),
            Ok(()) => Ok(names),
        }
    }
}

/// The key a name stands for: lower-case hexadecimal digits, and no other spelling of them.
fn key_of(name: &OsStr) -> Option<Vec<u8>> {
    let text = name.to_str()?;
    from_hex(text).filter(|key| !key.is_empty() && to_hex(key) == text)
}

impl Filesystem for KeyFiles {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let key = key_of(name)
            .filter(|key| parent == INodeNo::ROOT && self.directory.manifest().layout.check_key(key).is_ok());
        let Some(key) = key else { return reply.error(Errno::ENOENT) };
        let content = match self.content(&key) {
            Ok(Some(content)) => content,
            Ok(None) => return reply.error(Errno::ENOENT),
            Err(error) => return reply.error(self.failed(&error)),
        };
        let mut state = self.state();
        let number =
            state.numbers.get(&key).copied().unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        state.numbers.insert(key.clone(), number);
        let size = content.len() as u64;
        state.files.entry(number).or_insert(Known { key, size, uses: 0 }).uses += 1;
        drop(state);
        reply.entry(&TTL, &self.attributes(INodeNo(number), size), Generation(0));
    }

    fn forget(&self, _: &Request, number: INodeNo, uses: u64) {
        let state = &mut *self.state();
        let Some(known) = state.files.get_mut(&number.0) else { return };
        known.uses = known.uses.saturating_sub(uses);
        if known.uses == 0 {
            state.numbers.remove(&known.key);
            state.files.remove(&number.0);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if number == INodeNo::ROOT {
            return reply.attr(&TTL, &self.attributes(number, 0));
        }
        match self.known(number) {
            Some((_, size)) => reply.attr(&TTL, &self.attributes(number, size)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some((key, _)) = self.known(number) else { return reply.error(Errno::EISDIR) };
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        match self.content(&key) {
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
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let end = start.saturating_add(size as usize).min(content.len());
        reply.data(&content[start..end]);
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
        self.state().lists.insert(handle, List::default());
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
        // Taken out while it is read: nobody else has this handle.
        let mut list = self.state().lists.remove(&handle.0).unwrap_or_default();
        let mut done = self.fill(&mut list, place - dots);
        'full: while done.is_ok() {
            let from = usize::try_from(place - dots - list.start).unwrap_or(usize::MAX);
            let Some(names) = list.names.get(from..).filter(|names| !names.is_empty()) else { break };
            for key in names {
                place += 1;
                // Numbers come with looking names up; this one only must not be 0.
                if reply.add(INodeNo(u64::MAX), place, FileType::RegularFile, to_hex(key)) {
                    break 'full;
                }
            }
            done = self.fill(&mut list, place - dots);
        }
        self.state().lists.insert(handle.0, list);
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.failed(&error)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.state().lists.remove(&handle.0);
        reply.ok();
    }
}
