//! Runs a flow: opens the streams, starts the program, moves the bytes, and gives the outputs their names when the
//! program has succeeded.

use std::os::fd::OwnedFd;
use std::time::Instant;

use ascot_bowtie::engine::{Bowtie, Reader};
use ascot_bowtie::flow::run;
use ascot_bowtie::schedule::{FewestHeld, Split};
use ascot_io::{AtomicOutput, BlockPool, Disk, DiskOptions, Pool};
use ascot_model::account::{BufferAccount, PassAccount};
use ascot_model::plan::Plan;
use ascot_model::report::{FlowAccount, Report};

use crate::api::{Cancel, Observer, Output, SortError};
use crate::flow::ends::{
    FileOutput, InputEnd, OutputEnd, Relay, input_name, open_input, open_output, output_name,
};
use crate::flow::exchange::{Exchange, Feed, Patience, ProgramFlow, Sink, Source, Take};
use crate::flow::plan::{Layout, RELAY_BYTES, plan_flow};
use crate::flow::program::{Inherited, Pipe, Program};
use crate::flow::request::FlowRequest;
use crate::plan::RunOptions;
use crate::report::{JobSums, PassFacts, Passes, files_of, report_of_records, with_progress};

/// Runs a program on the streams of `request`.
pub fn run_flow(
    request: &FlowRequest,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    request.check()?;
    let layout = Layout::new(request)?;
    let plan = plan_flow(request, &layout);
    let disk = Disk::new(DiskOptions { faults: options.faults.clone(), ..DiskOptions::default() });
    disk.stop_when(cancel.flag());
    let ledger = disk.ledger().clone();
    let job = FlowJob { request, layout, plan: &plan, disk, cancel, started: Instant::now() };
    with_progress(&plan, &ledger, 0, observer, || job.run(observer))
}

struct FlowJob<'a> {
    request: &'a FlowRequest,
    layout: Layout,
    plan: &'a Plan,
    disk: Disk,
    cancel: &'a Cancel,
    started: Instant,
}

/// The streams of a flow, before its program starts.
#[derive(Default)]
struct Streams {
    /// Files read by the engine.
    readers: Vec<Reader>,
    /// Files written by the engine.
    writers: Vec<FileOutput>,
    feeds: Vec<Feed>,
    takes: Vec<Take>,
    /// The program's ends.
    inputs: Vec<OwnedFd>,
    outputs: Vec<OwnedFd>,
}

impl FlowJob<'_> {
    fn run(&self, observer: &dyn Observer) -> Result<Report, SortError> {
        let pool = Pool::new(self.layout.memory);
        let mut streams = Streams::default();
        self.open_outputs(&pool, &mut streams)?;
        self.open_inputs(&pool, &mut streams)?;
        let mut passes = Passes::new(self.disk.ledger().clone());
        let buffer = pool.region(RELAY_BYTES, "bytes from a program")?;
        let mut bowtie = self.bowtie(&pool, streams.readers, streams.writers)?;
        let stdout_is_taken = self.request.outputs.contains(&Output::Stdout);
        let ends = Inherited { inputs: streams.inputs, outputs: streams.outputs, stdout_is_taken };
        let program = Program::start(&self.request.command, ends)?;
        let patience =
            Patience { idle: self.request.idle_timeout, allow_unread: self.request.allow_unread };
        let exchange = Exchange::new(program, streams.feeds, streams.takes, patience, buffer);
        let mut flow = ProgramFlow { exchange };
        run(&mut bowtie, &mut flow, || self.cancel.check())?;
        let buffers = BufferAccount {
            blocks: self.layout.blocks as u64,
            block_bytes: self.layout.block as u64,
            memory_share: (self.layout.blocks * self.layout.block) as f64 / self.layout.memory as f64,
        };
        let facts = PassFacts {
            inputs: u64::from(self.layout.shape.inputs),
            outputs: u64::from(self.layout.shape.outputs),
            stages: Vec::new(),
            buffers: Some(buffers),
        };
        passes.done("flow", facts);
        let files: Vec<AtomicOutput> = bowtie.into_outputs().map(FileOutput::into_file).collect();
        let report = self.report(passes, &flow.exchange);
        observer.complete(&report)?;
        AtomicOutput::commit_all(files)?;
        Ok(report)
    }

    fn open_outputs(&self, pool: &Pool, streams: &mut Streams) -> Result<(), SortError> {
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
            let Pipe { ours, theirs } = Pipe::from_program().map_err(no_pipe)?;
            streams.takes.push(Take::new(&name, ours, sink));
            streams.outputs.push(theirs);
        }
        Ok(())
    }

    fn open_inputs(&self, pool: &Pool, streams: &mut Streams) -> Result<(), SortError> {
        for input in &self.request.sort.inputs {
            let name = input_name(input);
            let source = match open_input(&self.disk, input)? {
                InputEnd::File(stream) => {
                    streams.readers.push(Reader::new(stream, self.layout.block));
                    Source::Stream(streams.readers.len() - 1)
                }
                InputEnd::Pipe(end) => {
                    Source::Relay(Relay::new(end, &name, pool.region(RELAY_BYTES, "bytes of a pipe")?))
                }
            };
            let Pipe { ours, theirs } = Pipe::to_program().map_err(no_pipe)?;
            streams.feeds.push(Feed::new(&name, ours, source));
            streams.inputs.push(theirs);
        }
        Ok(())
    }

    /// The engine of the files, which follows the measured share of reading if switches cost much.
    fn bowtie(
        &self,
        pool: &Pool,
        readers: Vec<Reader>,
        writers: Vec<FileOutput>,
    ) -> Result<Bowtie<Reader, FileOutput>, SortError> {
        let Layout { blocks, block, shape, long_runs, .. } = self.layout;
        let blocks = BlockPool::new(pool.region(blocks * block, "blocks of streams")?, block);
        let total = blocks.total() as u32;
        let few = |_| SortError::Internal("a flow has too few blocks of memory");
        match self.layout.scheme() {
            Some(scheme) if long_runs => {
                let bowtie = Bowtie::new(readers, writers, blocks, &scheme).map_err(few)?;
                Ok(bowtie.adapting(&scheme))
            }
            _ => {
                let read = if shape.inputs == 0 { 0 } else { total / if shape.outputs == 0 { 1 } else { 2 } };
                let split = Split { read, write: total - read };
                let schedule = Box::new(FewestHeld);
                Ok(Bowtie::with_schedule(readers, writers, blocks, shape.alpha, split, schedule)
                    .map_err(few)?)
            }
        }
    }

    fn report(&self, passes: Passes, exchange: &Exchange) -> Report {
        let (inputs, outputs) = exchange.streams();
        let (streams, streams_left_out) = files_of(self.disk.ledger());
        let passes = passes.into_accounts();
        let moved = PassAccount::moved_by(&passes);
        let none = Default::default();
        let sums = JobSums { read: &none, out: &none, dropped: &none };
        let read = moved.read_bytes as f64;
        let all = (moved.read_bytes + moved.written_bytes) as f64;
        Report {
            verb: "streamed".into(),
            bytes_in: inputs.iter().map(|stream| stream.bytes).sum(),
            bytes_out: outputs.iter().map(|stream| stream.bytes).sum(),
            checksum: String::new(),
            predicted_seconds: None,
            plan: Some(self.plan.clone()),
            seconds: self.started.elapsed().as_secs_f64(),
            memory_bytes: self.layout.memory as u64,
            peak_disk_bytes: self.disk.space().peak(),
            flow: Some(FlowAccount {
                command: self.request.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
                alpha: (all > 0.0).then(|| read / all),
                inputs,
                outputs,
            }),
            moved,
            passes,
            streams,
            streams_left_out,
            notices: self.disk.notices(),
            ..report_of_records(&self.request.sort, sums)
        }
    }
}

fn no_pipe(source: std::io::Error) -> SortError {
    SortError::Request(format!(
        "no pipe to the program can be made: {source}\n  raise the limit of open files (ulimit -n), or use fewer streams"
    ))
}
