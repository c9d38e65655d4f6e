//! The common part of all jobs of flows: streams, the engine's schedule, and the report.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use ascot_bowtie::engine::{BlockInput, Bowtie, FileWriter, Reader, TooFewBlocks};
use ascot_bowtie::schedule::{FewestHeld, Split};
use ascot_io::{AtomicOutput, BlockPool, Disk, Pool};
use ascot_model::account::{BufferAccount, PassAccount};
use ascot_model::plan::Plan;
use ascot_model::report::{FlowAccount, Report};
use ascot_record::checksum::RecordSum;

use crate::api::{Cancel, Observer, Output, Result, SortError};
use crate::flow::ends::{OutputEnd, Relay, input_bytes, open_output, output_name};
use crate::flow::exchange::{Exchange, Feed, Patience, Sink, Source, Take};
use crate::flow::peer::{FromPeer, Peer, ToPeer};
use crate::flow::plan::{Layout, RELAY_BYTES};
use crate::flow::program::{Inherited, Pipe, Program};
use crate::flow::request::{FlowFunction, FlowRequest};
use crate::plan::too_little;
use crate::report::{JobSums, PassFacts, Passes, files_of, processors, report_of_records};

/// A flow that is run.
pub(super) struct FlowJob<'a> {
    pub(super) request: &'a FlowRequest,
    pub(super) layout: Layout,
    pub(super) plan: &'a Plan,
    pub(super) disk: Disk,
    pub(super) observer: &'a dyn Observer,
    pub(super) cancel: &'a Cancel,
    pub(super) started: Instant,
}

/// The streams of a flow, before its program starts.
#[derive(Default)]
pub(super) struct Streams {
    /// Files read by the engine.
    pub(super) readers: Vec<Reader>,
    /// Files written by the engine.
    pub(super) writers: Vec<FileWriter>,
    feeds: Vec<Feed>,
    takes: Vec<Take>,
    /// The ends of a program.
    inputs: Vec<OwnedFd>,
    outputs: Vec<OwnedFd>,
}

/// The memory that the engine of a flow has.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) blocks: usize,
    pub(super) block: usize,
}

impl FlowJob<'_> {
    /// Opens the outputs.
    pub(super) fn open_outputs(&self, pool: &Pool, streams: &mut Streams) -> Result<()> {
        for output in &self.request.outputs {
            let name = output_name(output);
            let sink = match open_output(&self.disk, output, self.cancel)? {
                OutputEnd::File(file) => {
                    streams.writers.push(file);
                    Sink::Stream(streams.writers.len() - 1)
                }
                OutputEnd::Pipe(end) => {
                    Sink::Relay(Relay::new(end, &name, pool.region(RELAY_BYTES, "bytes for a pipe")?))
                }
            };
            let number = streams.takes.len();
            let from_peer = match &self.request.function {
                FlowFunction::Program(_) => {
                    let Pipe { ours, theirs } = Pipe::from_program().map_err(no_pipe)?;
                    streams.outputs.push(theirs);
                    FromPeer::Pipe(ours)
                }
                FlowFunction::InProcess { streams, .. } => {
                    FromPeer::Queue(streams.peer().output(number, pool.region(RELAY_BYTES, QUEUE)?))
                }
            };
            streams.takes.push(Take::new(&name, from_peer, sink));
        }
        Ok(())
    }

    /// Adds an input of the function, with the bytes of `source`.
    pub(super) fn add_feed(
        &self,
        pool: &Pool,
        streams: &mut Streams,
        name: &Path,
        source: Source,
    ) -> Result<()> {
        let number = streams.feeds.len();
        let to_peer = match &self.request.function {
            FlowFunction::Program(_) => {
                let Pipe { ours, theirs } = Pipe::to_program().map_err(no_pipe)?;
                streams.inputs.push(theirs);
                ToPeer::Pipe(ours)
            }
            FlowFunction::InProcess { streams, .. } => {
                ToPeer::Queue(streams.peer().input(number, pool.region(RELAY_BYTES, QUEUE)?))
            }
        };
        streams.feeds.push(Feed::new(name, to_peer, source));
        Ok(())
    }

    /// The engine of the files, which follows the measured share of reading if switches cost much.
    pub(super) fn bowtie<I: BlockInput>(
        &self,
        pool: &Pool,
        memory: Memory,
        readers: Vec<I>,
        writers: Vec<FileWriter>,
    ) -> Result<Bowtie<I, FileWriter>> {
        let Memory { blocks, block } = memory;
        let blocks = BlockPool::new(pool.region(blocks * block, "blocks of streams")?, block);
        let total = blocks.total() as u32;
        let few = |TooFewBlocks { needed, blocks, .. }| {
            let enough = self.layout.memory + (needed - blocks) * block;
            too_little(self.layout.memory as u64, enough.next_multiple_of(1 << 20) as u64)
        };
        let named = |bowtie: Bowtie<I, FileWriter>| bowtie.observing(self.disk.ledger(), "flow");
        if let Some(scheme) = self.layout.scheme {
            let bowtie = if self.layout.merged_pipes > 0 {
                let is_pipe =
                    self.request.sort.inputs.iter().map(|input| input_bytes(input).is_none()).collect();
                Bowtie::with_pipes(readers, is_pipe, writers, blocks, &scheme)
            } else {
                Bowtie::new(readers, writers, blocks, &scheme)
            };
            let bowtie = named(bowtie.map_err(few)?.adapting(&scheme));
            return Ok(if self.request.alpha.is_some() { bowtie } else { bowtie.doubting_alpha() });
        }
        let read = match (readers.len(), writers.len()) {
            (0, _) => 0,
            (_, 0) => total,
            _ => total / 2,
        };
        let split = Split { read, write: total - read };
        let alpha = self.layout.shape.alpha;
        let bowtie = Bowtie::with_schedule(readers, writers, blocks, alpha, split, Box::new(FewestHeld));
        Ok(named(bowtie.map_err(few)?))
    }

    /// Starts the program with the program's ends of `streams`. A function in this process runs already.
    pub(super) fn start(&self, pool: &Pool, streams: Streams) -> Result<Exchange> {
        let buffer = pool.region(RELAY_BYTES, "bytes from a program")?;
        let peer = match &self.request.function {
            FlowFunction::Program(command) => {
                let stdout_is_taken = self.request.outputs.contains(&Output::Stdout);
                let ends = Inherited { inputs: streams.inputs, outputs: streams.outputs, stdout_is_taken };
                Peer::Program(Program::start(command, ends)?)
            }
            FlowFunction::InProcess { streams, .. } => Peer::Function(streams.peer()),
        };
        let patience = Patience { idle: self.request.idle_timeout, allow_unread: self.request.allow_unread };
        Ok(Exchange::new(peer, streams.feeds, streams.takes, patience, buffer))
    }

    /// Reports the flow, and gives the files of `bowtie` their names. `sum`: of the records merged, if any were.
    pub(super) fn finish<I: BlockInput>(
        &self,
        passes: &mut Passes,
        bowtie: Bowtie<I, FileWriter>,
        exchange: &Exchange,
        sum: &RecordSum,
    ) -> Result<Report> {
        let pool = bowtie.pool();
        let memory = self.layout.memory;
        let buffers = BufferAccount::new(pool.total(), pool.block_bytes(), memory);
        let facts = PassFacts {
            inputs: u64::from(self.layout.shape.inputs),
            outputs: u64::from(self.layout.shape.outputs),
            buffers: Some(buffers),
        };
        passes.done("flow", facts);
        let files: Vec<AtomicOutput> = bowtie.into_outputs().map(FileWriter::into_file).collect();
        let report = self.report(passes, exchange, sum);
        self.observer.complete(&report)?;
        AtomicOutput::commit_all(files)?;
        Ok(report)
    }

    fn report(&self, passes: &mut Passes, exchange: &Exchange, sum: &RecordSum) -> Report {
        let (inputs, outputs) = exchange.streams();
        let (streams, streams_left_out) = files_of(self.disk.ledger());
        let passes = passes.take_accounts(processors());
        let moved = PassAccount::moved_by(&passes);
        // Bytes of pipes that were merged are not those of files, which were read to their end.
        let of_files =
            if self.layout.merged_pipes > 0 { self.plan.chosen.read_bytes() } else { moved.read_bytes };
        let read = of_files as f64;
        let all = read + moved.written_bytes as f64;
        let of_records = report_of_records(&self.request.sort, JobSums { read: sum, out: sum, dropped: sum });
        Report {
            verb: "streamed".into(),
            bytes_in: inputs.iter().map(|stream| stream.bytes).sum(),
            bytes_out: outputs.iter().map(|stream| stream.bytes).sum(),
            records_dropped: 0,
            records_out: 0,
            checksum: if self.request.merged { of_records.checksum.clone() } else { String::new() },
            plan: Some(self.plan.clone().reported()),
            seconds: self.started.elapsed().as_secs_f64(),
            memory_bytes: self.layout.memory as u64,
            peak_disk_bytes: self.disk.space().peak(),
            flow: Some(FlowAccount {
                command: self.request.words(),
                alpha: (all > 0.0).then(|| read / all),
                inputs,
                outputs,
            }),
            moved,
            passes,
            streams,
            streams_left_out,
            notices: self.disk.notices(),
            ..of_records
        }
    }
}

/// What the memory of a queue is for.
const QUEUE: &str = "bytes between the engine and a function";

/// The error for a pipe that the system refuses.
fn no_pipe(source: std::io::Error) -> SortError {
    SortError::Request(format!(
        "no pipe to the program can be made: {source}\n  raise the limit of open files (ulimit -n), or use \
         fewer streams"
    ))
}
