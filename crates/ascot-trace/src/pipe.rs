//! Inputs that come through a pipe, such as `-` or `<(zcat run.log.gz)`: they are read from a copy, because a trace is
//! read from its end, and a log possibly twice.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use ascot_io::{Action, IoError};

/// What comes through a pipe, in a file without a name; none if `file` is no pipe. `path` names it in errors.
pub fn copied(mut file: &File, path: &Path) -> Result<Option<File>, IoError> {
    let failed = |source| IoError::from_os(Action::Read, path, 0, source);
    if !file.metadata().map_err(failed)?.file_type().is_fifo() {
        return Ok(None);
    }
    let directory = std::env::temp_dir();
    let mut copy = tempfile::tempfile_in(&directory)
        .map_err(|source| IoError::from_os(Action::Create, &directory, 0, source))?;
    io::copy(&mut file, &mut copy).map_err(failed)?;
    Ok(Some(copy))
}
