//! The kernel's requests to a file system with one file.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, Request,
};

use crate::{Log, Owner, Shown, Source, attributes};

/// How long the kernel may cache names and sizes: they never change.
const TTL: Duration = Duration::from_secs(3600);
/// Maximum bytes of a kernel request, and of read-ahead.
const REQUEST_BYTES: u32 = 1 << 20;
const FILE: INodeNo = INodeNo(2);

/// The root directory, which contains the file.
pub struct OneFile {
    source: Arc<dyn Source>,
    modified: SystemTime,
    owner: Owner,
    log: Log,
}

impl OneFile {
    /// A file system whose file has the bytes of `source`.
    pub fn new(source: Arc<dyn Source>, shown: &Shown) -> Self {
        OneFile { source, modified: shown.modified, owner: shown.owner, log: Arc::clone(&shown.log) }
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let size = match ino {
            INodeNo::ROOT => 0,
            FILE => self.source.bytes(),
            _ => return None,
        };
        Some(attributes(ino, size, self.modified, self.owner, REQUEST_BYTES))
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // If the kernel's limit is lower, the error has that limit.
        let refused = |_| std::io::Error::from(std::io::ErrorKind::InvalidInput);
        let write = config.set_max_write(REQUEST_BYTES).or_else(|max| config.set_max_write(max));
        let ahead = config.set_max_readahead(REQUEST_BYTES).or_else(|max| config.set_max_readahead(max));
        write.and(ahead).map(drop).map_err(refused)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ours = parent == INodeNo::ROOT && name == OsStr::new(self.source.name());
        match self.attributes(FILE).filter(|_| ours) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match ino {
            FILE if flags.acc_mode() == OpenAccMode::O_RDONLY => {
                reply.opened(FileHandle(self.source.open()), FopenFlags::FOPEN_KEEP_CACHE);
            }
            FILE => reply.error(Errno::EROFS),
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.source.read(fh.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => {
                (self.log)(&format!("reading {} bytes at {offset} failed: {error}", size));
                reply.error(Errno::EIO);
            }
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.source.close(fh.0);
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let name = self.source.name();
        let entries = [
            (ino, FileType::Directory, "."),
            (ino, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, name),
        ];
        for (number, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, number as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
