//! The few system calls that a command makes at its start and for its display.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ascot_sort::request::{Input, Output};
use ascot_sort::resources::control_group::GroupMemory;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::{Failure, Result};

/// Raises the soft limit of open files to the hard one: a merge reads many runs at once, and the low soft limit
/// exists for programs that use `select`. Failure is acceptable: plans respect the limit.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Makes a write beyond the file size limit (`ulimit -f`) an error that is reported and cleaned up, instead of a
/// signal that kills.
#[expect(unsafe_code, reason = "the system call has no safe wrapper")]
pub fn report_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Whether `signal` is ignored, as under `nohup` or in a shell's background job; such a signal
/// stays ignored.
#[expect(unsafe_code, reason = "the system call has no safe wrapper")]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero bytes are a valid sigaction to be overwritten; a null new action only queries.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// The standard streams that were closed when the process began. They are checked before anything else runs, since
/// the runtime opens /dev/null in their place, where data would be lost without an error.
static CLOSED_AT_START: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

#[expect(unsafe_code, reason = "the system call has no safe wrapper")]
extern "C" fn look_at_streams() {
    for (number, closed) in (0..).zip(&CLOSED_AT_START) {
        // SAFETY: F_GETFD only reads flags.
        closed.store(unsafe { libc::fcntl(number, libc::F_GETFD) } < 0, Ordering::Relaxed);
    }
}

// SAFETY: the section holds functions that are called once, before `main`; this one needs nothing initialised by
// `main` or the runtime, and only touches atomics.
#[used]
#[expect(unsafe_code, reason = "the C library runs what stands in this section before main")]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STREAMS: extern "C" fn() = look_at_streams;

/// Fails if a job would use a standard stream that was closed.
pub fn standard_streams(inputs: &[Input], output: &Output) -> Result<()> {
    standard_input_for(inputs)?;
    match output {
        Output::Stdout => standard_output().map_err(Failure::Output),
        _ => Ok(()),
    }
}

/// Fails if `inputs` include standard input, and it was closed, as by `<&-`.
pub fn standard_input_for(inputs: &[Input]) -> Result<()> {
    let asked = inputs.contains(&Input::Stdin);
    let there = if asked { standard_stream(libc::STDIN_FILENO) } else { Ok(()) };
    there.map_err(Failure::file("standard input", "cannot be read"))
}

/// Fails if standard output was closed, as by `>&-`.
pub fn standard_output() -> std::io::Result<()> {
    standard_stream(libc::STDOUT_FILENO)
}

/// Writes the result of a command to standard output; ends its last line.
pub fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let text = text.as_ref();
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text).and_then(|()| {
        if !text.is_empty() && !text.ends_with(b"\n") {
            out.write_all(b"\n")?;
        }
        out.flush()
    });
    standard_output().and(written).map_err(Failure::Output)
}

/// Moves a standard input file that a job has read by its name to its end, as any program that reads its input does:
/// the next program in the shell reads nothing more.
pub fn leave_standard_input_read(inputs: &[Input]) {
    let descriptor =
        std::io::stdin().as_fd().try_clone_to_owned().ok().filter(|_| inputs.contains(&Input::Stdin));
    if let Some(descriptor) = descriptor {
        // An input without a position, such as a pipe, has been read to its end.
        let _ = File::from(descriptor).seek(SeekFrom::End(0));
    }
}

fn standard_stream(number: libc::c_int) -> std::io::Result<()> {
    match CLOSED_AT_START[number as usize].load(Ordering::Relaxed) {
        true => Err(std::io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}

/// Columns of the terminal on standard error.
pub fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The name of the first processor, if the system tells it.
pub fn processor_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

/// The most memory this process can have: the machine's, or less if its control groups limit it.
pub fn memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = system.totalram.saturating_mul(u64::from(system.mem_unit));
    control_group().map_or(machine, |group| group.limit.min(machine))
}

/// The control group's memory, as first read. It is read once, so that a notice matches the cap that is used.
pub fn control_group() -> Option<GroupMemory> {
    static FOUND: OnceLock<Option<GroupMemory>> = OnceLock::new();
    *FOUND.get_or_init(GroupMemory::of_this_process)
}

/// Whether standard output is a regular file, as after `> FILE` in a shell.
pub fn stdout_is_a_file() -> bool {
    let Ok(descriptor) = std::io::stdout().as_fd().try_clone_to_owned() else { return false };
    File::from(descriptor).metadata().is_ok_and(|metadata| {
        let kind = metadata.file_type();
        kind.is_file() || kind.is_block_device()
    })
}

/// A file that is read: `-` is standard input.
pub fn input(path: PathBuf) -> PathBuf {
    if path.as_os_str() == "-" { PathBuf::from("/dev/stdin") } else { path }
}

/// Refuses an output that would replace a file it is made of.
pub fn refuse_same(inputs: &[PathBuf], output: &Path) -> Result<()> {
    let whole = |path: &Path| path.canonicalize().ok();
    let same =
        whole(output).is_some_and(|output| inputs.iter().any(|input| whole(input).as_ref() == Some(&output)));
    if same {
        return Err(Failure::usage(
            format!("{}: the output would replace what it is made of", output.display()),
            "give the output another name",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_not_ignored_in_tests_and_broken_pipes_are() {
        assert!(is_ignored(libc::SIGPIPE), "the Rust runtime ignores SIGPIPE");
        assert!(!is_ignored(libc::SIGUSR1));
    }

    #[test]
    fn raising_the_limit_leaves_soft_at_hard() {
        raise_open_files_limit();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap().to_owned();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[3], words[4], "{line}");
    }
}
