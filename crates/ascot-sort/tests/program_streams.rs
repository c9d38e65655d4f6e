//! Jobs whose input or output is in this process.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ascot_io::{BlockSink, Buf, ByteSource, ProgramStreams, Unpoisoned};
use ascot_record::keys::ByteRangeKey;
use ascot_record::layout::Layout;
use ascot_sort::{Cancel, Input, Keys, Output, RunOptions, Silent, SortError, SortRequest, sort};

const RECORD_BYTES: usize = 16;

/// Makes records in descending order, and fails after some of them.
struct Descending {
    left: u64,
    fails_at: u64,
    part: Vec<u8>,
}

impl ByteSource for Descending {
    fn fill(&mut self, out: &mut [u8]) -> Option<usize> {
        let mut filled = 0;
        while filled < out.len() {
            if self.part.is_empty() {
                if self.left == self.fails_at {
                    return None;
                }
                if self.left == 0 {
                    break;
                }
                self.left -= 1;
                self.part = [self.left.to_be_bytes(), [7; 8]].concat();
            }
            let count = self.part.len().min(out.len() - filled);
            out[filled..filled + count].copy_from_slice(&self.part[..count]);
            self.part.drain(..count);
            filled += count;
        }
        Some(filled)
    }
}

/// The blocks of a job, and the bytes of those that were taken.
#[derive(Default)]
struct Queue {
    blocks: Vec<(Buf, usize)>,
    bytes: Vec<u8>,
}

/// Takes blocks, all of them whenever the test does.
#[derive(Clone, Default)]
struct Slow {
    queue: Arc<Mutex<Queue>>,
    taken: Arc<Condvar>,
}

impl BlockSink for Slow {
    fn put(&mut self, block: Buf, len: usize) {
        self.queue.lock().unpoisoned().blocks.push((block, len));
    }

    fn is_taken(&mut self, time: Duration) -> bool {
        let queue = self.queue.lock().unpoisoned();
        let waited = self.taken.wait_timeout_while(queue, time, |queue| !queue.blocks.is_empty());
        waited.unpoisoned().0.blocks.is_empty()
    }
}

impl Slow {
    fn take(&self) {
        let mut queue = self.queue.lock().unpoisoned();
        for (block, len) in std::mem::take(&mut queue.blocks) {
            queue.bytes.extend_from_slice(&block[..len]);
        }
        self.taken.notify_all();
    }
}

fn run(records: u64, fails_at: u64, temp: &std::path::Path) -> Result<Vec<u8>, SortError> {
    let key = ByteRangeKey { start: 0, end: 8, descending: false };
    let layout = Layout::Fixed { len: RECORD_BYTES };
    let mut request =
        SortRequest::new(vec![Input::Program], Output::Program, layout, Keys::Ranges(vec![key]));
    request.memory_bytes = Some(12 << 20);
    request.temp_dirs = vec![temp.to_path_buf()];
    let sink = Slow::default();
    let source = Descending { left: records, fails_at, part: Vec::new() };
    let program = ProgramStreams::new(Some(Box::new(source)), Some(Box::new(sink.clone())));
    let options = RunOptions { program, ..RunOptions::default() };
    let job = std::thread::spawn(move || sort(&request, &options, &Silent, &Cancel::new()));
    while !job.is_finished() {
        sink.take();
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    sink.take();
    assert_eq!(report.records_in, records);
    Ok(std::mem::take(&mut sink.queue.lock().unpoisoned().bytes))
}

#[test]
fn records_of_the_program_come_back_sorted() {
    for records in [0, 1, 1000, 2_000_000] {
        let temp = tempfile::tempdir().unwrap();
        let out = run(records, u64::MAX, temp.path()).unwrap();
        let numbers: Vec<u64> = out
            .chunks_exact(RECORD_BYTES)
            .map(|record| u64::from_be_bytes(record[..8].try_into().unwrap()))
            .collect();
        assert!(numbers.into_iter().eq(0..records), "{records}");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_program_that_fails_stops_the_job() {
    for fails_at in [2_000_000, 1_500_000, 1] {
        let temp = tempfile::tempdir().unwrap();
        assert!(matches!(run(2_000_000, fails_at, temp.path()), Err(SortError::Cancelled)), "{fails_at}");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
