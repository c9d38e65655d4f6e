//! The files of a log: their names, lengths and ends.
//!
//! A file is identified by its name while it has one, so that descriptors of several processes refer to one file; it
//! keeps its identity when it is renamed, and a name that is created again after its removal is another file.
//!
//! Invariant: every live name leads to one file; a file without names and without open descriptors is *gone* and
//! never changes again.

use std::collections::{BTreeMap, HashSet};

use crate::event::TracedFile;
use crate::ranges::RangeSet;

/// The files seen so far.
#[derive(Default)]
pub struct Files {
    list: Vec<State>,
    names: BTreeMap<Vec<u8>, u32>,
    /// Names of directories through symbolic links, with their own.
    links: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct State {
    path: Vec<u8>,
    /// The length as far as it is known.
    bytes: u64,
    /// Whether `bytes` is the length, and not only a lower bound.
    known: bool,
    /// Bytes appended while the length was not known.
    appended: u64,
    peak_bytes: u64,
    names: u32,
    /// If it got a name beside its own: both, and all later ones. It may have lost some of them.
    links: Vec<Vec<u8>>,
    descriptors: u32,
    deleted: bool,
    /// Whether its length is known to have been 0 before its first request.
    was_empty: bool,
    /// Whether a call used it as a directory.
    directory: bool,
}

impl Files {
    /// The file that has a name; a new one if none has. A file `created` now is empty.
    pub fn named(&mut self, path: Vec<u8>, created: bool) -> u32 {
        if let Some(&file) = self.names.get(&path) {
            return file;
        }
        let file = self.push(path.clone(), created, 1);
        self.names.insert(path, file);
        file
    }

    /// A new file that has no name.
    pub fn nameless(&mut self, path: Vec<u8>, created: bool) -> u32 {
        let file = self.push(path, created, 0);
        self.list[file as usize].deleted = true;
        file
    }

    fn push(&mut self, path: Vec<u8>, created: bool, names: u32) -> u32 {
        self.list.push(State {
            path,
            bytes: 0,
            known: created,
            appended: 0,
            peak_bytes: 0,
            names,
            links: Vec::new(),
            descriptors: 0,
            deleted: false,
            was_empty: created,
            directory: false,
        });
        (self.list.len() - 1) as u32
    }

    fn state(&mut self, file: u32) -> Option<&mut State> {
        self.list.get_mut(file as usize)
    }

    /// The file that has a name now.
    pub fn find(&self, path: &[u8]) -> Option<u32> {
        self.names.get(path).copied()
    }

    /// Notes that a file was opened as `named`, and that its own name is `real`: its directory may have been reached
    /// through a symbolic link. `agrees` says whether two directories may be the same.
    pub fn opened_as(&mut self, named: &[u8], real: &[u8], agrees: fn(&[u8], &[u8]) -> bool) {
        let Some((link, directory)) = different_directories(named, real) else { return };
        let known = self.links.get(link).is_some_and(|known| known == directory);
        if !known && agrees(link, directory) {
            self.links.insert(link.to_vec(), directory.to_vec());
        }
    }

    /// The own name of a file that a call names without opening it.
    pub fn real_name(&self, path: Vec<u8>) -> Vec<u8> {
        if self.links.is_empty() || self.names.contains_key(&path) {
            return path;
        }
        let ends = (1..=path.len()).rev().filter(|end| path.get(*end).is_none_or(|byte| *byte == b'/'));
        for end in ends {
            if let Some(directory) = self.links.get(&path[..end]) {
                return [directory, &path[end..]].concat();
            }
        }
        path
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Sets the length that a file has before its first request.
    pub fn set_initial(&mut self, file: u32, bytes: u64) {
        if let Some(state) = self.state(file)
            && !state.known
        {
            state.was_empty |= bytes == 0;
            state.bytes = bytes;
            state.known = true;
            state.peak_bytes = state.peak_bytes.max(bytes);
        }
    }

    /// The end of a file, at which a write appends, and whether it is known.
    pub fn end(&self, file: u32) -> (u64, bool) {
        self.list.get(file as usize).map_or((0, true), |state| (state.bytes, state.known))
    }

    /// Notes a request that moved bytes up to `end`.
    pub fn reaches(&mut self, file: u32, end: u64) {
        if let Some(state) = self.state(file) {
            state.bytes = state.bytes.max(end);
            state.peak_bytes = state.peak_bytes.max(state.bytes);
        }
    }

    /// Notes an append of `bytes` to a file whose length is not known.
    pub fn appends(&mut self, file: u32, bytes: u64) {
        if let Some(state) = self.state(file) {
            state.appended += bytes;
        }
    }

    /// Notes that the length became `bytes`; whether it changed.
    pub fn resize(&mut self, file: u32, bytes: u64) -> bool {
        let Some(state) = self.state(file) else { return false };
        let changed = !state.known || state.bytes != bytes;
        state.was_empty |= bytes == 0 && state.peak_bytes == 0;
        // The length at the end of the recording says nothing about the length before.
        state.appended = 0;
        state.bytes = bytes;
        state.known = true;
        state.peak_bytes = state.peak_bytes.max(bytes);
        changed
    }

    /// Notes another descriptor.
    pub fn opened(&mut self, file: u32) {
        if let Some(state) = self.state(file) {
            state.descriptors += 1;
        }
    }

    /// Notes the end of a descriptor; whether the file is gone.
    pub fn closed(&mut self, file: u32) -> bool {
        let Some(state) = self.state(file) else { return false };
        state.descriptors = state.descriptors.saturating_sub(1);
        state.is_gone()
    }

    /// Removes a name; the file if it is gone.
    pub fn unlinked(&mut self, path: &[u8]) -> Option<u32> {
        let file = self.names.remove(path)?;
        let state = self.list.get_mut(file as usize)?;
        state.names = state.names.saturating_sub(1);
        state.deleted = state.names == 0;
        let names = &self.names;
        if !state.deleted && names.get(&state.path) != Some(&file) {
            let left = state.links.iter().rfind(|link| names.get(*link) == Some(&file));
            state.path = left.unwrap_or(&state.path).clone();
        }
        state.is_gone().then_some(file)
    }

    /// Gives a file another name beside its own.
    pub fn linked(&mut self, from: &[u8], to: Vec<u8>) {
        if let Some(&file) = self.names.get(from) {
            self.names.insert(to.clone(), file);
            if let Some(state) = self.state(file) {
                state.names += 1;
                if state.links.is_empty() {
                    state.links.push(from.to_vec());
                }
                state.links.push(to);
            }
        }
    }

    /// Renames a file, or all files of a directory. Returns the replaced file if it is gone.
    pub fn renamed(&mut self, from: &[u8], to: &[u8]) -> Option<u32> {
        if from == to {
            return None;
        }
        let replaced = self.unlinked(to);
        if let Some(file) = self.names.remove(from) {
            self.move_to(file, to.to_vec());
        } else {
            let prefix = [from, b"/"].concat();
            let inside: Vec<Vec<u8>> = self
                .names
                .range(prefix.clone()..)
                .map(|(name, _)| name.clone())
                .take_while(|name| name.starts_with(&prefix))
                .collect();
            for name in inside {
                if let Some(file) = self.names.remove(&name) {
                    self.move_to(file, [to, &name[from.len()..]].concat());
                }
            }
        }
        replaced
    }

    fn move_to(&mut self, file: u32, path: Vec<u8>) {
        self.names.insert(path.clone(), file);
        if let Some(state) = self.state(file) {
            state.path = path;
        }
    }

    /// Exchanges the files of two names.
    pub fn exchanged(&mut self, one: &[u8], other: &[u8]) {
        let first = self.names.remove(one);
        let second = self.names.remove(other);
        if let Some(file) = first {
            self.move_to(file, other.to_vec());
        }
        if let Some(file) = second {
            self.move_to(file, one.to_vec());
        }
    }

    /// The name, and the bytes appended while the length was unknown, of every file of which the length now tells the
    /// length before.
    pub fn appended(&self) -> impl Iterator<Item = (u32, &[u8], u64)> {
        let listed = self.list.iter().enumerate().filter(|(_, state)| state.appended > 0 && !state.deleted);
        listed.map(|(file, state)| (file as u32, &state.path[..], state.appended))
    }

    /// Notes that a call used a file as a directory.
    pub fn is_directory(&mut self, file: u32) {
        if let Some(state) = self.state(file) {
            state.directory = true;
        }
    }

    /// The files that turned out to be directories: a call used them as such, or another file is below them.
    pub fn directories(&self) -> HashSet<u32> {
        let is_parent = |path: &[u8]| {
            let below = if path == b"/" { path.to_vec() } else { [path, b"/"].concat() };
            self.names
                .range(below.clone()..)
                .next()
                .is_some_and(|(name, _)| name.len() > below.len() && name.starts_with(&below))
        };
        let listed = self.list.iter().enumerate();
        let found = listed.filter(|(_, state)| state.directory || is_parent(&state.path));
        found.map(|(file, _)| file as u32).collect()
    }

    /// The table of a trace.
    pub fn into_table(self) -> Vec<TracedFile> {
        let listed = self.list.into_iter();
        listed
            .map(|state| TracedFile {
                path: state.path,
                peak_bytes: state.peak_bytes,
                deleted: state.deleted,
                held: state.was_empty.then(RangeSet::default),
            })
            .collect()
    }
}

impl State {
    fn is_gone(&self) -> bool {
        self.deleted && self.descriptors == 0
    }
}

/// The directories of two names of one file, without the names that both end with; none if the last names differ.
fn different_directories<'p>(named: &'p [u8], real: &'p [u8]) -> Option<(&'p [u8], &'p [u8])> {
    let mut one = named;
    let mut other = real;
    loop {
        let slashes = memchr::memrchr(b'/', one).zip(memchr::memrchr(b'/', other));
        match slashes.filter(|(slash, of_other)| one[*slash..] == other[*of_other..]) {
            Some((slash, of_other)) => (one, other) = (&one[..slash], &other[..of_other]),
            None => return (one.len() < named.len() && one != other).then_some((one, other)),
        }
    }
}

/// The absolute form of `path` as seen from `directory`: without `.`, `..` and empty parts.
pub fn absolute(directory: &[u8], path: &[u8]) -> Vec<u8> {
    let base = if path.starts_with(b"/") { &[][..] } else { directory };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in base.split(|byte| *byte == b'/').chain(path.split(|byte| *byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut result = Vec::with_capacity(base.len() + path.len() + 1);
    for part in parts {
        result.push(b'/');
        result.extend_from_slice(part);
    }
    if result.is_empty() { b"/".to_vec() } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_files() {
        let mut files = Files::default();
        let first = files.named(b"/d/a".to_vec(), true);
        files.opened(first);
        assert_eq!(files.renamed(b"/d/a", b"/d/b"), None);
        assert_eq!(files.named(b"/d/b".to_vec(), false), first);
        assert_eq!(files.unlinked(b"/d/b"), None, "a descriptor is open");
        let second = files.named(b"/d/b".to_vec(), true);
        assert_ne!(second, first);
        assert!(files.closed(first));
        assert_eq!(files.renamed(b"/d", b"/e"), None);
        assert_eq!(files.unlinked(b"/e/b"), Some(second));
        let table = files.into_table();
        assert_eq!(table[0].path, b"/d/b");
        assert_eq!(table[1].path, b"/e/b");
        assert!(table[0].deleted && table[1].deleted);
    }

    #[test]
    fn a_file_with_two_names_loses_both_before_it_is_gone() {
        let mut files = Files::default();
        let file = files.named(b"/a".to_vec(), true);
        files.linked(b"/a", b"/b".to_vec());
        assert_eq!(files.unlinked(b"/a"), None);
        let other = files.named(b"/c".to_vec(), true);
        files.exchanged(b"/b", b"/c");
        assert_eq!(files.named(b"/b".to_vec(), false), other);
        assert_eq!(files.renamed(b"/b", b"/c"), Some(file), "replaced");
    }

    #[test]
    fn a_file_has_the_name_that_is_left() {
        let mut files = Files::default();
        files.named(b"/temporary".to_vec(), true);
        files.linked(b"/temporary", b"/a".to_vec());
        files.linked(b"/temporary", b"/b".to_vec());
        files.unlinked(b"/temporary");
        files.unlinked(b"/b");
        files.named(b"/b".to_vec(), true);
        assert_eq!(files.into_table()[0].path, b"/a");
    }

    #[test]
    fn a_name_below_another_makes_it_a_directory() {
        let mut files = Files::default();
        for path in ["/d", "/d.x", "/d/a", "/e"] {
            files.named(path.as_bytes().to_vec(), false);
        }
        assert_eq!(files.directories(), HashSet::from([0]));
        files.is_directory(3);
        assert_eq!(files.directories(), HashSet::from([0, 3]));
    }

    #[test]
    fn directories_have_names_through_links() {
        let mut files = Files::default();
        let file = files.named(b"/real/sub/a".to_vec(), true);
        files.opened_as(b"/d/link/sub/a", b"/real/sub/a", |_, _| true);
        assert_eq!(files.real_name(b"/d/link/other".to_vec()), b"/real/other");
        assert_eq!(files.real_name(b"/d/link".to_vec()), b"/real");
        assert_eq!(files.real_name(b"/d/linked".to_vec()), b"/d/linked");
        let name = files.real_name(b"/d/link/sub/a".to_vec());
        assert_eq!(files.unlinked(&name), Some(file));
        // A link to a file says nothing about its directory, nor does one that the system does not confirm.
        files.opened_as(b"/d/x", b"/e/y", |_, _| true);
        files.opened_as(b"/d/y", b"/e/y", |_, _| false);
        assert_eq!(files.real_name(b"/d/y".to_vec()), b"/d/y");
        assert_eq!(different_directories(b"/a/b", b"/a/b"), None);
        assert_eq!(different_directories(b"/a/b", b"/b"), Some((&b"/a"[..], &b""[..])));
    }

    #[test]
    fn paths_become_absolute() {
        for (directory, path, wanted) in [
            ("/tmp", "a", "/tmp/a"),
            ("/tmp/x", "../a//b/.", "/tmp/a/b"),
            ("/tmp", "/a/../..", "/"),
            ("/", "a", "/a"),
        ] {
            assert_eq!(absolute(directory.as_bytes(), path.as_bytes()), wanted.as_bytes());
        }
    }
}
