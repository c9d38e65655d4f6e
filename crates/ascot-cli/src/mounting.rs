//! `ascot mount`: serves a view or an indexed directory as files, from a separate process.
//!
//! ```text
//!   ascot mount DIR MNT ──starts──▶ the same, --foreground, its output a pipe
//!        │                               │  mounts, says so through the pipe, lets go of the terminal
//!        ╰── ends, once the mount is there ◀┘  serves until it is unmounted
//! ```
//!
//! Invariant: once the command has exited with status 0, the files can be read.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ascot_index::format::names::MANIFEST;
use ascot_io::Disk;
use ascot_mount::{Mounted, Owner, Shown};
use ascot_sort::Cancel;
use ascot_sort::runs::store::VIEW_MANIFEST;
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::index;
use crate::signals::Stop;
use crate::values;
use crate::views::{DEFAULT_MEMORY_BYTES, open};

/// Interval at which a mount checks whether it should end, and whether readers are idle.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Tells the started process that another process waits for it.
const STARTED_BY: &str = "ASCOT_MOUNT_WAITED_FOR";

/// Its message when the mount is ready.
const READY: &[u8] = b"mounted\n";

/// Bytes of a view read before it is mounted: a view that does not fit in memory is refused.
const TRIED_BYTES: usize = 4096;

/// `ascot mount`.
pub fn mount(matches: &ArgMatches) -> Result<u8> {
    let at = values::path(matches, "mountpoint").unwrap_or_default();
    check_place(&at)?;
    if matches.get_flag("foreground") || std::env::var_os(STARTED_BY).is_some() {
        serve(matches, &at)
    } else {
        start()
    }
}

fn check_place(at: &Path) -> Result<()> {
    const NOT_CONNECTED: i32 = 107;
    let shown = at.display();
    match fs::metadata(at) {
        Ok(stat) if stat.is_dir() => Ok(()),
        Ok(_) => Err(Failure::usage(
            format!("cannot mount at {shown}: it is not a directory"),
            format!("name an empty directory: mkdir {shown}.mnt"),
        )),
        Err(error) if error.raw_os_error() == Some(NOT_CONNECTED) => Err(Failure::usage(
            format!("cannot mount at {shown}: it has a mount whose process has ended"),
            format!("umount {shown}    or    fusermount3 -u {shown}"),
        )),
        Err(error) => Err(Failure::file(at, "cannot be mounted on")(error)),
    }
}

/// Starts this command again to serve, and waits until the mount is ready.
fn start() -> Result<u8> {
    let failed = Failure::file("/proc/self/exe", "cannot be started");
    let program = std::env::current_exe().map_err(&failed)?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(STARTED_BY, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(&failed)?;
    let mut told = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        // The pipe closes when the process ends or detaches.
        let _ = pipe.read_to_end(&mut told);
    }
    if told == READY {
        return Ok(0);
    }
    let status = child.wait().map_err(failed)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2))
}

/// Mounts, and serves until it is unmounted or told to stop.
fn serve(matches: &ArgMatches, at: &Path) -> Result<u8> {
    let dir = values::path(matches, "dir").unwrap_or_default();
    let cancel = Cancel::new();
    let stop = Stop::watch(&cancel);
    let is_index = dir.join(MANIFEST).is_file();
    let manifest = dir.join(if is_index { MANIFEST } else { VIEW_MANIFEST });
    let view = if is_index { None } else { Some(open(matches, &dir)?) };
    if let Some(view) = &view {
        let from = view.bytes() / 2;
        view.read_at(from, TRIED_BYTES.min(usize::try_from(view.bytes() - from).unwrap_or(TRIED_BYTES)))?;
    }
    let stat = fs::metadata(&manifest).map_err(Failure::file(&manifest, "cannot be read"))?;
    let shown = Shown {
        modified: stat.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        owner: Owner { uid: stat.uid(), gid: stat.gid() },
        allow_other: matches.get_flag("allow-other"),
        // Standard error may be closed by now.
        log: Arc::new(|line| drop(writeln!(io::stderr(), "ascot: {line}"))),
    };
    let mounted = match view {
        Some(view) => Mounted::new(view, at, &shown)?,
        None => {
            let directory = index::open_on(matches, &Disk::default(), DEFAULT_MEMORY_BYTES)?;
            Mounted::keys(Arc::new(directory), at, &shown)?
        }
    };
    if std::env::var_os(STARTED_BY).is_some() {
        let_go().map_err(Failure::Output)?;
    }
    while !mounted.has_ended() && cancel.check().is_ok() {
        std::thread::sleep(BETWEEN_LOOKS);
        mounted.tidy();
    }
    mounted.end()?;
    if cancel.check().is_err() {
        stop.end_if_asked();
    }
    Ok(0)
}

/// Reports that the mount is ready, and detaches from the terminal and the pipes of the waiting process. Standard
/// error stays open if it is a file or a terminal: read errors are reported there.
fn let_go() -> io::Result<()> {
    // A process that already leads its group, as under a supervisor, stays in it.
    let _ = rustix::process::setsid();
    let nowhere = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    io::stdout().write_all(READY)?;
    io::stdout().flush()?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    let error = fs::File::from(io::stderr().as_fd().try_clone_to_owned()?).metadata()?;
    if error.file_type().is_fifo() || error.file_type().is_socket() {
        rustix::stdio::dup2_stderr(&nowhere)?;
    }
    Ok(())
}
