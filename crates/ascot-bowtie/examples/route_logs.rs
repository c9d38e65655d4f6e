//! Filters and routes log records with the engine: 3 files of lines in, 8 files out, any size, within a
//! megabyte of memory.
//!
//! A line is `<service> <LEVEL> <message>`. Lines of level DEBUG are dropped; all others go to the output
//! that their service hashes to, so that each service's lines are together in one file, in the order of
//! each input.
//!
//! ```console
//! $ cargo run --release --example route_logs -- OUTPUT-DIRECTORY FILE FILE FILE
//! ```

use std::path::{Path, PathBuf};

use ascot_bowtie::engine::{Bowtie, Reader, Writer};
use ascot_bowtie::flow::{Flow, Step, run};
use ascot_io::{BlockPool, Disk, IoError, Pool};
use ascot_model::run_length::{Scheme, Shape};

const OUTPUTS: usize = 8;
const MEMORY_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 16 << 10;
/// Share of reading in all that moves, about: some of the lines are dropped.
const ALPHA: f64 = 0.6;

/// The function in the middle.
#[derive(Default)]
struct RouteLines {
    /// Of each input, the start of a line whose end is in the next block.
    started: Vec<Vec<u8>>,
    /// A line on its way out: its output, and how much of it has been put.
    leaving: Option<(usize, usize)>,
    line: Vec<u8>,
    /// The input that is read now; they take turns.
    turn: usize,
    lines: u64,
    dropped: u64,
}

impl RouteLines {
    /// Puts what is left of the line that leaves; says whether all of it went.
    fn put(&mut self, streams: &mut Bowtie) -> bool {
        if let Some((output, from)) = self.leaving {
            let until = from + streams.put(output, &self.line[from..]);
            self.leaving = (until < self.line.len()).then_some((output, until));
        }
        self.leaving.is_none()
    }

    /// Completes a line; says whether it goes anywhere.
    fn route(&mut self, input: usize, end: &[u8]) {
        self.line.clear();
        self.line.append(&mut self.started[input]);
        self.line.extend_from_slice(end);
        self.lines += 1;
        let mut words = self.line.split(|&byte| byte == b' ');
        let service = words.next().unwrap_or_default();
        if words.next() == Some(b"DEBUG") {
            self.dropped += 1;
            return;
        }
        let hash = service.iter().fold(5381_usize, |hash, &byte| hash.wrapping_mul(33) ^ usize::from(byte));
        self.leaving = Some((hash % OUTPUTS, 0));
    }
}

impl Flow for RouteLines {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        if !self.put(streams) {
            return Ok(Step::Full);
        }
        // The next input that has not ended; of those that have, a last line without an end may be left.
        let inputs = streams.inputs();
        let Some(input) = (0..inputs)
            .map(|k| (self.turn + k) % inputs)
            .find(|&input| !streams.exhausted(input) || !self.started[input].is_empty())
        else {
            return Ok(Step::Done);
        };
        self.turn = input;
        if streams.exhausted(input) {
            self.route(input, b"\n");
            return Ok(Step::Progress);
        }
        let data = streams.data(input);
        if data.is_empty() {
            return Ok(Step::Need(input));
        }
        let bytes = match data.iter().position(|&byte| byte == b'\n') {
            Some(at) => {
                self.route(input, &data[..=at]);
                self.turn += 1;
                at + 1
            }
            None => {
                self.started[input].extend_from_slice(data);
                data.len()
            }
        };
        streams.consume(input, bytes);
        Ok(Step::Progress)
    }
}

/// Routes the lines of `inputs` to files in `directory`; the lines read and the lines dropped.
pub fn route(inputs: &[PathBuf], directory: &Path) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let (disk, pool) = (Disk::default(), Pool::new(MEMORY_BYTES));
    let blocks = BlockPool::new(pool.region(MEMORY_BYTES, "blocks of streams")?, BLOCK_BYTES);
    let readers = inputs
        .iter()
        .map(|path| Ok(Reader::new(disk.open_read(path, 0..u64::MAX, "logs")?, BLOCK_BYTES)))
        .collect::<Result<Vec<_>, IoError>>()?;
    let writers = (0..OUTPUTS)
        .map(|k| Ok(Writer::new(disk.create(&directory.join(format!("routed-{k}.log")), "routed")?)))
        .collect::<Result<Vec<_>, IoError>>()?;
    let shape = Shape { inputs: inputs.len() as u32, outputs: OUTPUTS as u32, alpha: ALPHA };
    let mut bowtie = Bowtie::new(readers, writers, blocks, &Scheme::best(shape))?;
    let mut flow = RouteLines { started: vec![Vec::new(); inputs.len()], ..RouteLines::default() };
    run(&mut bowtie, &mut flow, || Ok(()))?;
    let totals = disk.ledger().totals();
    println!("{} bytes read, {} written, {} runs", totals.read_bytes, totals.written_bytes, totals.runs);
    Ok((flow.lines, flow.dropped))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let directory = arguments.next().ok_or("usage: route_logs OUTPUT-DIRECTORY FILE...")?;
    let inputs: Vec<PathBuf> = arguments.collect();
    let (lines, dropped) = route(&inputs, &directory)?;
    println!("{lines} lines, {dropped} dropped");
    Ok(())
}
