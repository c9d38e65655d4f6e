//! A file shown through the same mount library, read with nothing in between: what a mount can give at most.
//!
//! passthrough FILE MNT: stays until it is unmounted.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, Request,
};

const TTL: Duration = Duration::from_secs(3600);
const REQUEST_BYTES: u32 = 1 << 20;
const NAME: &str = "file";

struct Passthrough(File, u64);

impl Passthrough {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let root = ino == INodeNo::ROOT;
        FileAttr {
            ino,
            size: if root { 0 } else { self.1 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o555,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: REQUEST_BYTES,
            flags: 0,
        }
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        if let Err(most) = config.set_max_write(REQUEST_BYTES) {
            let _ = config.set_max_write(most);
        }
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == OsStr::new(NAME) {
            reply.entry(&TTL, &self.attributes(INodeNo(2)), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size.min((self.1 - offset.min(self.1)) as u32) as usize];
        match self.0.read_exact_at(&mut bytes, offset) {
            Ok(()) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if offset == 0 {
            let _ = reply.add(INodeNo(2), 1, FileType::RegularFile, NAME);
        }
        reply.ok();
    }
}

fn main() -> std::io::Result<()> {
    let mut words = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(path), Some(at)) = (words.next(), words.next()) else {
        eprintln!("passthrough FILE MNT");
        return Ok(());
    };
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO];
    config.n_threads = Some(4);
    config.clone_fd = true;
    fuser::mount(Passthrough(file, size), at, &config)
}
