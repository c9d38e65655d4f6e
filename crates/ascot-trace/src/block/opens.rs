//! The files that are opened, by whichever process and call (fanotify).
//!
//! The kernel passes an open descriptor with every event, so that a file which is removed at once is still known, and
//! keeps its blocks until the descriptor is closed. Invariant: only file systems on block devices are observed; the
//! descriptor of a device, which opening could change, is never asked for.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use ascot_io::{u32_at, u64_at, without_octal_escapes};

use super::tracefs::failed;
use crate::error::Result;

/// Bytes of an event.
const EVENT_BYTES: usize = 24;
/// Events that one call reads: each has a descriptor.
const EVENTS_AT_ONCE: usize = 64;

/// Observes the file systems on block devices.
pub struct Opens {
    group: File,
    /// Events that the kernel had no memory for.
    pub lost: u64,
}

/// A file that a process opened.
pub struct Opened {
    /// The file, for reading.
    pub file: File,
    /// The process.
    pub pid: u32,
}

impl Opens {
    /// Observes from now on.
    pub fn observe() -> Result<Opens> {
        let doing = "observe opened files (fanotify)";
        let group = group().map_err(failed(doing))?;
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(failed("read /proc/self/mountinfo"))?;
        let mut marked = Err(io::Error::other("no file system on a block device is mounted"));
        for path in mounts.lines().filter_map(mount_on_a_device) {
            // One file system may be refused, such as one that another mount covers.
            marked = mark(&group, path).or_else(|error| if marked.is_ok() { Ok(()) } else { Err(error) });
        }
        marked.map_err(failed(doing))?;
        Ok(Opens { group: File::from(group), lost: 0 })
    }

    /// Passes files that were opened since the last call to `each`, at most [`EVENTS_AT_ONCE`]. Returns whether more
    /// may wait.
    pub fn read(&mut self, mut each: impl FnMut(Opened)) -> Result<bool> {
        let mut block = [0; EVENT_BYTES * EVENTS_AT_ONCE];
        let bytes = loop {
            match self.group.read(&mut block) {
                Ok(bytes) => break bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The file of an event could not be opened; the event is gone.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV | libc::ESTALE)) =>
                {
                    self.lost += 1;
                }
                Err(error) => return Err(failed("read the files that were opened (fanotify)")(error)),
            }
        };
        let mut rest = &block[..bytes];
        while rest.len() >= EVENT_BYTES {
            let length = (u32_at(rest, 0) as usize).clamp(EVENT_BYTES, rest.len());
            let mask = u64_at(rest, 8);
            let descriptor = u32_at(rest, 16) as i32;
            let pid = u32_at(rest, 20);
            rest = &rest[length..];
            if descriptor >= 0 {
                each(Opened { file: owned(descriptor), pid });
            } else if mask & libc::FAN_Q_OVERFLOW != 0 {
                self.lost += 1;
            }
        }
        Ok(true)
    }
}

/// The place of a mount whose file system has a block device.
fn mount_on_a_device(line: &str) -> Option<OsString> {
    let mut words = line.split(' ').skip(2);
    let (major, _) = words.next()?.split_once(':')?;
    let place = words.nth(1)?;
    (major != "0").then(|| OsString::from_vec(without_octal_escapes(place.as_bytes())))
}

/// A group without a limit of its queue.
#[expect(unsafe_code, reason = "the call has no safe wrapper")]
fn group() -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_UNLIMITED_QUEUE;
    let opened = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NOATIME | libc::O_NONBLOCK;
    // SAFETY: the call takes numbers and returns a new descriptor, which nothing else owns.
    let descriptor = unsafe { libc::fanotify_init(flags, opened as libc::c_uint) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Observes a file system.
#[expect(unsafe_code, reason = "the call has no safe wrapper")]
fn mark(group: &OwnedFd, mount: OsString) -> io::Result<()> {
    let path = CString::new(mount.into_vec())?;
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    // SAFETY: the path ends with a zero, and lives until the call returns.
    let failed = unsafe {
        libc::fanotify_mark(group.as_raw_fd(), flags, libc::FAN_OPEN, libc::AT_FDCWD, path.as_ptr())
    };
    if failed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The file of an event.
#[expect(unsafe_code, reason = "the kernel passes descriptors as numbers")]
fn owned(descriptor: i32) -> File {
    // SAFETY: the kernel opened the descriptor for the reader of the event, and nothing else owns it.
    unsafe { File::from_raw_fd(descriptor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_block_devices_are_found() {
        let line = r"6 1 254:1 / /mnt/two\040words rw,relatime shared:1 - ext4 /dev/vda1 rw";
        assert_eq!(mount_on_a_device(line), Some(OsString::from("/mnt/two words")));
        assert_eq!(mount_on_a_device("1 23 0:21 / /proc rw,relatime - proc proc rw"), None);
        assert_eq!(mount_on_a_device("1 23"), None);
        assert_eq!(without_octal_escapes(br"a\134b\9x"), br"a\b\9x");
    }
}
