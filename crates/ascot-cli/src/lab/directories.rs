//! The directories of a study: that of its results, and that of the files it measures.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use ascot_lab::files;
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::values;

/// The directory of the results. If it was made and nothing is put into it, it is removed: a study that is refused
/// leaves nothing.
pub(super) struct OutDirectory {
    path: PathBuf,
    made: bool,
}

impl Deref for OutDirectory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl OutDirectory {
    /// Removes it if it was made and is empty.
    pub(super) fn remove_if_empty(&self) {
        if self.made {
            // Fails if anything is in it.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

impl Drop for OutDirectory {
    fn drop(&mut self) {
        self.remove_if_empty();
    }
}

/// The directory of the results, made if it does not exist; files of others in it are not replaced.
pub(super) fn out_directory(matches: &ArgMatches) -> Result<OutDirectory> {
    let path = values::path(matches, "out").unwrap_or_default();
    let made = !path.exists();
    fs::create_dir_all(&path).map_err(Failure::file(&path, "cannot make the directory of the results"))?;
    for name in files::REPLACED {
        let file = path.join(name);
        if files::is_foreign(&file).map_err(Failure::file(&file, "cannot be read"))? {
            return Err(Failure::usage(
                format!("{} exists, and no study has made it", file.display()),
                "name another directory (--out DIR), or move the file away",
            ));
        }
    }
    Ok(OutDirectory { path, made })
}

/// The directory of the files to be measured, by default `out`, made if it does not exist.
pub(super) fn work_directory(matches: &ArgMatches, out: &Path) -> Result<PathBuf> {
    let Some(work) = values::path(matches, "work") else { return Ok(out.to_path_buf()) };
    fs::create_dir_all(&work)
        .map_err(Failure::file(&work, "cannot make the directory of the files to be measured"))?;
    Ok(work)
}
