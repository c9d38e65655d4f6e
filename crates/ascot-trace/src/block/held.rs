//! The files that the program opened, kept open until they are gone, so that their extents can be found.
//!
//! ```text
//!   opened --hold--> look, look, ... --removed, and no process has it--> last look, release
//!                                    --the program has ended-----------> write dirty pages, last look
//! ```
//!
//! Invariants: a file that is held keeps its blocks, so no other file has them. Dirty pages of a removed file are not
//! written for its sake. At most `limit` files are held; if there are more, the one that was opened first is written
//! and released.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use rustix::fs::makedev;

use super::timeline::{Placed, Timeline};
use super::volumes::Volumes;
use crate::event::TracedFile;
use crate::fiemap;
use crate::holes::data_of;

/// Descriptors that this process needs for itself and for events.
const OTHER_DESCRIPTORS: u64 = 256;

/// A file system, and the number of a file in it.
type Identity = (u64, u64);

/// What changes when a file is written: length, blocks, and time.
type State = (u64, u64, i64, i64);

/// A file that the program opened.
struct Known {
    identity: Identity,
    born: Option<SystemTime>,
    /// None after its release.
    file: Option<File>,
    timeline: Timeline,
    /// The state of the file at the last look; none if another look at the same state could find more.
    state: Option<State>,
    traced: TracedFile,
}

/// The files.
pub struct Held {
    files: Vec<Known>,
    by_identity: HashMap<Identity, u32>,
    /// Those that are held, in the order of their opening.
    order: VecDeque<u32>,
    limit: usize,
    volumes: Volumes,
    /// Files of which the file system does not tell the extents, or that lie on no single disk.
    pub without_extents: u64,
}

/// What is known of all files in the end.
pub struct Extents {
    /// The files.
    pub files: Vec<TracedFile>,
    /// The disk, the file and the piece of every extent.
    pub placed: Vec<(u32, u32, Placed)>,
}

impl Held {
    /// Holds no file yet.
    pub fn new() -> Held {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.unwrap_or(1 << 20);
        Held {
            files: Vec::new(),
            by_identity: HashMap::new(),
            order: VecDeque::new(),
            limit: limit.saturating_sub(OTHER_DESCRIPTORS).max(limit / 4).clamp(1, 1 << 20) as usize,
            volumes: Volumes::default(),
            without_extents: 0,
        }
    }

    /// A file was opened. Returns its number; none if it is no regular file.
    pub fn opened(&mut self, file: File, now_ns: u64) -> Option<u32> {
        let metadata = file.metadata().ok().filter(Metadata::is_file)?;
        let identity = (metadata.dev(), metadata.ino());
        let born = metadata.created().ok();
        let known = self.by_identity.get(&identity).copied();
        let known = known.filter(|number| self.files[*number as usize].born == born);
        let number = match known {
            Some(number) if self.files[number as usize].file.is_some() => return Some(number),
            Some(number) => number,
            None => {
                let number = self.files.len() as u32;
                self.by_identity.insert(identity, number);
                let traced = TracedFile { held: data_of(&file, metadata.len()), ..TracedFile::default() };
                self.files.push(Known {
                    identity,
                    born,
                    file: None,
                    timeline: Timeline::default(),
                    state: None,
                    traced,
                });
                self.without_extents += u64::from(self.volumes.of(identity.0).is_none());
                number
            }
        };
        while self.order.len() >= self.limit {
            let Some(first) = self.order.pop_front() else { break };
            self.look(first, now_ns, true);
            self.files[first as usize].file = None;
        }
        self.files[number as usize].file = Some(file);
        self.order.push_back(number);
        self.look(number, now_ns, false);
        Some(number)
    }

    /// Finds the extents of a file.
    fn look(&mut self, number: u32, now_ns: u64, sync: bool) {
        let known = &mut self.files[number as usize];
        let Some(file) = &known.file else { return };
        let volume = self.volumes.of(known.identity.0);
        if let Some(path) = path_of(file) {
            known.traced.path = path;
        }
        // What changes from here on is found by the next look.
        let metadata = file.metadata();
        let mut delayed = false;
        if let (Some(volume), Ok(extents)) = (volume, fiemap::extents(file, sync)) {
            known.timeline.look(now_ns, &extents, volume.offset);
            delayed = extents.iter().any(|extent| extent.delayed);
        }
        if let Ok(metadata) = metadata {
            known.traced.peak_bytes = known.traced.peak_bytes.max(metadata.len());
            // Bytes get their place without a change of the state.
            known.state = (!delayed).then(|| state(&metadata));
        }
    }

    /// Looks at the files that changed, and releases those that are gone: `gone` gets their numbers. `pids`: the
    /// processes of the program.
    pub fn look_again(&mut self, now_ns: u64, pids: impl Iterator<Item = u32>, mut gone: impl FnMut(u32)) {
        let mut removed = Vec::new();
        for number in self.order.clone() {
            let known = &self.files[number as usize];
            let Some(metadata) = known.file.as_ref().and_then(|file| file.metadata().ok()) else { continue };
            if Some(state(&metadata)) != known.state {
                self.look(number, now_ns, false);
            }
            if metadata.nlink() == 0 {
                removed.push(number);
            }
        }
        if removed.is_empty() {
            return;
        }
        let open = open_files(pids);
        for number in removed {
            if !open.contains(&self.files[number as usize].identity) {
                self.release(number, now_ns);
                gone(number);
            }
        }
    }

    /// Releases a file without a name that no process has open.
    fn release(&mut self, number: u32, now_ns: u64) {
        self.look(number, now_ns, false);
        let known = &mut self.files[number as usize];
        known.file = None;
        known.timeline.end(now_ns);
        known.traced.deleted = true;
        if self.by_identity.get(&known.identity) == Some(&number) {
            self.by_identity.remove(&known.identity);
        }
        self.order.retain(|held| *held != number);
    }

    /// Writes the dirty pages of all files that have a name, and finds their last extents.
    pub fn write_back(&mut self, now_ns: impl Fn() -> u64) {
        for number in self.order.clone() {
            let known = &mut self.files[number as usize];
            let names =
                known.file.as_ref().and_then(|file| file.metadata().ok()).map(|metadata| metadata.nlink());
            known.traced.deleted = names == Some(0);
            self.look(number, now_ns(), names.is_some_and(|names| names > 0));
        }
    }

    /// All extents, and the files.
    pub fn finish(mut self) -> Extents {
        let mut extents = Extents { files: Vec::new(), placed: Vec::new() };
        for (number, known) in self.files.into_iter().enumerate() {
            if let Some(volume) = self.volumes.of(known.identity.0) {
                let placed = known.timeline.into_extents();
                extents.placed.extend(placed.map(|placed| (volume.disk, number as u32, placed)));
            }
            extents.files.push(known.traced);
        }
        extents
    }
}

fn state(metadata: &Metadata) -> State {
    (metadata.len(), metadata.blocks(), metadata.mtime(), metadata.mtime_nsec())
}

/// The last name of an open file.
fn path_of(file: &File) -> Option<Vec<u8>> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    // The system marks a removed name; a file may have a name that ends like this.
    let there = fs::symlink_metadata(&path).map(identity).ok();
    let is_its_name = there.is_some() && there == file.metadata().map(identity).ok();
    let path = path.into_os_string().into_vec();
    match path.strip_suffix(b" (deleted)") {
        Some(before) if !is_its_name => Some(before.to_vec()),
        _ => Some(path),
    }
}

/// The files that processes have open or mapped.
fn open_files(pids: impl Iterator<Item = u32>) -> HashSet<Identity> {
    let mut open = HashSet::new();
    for pid in pids {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let metadata = descriptors.filter_map(|descriptor| fs::metadata(descriptor.path()).ok());
        open.extend(metadata.map(|metadata| (metadata.dev(), metadata.ino())));
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        open.extend(maps.lines().filter_map(mapped_file));
    }
    open
}

/// `7f5c-7f5d r--s 00000000 fe:00 1234   /data/file`
fn mapped_file(line: &str) -> Option<Identity> {
    let mut words = line.split_whitespace().skip(3);
    let (major, minor) = words.next()?.split_once(':')?;
    let device = makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    Some((device, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_released_when_it_has_no_name_and_no_descriptor() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("part (deleted)");
        fs::write(&path, [1; 10_000]).unwrap();
        let mut held = Held::new();
        let number = held.opened(File::open(&path).unwrap(), 1);
        assert_eq!(held.opened(File::open(&path).unwrap(), 2), number, "one file, opened twice");
        let mine = File::open(&path).unwrap();
        let mut gone = Vec::new();
        let own = [std::process::id()];
        held.look_again(3, [].into_iter(), |number| gone.push(number));
        fs::remove_file(&path).unwrap();
        // The descriptor of `held` itself belongs to this process, too.
        held.look_again(4, own.into_iter(), |number| gone.push(number));
        assert!(gone.is_empty());
        held.look_again(5, [].into_iter(), |number| gone.push(number));
        assert_eq!(gone, [0]);
        drop(mine);
        let extents = held.finish();
        assert!(extents.files[0].deleted && extents.files[0].peak_bytes == 10_000);
    }

    #[test]
    fn the_mark_of_a_removed_file_is_no_part_of_its_name() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("part (deleted)");
        fs::write(&path, [1; 10]).unwrap();
        let file = File::open(&path).unwrap();
        let named = || path_of(&file).unwrap().ends_with(b"/part (deleted)");
        assert!(named());
        fs::remove_file(&path).unwrap();
        assert!(named());
    }

    #[test]
    fn directories_and_devices_are_no_files() {
        let mut held = Held::new();
        assert_eq!(held.opened(File::open("/").unwrap(), 1), None);
        assert_eq!(held.opened(File::open("/dev/null").unwrap(), 1), None);
    }

    #[test]
    fn files_beyond_the_limit_are_released_and_known_again() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut held = Held { limit: 2, ..Held::new() };
        let open = |name: u32| {
            let path = directory.path().join(name.to_string());
            File::options().append(true).create(true).read(true).open(path).unwrap()
        };
        let numbers: Vec<_> =
            [0, 1, 2, 3, 0].map(|name| held.opened(open(name), 1)).into_iter().flatten().collect();
        assert_eq!(numbers, [0, 1, 2, 3, 0]);
        assert_eq!(held.order, [3, 0]);
    }

    #[test]
    fn mapped_files_are_read_from_maps() {
        let line = "7f5c00000000-7f5c00001000 r--s 00000000 fe:01 1234                 /data/file";
        assert_eq!(mapped_file(line), Some((makedev(254, 1), 1234)));
        assert_eq!(mapped_file("7f5c-7f5d rw-p"), None);
    }
}
