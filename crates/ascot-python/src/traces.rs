//! Traces: their census as JSON, their events as tables.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_sort::Cancel;
use ascot_trace::census::{Census, census};
use ascot_trace::compare::{Compared, remarks};
use ascot_trace::{Event, Kind, TraceReader};
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::{Failure, Result};
use crate::jobs::json;
use crate::request::{Bytes, count_of, unknown, volume_profile};
use crate::running::{run, run_aside, run_aside_until};
use crate::tables::{Columns, Table};

/// Events read between two looks whether to stop.
const EVENTS_AT_ONCE: usize = 1 << 16;

/// An open trace.
#[pyclass(frozen, module = "ascot._native")]
pub struct Trace {
    reader: Arc<TraceReader>,
}

/// Opens the trace `path`.
#[pyfunction]
pub fn open_trace(py: Python<'_>, path: PathBuf) -> PyResult<Trace> {
    let reader = run_aside(py, move || TraceReader::open(&path))?;
    Ok(Trace { reader: Arc::new(reader) })
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    census: Census,
    remarks: Vec<String>,
}

#[pymethods]
impl Trace {
    /// Number of events.
    fn __len__(&self) -> usize {
        usize::try_from(self.reader.event_count()).unwrap_or(usize::MAX)
    }

    /// The census as JSON.
    fn census(&self, py: Python<'_>) -> PyResult<String> {
        let reader = Arc::clone(&self.reader);
        let counted = run_aside(py, move || census(&reader))?;
        Ok(json(&Shown { remarks: counted.remarks(), census: counted })?)
    }

    /// The events from `from_ns` to `to_ns`, of all kinds or of some.
    fn events(&self, py: Python<'_>, from_ns: u64, to_ns: u64, kinds: Vec<String>) -> PyResult<Table> {
        let kinds = kinds.iter().map(|word| kind_of(word)).collect::<Result<Vec<_>, _>>()?;
        let finished = run(py, None, |_, cancel| self.table(from_ns, to_ns, &kinds, cancel))?;
        Ok(finished.result)
    }
}

impl Trace {
    fn table(&self, from_ns: u64, to_ns: u64, kinds: &[Kind], cancel: &Cancel) -> Result<Table> {
        let mut events: Vec<Event> = Vec::new();
        for (number, event) in self.reader.events_between(from_ns, to_ns).enumerate() {
            if number.is_multiple_of(EVENTS_AT_ONCE) {
                cancel.check()?;
            }
            let event = event?;
            if kinds.is_empty() || kinds.contains(&event.kind) {
                events.push(event);
            }
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let paths: Vec<String> = self.reader.files().iter().map(|file| text(&file.path)).collect();
        let pids: Vec<u32> = self.reader.processes().iter().map(|process| process.pid).collect();
        let words: Vec<String> = Kind::ALL.iter().map(|kind| kind.name().to_owned()).collect();
        Columns::new(&events)
            .count("time_ns", |event| event.time_ns)
            .count("pid", |event| pids.get(event.process as usize).copied().unwrap_or_default().into())
            .words("kind", &words, |event| event.kind as u32)?
            .count("offset", |event| event.offset)
            .count("bytes", |event| event.size)
            .flag("jumped", |event| event.jumped)
            .count("file", |event| event.file.into())
            .words("path", &paths, |event| event.file)?
            .table()
    }
}

fn kind_of(word: &str) -> Result<Kind> {
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == word);
    found.ok_or_else(|| unknown("kind", word, "read, write, open, close, seek, resize, delete"))
}

/// Traces side by side: their measures as JSON, and remarks. `size` is that of the data, `volume` that of a replay.
#[pyfunction]
pub fn compare_traces(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    size: Option<Bytes>,
    volume: Option<PathBuf>,
) -> PyResult<(String, Vec<String>)> {
    let size = count_of("size", size.as_ref())?;
    let profile = match &volume {
        None => None,
        Some(volume) => Some(volume_profile(volume)?),
    };
    let cancel = Cancel::new();
    let interrupted = cancel.clone();
    let one = move |path: PathBuf| {
        cancel.check()?;
        let reader = TraceReader::open(&path)?;
        Ok::<_, Failure>(Compared::new(path.display().to_string(), &reader, size, profile.as_ref())?)
    };
    let compare = move || paths.into_iter().map(one).collect::<Result<Vec<_>>>();
    let compared = run_aside_until(py, "traces", compare, || interrupted.cancel())?;
    Ok((json(&compared)?, remarks(&compared)))
}

/// The style of the pages of traces and reports.
#[pyfunction]
pub fn page_style() -> &'static str {
    ascot_trace::page::style()
}
