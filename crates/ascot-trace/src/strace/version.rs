//! The strace that is installed.

use std::process::Command;

use crate::error::{Result, TraceError};

/// The oldest one with all options of a recording; it has the newest of them, `--pidns-translation`.
const OLDEST: (u32, u32) = (5, 9);

/// Its name and version: `strace 6.1`.
pub fn installed() -> Result<Vec<u8>> {
    // The long form of the option is newer.
    let shown =
        Command::new("strace").arg("-V").output().map_err(|source| TraceError::NoStrace { source })?;
    let line = shown.stdout.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let name = String::from_utf8_lossy(line).replace("-- version ", "");
    match number(&name) {
        Some(((major, minor), found)) if (major, minor) < OLDEST => {
            Err(TraceError::OldStrace { found: found.to_owned(), needed: OLDEST })
        }
        _ => Ok(name.into_bytes()),
    }
}

/// The version in a name, as numbers and as written; none in one of another form.
fn number(name: &str) -> Option<((u32, u32), &str)> {
    let written = name.split_whitespace().nth(1)?;
    let (major, rest) = written.split_once('.')?;
    let minor = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    Some(((major.parse().ok()?, minor.parse().ok()?), written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        for (name, wanted) in [
            ("strace 6.1", Some((6, 1))),
            ("strace 5.10", Some((5, 10))),
            ("strace 5.9.0.27.f3b3", Some((5, 9))),
            ("strace 5.4-dirty", Some((5, 4))),
            ("strace UNKNOWN", None),
            ("", None),
        ] {
            assert_eq!(number(name).map(|(version, _)| version), wanted, "{name}");
        }
        assert!((5, 10) > OLDEST && (5, 4) < OLDEST && (6, 1) > OLDEST);
    }
}
