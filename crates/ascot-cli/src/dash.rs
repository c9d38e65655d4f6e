//! `ascot dash`: the Python package has the server of the page, which takes the place of this process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ArgMatches;

use crate::cluster_process::{PYTHON, VARIABLE, candidates};
use crate::failure::{Failure, Result};
use crate::values;

/// Prints the version of a package that has the server.
const PROBE: &str = "import ascot.cluster.dash; print(ascot._native.__version__)";

/// Serves the page until a signal ends it.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let mut words: Vec<OsString> = vec!["-P".into(), "-m".into(), "ascot.cluster.dash".into()];
    if let Some(port) = values::word(matches, "port") {
        let port: u16 = port.parse().map_err(|_| {
            Failure::usage(
                format!("--port {port} is no port"),
                "give a number from 0 to 65535; 0 is any free one",
            )
        })?;
        words.push("--port".into());
        words.push(port.to_string().into());
    }
    if values::flag(matches, "control") {
        words.push("--control".into());
    }
    words.push("--".into());
    words.extend(values::paths(matches, "jobs").into_iter().map(PathBuf::into_os_string));
    let mut reasons = Vec::new();
    for python in candidates() {
        match refusal(&python) {
            // It returns only if the program cannot be started.
            None => {
                reasons.push(format!("{}: {}", python.display(), Command::new(&python).args(&words).exec()))
            }
            Some(reason) => reasons.push(format!("{}: {reason}", python.display())),
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    Err(Failure::usage(
        format!("ascot dash needs Python with Ascot {version}: {}", reasons.join("; ")),
        format!(
            "install it: pip install 'ascot[cluster]=={version}'; {VARIABLE} names a Python that is not {PYTHON}"
        ),
    ))
}

/// Why a Python cannot serve the page; `None` if it can.
fn refusal(python: &Path) -> Option<String> {
    let probed = Command::new(python).args(["-P", "-c", PROBE]).stdin(Stdio::null()).output();
    let output = match probed {
        Ok(output) => output,
        Err(error) => return Some(error.to_string()),
    };
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if text == env!("CARGO_PKG_VERSION") {
        return None;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last =
        errors.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it ended without a message");
    Some(if output.status.success() { format!("it has Ascot {text}") } else { last.to_owned() })
}
