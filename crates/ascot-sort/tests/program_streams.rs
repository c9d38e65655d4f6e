//! Jobs whose input or output is in this process.

use std::path::Path;
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
    let program =
        ProgramStreams::new([Box::new(source) as Box<dyn ByteSource>], Some(Box::new(sink.clone())));
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

/// Numbers of its own in ascending order, as records.
struct Ascending(Vec<u64>);

impl ByteSource for Ascending {
    fn fill(&mut self, out: &mut [u8]) -> Option<usize> {
        let count = self.0.len().min(out.len() / RECORD_BYTES);
        for (record, number) in out.chunks_exact_mut(RECORD_BYTES).zip(self.0.drain(..count)) {
            record[..8].copy_from_slice(&number.to_be_bytes());
            record[8..].fill(b'x');
        }
        Some(count * RECORD_BYTES)
    }
}

/// Merges inputs, those of the program with these numbers, to the file `out`.
fn merge(inputs: Vec<Input>, numbers: Vec<Vec<u64>>, out: &Path) -> Result<(), SortError> {
    let layout = Layout::Fixed { len: RECORD_BYTES };
    let keys = Keys::Ranges(vec![ByteRangeKey { start: 0, end: 8, descending: false }]);
    let request = SortRequest {
        merge_only: true,
        memory_bytes: Some(32 << 20),
        ..SortRequest::new(inputs, Output::Path(out.to_path_buf()), layout, keys)
    };
    let sources = numbers.into_iter().map(|numbers| Box::new(Ascending(numbers)) as Box<dyn ByteSource>);
    let options = RunOptions { program: ProgramStreams::new(sources, None), ..RunOptions::default() };
    sort(&request, &options, &Silent, &Cancel::new()).map(drop)
}

#[test]
fn several_inputs_of_the_program_are_merged_with_files() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("file"), directory.path().join("out"));
    let mut bytes = vec![0; RECORD_BYTES];
    assert_eq!(Ascending(vec![5]).fill(&mut bytes), Some(RECORD_BYTES));
    std::fs::write(&file, &bytes).unwrap();
    let inputs = || vec![Input::Program, Input::Path(file.clone()), Input::Program];
    let numbers = [0, 1].map(|first| (first..100_000).step_by(2).collect());
    merge(inputs(), numbers.to_vec(), &out).unwrap();
    let number = |record: &[u8]| u64::from_be_bytes(record[..8].try_into().unwrap());
    let all: Vec<u64> = std::fs::read(&out).unwrap().chunks_exact(RECORD_BYTES).map(number).collect();
    assert_eq!((all.len(), all[5], all[6]), (100_001, 5, 5));
    assert!(all.is_sorted());
    let unordered = merge(inputs(), vec![vec![1, 2], vec![2, 1]], &out).unwrap_err();
    let SortError::NotSorted { input, record: 2, .. } = unordered else { panic!("{unordered}") };
    assert!(input.ends_with("in input 3"), "{input}");
    let missing = merge(inputs(), vec![vec![1]], &out).unwrap_err().to_string();
    assert!(missing.contains("passes no records"), "{missing}");
}

#[test]
fn a_program_that_fails_stops_the_job() {
    for fails_at in [2_000_000, 1_500_000, 1] {
        let temp = tempfile::tempdir().unwrap();
        assert!(matches!(run(2_000_000, fails_at, temp.path()), Err(SortError::Cancelled)), "{fails_at}");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
