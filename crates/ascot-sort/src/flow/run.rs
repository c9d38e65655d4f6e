//! Runs a flow: opens the streams, starts the program, moves the bytes, and gives the outputs their names when the
//! program or function has succeeded.

use std::time::Instant;

use ascot_bowtie::engine::Reader;
use ascot_bowtie::flow::run;
use ascot_io::Pool;
use ascot_model::report::Report;
use ascot_record::checksum::RecordSum;

use crate::api::{Cancel, Observer, Result};
use crate::flow::ends::{InputEnd, Relay, input_name, open_input};
use crate::flow::exchange::{ProgramFlow, Source};
use crate::flow::job::{FlowJob, Memory, Streams};
use crate::flow::plan::{Layout, RELAY_BYTES, plan_flow};
use crate::flow::request::{FlowFunction, FlowRequest};
use crate::plan::{RunOptions, job_disk};
use crate::report::{Passes, with_progress};

/// Runs the program or function of `request` on its streams.
pub fn run_flow(
    request: &FlowRequest,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report> {
    // A function in this process learns of every end of the job.
    let _over = match &request.function {
        FlowFunction::Program(_) => None,
        FlowFunction::InProcess { streams, .. } => Some(streams.over_at_end()),
    };
    request.check()?;
    let layout = Layout::new(request)?;
    let plan = plan_flow(request, &layout);
    let disk = job_disk(options);
    disk.stop_when(cancel.flag());
    let ledger = disk.ledger().clone();
    let job = FlowJob { request, layout, plan: &plan, disk, observer, cancel, started: Instant::now() };
    with_progress(&plan, &ledger, 0, observer, || if request.merged { job.run_merged() } else { job.run() })
}

impl FlowJob<'_> {
    /// Gives each input to the program by itself.
    fn run(&self) -> Result<Report> {
        let mut passes = Passes::new(self.disk.ledger().clone());
        self.observer.began(passes.began());
        let pool = Pool::new(self.layout.memory);
        let mut streams = Streams::default();
        self.open_outputs(&pool, &mut streams)?;
        self.open_inputs(&pool, &mut streams)?;
        let memory = Memory { blocks: self.layout.blocks, block: self.layout.block };
        let readers = std::mem::take(&mut streams.readers);
        let writers = std::mem::take(&mut streams.writers);
        let mut bowtie = self.bowtie(&pool, memory, readers, writers)?;
        let mut flow = ProgramFlow { exchange: self.start(&pool, streams)? };
        run(&mut bowtie, &mut flow, || self.cancel.check())?;
        self.finish(&mut passes, bowtie, &flow.exchange, &RecordSum::new())
    }

    fn open_inputs(&self, pool: &Pool, streams: &mut Streams) -> Result<()> {
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
            self.add_feed(pool, streams, &name, source)?;
        }
        Ok(())
    }
}
