//! System calls for which the standard library has no function.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::event::PollFlags;
use rustix::fs::{FallocateFlags, OFlags};

use crate::clocks::{State, call, in_state};

/// The number of the device that holds a file's bytes: a block device is its own.
pub fn device_of(stat: &Metadata) -> u64 {
    if stat.file_type().is_block_device() { stat.rdev() } else { stat.dev() }
}

/// The bytes of a field of /proc/self/mountinfo, in which `\040` is the byte with that octal number.
pub fn without_octal_escapes(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match octal {
            Some(digits) if first == b'\\' => {
                let value = digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(value.to_le_bytes()[0]);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

/// Bytes an unprivileged user may still write on the volume of `path` or, if it does not exist yet, of its directory.
pub(crate) fn free_space(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path).or_else(|error| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => rustix::fs::statvfs("."),
        Some(parent) => rustix::fs::statvfs(parent),
        None => Err(error),
    })?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes an unprivileged user may still write on the volume of an open file.
pub(crate) fn free_space_of(file: &File) -> io::Result<u64> {
    let stat = rustix::fs::fstatvfs(file)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Allocates `[offset, offset + bytes)` and extends the file over it.
pub(crate) fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let allocated =
        call(State::Device, || rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes));
    Ok(allocated?)
}

/// Frees the blocks of `[0, end)`; the file keeps its length.
pub(crate) fn punch(file: &File, end: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, 0, end)?)
}

/// Turns O_DIRECT off permanently on this descriptor.
pub(crate) fn leave_direct(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

/// Waits until `fd` can be read or written, per `flags`; false if `stop` can be read first. The program at the other
/// end has to bring data, or to make space.
pub(crate) fn wait(fd: impl AsFd, stop: impl AsFd, flags: PollFlags) -> io::Result<bool> {
    use rustix::event::{PollFd, poll};
    let _waiting = in_state(if flags.contains(PollFlags::IN) { State::Input } else { State::Memory });
    loop {
        let mut polled = [PollFd::new(&stop, PollFlags::IN), PollFd::new(&fd, flags)];
        match poll(&mut polled, None) {
            Ok(_) if !polled[0].revents().is_empty() => return Ok(false),
            Ok(_) if !polled[1].revents().is_empty() => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes the start of `bytes` that a descriptor without offsets takes without a wait; returns its length, 0 if that is
/// nothing or the descriptor cannot tell.
pub(crate) fn write_without_wait(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    use rustix::io::{Errno, ReadWriteFlags, pwritev2};
    loop {
        // -1 is no offset.
        match pwritev2(&fd, &[io::IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {
                return Ok(0);
            }
            result => return Ok(result?),
        }
    }
}

/// The pages of a range of a file in the page cache, as the kernel's `cachestat` counts them.
#[repr(C)]
#[derive(Default)]
struct CachedPages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The cached pages of `[offset, offset + bytes)`; none if the kernel cannot report them.
#[expect(unsafe_code, reason = "the system call has no safe wrapper")]
fn cached_pages(file: &File, offset: u64, bytes: u64) -> CachedPages {
    #[repr(C)]
    struct Range {
        offset: u64,
        bytes: u64,
    }
    /// The same number on every architecture of Linux.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = Range { offset, bytes };
    let mut pages = CachedPages::default();
    // SAFETY: both structures have the layout of the kernel's `cachestat_range` and `cachestat`,
    // and live through the call; kernels without the call answer ENOSYS.
    let answer = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0 as libc::c_uint)
    };
    if answer == 0 { pages } else { CachedPages::default() }
}

/// The share (0 to 1) of `[offset, offset + bytes)` that is in the page cache; 0 if the kernel cannot report it.
/// Unlike a read that must not wait, this call starts no read-ahead.
pub(crate) fn cached_share(file: &File, offset: u64, bytes: u64) -> f64 {
    if bytes == 0 {
        return 0.0;
    }
    let page = rustix::param::page_size() as u64;
    let pages = (offset + bytes).div_ceil(page) - offset / page;
    cached_pages(file, offset, bytes).cached as f64 / pages as f64
}

/// Bytes of `[offset, offset + bytes)` in the page cache, and those of them that the device does not have yet.
pub fn cached_and_dirty_bytes(file: &File, offset: u64, bytes: u64) -> (u64, u64) {
    let page = rustix::param::page_size() as u64;
    let CachedPages { cached, dirty, writeback, .. } = cached_pages(file, offset, bytes);
    (cached * page, (dirty + writeback) * page)
}

/// Starts to write the changed pages of `[offset, offset + bytes)` to the device, and does not wait for the end. A sync
/// that follows waits for what is left, and reports errors.
#[expect(unsafe_code, reason = "the system call has no safe wrapper")]
pub fn begin_writing(file: &File, offset: u64, bytes: u64) {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else { return };
    // SAFETY: the call has no pointers, and the descriptor is open. Where it fails, the sync does all of the work.
    let _started = call(State::Device, || unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE)
    });
}

/// Waits until the device has the changed pages of `[offset, offset + bytes)`.
///
/// # Errors
/// That of a write that failed. A sync through the same descriptor does not report it again.
#[expect(unsafe_code, reason = "the system call has no safe wrapper")]
pub fn await_written(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else { return Ok(()) };
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    loop {
        // SAFETY: the call has no pointers, and the descriptor is open.
        let answer =
            call(State::Device, || unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) });
        if answer == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // No such waiting here.
            Some(libc::EINVAL | libc::ENOSYS | libc::ESPIPE | libc::EOPNOTSUPP | libc::EPERM) => {
                return call(State::Device, || file.sync_data());
            }
            _ => return Err(error),
        }
    }
}

/// The limit of open files of this process.
pub fn descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// The longest file that this process may write, if there is a limit.
pub(crate) fn file_size_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// `N` unpredictable bytes.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = rustix::io::retry_on_intr(|| {
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
    })?;
    // The system never returns fewer bytes unless more than 256 are requested.
    assert_eq!(filled, N, "random bytes are missing");
    Ok(bytes)
}

/// Turns O_DIRECT on, if the volume supports it.
pub(crate) fn enter_direct(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}

/// Requests a larger pipe buffer, if the descriptor is a pipe; a refusal only costs speed.
pub(crate) fn widen_pipe(file: &File) {
    const PIPE_BYTES: usize = 1 << 20;
    let _ = rustix::pipe::fcntl_setpipe_size(file, PIPE_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_device_is_its_own_device() {
        let stat = std::fs::metadata(".").unwrap();
        assert_eq!(device_of(&stat), stat.dev());
        // Containers may have no devices.
        let entries = std::fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path());
        let devices = entries.filter_map(|path| path.metadata().ok());
        for stat in devices.filter(|stat| stat.file_type().is_block_device()) {
            assert_ne!(device_of(&stat), stat.dev(), "not the device of /dev");
        }
    }
}
