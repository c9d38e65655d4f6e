//! Logs of strace 6.1 become the requests that their programs made.

use std::collections::HashMap;
use std::fs;

use super::*;
use crate::error::{Result, TraceError};
use crate::event::{Event, Kind};

/// A conversion in which every path is one of a file, unless it ends with a slash.
struct Converted {
    events: Vec<Event>,
    resolved: Resolved,
}

fn start() -> Start {
    Start {
        directory: b"/data".to_vec(),
        descriptors: Vec::new(),
        lengths: HashMap::new(),
        is_file: |path| !path.ends_with(b"/dir"),
        may_be_same: |_, _| true,
    }
}

fn converted_from(start: &Start, log: &str) -> Result<Converted> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    fs::write(&path, log).unwrap();
    let mut events = Vec::new();
    let resolved = convert(&path, start, &mut |event| {
        events.push(*event);
        Ok(())
    })?;
    Ok(Converted { events, resolved })
}

fn converted(log: &str) -> Converted {
    let converted = converted_from(&start(), log).unwrap();
    assert_eq!(converted.resolved.recording.skipped_lines, 0);
    converted
}

impl Converted {
    fn path(&self, event: &Event) -> &str {
        std::str::from_utf8(&self.resolved.files[event.file as usize].path).unwrap()
    }

    /// The requests: path, kind, offset, size.
    fn requests(&self) -> Vec<(&str, Kind, u64, u64)> {
        let moved = self.events.iter().filter(|event| matches!(event.kind, Kind::Read | Kind::Write));
        moved.map(|event| (self.path(event), event.kind, event.offset, event.size)).collect()
    }

    /// The events of a kind: path, offset.
    fn of_kind(&self, kind: Kind) -> Vec<(&str, u64)> {
        let found = self.events.iter().filter(|event| event.kind == kind);
        found.map(|event| (self.path(event), event.offset)).collect()
    }
}

use Kind::{Read, Write};

/// Positions after relative seeks, positioned requests, copies of descriptors, renames and truncation.
#[test]
fn one_program_with_every_kind_of_descriptor() {
    let found = converted(
        r#"21298 1795501673.700000 execve("/usr/bin/python3", [...], 0x7ffe15642168 /* 35 vars */) = 0
21298 1795501673.725959 openat(AT_FDCWD</data>, "a b.bin", O_RDWR|O_CREAT|O_TRUNC|O_CLOEXEC, 0644) = 3</data/a b.bin>
21298 1795501673.726156 write(3</data/a b.bin>, ""..., 1000) = 1000
21298 1795501673.726333 pwrite64(3</data/a b.bin>, ""..., 10, 5000) = 10
21298 1795501673.726480 lseek(3</data/a b.bin>, -5, SEEK_CUR) = 995
21298 1795501673.726587 read(3</data/a b.bin>, ""..., 3) = 3
21298 1795501673.726701 fcntl(3</data/a b.bin>, F_DUPFD_CLOEXEC, 0) = 4</data/a b.bin>
21298 1795501673.726816 read(4</data/a b.bin>, ""..., 7) = 7
21298 1795501673.726932 fcntl(3</data/a b.bin>, F_DUPFD_CLOEXEC, 50) = 50</data/a b.bin>
21298 1795501673.727055 writev(50</data/a b.bin>, [...], 2) = 4
21298 1795501673.727170 rename("a b.bin", "c\"d\\e\303\251.bin") = 0
21298 1795501673.727290 ftruncate(3</data/c\"d\\e\303\251.bin>, 100) = 0
21298 1795501673.727457 openat(AT_FDCWD</data>, "c\"d\\e\303\251.bin", O_WRONLY|O_APPEND|O_CLOEXEC) = 5</data/c\"d\\e\303\251.bin>
21298 1795501673.727582 write(5</data/c\"d\\e\303\251.bin>, ""..., 3) = 3
21298 1795501673.727692 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f09e61ffe50) = 21341
21298 1795501673.728503 wait4(21341,  <unfinished ...>
21341 1795501673.729356 write(3</data/c\"d\\e\303\251.bin>, ""..., 5) = 5
21341 1795501673.729450 exit_group(0)   = ?
21341 1795501673.730005 +++ exited with 0 +++
21298 1795501673.730070 <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 21341
21298 1795501673.730220 write(3</data/c\"d\\e\303\251.bin>, ""..., 3) = 3
21298 1795501673.730359 unlink("c\"d\\e\303\251.bin") = 0
21298 1795501673.735000 openat(AT_FDCWD</data>, "o", O_RDWR|O_CREAT|O_CLOEXEC, 0777) = 6</data/o>
21298 1795501673.735646 copy_file_range(3</data/c\"d\\e\303\251.bin>(deleted), [0], 6</data/o>, NULL, 10, 0) = 10
21298 1795501673.735819 close(5</data/c\"d\\e\303\251.bin>(deleted)) = 0
21298 1795501673.736148 write(8<pipe:[22058]>, ""..., 1) = 1
21298 1795501673.736262 read(7<pipe:[22058]>, ""..., 1) = 1
21298 1795501673.775081 openat(AT_FDCWD</data>, "/nonexist", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)
21298 1795501673.779910 close(5<TCP:[22057]>) = 0
21298 1795501673.820863 exit_group(0)   = ?
21298 1795501673.824899 +++ exited with 0 +++
"#,
    );
    let name = "/data/c\"d\\e\u{e9}.bin";
    assert_eq!(
        found.requests(),
        [
            (name, Write, 0, 1000),
            (name, Write, 5000, 10),
            (name, Read, 995, 3),
            (name, Read, 998, 7),
            (name, Write, 1005, 4),
            (name, Write, 100, 3),
            (name, Write, 1009, 5),
            (name, Write, 1014, 3),
            (name, Read, 0, 10),
            ("/data/o", Write, 0, 10),
        ]
    );
    assert_eq!(found.of_kind(Kind::Seek), [(name, 995)]);
    assert_eq!(found.of_kind(Kind::Resize), [(name, 100)]);
    assert_eq!(found.of_kind(Kind::Delete), [(name, 0)], "after the last descriptor");
    assert_eq!(found.of_kind(Kind::Open), [(name, 0), (name, 0), ("/data/o", 0)]);
    let jumps: Vec<u64> =
        found.events.iter().filter(|event| event.jumped).map(|event| event.offset).collect();
    assert_eq!(jumps, [5000, 0]);
    assert_eq!(found.resolved.files[0].peak_bytes, 5010);
    assert!(found.resolved.files[0].deleted && !found.resolved.files[1].deleted);
    let pids: Vec<u32> = found.resolved.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [21298, 21341]);
    assert_eq!(found.resolved.processes[0].program, b"/usr/bin/python3");
}

/// Vectors, sendfile with and without an offset, allocation, truncation by name.
#[test]
fn vectors_and_copies() {
    let found = converted(
        r#"22896 1795501861.170000 execve("./c4", [...], 0x7ffe15642168 /* 35 vars */) = 0
22896 1795501861.174748 openat(AT_FDCWD</data>, "q>r <s", O_RDWR|O_CREAT|O_TRUNC, 0600) = 3</data/q\76r \74s>
22896 1795501861.174929 pwritev(3</data/q\76r \74s>, [...], 2, 50) = 300
22896 1795501861.175045 preadv(3</data/q\76r \74s>, [...], 2, 5) = 300
22896 1795501861.175150 write(3</data/q\76r \74s>, ""..., 9000) = 9000
22896 1795501861.175282 openat(AT_FDCWD</data>, "o2", O_RDWR|O_CREAT, 0600) = 4</data/o2>
22896 1795501861.175515 sendfile(4</data/o2>, 3</data/q\76r \74s>, [3] => [43], 40) = 40
22896 1795501861.175657 sendfile(4</data/o2>, 3</data/q\76r \74s>, NULL, 40) = 0
22896 1795501861.175785 readv(3</data/q\76r \74s>, [...], 2) = 0
22896 1795501861.175914 fallocate(3</data/q\76r \74s>, 0, 0, 20000) = 0
22896 1795501861.176117 truncate("q>r <s", 77) = 0
22896 1795501861.176479 lseek(3</data/q\76r \74s>, 0, SEEK_END) = 77
22896 1795501861.176594 exit_group(0)   = ?
22896 1795501861.176802 +++ exited with 0 +++
"#,
    );
    let name = "/data/q>r <s";
    let requests: Vec<_> = found.requests().into_iter().filter(|(.., size)| *size > 0).collect();
    assert_eq!(
        requests,
        [
            (name, Write, 50, 300),
            (name, Read, 5, 300),
            (name, Write, 0, 9000),
            (name, Read, 3, 40),
            ("/data/o2", Write, 0, 40),
        ]
    );
    assert_eq!(found.of_kind(Kind::Resize), [(name, 20000), (name, 77)]);
    assert_eq!(found.of_kind(Kind::Seek), [(name, 77)]);
    assert_eq!(found.resolved.files[0].peak_bytes, 20000);
}

/// A program that starts others: descriptors marked for it are closed, the rest is inherited; a thread shares them; a
/// new number is another file.
#[test]
fn programs_threads_and_numbers_used_again() {
    let found = converted(
        r#"100 1.000000 execve("/bin/sh", [...], 0x1 /* 9 vars */) = 0
100 1.000010 openat(AT_FDCWD</data>, "kept", O_RDONLY) = 3</data/kept>
100 1.000020 openat(AT_FDCWD</data>, "lost", O_RDONLY|O_CLOEXEC) = 4</data/lost>
100 1.000030 read(3</data/kept>, ""..., 100) = 100
100 1.000040 read(4</data/lost>, ""..., 100) = 100
100 1.000050 vfork( <unfinished ...>
101 1.000060 execve("/bin/cat", [...], 0x1 /* 9 vars */ <unfinished ...>
100 1.000070 <... vfork resumed>) = 101
101 1.000080 <... execve resumed>) = 0
101 1.000090 read(3</data/kept>, ""..., 50) = 50
101 1.000100 openat(AT_FDCWD</data>, "other", O_RDONLY) = 4</data/other>
101 1.000110 read(4</data/other>, ""..., 7) = 7
101 1.000120 +++ exited with 0 +++
100 1.000130 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, child_tid=0x7f, exit_signal=0} => {parent_tid=[102]}, 88) = 102
102 1.000140 read(4</data/lost>, ""..., 10) = 10
102 1.000150 close(4</data/lost>) = 0
102 1.000160 openat(AT_FDCWD</data>, "third", O_RDONLY) = 4</data/third>
102 1.000170 +++ exited with 0 +++
100 1.000180 read(4</data/third>, ""..., 9) = 9
100 1.000190 read(3</data/kept>, ""..., 1) = 1
"#,
    );
    let requests: Vec<_> =
        found.requests().into_iter().map(|(path, _, offset, size)| (path, offset, size)).collect();
    assert_eq!(
        requests,
        [
            ("/data/kept", 0, 100),
            ("/data/lost", 0, 100),
            ("/data/kept", 100, 50),
            ("/data/other", 0, 7),
            ("/data/lost", 100, 10),
            ("/data/third", 0, 9),
            ("/data/kept", 150, 1),
        ]
    );
    let programs: Vec<_> = found.resolved.processes.iter().map(|process| &process.program[..]).collect();
    assert_eq!(programs, [&b"/bin/sh"[..], b"/bin/cat"]);
    assert_eq!(found.resolved.recording.unseen_requests, 0);
}

/// Lines of a thread before the result that names its maker, while two makers are running.
#[test]
fn lines_wait_for_the_maker_of_their_thread() {
    let found = converted(
        r#"100 1.000000 execve("/bin/sh", [...], 0x1 /* 9 vars */) = 0
100 1.000010 openat(AT_FDCWD</data>, "a", O_RDONLY) = 3</data/a>
100 1.000020 clone(child_stack=NULL, flags=SIGCHLD) = 200
200 1.000030 close(3</data/a>) = 0
200 1.000040 openat(AT_FDCWD</data>, "b", O_RDONLY) = 3</data/b>
100 1.000050 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
200 1.000060 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
301 1.000070 read(3</data/b>, ""..., 5) = 5
300 1.000080 read(3</data/a>, ""..., 6) = 6
200 1.000090 <... clone resumed>) = 301
100 1.000100 <... clone resumed>) = 300
100 1.000110 read(3</data/a>, ""..., 2) = 2
200 1.000120 read(3</data/b>, ""..., 3) = 3
"#,
    );
    let requests: Vec<_> =
        found.requests().into_iter().map(|(path, _, offset, size)| (path, offset, size)).collect();
    assert_eq!(requests, [("/data/b", 0, 5), ("/data/a", 0, 6), ("/data/a", 6, 2), ("/data/b", 5, 3)]);
    assert_eq!(found.resolved.recording.unseen_requests, 0);
}

/// The results of calls that make processes have their numbers in their own namespace, and then those of the lines.
#[test]
fn processes_in_a_namespace_of_their_own_keep_their_descriptors() {
    let found = converted(
        r#"500 1.000000 execve("/bin/sh", [...], 0x1 /* 9 vars */) = 0
500 1.000010 openat(AT_FDCWD</data>, "a", O_RDONLY) = 3</data/a>
500 1.000020 read(3</data/a>, ""..., 100) = 100
500 1.000030 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
501 1.000040 read(3</data/a>, ""..., 50) = 50
500 1.000050 <... clone resumed>) = 2 /* 501 in strace's PID NS */
501 1.000060 clone(child_stack=NULL, flags=SIGCHLD) = 3 /* 502 in strace's PID NS */
502 1.000070 read(3</data/a>, ""..., 5) = 5
502 1.000080 +++ exited with 0 +++
501 1.000090 +++ exited with 0 +++
500 1.000100 read(3</data/a>, ""..., 1) = 1
500 1.000110 +++ exited with 0 +++
"#,
    );
    let requests: Vec<_> = found.requests().into_iter().map(|(_, _, offset, size)| (offset, size)).collect();
    assert_eq!(requests, [(0, 100), (100, 50), (150, 5), (155, 1)]);
    assert_eq!(found.resolved.recording.unseen_requests, 0);
    assert!(!found.resolved.recording.incomplete);
}

/// A process may end before the log has the result of the call that made it; its descriptors end with it.
#[test]
fn a_process_that_ends_before_it_is_named_has_ended() {
    let found = converted(
        r#"100 1.000000 execve("/bin/sh", [...], 0x1 /* 9 vars */) = 0
100 1.000010 openat(AT_FDCWD</data>, "a", O_RDWR|O_CREAT, 0600) = 3</data/a>
100 1.000020 unlink("a") = 0
100 1.000030 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
101 1.000040 write(3</data/a>, ""..., 5) = 5
101 1.000050 +++ exited with 0 +++
100 1.000060 <... clone resumed>) = 101
100 1.000070 close(3</data/a>(deleted)) = 0
100 1.000080 +++ exited with 0 +++
"#,
    );
    assert_eq!(found.of_kind(Kind::Delete), [("/data/a", 0)]);
    assert!(!found.resolved.recording.incomplete);
    assert_eq!(found.resolved.processes.len(), 2);
}

/// Two calls that make processes never return, because their processes are killed: what the new ones do is kept, from
/// the death of the last maker on, or to the end of the log.
#[test]
fn processes_whose_makers_never_return_keep_their_events() {
    let begun = r#"100 1.000000 execve("/bin/sh", [...], 0x1 /* 9 vars */) = 0
100 1.000010 clone(child_stack=NULL, flags=SIGCHLD) = 101
100 1.000020 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
101 1.000030 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
201 1.000040 openat(AT_FDCWD</data>, "a", O_RDONLY) = 3</data/a>
201 1.000050 read(3</data/a>, ""..., 100) = 100
202 1.000060 openat(AT_FDCWD</data>, "b", O_RDONLY) = 3</data/b>
202 1.000070 read(3</data/b>, ""..., 50) = 50
"#;
    let killed = "100 1.000080 +++ killed by SIGKILL +++
101 1.000090 +++ killed by SIGKILL +++
";
    let ended = "201 1.000100 +++ exited with 0 +++
202 1.000110 +++ exited with 0 +++
";
    for (rest, incomplete) in
        [(format!("{killed}{ended}"), false), (killed.to_owned(), true), (String::new(), true)]
    {
        let found = converted(&format!("{begun}{rest}"));
        assert_eq!(found.requests(), [("/data/a", Read, 0, 100), ("/data/b", Read, 0, 50)], "{rest}");
        assert_eq!(found.resolved.recording.incomplete, incomplete);
        assert_eq!(found.resolved.processes.len(), 4);
    }
}

/// An exec by a thread that is not the first: its process runs the program, and marked descriptors are closed.
#[test]
fn any_thread_may_run_another_program() {
    let found = converted(
        r#"100 1.000000 execve("./t", [...], 0x1 /* 9 vars */) = 0
100 1.000010 openat(AT_FDCWD</data>, "kept", O_RDONLY) = 3</data/kept>
100 1.000020 openat(AT_FDCWD</data>, "lost", O_RDONLY|O_CLOEXEC) = 4</data/lost>
100 1.000030 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0} => {parent_tid=[101]}, 88) = 101
101 1.000040 read(3</data/kept>, ""..., 10) = 10
101 1.000050 execve("/bin/cat", [...], 0x7f /* 35 vars */ <pid changed to 100 ...>
100 1.000060 +++ superseded by execve in pid 101 +++
100 1.000070 <... execve resumed>) = -1 (errno 18446744073709551359)
100 1.000080 read(3</data/kept>, ""..., 5) = 5
100 1.000090 openat(AT_FDCWD</data>, "new", O_RDONLY) = 4</data/new>
100 1.000100 read(4</data/new>, ""..., 5) = 5
100 1.000110 +++ exited with 0 +++
"#,
    );
    assert_eq!(
        found.requests(),
        [("/data/kept", Read, 0, 10), ("/data/kept", Read, 10, 5), ("/data/new", Read, 0, 5)]
    );
    assert_eq!(found.resolved.processes[0].program, b"/bin/cat");
    assert_eq!(found.resolved.processes.len(), 1);
    assert!(!found.resolved.recording.incomplete);
}

/// A log in which a thread has no end, or that strace left, is incomplete.
#[test]
fn a_log_that_ends_before_its_program_is_incomplete() {
    let begun = "100 1.000000 execve(\"/bin/x\", [...], 0x1 /* 9 vars */) = 0\n";
    let ended = format!("{begun}100 1.000010 +++ exited with 0 +++\n");
    assert!(!converted(&ended).resolved.recording.incomplete);
    assert!(converted(begun).resolved.recording.incomplete);
    let left = format!("{begun}100 1.000010 read(0</data/a>,  <detached ...>\n");
    assert!(converted(&left).resolved.recording.incomplete);
}

/// A hole gives space back; its file keeps its length.
/// Programs of 32 bits have calls of their own.
#[test]
fn calls_of_32_bits_are_those_of_64() {
    let found = converted(
        r#"7 1700000000.000001 openat(AT_FDCWD</data>, "a", O_RDWR|O_CREAT|O_EXCL, 0666) = 3</data/a>
7 1700000000.000002 write(3</data/a>, ""..., 1000) = 1000
7 1700000000.000003 _llseek(3</data/a>, 100, [100], SEEK_SET) = 0
7 1700000000.000004 fcntl64(3</data/a>, F_DUPFD_CLOEXEC, 0) = 4</data/a>
7 1700000000.000005 read(4</data/a>, ""..., 10) = 10
7 1700000000.000006 _llseek(4</data/a>, 0, [1000], SEEK_END) = 0
7 1700000000.000007 write(3</data/a>, ""..., 5) = 5
7 1700000000.000008 ftruncate64(3</data/a>, 500) = 0
7 1700000000.000009 truncate64("a", 400) = 0
7 1700000000.000010 fcntl64(3</data/a>, F_SETFL, O_RDWR|O_APPEND) = 0
7 1700000000.000011 write(4</data/a>, ""..., 5) = 5
"#,
    );
    let name = "/data/a";
    let requests =
        [(name, Write, 0, 1000), (name, Read, 100, 10), (name, Write, 1000, 5), (name, Write, 400, 5)];
    assert_eq!(found.requests(), requests);
    assert_eq!(found.of_kind(Kind::Seek), [(name, 100), (name, 1000)]);
    assert_eq!(found.of_kind(Kind::Resize), [(name, 500), (name, 400)]);
}

/// Also those that another program replaced in the same process.
#[test]
fn all_programs_that_ran_are_known() {
    let found = converted(
        r#"7 1700000000.000001 execve("/bin/sh", [...], 0x1 /* 9 vars */) = 0
7 1700000000.000002 chdir("sub")    = 0
7 1700000000.000003 execve("./special", [...], 0x1 /* 9 vars */) = 0
7 1700000000.000004 execveat(3</data/other>, "", [...], 0x1 /* 9 vars */, AT_EMPTY_PATH) = 0
7 1700000000.000005 execve("/bin/none", [...], 0x1 /* 9 vars */) = -1 ENOENT (No such file or directory)
"#,
    );
    let programs: Vec<&[u8]> = found.resolved.programs.iter().map(|path| &path[..]).collect();
    assert_eq!(programs, [&b"/bin/sh"[..], b"/data/other", b"/data/sub/special"]);
}

#[test]
fn holes_are_events() {
    let found = converted(
        r#"100 1.000000 execve("/bin/x", [...], 0x1 /* 9 vars */) = 0
100 1.000010 openat(AT_FDCWD</data>, "a", O_RDWR|O_CREAT|O_EXCL, 0600) = 3</data/a>
100 1.000020 write(3</data/a>, ""..., 9000) = 9000
100 1.000030 fallocate(3</data/a>, FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 100, 5000) = 0
100 1.000040 fallocate(3</data/a>, FALLOC_FL_COLLAPSE_RANGE, 0, 4096) = 0
100 1.000050 +++ exited with 0 +++
"#,
    );
    let holes: Vec<_> = found.events.iter().filter(|event| event.kind == Kind::Hole).collect();
    assert_eq!(holes.iter().map(|event| (event.offset, event.size)).collect::<Vec<_>>(), [(100, 5000)]);
    assert_eq!(found.of_kind(Kind::Resize), [("/data/a", 4904)]);
    assert_eq!(found.resolved.files[0].peak_bytes, 9000);
}

/// A rename over a file ends it.
#[test]
fn a_file_that_is_replaced_by_a_rename_is_deleted() {
    let found = converted(
        r#"100 1.000000 execve("/bin/x", [...], 0x1 /* 9 vars */) = 0
100 1.000010 openat(AT_FDCWD</data>, "old", O_RDONLY) = 3</data/old>
100 1.000020 read(3</data/old>, ""..., 10) = 10
100 1.000030 openat(AT_FDCWD</data>, "new", O_RDWR|O_CREAT, 0600) = 4</data/new>
100 1.000040 write(4</data/new>, ""..., 10) = 10
100 1.000050 rename("new", "old") = 0
100 1.000060 close(3</data/old (deleted)>) = 0
100 1.000070 +++ exited with 0 +++
"#,
    );
    assert_eq!(found.of_kind(Kind::Delete), [("/data/old", 0)]);
    let deleted = found.events.iter().find(|event| event.kind == Kind::Delete).unwrap();
    assert_eq!((deleted.file, deleted.time_ns), (0, 60_000), "the replaced one, after its last descriptor");
}

/// A call that took long has the time of its start, and its event stands there.
#[test]
fn events_are_in_the_order_of_their_starts() {
    let found = converted(
        r#"100 1.000000 execve("/bin/x", [...], 0x1 /* 9 vars */) = 0
100 1.000010 openat(AT_FDCWD</data>, "a", O_RDONLY) = 3</data/a>
100 1.000020 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0}, 88) = 101
100 1.000030 pread64(3</data/a>,  <unfinished ...>
101 1.000040 pread64(3</data/a>, ""..., 4096, 8192) = 4096
100 1.000050 <... pread64 resumed>""..., 4096, 0) = 1000
"#,
    );
    assert_eq!(found.requests(), [("/data/a", Read, 0, 1000), ("/data/a", Read, 8192, 4096)]);
    let times: Vec<u64> = found.events.iter().map(|event| event.time_ns).collect();
    assert_eq!(times, [10_000, 30_000, 40_000]);
}

/// Appends to a file of unknown length count from the end that requests show, and are reported.
#[test]
fn appends_begin_at_the_length_before() {
    let log = r#"100 1.000000 execve("/bin/x", [...], 0x1 /* 9 vars */) = 0
100 1.000010 openat(AT_FDCWD</data>, "log", O_WRONLY|O_APPEND) = 3</data/log>
100 1.000020 write(3</data/log>, ""..., 10) = 10
100 1.000030 pwrite64(3</data/log>, ""..., 10, 0) = 10
"#;
    let guessed = converted(log);
    assert_eq!(guessed.requests(), [("/data/log", Write, 0, 10), ("/data/log", Write, 10, 10)]);
    assert_eq!(guessed.resolved.recording.guessed_appends, 2);
    assert_eq!(guessed.resolved.appended, [(0, b"/data/log".to_vec(), 20)]);
    let known = converted_from(&Start { lengths: HashMap::from([(0, 500)]), ..start() }, log).unwrap();
    assert_eq!(known.requests(), [("/data/log", Write, 500, 10), ("/data/log", Write, 510, 10)]);
    assert_eq!(known.resolved.recording.guessed_appends, 0);
}

/// Descriptors that the first program inherits, and those that come from nowhere.
#[test]
fn inherited_and_unseen_descriptors() {
    let inherited = Inherited { number: 1, path: b"/data/out".to_vec(), position: 70, append: false };
    let start = Start { descriptors: vec![inherited], ..start() };
    let found = converted_from(
        &start,
        r#"100 1.000000 execve("/bin/x", [...], 0x1 /* 9 vars */) = 0
100 1.000010 write(1</data/out>, ""..., 10) = 10
100 1.000020 write(2</dev/pts/0>, ""..., 10) = 10
100 1.000030 read(9</data/received>, ""..., 10) = 10
100 1.000040 read(9</data/received>, ""..., 10) = 10
100 1.000050 openat(AT_FDCWD</data>, "dir", O_RDONLY) = 4</data/dir>
100 1.000060 read(4</data/dir>, 0x1, 10) = -1 EISDIR (Is a directory)
"#,
    )
    .unwrap();
    assert_eq!(
        found.requests(),
        [("/data/out", Write, 70, 10), ("/data/received", Read, 0, 10), ("/data/received", Read, 10, 10)]
    );
    assert_eq!(found.resolved.recording.unseen_requests, 1);
    assert_eq!(found.resolved.files.len(), 2);
}

#[test]
fn a_file_of_other_lines_is_refused() {
    let refused = converted_from(&start(), "hello\nworld\n").err().unwrap();
    assert!(matches!(refused, TraceError::NotALog { .. }), "{refused}");
    assert!(refused.to_string().contains("hello"));
}

mod any_log {
    use super::*;
    use proptest::prelude::*;

    /// Parts of lines, so that many lines are almost right.
    fn part() -> impl Strategy<Value = String> {
        prop::sample::select(vec![
            "100 1.000001 ",
            "101 1.000002 ",
            "102 1.000003 ",
            "read(3</data/a>, ",
            "\"\"..., 10) = 10",
            "clone(",
            "flags=CLONE_FILES",
            " <unfinished ...>",
            "<... read resumed>",
            "<... clone resumed>) = 101",
            "close(3</data/a>) = 0",
            "openat(AT_FDCWD</data>, \"a\", O_RDWR|O_CREAT) = 3</data/a>",
            "+++ exited with 0 +++",
            "\n",
            "\n",
            "\n",
            "dup2(3</data/a>, 4294967295) = 4294967295",
            "pread64(3</data/a>, \"\"..., 1, 18446744073709551615) = 9",
            "+++ superseded by execve in pid 101 +++",
            "execve(\"/x\", [...], 0x1 /* 1 var */) = 0",
            "unlink(\"a\") = 0",
            "rename(\"a\", \"b\") = 0",
            "close_range(0, 4294967295, 0) = 0",
            "fallocate(3</data/a>, 0, 18446744073709551615, 2) = 0",
        ])
        .prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn any_lines_end(parts in prop::collection::vec(part(), 0..60)) {
            if let Ok(found) = converted_from(&start(), &parts.concat()) {
                for event in &found.events {
                    prop_assert!((event.file as usize) < found.resolved.files.len());
                    prop_assert!((event.process as usize) < found.resolved.processes.len());
                    prop_assert!(event.offset.checked_add(event.size).is_some());
                }
            }
        }
    }
}
