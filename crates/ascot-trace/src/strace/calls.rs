//! The calls on files: which file and which bytes each of them means.
//!
//! Invariants: a failed call changes nothing. A request has the bytes that it moved, not those that it asked for. The
//! position of an open file is the one that the kernel has after the call. Descriptors of pipes, sockets, terminals,
//! directories and the files of /proc and /sys are not kept.

use std::collections::HashMap;

use super::descriptors::{Descriptors, Open};
use super::files::{Files, absolute};
use super::line::{Call, Named, may_be_a_file, unescaped};
use super::order::Order;
use super::unseen::Unseen;
use crate::error::Result;
use crate::event::{Event, Kind};

/// A descriptor that the first program inherits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Its number.
    pub number: u32,
    /// The path of its file.
    pub path: Vec<u8>,
    /// Its position.
    pub position: u64,
    /// Whether writes append.
    pub append: bool,
}

/// What is known beside the log.
pub struct Start {
    /// The directory in which the first program starts.
    pub directory: Vec<u8>,
    /// The descriptors that it inherits.
    pub descriptors: Vec<Inherited>,
    /// Lengths that files have before their first request, by the number of the file.
    pub lengths: HashMap<u32, u64>,
    /// Whether a path is that of a file or a block device.
    pub is_file: fn(&[u8]) -> bool,
    /// Whether two paths may be those of one directory.
    pub may_be_same: fn(&[u8], &[u8]) -> bool,
}

/// Who calls.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The process.
    pub process: u32,
    /// Its descriptors.
    pub table: u32,
    /// Its working directory.
    pub directory: &'a [u8],
    /// The start of the call, since the start of the recording.
    pub time_ns: u64,
}

/// The files and descriptors of a log, and the events that follow from its calls.
pub struct FileCalls<'a> {
    /// The files.
    pub files: Files,
    /// The descriptors of all processes.
    pub descriptors: Descriptors,
    /// The way to the sink.
    pub order: Order<'a>,
    start: &'a Start,
    /// Requests through descriptors whose opening was not seen.
    pub unseen_requests: u64,
    /// Appends at a position that was guessed.
    pub guessed_appends: u64,
    /// What the log does not show.
    pub unseen: Unseen,
}

/// The position of a request.
#[derive(Clone, Copy)]
enum At {
    /// That of the open file.
    Position,
    /// An offset that the call names.
    Offset(u64),
    /// The end of the file.
    End,
}

impl At {
    /// The offset of an argument; the position without one.
    fn argument(call: &Call<'_>, index: usize) -> At {
        call.number(index).map_or(At::Position, At::Offset)
    }
}

/// The absolute path in an argument as the program wrote it, from the directory in an argument or the caller's.
pub fn as_written(
    caller: Caller<'_>,
    call: &Call<'_>,
    path: usize,
    directory: Option<usize>,
) -> Option<Vec<u8>> {
    let named = directory.and_then(|index| call.directory(index)).map(unescaped);
    let base = named.as_deref().unwrap_or(caller.directory);
    call.path(path).map(|path| absolute(base, &path))
}

impl<'a> FileCalls<'a> {
    /// Nothing open yet.
    pub fn new(start: &'a Start, order: Order<'a>) -> FileCalls<'a> {
        FileCalls {
            files: Files::default(),
            descriptors: Descriptors::default(),
            order,
            start,
            unseen_requests: 0,
            guessed_appends: 0,
            unseen: Unseen::default(),
        }
    }

    /// Opens what the first program inherits.
    pub fn inherit(&mut self, table: u32) {
        for inherited in &self.start.descriptors {
            let file = self.file(inherited.path.clone(), false);
            self.files.opened(file);
            let open = Open::at(file, inherited.position, inherited.append);
            self.descriptors.insert(table, inherited.number, open, false);
        }
    }

    fn file(&mut self, path: Vec<u8>, created: bool) -> u32 {
        let known = self.files.len();
        let file = self.files.named(path, created);
        if self.files.len() > known
            && let Some(&bytes) = self.start.lengths.get(&file)
        {
            self.files.set_initial(file, bytes);
        }
        file
    }

    fn emit(&mut self, caller: Caller<'_>, file: u32, kind: Kind, offset: u64) -> Result<()> {
        let Caller { process, time_ns, .. } = caller;
        self.order.push(Event { time_ns, process, file, kind, jumped: false, offset, size: 0 })
    }

    /// Notes that the last descriptor of an open file is gone.
    pub fn ended(&mut self, caller: Caller<'_>, file: Option<u32>) -> Result<()> {
        match file {
            Some(file) if self.files.closed(file) => self.emit(caller, file, Kind::Delete, 0),
            _ => Ok(()),
        }
    }

    /// Applies a call that succeeded with `result`. Returns the working directory, if it changed.
    pub fn apply(&mut self, caller: Caller<'_>, call: &Call<'_>, result: u64) -> Result<Option<Vec<u8>>> {
        match call.name {
            b"read" | b"readv" => self.request(caller, call, 0, Kind::Read, At::Position, result)?,
            b"write" | b"writev" => self.request(caller, call, 0, Kind::Write, At::Position, result)?,
            b"pread64" | b"preadv" | b"preadv2" => {
                self.request(caller, call, 0, Kind::Read, At::argument(call, 3), result)?;
            }
            b"pwrite64" | b"pwritev" | b"pwritev2" => {
                let at = if call.has(4, b"RWF_APPEND") { At::End } else { At::argument(call, 3) };
                self.request(caller, call, 0, Kind::Write, at, result)?;
            }
            b"sendfile" | b"sendfile64" => {
                self.request(caller, call, 1, Kind::Read, At::argument(call, 2), result)?;
                self.request(caller, call, 0, Kind::Write, At::Position, result)?;
            }
            b"copy_file_range" | b"splice" => {
                self.request(caller, call, 0, Kind::Read, At::argument(call, 1), result)?;
                self.request(caller, call, 2, Kind::Write, At::argument(call, 3), result)?;
            }
            b"open" | b"creat" | b"openat" | b"openat2" => self.open(caller, call, result)?,
            b"close" => self.close(caller, call.number(0))?,
            b"close_range" => self.close_range(caller, call)?,
            b"ioctl" => self.mark(caller, call),
            b"dup" | b"dup2" | b"dup3" | b"fcntl" | b"fcntl64" => self.copy_or_mark(caller, call, result)?,
            b"lseek" | b"_llseek" => self.seek(caller, call, result)?,
            b"fallocate" if call.has(1, b"FALLOC_FL_PUNCH_HOLE") => self.hole(caller, call)?,
            b"ftruncate" | b"ftruncate64" | b"truncate" | b"truncate64" | b"fallocate" => {
                self.resize(caller, call)?;
            }
            b"rename" | b"renameat" | b"renameat2" | b"unlink" | b"unlinkat" | b"link" | b"linkat" => {
                self.names(caller, call)?;
            }
            b"chdir" => return Ok(self.named(caller, call, 0, None)),
            b"fchdir" => {
                self.note_directory(caller, call);
                return Ok(call.descriptor(0).map(|(_, name)| unescaped(name.text)));
            }
            b"getdents" | b"getdents64" => self.note_directory(caller, call),
            _ => self.unseen.add(call),
        }
        Ok(None)
    }

    /// A request for `size` bytes through the descriptor in an argument.
    fn request(
        &mut self,
        caller: Caller<'_>,
        call: &Call<'_>,
        argument: usize,
        kind: Kind,
        at: At,
        size: u64,
    ) -> Result<()> {
        let Some((descriptor, name)) = call.descriptor(argument) else { return Ok(()) };
        if !self.refers_to_a_file(caller, descriptor, name)? {
            return Ok(());
        }
        let Some(open) = self.descriptors.get(caller.table, descriptor) else { return Ok(()) };
        let file = open.file;
        let appends = kind == Kind::Write && (open.append || matches!(at, At::End));
        let (length, known) = self.files.end(file);
        let offset = match at {
            _ if appends => length,
            At::Offset(offset) => offset,
            At::Position | At::End => open.position,
        };
        let Some(end) = offset.checked_add(size) else { return Ok(()) };
        let jumped = matches!(at, At::Offset(_)) && !appends && offset != open.last_end;
        open.last_end = end;
        if matches!(at, At::Position) {
            open.position = end;
        }
        if appends && !known {
            self.files.appends(file, size);
            self.guessed_appends += 1;
        }
        if kind == Kind::Read && size == 0 && offset == length {
            self.files.set_initial(file, length);
        }
        self.files.reaches(file, end);
        let Caller { process, time_ns, .. } = caller;
        self.order.push(Event { time_ns, process, file, kind, jumped, offset, size })
    }

    /// Whether a descriptor is one of a file. If its opening was not seen, it becomes known now.
    fn refers_to_a_file(&mut self, caller: Caller<'_>, descriptor: u32, name: Named<'_>) -> Result<bool> {
        if !may_be_a_file(name.text) {
            // A pipe or a socket took the number of a file, by a call that was not seen.
            if let Some((_, ended)) = self.descriptors.close(caller.table, descriptor) {
                self.ended(caller, ended)?;
            }
            return Ok(false);
        }
        if self.descriptors.get(caller.table, descriptor).is_some() {
            return Ok(true);
        }
        let path = unescaped(name.text);
        if !name.deleted && self.files.find(&path).is_none() && !(self.start.is_file)(&path) {
            return Ok(false);
        }
        let file = if name.deleted { self.files.nameless(path, false) } else { self.file(path, false) };
        self.files.opened(file);
        self.unseen_requests += 1;
        self.descriptors.insert(caller.table, descriptor, Open::at(file, 0, false), false);
        Ok(true)
    }

    /// Notes that the descriptor in the first argument, if it is one, refers to a directory.
    fn note_directory(&mut self, caller: Caller<'_>, call: &Call<'_>) {
        let descriptor = call.descriptor(0).map(|(descriptor, _)| descriptor);
        let open = descriptor.and_then(|descriptor| self.descriptors.get(caller.table, descriptor));
        if let Some(open) = open {
            self.files.is_directory(open.file);
        }
    }

    fn open(&mut self, caller: Caller<'_>, call: &Call<'_>, result: u64) -> Result<()> {
        if call.name.starts_with(b"openat") {
            self.note_directory(caller, call);
        }
        let Ok(descriptor) = u32::try_from(result) else { return Ok(()) };
        let flags = if call.name == b"open" { 1 } else { 2 };
        let creat = call.name == b"creat";
        let Some(name) = call.result_name else { return Ok(()) };
        let other = call.has(flags, b"O_DIRECTORY") && !call.has(flags, b"O_TMPFILE");
        if other || call.has(flags, b"O_PATH") || !may_be_a_file(name.text) {
            return Ok(());
        }
        let path = unescaped(name.text);
        let (argument, directory) = if call.name.starts_with(b"openat") { (1, Some(0)) } else { (0, None) };
        if let Some(written) = as_written(caller, call, argument, directory) {
            self.files.opened_as(&written, &path, self.start.may_be_same);
        }
        let exclusive = call.has(flags, b"O_CREAT") && call.has(flags, b"O_EXCL");
        let file = if name.deleted || call.has(flags, b"O_TMPFILE") {
            self.files.nameless(path, call.has(flags, b"O_TMPFILE"))
        } else {
            if exclusive && let Some(gone) = self.files.unlinked(&path) {
                self.emit(caller, gone, Kind::Delete, 0)?;
            }
            if self.files.find(&path).is_none() && !(self.start.is_file)(&path) {
                return Ok(());
            }
            self.file(path, exclusive)
        };
        self.files.opened(file);
        let truncates = creat || call.has(flags, b"O_TRUNC");
        let (length, _) = self.files.end(file);
        if truncates && self.files.resize(file, 0) && length > 0 {
            self.emit(caller, file, Kind::Resize, 0)?;
        }
        let open = Open::at(file, 0, call.has(flags, b"O_APPEND"));
        let close_on_exec = call.has(flags, b"O_CLOEXEC");
        let replaced = self.descriptors.insert(caller.table, descriptor, open, close_on_exec);
        self.ended(caller, replaced)?;
        self.emit(caller, file, Kind::Open, 0)
    }

    fn close(&mut self, caller: Caller<'_>, descriptor: Option<u64>) -> Result<()> {
        let descriptor = descriptor.and_then(|number| u32::try_from(number).ok());
        let closed = descriptor.and_then(|number| self.descriptors.close(caller.table, number));
        let Some((file, ended)) = closed else { return Ok(()) };
        self.emit(caller, file, Kind::Close, 0)?;
        self.ended(caller, ended)
    }

    fn close_range(&mut self, caller: Caller<'_>, call: &Call<'_>) -> Result<()> {
        let number = |index| call.number(index).map_or(u32::MAX, |number| number.min(u32::MAX.into()) as u32);
        for descriptor in self.descriptors.within(caller.table, number(0), number(1)) {
            if call.has(2, b"CLOSE_RANGE_CLOEXEC") {
                self.descriptors.mark(caller.table, descriptor, true);
            } else {
                self.close(caller, Some(descriptor.into()))?;
            }
        }
        Ok(())
    }

    /// Marks a descriptor for the next exec, or ends its mark; other requests of ioctl change nothing.
    fn mark(&mut self, caller: Caller<'_>, call: &Call<'_>) {
        let close_on_exec = match call.argument(1) {
            b"FIOCLEX" => true,
            b"FIONCLEX" => false,
            _ => return,
        };
        if let Some((descriptor, _)) = call.descriptor(0) {
            self.descriptors.mark(caller.table, descriptor, close_on_exec);
        }
    }

    fn copy_or_mark(&mut self, caller: Caller<'_>, call: &Call<'_>, result: u64) -> Result<()> {
        let Some((from, _)) = call.descriptor(0) else { return Ok(()) };
        let is_fcntl = call.name.starts_with(b"fcntl");
        if is_fcntl && call.argument(1) == b"F_SETFD" {
            self.descriptors.mark(caller.table, from, call.has(2, b"FD_CLOEXEC"));
            return Ok(());
        }
        if is_fcntl && call.argument(1) == b"F_SETFL" {
            if let Some(open) = self.descriptors.get(caller.table, from) {
                open.append = call.has(2, b"O_APPEND");
            }
            return Ok(());
        }
        if is_fcntl && !call.argument(1).starts_with(b"F_DUPFD") {
            return Ok(());
        }
        let Ok(to) = u32::try_from(result) else { return Ok(()) };
        let close_on_exec = call.argument(1) == b"F_DUPFD_CLOEXEC" || call.has(2, b"O_CLOEXEC");
        let ended = self.descriptors.duplicate(caller.table, from, to, close_on_exec);
        self.ended(caller, ended)
    }

    fn seek(&mut self, caller: Caller<'_>, call: &Call<'_>, result: u64) -> Result<()> {
        let Some((descriptor, name)) = call.descriptor(0) else { return Ok(()) };
        if !may_be_a_file(name.text) {
            return Ok(());
        }
        let Some(open) = self.descriptors.get(caller.table, descriptor) else { return Ok(()) };
        // `_llseek(3</a>, 0, [1000], SEEK_END) = 0` returns the position through a pointer.
        let (position, whence) = match call.name {
            b"_llseek" => (call.number(2), 3),
            _ => (Some(result), 2),
        };
        let Some(position) = position else { return Ok(()) };
        let moved = open.position != position;
        open.position = position;
        let file = open.file;
        if call.argument(1) == b"0" && call.argument(whence) == b"SEEK_END" {
            self.files.set_initial(file, position);
        }
        if moved { self.emit(caller, file, Kind::Seek, position) } else { Ok(()) }
    }

    fn resize(&mut self, caller: Caller<'_>, call: &Call<'_>) -> Result<()> {
        let file = match call.name {
            b"truncate" | b"truncate64" => {
                self.named(caller, call, 0, None).and_then(|path| self.files.find(&path))
            }
            _ => call
                .descriptor(0)
                .and_then(|(descriptor, _)| self.descriptors.get(caller.table, descriptor))
                .map(|open| open.file),
        };
        let Some(file) = file else { return Ok(()) };
        let (length, known) = self.files.end(file);
        let new_length = match call.name {
            b"fallocate" => {
                let end =
                    call.number(2).zip(call.number(3)).and_then(|(offset, len)| offset.checked_add(len));
                let grows = call.argument(1) == b"0" || call.argument(1) == b"FALLOC_FL_ZERO_RANGE";
                match call.argument(1) {
                    b"FALLOC_FL_COLLAPSE_RANGE" => length.checked_sub(call.number(3).unwrap_or(0)),
                    b"FALLOC_FL_INSERT_RANGE" => length.checked_add(call.number(3).unwrap_or(0)),
                    _ => end.filter(|end| grows && *end > length),
                }
            }
            _ => call.number(1),
        };
        let Some(bytes) = new_length else { return Ok(()) };
        if call.name == b"fallocate" && !known {
            self.files.reaches(file, bytes);
        } else if !self.files.resize(file, bytes) {
            return Ok(());
        }
        self.emit(caller, file, Kind::Resize, bytes)
    }

    fn hole(&mut self, caller: Caller<'_>, call: &Call<'_>) -> Result<()> {
        let open = call.descriptor(0).and_then(|(number, _)| self.descriptors.get(caller.table, number));
        let Some((file, (offset, size))) = open.map(|open| open.file).zip(call.number(2).zip(call.number(3)))
        else {
            return Ok(());
        };
        if offset.checked_add(size).is_none() {
            return Ok(());
        }
        let Caller { process, time_ns, .. } = caller;
        self.order.push(Event { time_ns, process, file, kind: Kind::Hole, jumped: false, offset, size })
    }

    /// The own name of the file that the argument `path` names, from the directory in an argument or the caller's.
    fn named(
        &self,
        caller: Caller<'_>,
        call: &Call<'_>,
        path: usize,
        directory: Option<usize>,
    ) -> Option<Vec<u8>> {
        as_written(caller, call, path, directory).map(|path| self.files.real_name(path))
    }

    /// Renames, links and removals.
    fn names(&mut self, caller: Caller<'_>, call: &Call<'_>) -> Result<()> {
        let relative = |path, directory| self.named(caller, call, path, directory);
        let gone = match call.name {
            b"unlink" => relative(0, None).and_then(|path| self.files.unlinked(&path)),
            b"unlinkat" => relative(1, Some(0)).and_then(|path| self.files.unlinked(&path)),
            _ => {
                let at = call.name.ends_with(b"at") || call.name.ends_with(b"at2");
                let (from, to) = match at {
                    true => (relative(1, Some(0)), relative(3, Some(2))),
                    false => (relative(0, None), relative(1, None)),
                };
                let Some((from, to)) = from.zip(to) else { return Ok(()) };
                if call.name.starts_with(b"link") {
                    self.files.linked(&from, to);
                    None
                } else if call.has(4, b"RENAME_EXCHANGE") {
                    self.files.exchanged(&from, &to);
                    None
                } else {
                    self.files.renamed(&from, &to)
                }
            }
        };
        match gone {
            Some(file) => self.emit(caller, file, Kind::Delete, 0),
            None => Ok(()),
        }
    }
}
