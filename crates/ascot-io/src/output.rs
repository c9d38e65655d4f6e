//! An output file that appears completely or not at all.
//!
//! ```text
//!   create   .result.ascot-1f2e3d4c5b6a7988.tmp   beside result, with a random name
//!   write    ...
//!   seal     take over result's mode and owner, sync, close
//!   commit   seal, rename to result, sync the directory
//!   drop     without commit: remove the temporary file
//! ```
//!
//! Until the rename the old file is unchanged, so a job may read the file it replaces. A symbolic link is followed:
//! its target is replaced, and the link stays. Devices, fifos and other files that are not regular (`/dev/null`,
//! `/dev/stdout`) are written directly.
//!
//! Other users may write to the directory, too, and replace the temporary file by a file or link of theirs. So the
//! temporary file is created exclusively, its mode and owner are set through its descriptor, and it is renamed or
//! removed only while its name still refers to this very file.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::buf::Buf;
use crate::disk::{Disk, DiskOptions};
use crate::emergency;
use crate::error::{Action, During, IoError, Result};
use crate::stream::WriteStream;
use crate::system;

/// Attempts to create a temporary file before giving up; a cleaner may remove it before it is locked.
const ATTEMPTS: usize = 8;
/// Bytes that one system call moves for a small file.
const BYTES_AT_ONCE: usize = 1 << 20;

/// A file being written under a temporary name.
pub struct AtomicOutput {
    disk: Disk,
    stream: Option<Box<dyn WriteStream>>,
    /// The final path, links followed.
    target: PathBuf,
    /// The current path; `None` if the target is written directly.
    temporary: Option<PathBuf>,
    /// The temporary file. It is locked while a process writes it, so that unlocked leftovers can be removed.
    file: Option<File>,
    /// Its length, once all bytes are durable and the stream is closed.
    sealed: Option<u64>,
    kept: bool,
}

impl AtomicOutput {
    /// Starts an output that will be `path`; `name` is the stream's name in the ledger.
    pub fn create(disk: &Disk, path: &Path, name: &str) -> Result<Self> {
        if let Some(temporary) = Self::name_for(path)? {
            return Self::create_named(disk, path, &temporary, name);
        }
        let target = resolve(path)?;
        let stream = disk.open_special(&target, name)?;
        Ok(Self::at(disk, stream, target, None))
    }

    /// A durable output of `bytes` that will be `path`, complete except for its name. It starts no threads.
    pub fn with_bytes(path: &Path, name: &str, bytes: &[u8]) -> Result<Self> {
        let backend = Backend::Sized(BYTES_AT_ONCE);
        let disk = Disk::new(DiskOptions { backend, ..DiskOptions::default() });
        let mut output = Self::create(&disk, path, name)?;
        let mut buf = Buf::heap(bytes.len());
        buf.copy_from_slice(bytes);
        output.stream()?.begin(buf, bytes.len())?;
        output.seal()?;
        Ok(output)
    }

    /// A temporary name for an output that will be `path`, to be recorded before the file exists; `None` if the
    /// output is written directly.
    pub fn name_for(path: &Path) -> Result<Option<PathBuf>> {
        let target = resolve(path)?;
        let direct = state(&target)?.is_some_and(|old| !old.is_file());
        if direct { Ok(None) } else { temporary_name(&target).map(Some) }
    }

    /// Fails early if the directory of `path` does not exist, or cannot have a file of this name.
    pub fn check_directory(path: &Path) -> Result<()> {
        let target = resolve(path)?;
        state(&target)?;
        match fs::metadata(directory_of(&target)) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                Err(no_directory(path, directory_of(&target), source.into()))
            }
            _ => Ok(()),
        }
    }

    /// Starts an output under a name from [`name_for`](Self::name_for). Bytes left there by a killed job are dropped.
    pub fn create_named(disk: &Disk, path: &Path, temporary: &Path, name: &str) -> Result<Self> {
        let target = resolve(path)?;
        emergency::register_file(temporary);
        let created = Self::create_registered(disk, path, target, temporary, name);
        created.inspect_err(|_| emergency::forget(temporary))
    }

    fn create_registered(
        disk: &Disk,
        path: &Path,
        target: PathBuf,
        temporary: &Path,
        name: &str,
    ) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            match disk.create_as(temporary, name, mode(state(&target)?.as_ref())) {
                Err(IoError::Os { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                    disk.remove_file(temporary)?;
                }
                Err(error) => return Err(name_output(error, path, &target)),
                Ok((stream, file)) => {
                    if hold(temporary, &file) {
                        return Ok(Self::at(disk, stream, target, Some((temporary, file))));
                    }
                }
            }
        }
        Err(IoError::from_os(Action::Create, temporary, 0, io::Error::from_raw_os_error(libc::EBUSY)))
    }

    /// An output at `target`, now at the temporary path with this file, or written directly.
    fn at(
        disk: &Disk,
        stream: Box<dyn WriteStream>,
        target: PathBuf,
        temporary: Option<(&Path, File)>,
    ) -> Self {
        let (temporary, file) = temporary.map(|(path, file)| (path.to_path_buf(), file)).unzip();
        Self { disk: disk.clone(), stream: Some(stream), target, temporary, file, sealed: None, kept: false }
    }

    /// Continues the temporary file of a killed job at `offset` (a multiple of 4096), for the same `path`. It must
    /// still be the file with inode number `inode`, if that is known.
    pub fn resume(
        disk: &Disk,
        path: &Path,
        temporary: &Path,
        offset: u64,
        inode: Option<u64>,
        name: &str,
    ) -> Result<Self> {
        let target = resolve(path)?;
        let file = open_own(temporary, |stat| inode.is_none_or(|inode| inode == stat.ino()))?;
        let copy = file.try_clone().during_at(Action::Open, temporary, offset)?;
        let stream = disk.append_to(copy, temporary, offset, name)?;
        // It is not registered: a resumable output stays.
        Ok(Self::at(disk, stream, target, Some((temporary, file))))
    }

    /// Takes over the complete temporary file of a killed job, for the same `path`: it only needs its name. It must be
    /// the file with inode number `inode` and `bytes` bytes.
    pub fn resume_sealed(disk: &Disk, path: &Path, temporary: &Path, inode: u64, bytes: u64) -> Result<Self> {
        let target = resolve(path)?;
        let file = open_own(temporary, |stat| (stat.ino(), stat.len()) == (inode, bytes))?;
        Ok(Self {
            disk: disk.clone(),
            stream: None,
            target,
            temporary: Some(temporary.to_path_buf()),
            file: Some(file),
            sealed: Some(bytes),
            kept: true,
        })
    }

    /// The stream to write to.
    pub fn stream(&mut self) -> Result<&mut dyn WriteStream> {
        match &mut self.stream {
            Some(stream) => Ok(stream.as_mut()),
            None => Err(IoError::Misuse {
                path: self.target.clone(),
                offset: 0,
                what: "the output's stream was taken",
            }),
        }
    }

    /// Its device, if known and the stream was not taken.
    pub fn channel(&self) -> Option<u64> {
        self.stream.as_ref().and_then(|stream| stream.channel())
    }

    /// The temporary name, for [`resume`](Self::resume) after a kill; `None` if the output is written directly.
    pub fn persist_name(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    /// The inode number of the temporary file, for [`resume`](Self::resume).
    pub fn inode(&self) -> Option<u64> {
        self.file.as_ref().and_then(|file| file.metadata().ok()).map(|stat| stat.ino())
    }

    /// Keeps the temporary file if the output is dropped uncommitted.
    pub fn keep(&mut self) {
        if !std::mem::replace(&mut self.kept, true) {
            self.temporary.iter().for_each(|path| emergency::forget(path));
        }
    }

    /// Makes the output durable and closes it: afterwards only its final name is missing. Returns its length in
    /// bytes.
    pub fn seal(&mut self) -> Result<u64> {
        if let Some(bytes) = self.sealed {
            return Ok(bytes);
        }
        let Some(mut stream) = self.stream.take() else {
            let what = "the output's stream was taken";
            return Err(IoError::Misuse { path: self.target.clone(), offset: 0, what });
        };
        if let (Some(file), Some(temporary)) = (&self.file, &self.temporary)
            && let Some(old) = state(&self.target)?
        {
            take_over(file, &old).during(Action::Create, temporary)?;
        }
        stream.sync()?;
        let bytes = stream.finish()?;
        if let Some(temporary) = &self.temporary {
            // An account made before the rename lists the file under the name that users know.
            self.disk.ledger().renamed(temporary, &self.target);
        }
        self.sealed = Some(bytes);
        Ok(bytes)
    }

    /// Seals the output and gives it its final name; returns its length in bytes. After an error the old file is
    /// unchanged.
    pub fn commit(mut self) -> Result<u64> {
        let bytes = self.seal()?;
        if self.place()? {
            self.disk.sync_dir(directory_of(&self.target))?;
        }
        Ok(bytes)
    }

    /// Commits several outputs in order: all are sealed before the first gets its name, and their directories are
    /// synced once.
    pub fn commit_all(mut outputs: Vec<AtomicOutput>) -> Result<()> {
        outputs.iter_mut().try_for_each(|output| output.seal().map(|_| ()))?;
        outputs.iter_mut().try_for_each(|output| output.place().map(|_| ()))?;
        outputs.dedup_by(|a, b| directory_of(&a.target) == directory_of(&b.target));
        outputs.iter().try_for_each(|output| output.disk.sync_dir(directory_of(&output.target)))
    }

    /// Gives a sealed output its name; false if it was written directly under that name.
    fn place(&mut self) -> Result<bool> {
        let Some(temporary) = &self.temporary else { return Ok(false) };
        if !self.has_name(temporary) {
            return Err(IoError::Replaced { path: temporary.clone() });
        }
        self.disk.rename(temporary, &self.target)?;
        emergency::forget(temporary);
        self.temporary = None;
        // A descriptor cannot be renamed, so another process may have acted between the two steps. If it removed the
        // new file at once, no harm is done.
        let named = self.file.as_ref().is_some_and(|file| is_named(file, &self.target));
        if !named && fs::symlink_metadata(&self.target).is_ok() {
            return Err(IoError::Replaced { path: self.target.clone() });
        }
        Ok(true)
    }

    /// Whether the temporary name still refers to the file that was written.
    fn has_name(&self, temporary: &Path) -> bool {
        self.file.as_ref().is_some_and(|file| is_named(file, temporary))
    }
}

impl Drop for AtomicOutput {
    fn drop(&mut self) {
        self.stream = None;
        let Some(temporary) = self.temporary.take().filter(|_| !self.kept) else { return };
        if self.has_name(&temporary) {
            // The caller has reported why the output is dropped; a leftover is found by its name.
            let _ = self.disk.remove_file(&temporary);
            self.file.take().into_iter().for_each(|file| self.disk.free_later(file));
        }
        emergency::forget(&temporary);
    }
}

/// Reports an error in creating the temporary file of `target` under `path`, the name the user knows.
fn name_output(error: IoError, path: &Path, target: &Path) -> IoError {
    let directory = directory_of(target);
    match error {
        IoError::Os { source, .. } if source.kind() == io::ErrorKind::NotFound && !directory.exists() => {
            no_directory(path, directory, source)
        }
        IoError::Os { action, offset, source, .. } => {
            IoError::Os { action, path: path.to_path_buf(), offset, source }
        }
        other => other,
    }
}

fn no_directory(path: &Path, directory: &Path, source: Arc<io::Error>) -> IoError {
    IoError::NoDirectory { path: path.to_path_buf(), directory: directory.to_path_buf(), source }
}

/// The permission bits of a temporary file, before the umask. If it replaces a file, only the owner may read the new
/// bytes until it has the old file's mode.
fn mode(old: Option<&Metadata>) -> u32 {
    if old.is_some() { 0o600 } else { 0o666 }
}

/// Whether `path` is a name of this very file, and not a link to it.
fn is_named(file: &File, path: &Path) -> bool {
    let (Ok(held), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (held.dev(), held.ino()) == (named.dev(), named.ino())
}

/// Locks a new temporary file, if the volume has locks; false if a cleaner removed it, or is removing it, before the
/// lock.
fn hold(temporary: &Path, file: &File) -> bool {
    !matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)) && is_named(file, temporary)
}

/// The kernel releases the files of a killed process a moment after its end, if its ring had requests in flight.
const RELEASE_PATIENCE: Duration = Duration::from_millis(500);
const RELEASE_POLL: Duration = Duration::from_millis(5);

/// Opens an unfinished output to check whether it is locked; links and files that are not regular do not qualify.
fn open_orphan(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|stat| stat.is_file()).then_some(file)
}

/// Removes an unfinished output while holding its lock; false if another process holds it.
pub fn remove_orphan(temporary: &Path) -> bool {
    let Some(file) = open_orphan(temporary) else { return false };
    file.try_lock().is_ok() && is_named(&file, temporary) && fs::remove_file(temporary).is_ok()
}

/// Unlocked unfinished outputs in `directory`: leftovers of killed jobs.
pub fn orphaned_outputs(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let deadline = Instant::now() + RELEASE_PATIENCE;
    let orphaned = |path: &PathBuf| is_temporary(path) && is_unlocked_by(deadline, path);
    entries.flatten().map(|entry| entry.path()).filter(orphaned).collect()
}

/// Whether an unfinished output is unlocked, or is so before `deadline`.
fn is_unlocked_by(deadline: Instant, path: &Path) -> bool {
    let Some(file) = open_orphan(path) else { return false };
    while file.try_lock().is_err() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(RELEASE_POLL);
    }
    true
}

/// Whether a path has a name that only this module creates.
pub fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let middle = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".tmp"));
    let number =
        middle.and_then(|middle| middle.rsplit_once(".ascot-")).map(|(_, number)| number.to_string());
    number.is_some_and(|number| number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The name that a temporary file gets when it is complete, as far as its temporary name has it: long names are
/// shortened there.
pub fn name_of_temporary(path: &Path) -> Option<PathBuf> {
    let name = path.file_name().filter(|_| is_temporary(path))?.to_str()?;
    let (stem, _) = name.strip_prefix('.')?.rsplit_once(".ascot-")?;
    Some(path.with_file_name(stem))
}

/// Opens and locks the temporary file of a killed job. It must be a file of this user without other names that
/// `is_the_one`.
fn open_own(temporary: &Path, is_the_one: impl FnOnce(&Metadata) -> bool) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(temporary).during(Action::Open, temporary)?;
    let stat = file.metadata().during(Action::Open, temporary)?;
    let me = rustix::process::geteuid().as_raw();
    let own = stat.is_file() && stat.nlink() == 1 && stat.uid() == me;
    if !own || !is_the_one(&stat) {
        return Err(IoError::Replaced { path: temporary.to_path_buf() });
    }
    // On a volume without locks, other processes clean nothing up.
    let _ = file.try_lock();
    Ok(file)
}

/// Follows symbolic links; the last may point to a missing file.
fn resolve(path: &Path) -> Result<PathBuf> {
    const LINKS_FOLLOWED: usize = 40;
    let mut target = path.to_path_buf();
    for _ in 0..LINKS_FOLLOWED {
        // The target of a link to a device or pipe (/dev/stdout) has no name to follow.
        if fs::metadata(&target).is_ok_and(|stat| !stat.is_file()) {
            return Ok(target);
        }
        match fs::read_link(&target) {
            Ok(link) => target = directory_of(&target).join(link),
            Err(_) => return Ok(target),
        }
    }
    Err(IoError::from_os(Action::Create, path, 0, io::Error::from_raw_os_error(libc::ELOOP)))
}

/// The metadata of `path`, if it exists.
fn state(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(stat) if stat.is_dir() => {
            let error = io::Error::from_raw_os_error(libc::EISDIR);
            Err(IoError::from_os(Action::Create, path, 0, error))
        }
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(IoError::from_os(Action::Inspect, path, 0, error)),
    }
}

/// The directory of a file, which need not exist; `.` for a bare name.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// `.name.ascot-<16 hex digits>.tmp` beside the target, shortened if the name would be too long.
fn temporary_name(target: &Path) -> Result<PathBuf> {
    const LONGEST_STEM: usize = 200;
    let Some(name) = target.file_name() else {
        let error = io::Error::from_raw_os_error(libc::EISDIR);
        return Err(IoError::from_os(Action::Create, target, 0, error));
    };
    let random = system::random_bytes::<8>().during(Action::Create, target)?;
    let stem: String = name.to_string_lossy().chars().take(LONGEST_STEM / 4).collect();
    let number = u64::from_ne_bytes(random);
    Ok(directory_of(target).join(format!(".{stem}.ascot-{number:016x}.tmp")))
}

/// Gives the new file the old one's owner, if permitted, and its mode. It works on the descriptor: a file that has
/// the name by now is left alone.
fn take_over(new: &File, old: &Metadata) -> io::Result<()> {
    let now = new.metadata()?;
    let mut mode = old.mode() & 0o7777;
    if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
        let owned = std::os::unix::fs::fchown(new, Some(old.uid()), Some(old.gid()));
        if owned.is_err() {
            // If we may not give the file away, we may not grant set-uid and set-gid either.
            let _ = std::os::unix::fs::fchown(new, None, Some(old.gid()));
            mode &= 0o777;
        }
    }
    new.set_permissions(Permissions::from_mode(mode))
}
