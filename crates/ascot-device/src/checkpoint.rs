//! The cost of a checkpoint: a job makes its data durable, then the file that records its state.
//!
//! ```text
//!   data       written ─▶ sync
//!   state      write a new file ─▶ sync ─▶ rename it over the old one ─▶ sync the directory
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use ascot_model::measurement::Figure;

use crate::Clock;
use crate::error::{ProbeError, Result};
use crate::target::Target;

/// Checkpoints that are measured: the first files of a directory take longer than later ones.
const REPEATS: usize = 9;
/// Bytes of data and of the state of a checkpoint.
const DATA_BYTES: usize = 64 << 10;
const STATE_BYTES: usize = 4 << 10;

/// Seconds of a checkpoint on the volume of `target`.
pub(crate) fn measure(target: &Target, clock: &Clock<'_>) -> Result<Figure> {
    let failed =
        |source: io::Error| ProbeError::File { doing: "write", path: target.directory.clone(), source };
    let place = tempfile::Builder::new().prefix(".ascot-probe-").tempdir_in(&target.directory);
    let place = place.map_err(failed)?;
    let mut seconds = Vec::with_capacity(REPEATS);
    for _ in 0..REPEATS {
        clock.tick()?;
        seconds.push(checkpoint(place.path()).map_err(failed)?);
    }
    Ok(Figure::new(&seconds))
}

fn checkpoint(directory: &Path) -> io::Result<f64> {
    let mut data = File::create(directory.join("data"))?;
    data.write_all(&[1; DATA_BYTES])?;
    let began = Instant::now();
    data.sync_data()?;
    let new = directory.join("state.new");
    let mut state = File::create(&new)?;
    state.write_all(&[1; STATE_BYTES])?;
    state.sync_data()?;
    fs::rename(&new, directory.join("state"))?;
    File::open(directory)?.sync_all()?;
    Ok(began.elapsed().as_secs_f64())
}
