//! One measurement: the loops of a cell, timed.
//!
//! The streams of a cell are interleaved: element 0 of every stream, then element 1 of every stream, and so on. The
//! time begins before the first stream is opened and ends when the last is closed. The rest is outside the time:
//! making the files to read, dropping them from the page cache, checking the elements.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ascot_io::Direction;
use ascot_io::elements::{ElementReader, ElementWriter, StreamKind};

use super::cell::{Cache, Cell};
use crate::error::LabError;
use crate::observe::Stop;
use crate::page_cache;
use crate::times;

/// Rounds of the interleaving between two looks at the stop flag.
const ROUNDS: u64 = 1 << 14;
/// Elements that are checked between two looks at the stop flag.
const CHECKED: usize = 1 << 20;
/// Blocks of the files that are made for reading, and read for checking.
const MAKING: StreamKind = StreamKind::Sized { block_bytes: 1 << 20 };

/// The result of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The cell.
    pub cell: Cell,
    /// The machine and the directory in which it was measured.
    pub place: String,
    /// Nanoseconds of each loop but the first.
    pub loops_ns: Vec<u64>,
    /// I/Os of one loop: system calls, windows, or requests to the device.
    pub counted_ios: u64,
}

impl Measured {
    /// The mean time of a loop, milliseconds.
    pub fn mean_ms(&self) -> f64 {
        times::mean_ms(&self.loops_ns)
    }

    /// The shortest and the longest time of a loop, milliseconds.
    pub fn range_ms(&self) -> (f64, f64) {
        times::range_ms(&self.loops_ns)
    }

    /// The standard deviation of the loops, milliseconds.
    pub fn deviation_ms(&self) -> f64 {
        times::deviation_ms(&self.loops_ns)
    }
}

/// Element `at` of stream `stream`: a 32-bit integer that depends on every bit of both.
#[inline]
pub fn element(stream: u32, at: u64) -> u32 {
    let mixed = (at as u32 ^ stream.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    mixed ^ (mixed >> 13)
}

/// The files to read of one N, made when they are first needed.
pub struct InputFiles {
    directory: PathBuf,
    /// N of the files that exist, and their number.
    made: (u64, u32),
}

impl InputFiles {
    /// No files yet, in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf(), made: (0, 0) }
    }

    fn path(&self, stream: u32) -> PathBuf {
        self.directory.join(format!("input-{stream}"))
    }

    /// Makes the files of a cell that are missing; those of another N are removed first.
    fn prepare(&mut self, cell: &Cell, stop: &Stop, table: &Path) -> Result<(), LabError> {
        if self.made.0 != cell.elements {
            self.clear()?;
            self.made.0 = cell.elements;
        }
        while self.made.1 < cell.streams {
            let stream = self.made.1;
            let mut writer = ElementWriter::create(&self.path(stream), MAKING)?;
            for at in 0..cell.elements {
                if at % (64 * ROUNDS) == 0 {
                    stop.check(table)?;
                }
                writer.write(element(stream, at))?;
            }
            writer.sync_and_close()?;
            self.made.1 = stream + 1;
        }
        Ok(())
    }

    /// Removes the files.
    pub fn clear(&mut self) -> Result<(), LabError> {
        while self.made.1 > 0 {
            self.made.1 -= 1;
            let path = self.path(self.made.1);
            fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        }
        Ok(())
    }
}

/// Measures cells in a directory.
pub struct Measurement<'a> {
    /// The private directory of the files.
    pub directory: &'a Path,
    /// Stops the study.
    pub stop: &'a Stop,
    /// The name of the place.
    pub place: &'a str,
    /// The table of results, which the error of a stopped study names.
    pub table: &'a Path,
    /// The files to read.
    pub inputs: InputFiles,
}

impl Measurement<'_> {
    /// Makes the files that a cell reads, if it reads.
    ///
    /// # Errors
    /// The system's, and [`LabError::Stopped`].
    pub fn prepare(&mut self, cell: &Cell) -> Result<(), LabError> {
        match cell.direction {
            Direction::Read => self.inputs.prepare(cell, self.stop, self.table),
            Direction::Write => Ok(()),
        }
    }

    /// Measures a cell.
    ///
    /// # Errors
    /// Those of the streams, [`LabError::Damaged`], and [`LabError::Stopped`].
    pub fn run(&mut self, cell: &Cell) -> Result<Measured, LabError> {
        let loops = match cell.direction {
            Direction::Read => self.read(cell)?,
            Direction::Write => self.write(cell)?,
        };
        let counted_ios = loops.last().map_or(0, |(_, ios)| *ios);
        let loops_ns = loops.iter().skip(1).map(|(ns, _)| *ns).collect();
        Ok(Measured { cell: *cell, place: self.place.to_owned(), loops_ns, counted_ios })
    }

    /// Reads the files in each loop; returns nanoseconds and I/Os.
    fn read(&mut self, cell: &Cell) -> Result<Vec<(u64, u64)>, LabError> {
        self.prepare(cell)?;
        let paths: Vec<PathBuf> = (0..cell.streams).map(|stream| self.inputs.path(stream)).collect();
        let expected = self.sum_of(cell)?;
        let mut loops = Vec::new();
        for _ in 0..cell.loops {
            if cell.cache == Cache::Cold {
                paths.iter().try_for_each(|path| page_cache::drop_file(path))?;
            }
            let since = Instant::now();
            let (sum, ios) = self.read_once(cell, &paths)?;
            loops.push((times::nanoseconds_since(since), ios));
            if sum != expected {
                return Err(damaged(cell, &paths));
            }
        }
        Ok(loops)
    }

    fn read_once(&self, cell: &Cell, paths: &[PathBuf]) -> Result<(u64, u64), LabError> {
        let open = |path: &PathBuf| ElementReader::<u32>::open(path, cell.kind());
        let mut readers = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let mut sum = 0_u64;
        let mut left = cell.elements;
        while left > 0 {
            self.stop.check(self.table)?;
            let rounds = left.min(ROUNDS);
            for _ in 0..rounds {
                for reader in &mut readers {
                    sum = sum.wrapping_add(u64::from(reader.read_next()?));
                }
            }
            left -= rounds;
        }
        let ended = readers.iter().all(ElementReader::end_of_stream);
        let ios = readers.into_iter().map(ElementReader::close).sum();
        if ended { Ok((sum, ios)) } else { Err(damaged(cell, paths)) }
    }

    /// Writes new files in each loop; returns nanoseconds and I/Os. The files of the last loop are checked.
    fn write(&self, cell: &Cell) -> Result<Vec<(u64, u64)>, LabError> {
        let path = |stream| self.directory.join(format!("output-{stream}"));
        let paths: Vec<PathBuf> = (0..cell.streams).map(path).collect();
        let mut loops = Vec::new();
        for _ in 0..cell.loops {
            let since = Instant::now();
            let ios = self.write_once(cell, &paths)?;
            loops.push((times::nanoseconds_since(since), ios));
            if loops.len() == cell.loops as usize {
                self.check_written(cell, &paths)?;
            }
            for path in &paths {
                // On the device before it goes, so that its writing back does not slow the next loop down.
                let synced =
                    File::open(path).and_then(|file| file.sync_data()).and_then(|()| fs::remove_file(path));
                synced.map_err(LabError::file("remove", path))?;
            }
        }
        Ok(loops)
    }

    /// The sum of the elements of a cell, modulo 2^64.
    fn sum_of(&self, cell: &Cell) -> Result<u64, LabError> {
        let mut sum = 0_u64;
        for stream in 0..cell.streams {
            for from in (0..cell.elements).step_by(CHECKED) {
                self.stop.check(self.table)?;
                let end = cell.elements.min(from + CHECKED as u64);
                sum = (from..end).fold(sum, |sum, at| sum.wrapping_add(u64::from(element(stream, at))));
            }
        }
        Ok(sum)
    }

    /// Checks that the files hold the elements that were written.
    fn check_written(&self, cell: &Cell, paths: &[PathBuf]) -> Result<(), LabError> {
        for (stream, path) in (0..).zip(paths) {
            let mut reader = ElementReader::<u32>::open(path, MAKING)?;
            if reader.remaining() != cell.elements {
                return Err(damaged(cell, paths));
            }
            for at in 0..cell.elements {
                if at % CHECKED as u64 == 0 {
                    self.stop.check(self.table)?;
                }
                if reader.read_next()? != element(stream, at) {
                    return Err(damaged(cell, paths));
                }
            }
        }
        Ok(())
    }

    fn write_once(&self, cell: &Cell, paths: &[PathBuf]) -> Result<u64, LabError> {
        let create = |path: &PathBuf| ElementWriter::<u32>::create(path, cell.kind());
        let mut writers = paths.iter().map(create).collect::<Result<Vec<_>, _>>()?;
        let mut at = 0;
        while at < cell.elements {
            self.stop.check(self.table)?;
            let end = cell.elements.min(at + ROUNDS);
            for number in at..end {
                for (stream, writer) in (0..).zip(&mut writers) {
                    writer.write(element(stream, number))?;
                }
            }
            at = end;
        }
        let close = |writer: ElementWriter<u32>| match cell.cache {
            Cache::Cold => writer.sync_and_close(),
            Cache::Warm => writer.close(),
        };
        let mut ios = 0;
        for writer in writers {
            ios += close(writer)?.requests;
        }
        Ok(ios)
    }
}

fn damaged(cell: &Cell, paths: &[PathBuf]) -> LabError {
    LabError::Damaged { what: cell.to_string(), path: paths.first().cloned().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_cache::bytes_read;
    use crate::streams::cell::Backend;

    fn cell(direction: Direction, backend: Backend, exponent: u8, cache: Cache) -> Cell {
        Cell { direction, backend, exponent, streams: 3, elements: 5000, cache, loops: 3 }
    }

    fn run(cell: &Cell) -> Result<Measured, LabError> {
        let dir = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        let inputs = InputFiles::new(dir.path());
        let table = Path::new("table");
        let mut measurement =
            Measurement { directory: dir.path(), stop: &stop, place: "here", table, inputs };
        let measured = measurement.run(cell);
        measurement.inputs.clear().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "no file is left");
        measured
    }

    #[test]
    fn every_backend_is_measured_with_the_ios_of_each_stream() {
        for direction in [Direction::Write, Direction::Read] {
            for cache in [Cache::Cold, Cache::Warm] {
                for (backend, exponent, ios) in [
                    (Backend::Plain, 0, 15_000),
                    (Backend::Buffered, 0, 9),
                    (Backend::Sized, 10, 60),
                    (Backend::Mapped, 12, 15),
                    (Backend::Direct, 12, 15),
                ] {
                    let measured = run(&cell(direction, backend, exponent, cache)).unwrap();
                    assert_eq!(measured.counted_ios, ios, "{}", measured.cell);
                    assert_eq!(measured.loops_ns.len(), 2, "the first loop is left out");
                    assert!(measured.loops_ns.iter().all(|&ns| ns > 0));
                }
            }
        }
    }

    #[test]
    fn each_loop_of_a_cold_cell_reads_from_the_device_and_none_of_a_warm_one() {
        let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        if crate::place::notice(dir.path()).is_some() {
            // In memory there is no device to read from.
            return;
        }
        let stop = Stop::default();
        let inputs = InputFiles::new(dir.path());
        let table = Path::new("table");
        let mut measurement =
            Measurement { directory: dir.path(), stop: &stop, place: "here", table, inputs };
        for (cache, expected) in [(Cache::Cold, 3 * 4_000_000), (Cache::Warm, 0)] {
            let cell =
                Cell { streams: 1, elements: 1_000_000, ..cell(Direction::Read, Backend::Sized, 16, cache) };
            measurement.prepare(&cell).unwrap();
            if cache == Cache::Warm {
                // The cold loops have left the file in the cache.
                fs::read(measurement.inputs.path(0)).unwrap();
            }
            let before = bytes_read();
            measurement.run(&cell).unwrap();
            let read = bytes_read() - before;
            assert!(read >= expected && read <= expected + expected / 4, "{cache:?}: {read}");
        }
    }

    #[test]
    fn a_stopped_study_and_damaged_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        let cell = cell(Direction::Read, Backend::Sized, 12, Cache::Warm);
        let inputs = InputFiles::new(dir.path());
        let mut measurement =
            Measurement { directory: dir.path(), stop: &stop, place: "here", table: Path::new("t"), inputs };
        measurement.run(&cell).unwrap();
        let path = dir.path().join("input-1");
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = measurement.run(&cell).unwrap_err().to_string();
        assert!(error.contains("read other elements"), "{error}");
        stop.0.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(measurement.run(&cell), Err(LabError::Stopped { .. })));
    }
}
