//! The Python process that runs a job on a cluster: it is found, gets the request, and reports the progress and the
//! result.
//!
//! ```text
//!   command ── request ──▶ python3 -m ascot.cluster ──▶ Ray
//!      ◀── hello, progress, notice, done or failed ──┘
//! ```
//!
//! Both write JSON, one object on each line. Signals that stop the command become SIGINT of the process, which ends
//! the job first. The process also stops when its standard input ends, so that it never outlives the command. Its
//! standard error has the messages of other programs: only the last line is shown, if it ends without an answer.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ascot_io::Unpoisoned;
use ascot_sort::{Cancel, Observer, Progress};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::progress::Screen;

/// Names the Python to use.
pub const VARIABLE: &str = "ASCOT_PYTHON";
/// The usual Python.
pub const PYTHON: &str = "python3";
/// The oldest Ray: major and minor number.
const OLDEST_RAY: (u32, u32) = (2, 60);
/// A signal is noticed within this time.
const POLL: Duration = Duration::from_millis(50);
/// The most bytes of messages of other programs that are kept.
const KEPT_BYTES: usize = 4096;

/// A line from the process.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Hello(Versions),
    Progress(#[serde(with = "ProgressLine")] Progress),
    Notice(String),
    Done(Done),
    Failed(String),
    Stopped(Option<PathBuf>),
}

#[derive(Debug, Deserialize)]
struct Versions {
    ascot: String,
    ray: Option<String>,
}

#[derive(Deserialize)]
#[serde(remote = "Progress")]
struct ProgressLine {
    phase: String,
    done_bytes: u64,
    total_bytes: Option<u64>,
    #[serde(rename = "bytes_per_s")]
    rate_bytes_per_s: f64,
    detail: String,
    bound_by: String,
    seconds_left: Option<f64>,
    fraction: Option<f64>,
}

/// The result of a request.
#[derive(Debug, Deserialize)]
pub struct Done {
    /// The report.
    pub report: Value,
    /// The report for people.
    pub text: String,
    /// The same with all details.
    pub details: String,
    /// The report as a page, if the request asks for it.
    pub page: Option<String>,
}

/// How a request ended.
pub enum Ending {
    /// It is done.
    Done(Done),
    /// It failed.
    Failed(String),
    /// A signal stopped it; its directory, if the job is kept.
    Stopped(Option<PathBuf>),
}

/// Runs a request. The screen shows its progress and notices.
pub fn run(request: &Value, screen: &Screen, cancel: &Cancel) -> Result<Ending> {
    let mut process = find(cancel)?;
    // A process that ends meanwhile is noticed below.
    if let Some(requests) = &mut process.requests {
        let _ = writeln!(requests, "{request}");
    }
    let mut asked = false;
    loop {
        if !asked && cancel.check().is_err() {
            asked = true;
            process.interrupt();
        }
        match process.lines.recv_timeout(POLL) {
            Ok(Line::Progress(progress)) => screen.progress(&progress),
            Ok(Line::Notice(text)) => screen.notice(&text),
            Ok(Line::Hello(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Line::Done(done)) => return Ok(Ending::Done(done)),
            Ok(Line::Failed(text)) => return Ok(Ending::Failed(text)),
            Ok(Line::Stopped(kept)) => return Ok(Ending::Stopped(kept)),
            Err(RecvTimeoutError::Disconnected) => return Err(process.ended()),
        }
    }
}

/// A running process.
struct Process {
    child: Child,
    /// Its standard input, until it is to end.
    requests: Option<ChildStdin>,
    lines: Receiver<Line>,
    /// The end of its standard error.
    said: Arc<Mutex<Vec<u8>>>,
}

/// Starts the first Python that has what a cluster needs.
fn find(cancel: &Cancel) -> Result<Process> {
    let mut reasons = Vec::new();
    for python in candidates() {
        let started = Process::start(&python).map_err(|error| error.to_string());
        match started.and_then(|process| process.greeted(cancel)) {
            Ok(process) => return Ok(process),
            Err(reason) => reasons.push(format!("{}: {reason}", python.display())),
        }
        cancel.check()?;
    }
    Err(Failure::usage(
        format!(
            "--cluster needs Python with Ascot {} and Ray: {}",
            env!("CARGO_PKG_VERSION"),
            reasons.join("; ")
        ),
        format!(
            "install them: pip install 'ascot[cluster]=={}'; {VARIABLE} names a Python that is not {PYTHON}",
            env!("CARGO_PKG_VERSION")
        ),
    ))
}

/// The Pythons to try: the one that is named; else the one of the package that has this command, and the usual one.
pub fn candidates() -> Vec<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    let own = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PYTHON)));
    own.filter(|own| own.exists()).into_iter().chain([PYTHON.into()]).collect()
}

impl Process {
    fn start(python: &Path) -> io::Result<Process> {
        // Modules in the current directory are not those of the package: -P.
        let mut child = Command::new(python)
            .args(["-P", "-m", "ascot.cluster"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(requests), Some(answers), Some(errors)) = pipes else {
            return Err(io::Error::other("it has no pipes"));
        };
        let (sender, lines) = mpsc::channel();
        thread::Builder::new().name("answers".into()).spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                // Lines that are none of the above are not from the package.
                if let Ok(line) = serde_json::from_str(&line)
                    && sender.send(line).is_err()
                {
                    return;
                }
            }
        })?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&said);
        thread::Builder::new().name("messages".into()).spawn(move || keep_end(errors, &kept))?;
        Ok(Process { child, requests: Some(requests), lines, said })
    }

    /// The process, after it has told its versions; or the reason why it cannot be used.
    fn greeted(mut self, cancel: &Cancel) -> Result<Process, String> {
        let versions = loop {
            match self.lines.recv_timeout(POLL) {
                Ok(Line::Hello(versions)) => break versions,
                Err(RecvTimeoutError::Timeout) if cancel.check().is_ok() => {}
                _ => {
                    if cancel.check().is_err() {
                        self.interrupt();
                    }
                    return Err(self.last_words());
                }
            }
        };
        let own = env!("CARGO_PKG_VERSION");
        if versions.ascot != own {
            return Err(format!("it has Ascot {}", versions.ascot));
        }
        match versions.ray {
            None => Err("it has no Ray".into()),
            Some(ray) if is_old(&ray) => Err(format!("it has Ray {ray}, and 2.60 or newer is needed")),
            Some(_) => Ok(self),
        }
    }

    fn interrupt(&self) {
        // A process that has ended needs no signal.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
    }

    /// The error for a process that ended without an answer.
    fn ended(mut self) -> Failure {
        let said = self.last_words();
        Failure::usage(
            format!("the process of the cluster job ended: {said}"),
            "the job may have been kept: the directory of the output with .job at its end; ascot sort --resume \
             continues it",
        )
    }

    /// The last line on standard error of a process that ends, or how it ended. It gets no more requests.
    fn last_words(&mut self) -> String {
        self.requests = None;
        let status = self.child.wait();
        // The other end of the pipe may have been passed on to processes that still run.
        thread::sleep(POLL);
        let said = self.said.lock().unpoisoned();
        let text = String::from_utf8_lossy(&said);
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        match (status.ok().and_then(|status| status.signal()), last) {
            (Some(signal), _) => format!("by signal {signal}"),
            (None, Some(line)) => line.to_owned(),
            (None, None) => "without a message".into(),
        }
    }
}

impl Drop for Process {
    /// Waits for the process: it may have a cluster of its own to end.
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.child.wait();
    }
}

fn keep_end(mut errors: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; KEPT_BYTES];
    while let Ok(count @ 1..) = errors.read(&mut buffer) {
        let mut kept = kept.lock().unpoisoned();
        kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let before = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..before);
    }
}

/// Whether a version of Ray is older than the oldest that works.
fn is_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST_RAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        for version in ["2.60.0", "2.61", "3.0.0rc1", "2.100.1"] {
            assert!(!is_old(version), "{version}");
        }
        for version in ["2.59.9", "1.99", "2.9", "x"] {
            assert!(is_old(version), "{version}");
        }
    }

    #[test]
    fn the_end_of_messages_is_kept() {
        let text = format!("{}last words", "x".repeat(3 * KEPT_BYTES));
        let kept = Mutex::new(Vec::new());
        keep_end(text.as_bytes(), &kept);
        let kept = kept.lock().unpoisoned();
        assert_eq!(kept.len(), KEPT_BYTES);
        assert!(kept.ends_with(b"last words"));
    }
}
