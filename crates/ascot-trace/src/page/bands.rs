//! What a page needs of a trace before its pieces: the range of every file, and the rates over time.

use serde::Serialize;

use crate::error::Result;
use crate::event::Kind;
use crate::format::TraceReader;

/// Intervals of the rates.
pub const INTERVALS: usize = 240;

/// The part of the vertical axis that belongs to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Band {
    /// The number of the file in the trace.
    pub file: u32,
    /// Its path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The first byte that requests reach.
    pub low: u64,
    /// The byte after the last.
    pub high: u64,
}

/// Bytes of intervals of the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// The length of an interval in nanoseconds, at least 1.
    pub interval_ns: u64,
    /// Bytes read in each.
    pub read_bytes: Vec<u64>,
    /// Bytes written in each.
    pub written_bytes: Vec<u64>,
}

/// The files with requests, in the order of their first request, and the rates.
pub struct Overview {
    /// The files.
    pub bands: Vec<Band>,
    /// The rates.
    pub rates: Rates,
    /// Requests that move bytes.
    pub requests: u64,
    /// Nanoseconds until the last event.
    pub duration_ns: u64,
}

impl Overview {
    /// Reads the trace once.
    pub fn new(trace: &TraceReader) -> Result<Overview> {
        let duration_ns = trace.last_ns();
        let interval_ns = duration_ns / INTERVALS as u64 + 1;
        let none = vec![0; INTERVALS];
        let mut rates = Rates { interval_ns, read_bytes: none.clone(), written_bytes: none };
        let mut bands: Vec<Band> = Vec::new();
        let mut at: Vec<Option<usize>> = vec![None; trace.files().len()];
        let mut requests = 0;
        for event in trace.events() {
            let event = event?;
            let Some(at) = at.get_mut(event.file as usize).filter(|_| event.moves()) else { continue };
            requests += 1;
            let reads = event.kind == Kind::Read;
            let bytes = if reads { &mut rates.read_bytes } else { &mut rates.written_bytes };
            if let Some(bytes) = bytes.get_mut((event.time_ns / interval_ns) as usize) {
                *bytes = bytes.saturating_add(event.size);
            }
            if let Some(band) = at.and_then(|at| bands.get_mut(at)) {
                band.low = band.low.min(event.offset);
                band.high = band.high.max(event.end());
                continue;
            }
            *at = Some(bands.len());
            let path = trace.files().get(event.file as usize).map_or(&[][..], |file| &file.path);
            let path = String::from_utf8_lossy(path).into_owned();
            bands.push(Band { file: event.file, path, low: event.offset, high: event.end() });
        }
        Ok(Overview { bands, rates, requests, duration_ns })
    }
}
