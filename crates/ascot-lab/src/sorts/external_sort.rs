//! The multi-way merge sort of Heinrich et al. (sections 2.2 and 4.2) over element streams.
//!
//! ```text
//!   input ─▶ M integers ─sort─▶ run 0-0, run 0-1, ...      through the read stream and the write stream
//!   runs 0-0 .. 0-(d-1) ─merge─▶ run 1-0, and so on         until one file is left, which becomes the output
//! ```
//!
//! Runs are sorted by the vector kernel of the sorts, and merged by their merge, at most d at a time (see
//! [`ElementMerge`]). M and the memory of the streams have nothing to do with each other.
//!
//! With a cold cache, every file is put on the device when it is complete, and its pages are dropped, so that merges
//! read it from the device; the caller drops those of the input.
//!
//! Invariants: a file is removed as soon as it is merged, and all of them if the sort fails; a file that has no others
//! to be merged with stays as it is and costs no I/O; the output appears under its name only when it is whole.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::elements::{Element, ElementReader, ElementWriter, StreamKind};
use ascot_io::{Disk, DiskOptions, FaultHook};
use ascot_model::units;
use ascot_sort::Cancel;
use ascot_sort::merge::element_streams::{ElementMerge, StoredI32, sort_integers};

use super::cell::SortCell;
use crate::error::LabError;
use crate::page_cache;
use crate::streams::Cache;

/// Integers read between two looks at the stop flag.
const BATCH: usize = 1 << 16;

/// The requests and steps of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Requests of the streams that were read.
    pub reads: u64,
    /// Requests of the streams that were written.
    pub writes: u64,
    /// Runs formed.
    pub runs: u64,
    /// Passes that merged files.
    pub passes: u32,
}

/// Sorts files of 32-bit integers.
pub struct ExternalSort<'a> {
    cell: &'a SortCell,
    directory: &'a Path,
    cancel: &'a Cancel,
    read_disk: Disk,
    write_disk: Disk,
}

impl<'a> ExternalSort<'a> {
    /// Sorts as `cell` says, with runs in the private directory `directory`; `faults` sees all operations on files.
    pub fn new(
        cell: &'a SortCell,
        directory: &'a Path,
        cancel: &'a Cancel,
        faults: Option<Arc<dyn FaultHook>>,
    ) -> Self {
        let read_disk = disk_for(cell.read.kind(), faults.clone());
        let write_disk = disk_for(cell.write.kind(), faults);
        Self { cell, directory, cancel, read_disk, write_disk }
    }

    /// Sorts `input` into `output`, which must be on the volume of the runs.
    ///
    /// # Errors
    /// Those of the streams; too little memory for M integers; `SortError::Cancelled`. Runs are removed.
    pub fn sort(&self, input: &Path, output: &Path) -> Result<Counted, LabError> {
        let mut counted = Counted::default();
        let mut files = RunFiles::default();
        self.form_runs(input, &mut files, &mut counted)?;
        self.merge_runs(&mut files, &mut counted)?;
        match files.paths.pop_back() {
            Some(sorted) => fs::rename(&sorted, output).map_err(LabError::file("rename", &sorted))?,
            None => {
                let writer = self.write_disk.write_elements::<u32>(output, self.cell.write.kind())?;
                self.complete(writer, output, &mut counted)?;
            }
        }
        Ok(counted)
    }

    /// Pass 0: sorted runs of M integers.
    fn form_runs(&self, input: &Path, files: &mut RunFiles, counted: &mut Counted) -> Result<(), LabError> {
        let mut reader = self.read_disk.read_elements::<u32>(input, self.cell.read.kind())?;
        let run = usize::try_from(self.cell.memory_elements.min(reader.remaining())).unwrap_or(usize::MAX);
        let mut integers: Vec<u32> = Vec::new();
        integers.try_reserve_exact(run).map_err(|_| self.no_memory())?;
        while !reader.end_of_stream() {
            self.cancel.check()?;
            integers.clear();
            while integers.len() < run && !reader.end_of_stream() {
                let batch = BATCH.min(run - integers.len());
                for _ in 0..batch.min(usize::try_from(reader.remaining()).unwrap_or(batch)) {
                    integers.push(reader.read_next()?);
                }
                self.cancel.check()?;
            }
            sort_integers(&mut integers, self.cell.descending);
            let path = files.add(self.directory.join(format!("run-0-{}", counted.runs)));
            let mut writer = self.write_disk.write_elements(&path, self.cell.write.kind())?;
            for &integer in &integers {
                writer.write(integer)?;
            }
            self.complete(writer, &path, counted)?;
            counted.runs += 1;
        }
        counted.reads += reader.close();
        Ok(())
    }

    /// Passes that merge d files at a time until one is left.
    fn merge_runs(&self, files: &mut RunFiles, counted: &mut Counted) -> Result<(), LabError> {
        if files.paths.len() < 2 {
            return Ok(());
        }
        let fan_in = files.paths.len().min(self.cell.fan_in as usize);
        let merge = ElementMerge::new(fan_in, self.cell.merge_block_bytes(), self.cell.descending)?;
        while files.paths.len() > 1 {
            counted.passes += 1;
            let mut below = std::mem::take(files);
            while !below.paths.is_empty() {
                let group: Vec<PathBuf> = below.paths.iter().take(fan_in).cloned().collect();
                if group.len() == 1 {
                    files.paths.append(&mut below.paths);
                    break;
                }
                let name = format!("run-{}-{}", counted.passes, files.paths.len());
                let path = files.add(self.directory.join(name));
                self.merge_group(&merge, &group, &path, counted)?;
                below.remove_first(group.len())?;
            }
        }
        Ok(())
    }

    fn merge_group(
        &self,
        merge: &ElementMerge,
        group: &[PathBuf],
        output: &Path,
        counted: &mut Counted,
    ) -> Result<(), LabError> {
        let open = |path: &PathBuf| self.read_disk.read_elements(path, self.cell.read.kind());
        let readers: Vec<ElementReader<StoredI32>> = group.iter().map(open).collect::<Result<_, _>>()?;
        let mut writer = self.write_disk.write_elements(output, self.cell.write.kind())?;
        counted.reads += merge.merge(readers, &mut writer, self.cancel)?;
        self.complete(writer, output, counted)
    }

    /// Ends a file that is written.
    fn complete<T: Element>(
        &self,
        writer: ElementWriter<T>,
        path: &Path,
        counted: &mut Counted,
    ) -> Result<(), LabError> {
        counted.writes += writer.close()?.requests;
        match self.cell.cache {
            Cache::Cold => page_cache::drop_file(path),
            Cache::Warm => Ok(()),
        }
    }

    fn no_memory(&self) -> LabError {
        let needed = units::memory(self.cell.run_bytes());
        let what = self.cell;
        LabError::Request(format!("{what}: the system refuses {needed} of memory\n  leave out the largest M"))
    }
}

fn disk_for(kind: StreamKind, faults: Option<Arc<dyn FaultHook>>) -> Disk {
    let usual = DiskOptions { faults, ..DiskOptions::default() };
    match kind {
        StreamKind::Direct { block_bytes, depth } => {
            Disk::new(DiskOptions { depth, request_bytes: block_bytes, ..usual })
        }
        _ => Disk::new(usual),
    }
}

/// Files of runs, in the order of their integers in the input. Those that are left are removed in the end.
#[derive(Default)]
struct RunFiles {
    paths: VecDeque<PathBuf>,
}

impl RunFiles {
    /// Adds a file that is about to be made.
    fn add(&mut self, path: PathBuf) -> PathBuf {
        self.paths.push_back(path.clone());
        path
    }

    /// Removes files that are merged.
    fn remove_first(&mut self, count: usize) -> Result<(), LabError> {
        for path in self.paths.drain(..count.min(self.paths.len())) {
            fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        }
        Ok(())
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        for path in &self.paths {
            // The sort has failed, and says why; the private directory goes with all that is left in it.
            let _ = fs::remove_file(path);
        }
    }
}
