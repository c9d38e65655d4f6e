//! An instance of tracefs: buffers and switches of our own, beside those of other tracers.
//!
//! Invariants: tracefs is mounted without a place in the directory tree, so that the mount ends with the process. The
//! instance is removed when the value is dropped. One that a killed process left is removed by the next recording; its
//! name has the process and the time it started.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::{Result, TraceError};

const PREFIX: &str = "ascot-";
/// Where a system that knows no detached mounts has tracefs.
const MOUNTED: &str = "/sys/kernel/tracing";

/// An instance, and the buffers of all processors.
pub struct Instance {
    directory: PathBuf,
    pipes: Vec<File>,
    _mount: Option<OwnedFd>,
}

impl Instance {
    /// Makes an instance whose buffers have `buffer_bytes` for each processor. It records nothing yet.
    pub fn create(buffer_bytes: u64) -> Result<Instance> {
        let (root, mount) = root()?;
        let instances = root.join("instances");
        remove_stale(&instances);
        let own = std::process::id();
        let directory = instances.join(format!("{PREFIX}{own}-{}", started(own).unwrap_or_default()));
        fs::create_dir(&directory).map_err(failed("make an instance of tracefs"))?;
        // From here on, dropping the value removes the instance.
        let mut instance = Instance { directory, pipes: Vec::new(), _mount: mount };
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", "mono")?;
        instance.set("options/overwrite", "0")?;
        instance.set("buffer_size_kb", &buffer_bytes.div_ceil(1024).max(1).to_string())?;
        instance.pipes = pipes(&instance.directory).map_err(failed("open the buffers of tracefs"))?;
        Ok(instance)
    }

    /// The description of an event, such as `block/block_rq_issue`.
    pub fn format(&self, event: &str) -> Result<String> {
        let path = self.directory.join("events").join(event).join("format");
        fs::read_to_string(path).map_err(failed(event))
    }

    /// Records an event from now on.
    pub fn enable(&self, event: &str) -> Result<()> {
        self.set(&format!("events/{event}/enable"), "1")
    }

    /// Starts or stops all events.
    pub fn switch(&self, on: bool) -> Result<()> {
        self.set("tracing_on", if on { "1" } else { "0" })
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        fs::write(self.directory.join(name), value).map_err(failed(name))
    }

    /// Passes all pages that the buffers have now to `each`, one processor after the other.
    pub fn pages(&mut self, page: &mut [u8], mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for pipe in &mut self.pipes {
            loop {
                match pipe.read(page) {
                    Ok(0) => break,
                    Ok(bytes) => each(&page[..bytes])?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(failed("read the buffers of tracefs")(error)),
                }
            }
        }
        Ok(())
    }

    /// Events that the buffers had no space for.
    pub fn lost_events(&self) -> u64 {
        let Ok(processors) = fs::read_dir(self.directory.join("per_cpu")) else { return 0 };
        let lost = processors.flatten().map(|processor| {
            let stats = fs::read_to_string(processor.path().join("stats")).unwrap_or_default();
            lost_in(&stats)
        });
        lost.sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.directory.join("tracing_on"), "0");
        self.pipes.clear();
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The lost events in the statistics of a buffer.
fn lost_in(stats: &str) -> u64 {
    let counted = stats.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        let wanted = matches!(name.trim(), "overrun" | "commit overrun" | "dropped events");
        wanted.then(|| count.trim().parse::<u64>().ok())?
    });
    counted.sum()
}

/// A directory that is tracefs: a detached mount, or the place where the system has it.
fn root() -> Result<(PathBuf, Option<OwnedFd>)> {
    match mounted() {
        Ok(mount) => Ok((PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())), Some(mount))),
        Err(_) if Path::new(MOUNTED).join("instances").exists() => Ok((PathBuf::from(MOUNTED), None)),
        Err(error) => Err(failed("mount tracefs")(error)),
    }
}

fn mounted() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// The buffers of all processors, for reads that do not wait.
fn pipes(directory: &Path) -> io::Result<Vec<File>> {
    let mut processors: Vec<PathBuf> = Vec::new();
    for processor in fs::read_dir(directory.join("per_cpu"))? {
        processors.push(processor?.path().join("trace_pipe_raw"));
    }
    processors.sort();
    let open = |path: &PathBuf| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    processors.iter().map(open).collect()
}

/// Removes the instances of processes that ended without doing so.
fn remove_stale(instances: &Path) {
    let Ok(list) = fs::read_dir(instances) else { return };
    for entry in list.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let Some((pid, start)) =
            owner.and_then(|(pid, start)| Some((pid.parse().ok()?, start.parse().ok()?)))
        else {
            continue;
        };
        if started(pid) != Some(start) {
            let _ = fs::write(entry.path().join("tracing_on"), "0");
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// When a process started, in ticks since the system did.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in brackets, may contain anything; 20 fields lie between it and the start.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Makes the error of a step.
pub fn failed(doing: &str) -> impl FnOnce(io::Error) -> TraceError {
    move |source| TraceError::Block { doing: doing.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_all_kinds_count() {
        let stats =
            "entries: 5\noverrun: 2\ncommit overrun: 3\nbytes: 260\ndropped events: 4\nread events: 7\n";
        assert_eq!(lost_in(stats), 9);
    }

    #[test]
    fn a_process_that_runs_has_a_start() {
        assert!(started(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(started(u32::MAX), None);
    }
}
