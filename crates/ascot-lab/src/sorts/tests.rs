//! Merge sorts of any N, M, d and streams against the standard library; the I/Os counted against the formula; faults;
//! and studies that are interrupted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ascot_io::{Action, Effect, FaultHook};
use ascot_sort::request::Volumes;
use ascot_sort::{Cancel, SortError};
use proptest::prelude::*;

use super::external_sort::{Counted, ExternalSort};
use super::measure::Measurement;
use super::results::read_results;
use super::*;
use crate::error::LabError;
use crate::observe::{Notes, Stop};
use crate::page_cache::bytes_read;
use crate::streams::{Backend, Cache};

fn cell(elements: usize, memory: u64, fan_in: u32, read: StreamChoice, write: StreamChoice) -> SortCell {
    SortCell {
        elements: elements as u64,
        memory_elements: memory,
        fan_in,
        read,
        write,
        descending: false,
        cache: Cache::Warm,
        loops: 1,
        source: Source::Random(1),
        output: None,
    }
}

fn sized(exponent: u8) -> StreamChoice {
    StreamChoice::new(Backend::Sized, exponent)
}

fn choices() -> impl Strategy<Value = StreamChoice> {
    prop_oneof![
        Just(StreamChoice::new(Backend::Plain, 0)),
        Just(StreamChoice::new(Backend::Buffered, 0)),
        (0u8..14).prop_map(sized),
        (2u8..14).prop_map(|exponent| StreamChoice::new(Backend::Mapped, exponent)),
        (12u8..14).prop_map(|exponent| StreamChoice::new(Backend::Direct, exponent)),
    ]
}

fn write_integers(path: &Path, integers: &[i32]) {
    fs::write(path, integers.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>()).unwrap();
}

fn read_integers(path: &Path) -> Vec<i32> {
    fs::read(path).unwrap().as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Sorts integers with faults; returns them with what was counted. Nothing but input and output may be left.
fn sort(
    cell: &SortCell,
    integers: &[i32],
    faults: Option<Arc<dyn FaultHook>>,
) -> Result<(Vec<i32>, Counted), LabError> {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let [input, output] = ["input", "output"].map(|name| dir.path().join(name));
    write_integers(&input, integers);
    let cancel = Cancel::new();
    let counted = ExternalSort::new(cell, dir.path(), &cancel, faults).sort(&input, &output);
    let left = names(dir.path());
    match counted {
        Ok(counted) => {
            assert_eq!(left, ["input", "output"]);
            Ok((read_integers(&output), counted))
        }
        Err(error) => {
            assert_eq!(left, ["input"], "{error}");
            Err(error)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn any_sort_is_right_and_takes_the_ios_of_the_formula(
        integers in prop::collection::vec(prop_oneof![any::<i32>(), -2..2], 0..2000),
        memory in 1u64..400,
        fan_in in 2u32..12,
        read in choices(),
        write in choices(),
        descending: bool,
    ) {
        let cell = SortCell { descending, ..cell(integers.len(), memory, fan_in, read, write) };
        let (sorted, counted) = sort(&cell, &integers, None).unwrap();
        let mut wanted = integers;
        wanted.sort_unstable();
        if descending {
            wanted.reverse();
        }
        prop_assert!(sorted == wanted);
        let predicted = cell.predicted_ios();
        prop_assert_eq!((counted.reads, counted.writes), (predicted.reads, predicted.writes), "{}", cell);
        let model = cell.model();
        prop_assert_eq!((counted.runs, counted.passes), (model.runs(), model.merge_passes()));
    }
}

#[test]
fn edges_of_n_and_m() {
    let any = sized(8);
    for (elements, memory) in [(0, 1), (0, 1000), (1, 1), (1, 1000), (999, 1000), (1000, 1000), (1001, 1000)]
    {
        let integers: Vec<i32> = (0..elements).rev().collect();
        let (sorted, _) = sort(&cell(integers.len(), memory, 2, any, any), &integers, None).unwrap();
        assert!(sorted.is_sorted() && sorted.len() == integers.len());
    }
}

/// Sees the largest number of files that are open for reading while others are read.
#[derive(Debug, Default)]
struct OpenFiles(AtomicUsize);

impl FaultHook for OpenFiles {
    fn before(&self, action: Action, path: &Path) -> io::Result<Option<Effect>> {
        if action == Action::Read {
            let directory = path.parent().unwrap();
            let is_run =
                |path: PathBuf| path.starts_with(directory) && path.to_string_lossy().contains("run-");
            let open =
                fs::read_dir("/proc/self/fd")?.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
            self.0.fetch_max(open.filter(|path| is_run(path.clone())).count(), Ordering::Relaxed);
        }
        Ok(None)
    }
}

#[test]
fn no_merge_has_more_streams_than_the_fan_in() {
    let integers: Vec<i32> = (0..10_000).map(|at: i32| at.wrapping_mul(0x5851_f42d)).collect();
    for fan_in in [2, 10, 25] {
        let open = Arc::new(OpenFiles::default());
        let faults: Arc<dyn FaultHook> = open.clone();
        let (_, counted) =
            sort(&cell(10_000, 100, fan_in, sized(8), sized(8)), &integers, Some(faults)).unwrap();
        assert_eq!(counted.runs, 100);
        // The output of a merge is a run, too.
        assert_eq!(open.0.load(Ordering::Relaxed), fan_in as usize + 1);
    }
}

/// Makes operation `at` of a kind fail with `effect`.
#[derive(Debug)]
struct FailAt(Action, Effect, Mutex<usize>);

impl FaultHook for FailAt {
    fn before(&self, action: Action, _path: &Path) -> io::Result<Option<Effect>> {
        let mut left = self.2.lock().unwrap();
        if action != self.0 {
            return Ok(None);
        }
        *left = left.wrapping_sub(1);
        if *left != usize::MAX {
            return Ok(None);
        }
        match self.1.error() {
            Some(error) => Err(error),
            None => Ok(Some(self.1)),
        }
    }
}

#[test]
fn failures_at_any_point_are_errors_that_leave_nothing() {
    let integers: Vec<i32> = (0..1000).map(|at: i32| at.wrapping_mul(0x5851_f42d)).collect();
    let cell = cell(1000, 100, 3, sized(7), sized(7));
    let Counted { reads, writes, .. } = sort(&cell, &integers, None).unwrap().1;
    for (action, effect, count) in [
        (Action::Write, Effect::NoSpace, writes),
        (Action::Read, Effect::Eio, reads),
        (Action::Open, Effect::TooManyOpen, 5),
        (Action::Create, Effect::NoSpace, 5),
    ] {
        for at in (0..count as usize).step_by(7) {
            let faults = Arc::new(FailAt(action, effect, Mutex::new(at)));
            let error = sort(&cell, &integers, Some(faults)).map(|_| ()).unwrap_err();
            assert!(matches!(error, LabError::Io(_) | LabError::Sort(SortError::Io(_))), "{error}");
        }
    }
    // Short calls continue on their own.
    let faults = Arc::new(FailAt(Action::Write, Effect::Short, Mutex::new(5)));
    assert!(sort(&cell, &integers, Some(faults)).unwrap().0.is_sorted());
}

#[test]
fn a_missing_input_and_one_that_is_cut_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let [input, output] = ["input", "output"].map(|name| dir.path().join(name));
    let cell = cell(2, 1, 2, sized(8), sized(8));
    let cancel = Cancel::new();
    let sort = ExternalSort::new(&cell, dir.path(), &cancel, None);
    let error = sort.sort(&input, &output).unwrap_err().to_string();
    assert!(error.contains("input") && error.contains("No such file"), "{error}");
    fs::write(&input, [0; 9]).unwrap();
    let error = sort.sort(&input, &output).unwrap_err().to_string();
    assert!(error.contains("not a multiple"), "{error}");
    assert_eq!(names(dir.path()), ["input"]);
}

/// Stops a sort at its operation number `at`.
#[derive(Debug)]
struct StopAt(Cancel, Mutex<usize>);

impl FaultHook for StopAt {
    fn before(&self, _action: Action, _path: &Path) -> io::Result<Option<Effect>> {
        let mut left = self.1.lock().unwrap();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.0.cancel();
        }
        Ok(None)
    }
}

#[test]
fn a_sort_that_is_stopped_leaves_nothing() {
    let integers: Vec<i32> = (0..1000).map(|at: i32| at.wrapping_mul(0x5851_f42d)).collect();
    let cell = cell(1000, 100, 3, sized(7), sized(7));
    for at in [1, 30, 60, 90, 120] {
        let dir = tempfile::tempdir().unwrap();
        let [input, output] = ["input", "output"].map(|name| dir.path().join(name));
        write_integers(&input, &integers);
        let cancel = Cancel::new();
        let faults = Arc::new(StopAt(cancel.clone(), Mutex::new(at)));
        let error =
            ExternalSort::new(&cell, dir.path(), &cancel, Some(faults)).sort(&input, &output).unwrap_err();
        assert!(matches!(error, LabError::Sort(SortError::Cancelled)), "{at}: {error}");
        assert_eq!(names(dir.path()), ["input"]);
    }
}

#[test]
fn every_pass_of_a_cold_sort_reads_from_the_device_and_none_of_a_warm_one() {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    if crate::place::notice(dir.path()).is_some() {
        // In memory there is no device to read from.
        return;
    }
    let stop = Stop::default();
    // 8 runs, and 3 passes that merge pairs: each integer is read 4 times in each of 2 loops, and once to check it.
    let warm = cell(1 << 18, 1 << 15, 2, sized(16), sized(16));
    let cold = SortCell { cache: Cache::Cold, ..warm.clone() };
    for (cell, expected) in [(&cold, (2 * 4 + 1) * cold.data_bytes()), (&warm, 0)] {
        let mut measurement = Measurement {
            directory: dir.path(),
            stop: &stop,
            place: "here",
            table: Path::new("table"),
            out: dir.path(),
            memory_bytes: 1 << 28,
            volumes: Volumes::default(),
            faults: None,
            input: None,
        };
        let before = bytes_read();
        measurement.calibration_s(cell).unwrap();
        let read = bytes_read() - before;
        measurement.clear().unwrap();
        assert!(read >= expected && read <= expected + expected / 16, "{cell}: {read} instead of {expected}");
    }
}

fn study(directory: &Path) -> SortStudy {
    let grid = SortGrid {
        sources: vec![(2000, Source::Random(1)), (500, Source::Random(1))],
        memory: vec![100, 1000],
        fan_in: vec![2, 10],
        streams: vec![(sized(10), StreamChoice::new(Backend::Mapped, 12))],
        descending: false,
        caches: vec![Cache::Warm],
        loops: 2,
        output: None,
    };
    let (out, work) = (directory.to_path_buf(), directory.to_path_buf());
    let volumes = Volumes::default();
    SortStudy { cells: grid.cells(), out, work, memory_bytes: 1 << 28, volumes, faults: None }
}

#[test]
fn an_interrupted_study_continues_after_its_last_row() {
    let dir = tempfile::tempdir().unwrap();
    let study = study(dir.path());
    let stop = Stop::default();
    let error = study.run(&Notes::new(&stop, 3), &stop).unwrap_err();
    assert!(matches!(error, LabError::Stopped { .. }), "{error}");
    assert_eq!(names(dir.path()), ["sorts.csv"]);
    assert_eq!(read_results(&dir.path().join("sorts.csv")).unwrap().len(), 3);

    stop.0.store(false, Ordering::Relaxed);
    let notes = Notes::new(&stop, usize::MAX);
    let finished = study.run(&notes, &stop).unwrap();
    assert_eq!((finished.measured, finished.results.len()), (5, 8));
    let shown: Vec<usize> = notes.shown.borrow().iter().map(|progress| progress.finished).collect();
    assert_eq!(shown, [3, 4, 5, 6, 7]);
    let planned = notes.planned.borrow()[0];
    assert_eq!((planned.measurements, planned.finished_before), (5, 3));
    assert!(planned.predicted_s > 0.0 && planned.space_bytes > 3 * 2000);
    assert!(notes.shown.borrow().iter().all(|progress| progress.left_s > 0.0));
    for result in &finished.results {
        let predicted = result.cell.predicted_ios();
        assert_eq!((result.reads, result.writes), (predicted.reads, predicted.writes));
        assert!(result.mean_ms() > 0.0 && result.in_memory_ms.is_some_and(|ms| ms > 0.0));
        assert!(result.planned.mean_ms > 0.0 && result.planned.method == "in memory", "{:?}", result.planned);
    }

    let again = study.run(&Notes::new(&stop, usize::MAX), &stop).unwrap();
    assert_eq!((again.measured, again.results), (0, finished.results));
    assert_eq!(names(dir.path()), ["sorts.csv"]);
}

#[test]
fn too_little_memory_or_space_is_an_error_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut study = study(dir.path());
    let stop = Stop::default();
    let notes = Notes::new(&stop, usize::MAX);
    study.memory_bytes = 1000;
    let error = study.run(&notes, &stop).unwrap_err().to_string();
    assert!(error.contains("of memory") && error.contains("--memory-limit"), "{error}");
    study.memory_bytes = u64::MAX;
    study.cells[0].elements = 1 << 50;
    let error = study.run(&notes, &stop).unwrap_err();
    assert!(matches!(error, LabError::Space { .. }), "{error}");
    assert!(notes.shown.borrow().is_empty() && names(dir.path()).is_empty());
}

#[test]
fn the_output_is_kept_and_never_takes_the_place_of_the_input() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.dat");
    let integers: Vec<i32> = (0..1000).map(|at: i32| at.wrapping_mul(0x5851_f42d)).collect();
    write_integers(&input, &integers);
    let mut study = study(dir.path());
    let of_file = SortCell {
        source: Source::File(input.clone()),
        output: Some("Test".into()),
        descending: true,
        ..cell(1000, 100, 10, sized(10), sized(10))
    };
    study.cells = vec![of_file.clone()];
    let stop = Stop::default();
    let finished = study.run(&Notes::new(&stop, usize::MAX), &stop).unwrap();
    assert_eq!(finished.results[0].cell, of_file);
    assert!(read_integers(&dir.path().join("Test")).is_sorted_by(|a, b| a >= b));
    assert_eq!(read_integers(&input), integers);
    for (output, problem) in [
        ("in.dat", "exists"),
        (".", "is not the name"),
        ("../p.csv", "is not the name"),
        ("sorts.csv", "is kept for a file of the study"),
        ("charts", "is kept for a file of the study"),
    ] {
        study.cells[0].output = Some(output.into());
        let error = study.run(&Notes::new(&stop, usize::MAX), &stop).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(names(dir.path()), ["Test", "in.dat", "sorts.csv"]);
}

/// Stores zeros instead of the files of the first merges.
#[derive(Debug)]
struct ZeroMerged;

impl FaultHook for ZeroMerged {
    fn before(&self, action: Action, path: &Path) -> io::Result<Option<Effect>> {
        let is_merged = action == Action::Write && path.to_string_lossy().contains("run-1-");
        Ok(is_merged.then_some(Effect::Zeroed))
    }
}

#[test]
fn a_wrong_output_is_not_a_result() {
    let dir = tempfile::tempdir().unwrap();
    let mut study = study(dir.path());
    study.cells.truncate(1);
    study.cells[0].write = sized(10);
    study.faults = Some(Arc::new(ZeroMerged));
    let stop = Stop::default();
    let error = study.run(&Notes::new(&stop, usize::MAX), &stop).unwrap_err();
    assert!(matches!(error, LabError::WrongSort { .. }), "{error}");
    assert_eq!(names(dir.path()), ["sorts.csv"]);
}

fn result_of(cell: SortCell, ms: u64) -> SortResult {
    let planned = PlannedSort { mean_ms: 1.0, method: "in memory".into(), passes: 1, memory_bytes: 1 << 24 };
    let (place, loops_ns) = (String::new(), vec![ms * 1_000_000]);
    SortResult { cell, place, loops_ns, reads: 1, writes: 1, in_memory_ms: Some(1.0), planned }
}

#[test]
fn the_tables_are_those_of_the_paper() {
    // The appendix of Heinrich et al.: N = 1,000,000 and 10,000, milliseconds.
    let mapped = StreamChoice::new(Backend::Mapped, 16);
    let mut results = Vec::new();
    for (elements, memory, times) in [
        (1_000_000, 1000, [25_974, 24_408, 24_307]),
        (1_000_000, 10_000, [2677, 2599, 2538]),
        (1_000_000, 100_000, [309, 305, 303]),
        (1_000_000, 1_000_000, [24, 24, 24]),
        (10_000, 1000, [251, 254, 264]),
        (10_000, 10_000, [3, 3, 4]),
    ] {
        for (fan_in, ms) in [10, 25, 30].into_iter().zip(times) {
            results.push(result_of(cell(elements, memory, fan_in, mapped, mapped), ms));
        }
    }
    let groups = summary::groups(&results);
    let best: Vec<_> = groups[0].best().iter().map(|best| (best.elements, best.memory_elements)).collect();
    assert_eq!(best, [(10_000, 10_000), (1_000_000, 1_000_000)], "table 9");
    let (by_fan_in, by_memory) = groups[0].gains();
    // Section 4.4.1: 6 percent for d, over 90 for M.
    assert!((0.0..0.06).contains(&by_fan_in.unwrap()) && by_memory.unwrap() > 0.9);
    let text = summary::text(&results);
    for line in
        ["  M / d     10     25     30", "     1000  25974  24408  24307", "  1000000  1000000  any  24.0"]
    {
        assert!(text.contains(line), "{text}");
    }
}
