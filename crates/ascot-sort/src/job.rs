//! A job from request to report: memory, streams and threads it works with, its passes in turn.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_bowtie::engine::{self, Bowtie, NoOutput};
use ascot_bowtie::flow::{self, Flow};
use ascot_io::{AtomicOutput, BlockPool, Disk, Pool};
use ascot_model::account::PassAccount;
use ascot_model::plan::Plan;
use ascot_model::report::Report;
use ascot_record::checksum::RecordSum;

use crate::api::error::SortError;
use crate::api::observe::{Cancel, Observer};
use crate::api::request::{Output, Parts, SortRequest};
use crate::merge::emit::EmitThreads;
use crate::output::rolling::Parting;
use crate::output::target::{Commit, Target};
use crate::partition::refine::Refined;
use crate::plan::budget::Budget;
use crate::plan::volumes::output_dir;
use crate::plan::volumes::temp_dirs;
use crate::read::inputs::InputPosition;
use crate::read::inputs::Inputs;
use crate::read::record_reader::PieceReader;
use crate::records::Records;
use crate::records::misfits::Misfits;
use crate::report::account::{Passes, files_of};
use crate::resources::limits::{descriptors, peak_memory_bytes};
use crate::resources::pieces::PiecePool;
use crate::resources::turns::Turns;
use crate::runs::background_unlink::Sweeper;
use crate::runs::form::SortMemory;
use crate::runs::keeping::Keeping;
use crate::runs::run::Run;
use crate::runs::spill::Spill;
use crate::runs::spill_dirs::Places;
use crate::runs::store::{
    FileIdentity, Finished, JobDir, MANIFEST_VERSION, Manifest, OpenSpill, OutputState, StoredWay,
};

/// Everything the passes of one job share.
pub struct Job<'a, R: Records> {
    /// Its records.
    pub records: Arc<R>,
    /// What was asked for.
    pub request: &'a SortRequest,
    /// Where it reads and writes.
    pub disk: Disk,
    /// Its memory.
    pub pool: Pool,
    /// How that is divided.
    pub budget: Budget,
    /// Who may stop it.
    pub cancel: &'a Cancel,
    /// The account so far.
    pub passes: Passes,
    /// Its inputs.
    pub inputs: Inputs,
    /// The header to be written before the records.
    pub header: Option<Vec<u8>>,
    /// Threads that merge.
    pub emitters: Arc<EmitThreads>,
    /// Removes its spills; done with that before its directory goes.
    sweeper: Sweeper,
    /// Its directory, once it has spills.
    pub dir: Option<JobDir>,
    /// The places for spills, once it has any.
    places: Option<Places>,
    /// How far it has come.
    pub manifest: Manifest,
    /// A sample of the keys of its parts, where that is of use.
    pub refined: Option<Refined>,
    /// Most files merged at once, where the plan says so.
    pub merge_factor: Option<usize>,
    /// Bytes of output after which what is consumed is freed at the latest, where the plan says that.
    pub most_step: Option<u64>,
    /// Whether a killed job could go on: inputs and output are files.
    pub resumable: bool,
    /// What becomes of its directory if it ends early.
    pub keeping: Keeping,
    /// Is told when the output is complete.
    observer: &'a dyn Observer,
    started: Instant,
}

impl<'a, R: Records> Job<'a, R> {
    /// Sets a job up; nothing is read yet.
    pub fn new(
        records: Arc<R>,
        request: &'a SortRequest,
        disk: Disk,
        budget: Budget,
        inputs: Inputs,
        header: Option<Vec<u8>>,
        (observer, cancel): (&'a dyn Observer, &'a Cancel),
    ) -> Result<Self, SortError> {
        let pool = Pool::new(budget.memory);
        disk.stop_when(cancel.flag());
        disk.expect(inputs.record_bytes().unwrap_or(0));
        let emitters = EmitThreads::start(&records, &pool, budget.threads, budget.emit_blocks, budget.block)?;
        let resumable =
            inputs.are_files() && matches!(request.output, Output::Path(_)) && !request.merge_only;
        let sweeper = Sweeper::new(&disk);
        let manifest = Manifest {
            version: MANIFEST_VERSION,
            request: request.absolute().unwrap_or_else(|_| request.clone()),
            inputs: Vec::new(),
            memory_bytes: budget.memory as u64,
            threads: budget.threads,
            way: StoredWay::Merge,
            dirs: Vec::new(),
            next_number: 1,
            runs: Vec::new(),
            parts: Vec::new(),
            read_upto: InputPosition::default(),
            all_read: false,
            sum_in: RecordSum::new(),
            misfits: Misfits::default(),
            dropped: RecordSum::new(),
            temporary: None,
            output: None,
            merging: None,
            large: None,
            finished: None,
            view: None,
            moved: (0, 0),
            seconds: 0.0,
        };
        Ok(Job {
            passes: Passes::new(disk.ledger().clone()),
            records,
            request,
            disk,
            pool,
            budget,
            cancel,
            inputs,
            header,
            emitters: Arc::new(emitters),
            sweeper,
            dir: None,
            places: None,
            manifest,
            refined: None,
            merge_factor: None,
            most_step: None,
            resumable,
            keeping: Keeping::new(cancel),
            observer,
            started: Instant::now(),
        })
    }

    /// Goes on in the directory of a job that ended early, from where `manifest` says. Whatever ends it now, it
    /// can go on again.
    pub fn go_on(&mut self, mut dir: JobDir, manifest: Manifest) {
        self.keeping.always();
        dir.keep_as(&self.keeping);
        self.dir = Some(dir);
        self.manifest = manifest;
    }

    /// Keeps to what `plan` says of merges and of the disk.
    pub fn follow(&mut self, plan: Option<&Plan>) {
        let step = plan.map_or(0, |plan| plan.chosen.disk.step_bytes);
        self.most_step = Some(step).filter(|&step| step > 0);
        let factor = plan.and_then(|plan| plan.chosen.merge_factor);
        self.merge_factor = factor.map(|factor| usize::try_from(factor).unwrap_or(usize::MAX).max(2));
    }

    /// Starts the output, the header first.
    pub fn target(&mut self) -> Result<Target<R>, SortError> {
        let region = self.pool.region(self.budget.target_blocks * self.budget.block, "the output")?;
        let blocks = BlockPool::new(region, self.budget.block);
        if let Some(OutputState { durable, .. }) = &self.manifest.output
            && let Output::Path(path) = &self.request.output
        {
            let blocks = (blocks, self.cancel);
            let mut target = Target::resume(&self.records, &self.disk, path, durable, blocks)?;
            let temporary = durable.temporary.clone();
            self.adopt(&mut target, &temporary);
            return Ok(target);
        }
        if let Output::Parts(parts) = &self.request.output {
            return self.target_in_parts(parts, blocks, true);
        }
        let named = self.manifest.temporary.as_deref();
        let mut target =
            Target::create(&self.records, &self.disk, &self.request.output, named, (blocks, self.cancel))?;
        if let Some(header) = &self.header {
            target.write_finished(header)?;
        }
        Ok(target)
    }

    /// From here on the unfinished output goes the way of the job's directory, whose manifest names it.
    fn adopt(&mut self, target: &mut Target<R>, temporary: &Path) {
        if let Some(dir) = &mut self.dir {
            target.keep();
            dir.adopt(temporary);
        }
    }

    /// Stores how far the output has come.
    pub fn store_output(&mut self, target: &mut Target<R>, state: OutputState) -> Result<(), SortError> {
        // Before the manifest names it: a job that is kept now has what its manifest names.
        self.adopt(target, &state.durable.temporary);
        self.manifest.output = Some(state);
        self.store()
    }

    /// Starts an output of several files of equal size; `by_key` where equal keys stay together.
    pub fn target_in_parts(
        &self,
        parts: &Parts,
        blocks: BlockPool,
        by_key: bool,
    ) -> Result<Target<R>, SortError> {
        let total = self.inputs.record_bytes().ok_or_else(|| {
            SortError::Request(
                "parts are cut by size, and what comes through a pipe has none beforehand\n  write it to a file first"
                    .into(),
            )
        })?;
        // The other half is for inputs and spills.
        parts.check(descriptors() / 2)?;
        let parting = Parting::new((parts, total), &self.disk, self.cancel, self.header.clone(), by_key);
        Target::create_parts(&self.records, parting, (blocks, self.cancel))
    }

    /// From here on a killed job leaves what can be found and continued: its directory, and in it
    /// the name its output will have until it is complete.
    pub fn begin_spilling(&mut self) -> Result<(), SortError> {
        if let (true, None, Output::Path(path)) =
            (self.resumable, &self.manifest.temporary, &self.request.output)
        {
            let name = AtomicOutput::name_for(path)?;
            self.manifest.temporary = name.and_then(|name| std::path::absolute(name).ok());
        }
        self.dir().map(|_| ())
    }

    /// The job's directory, made when it is first needed.
    pub fn dir(&mut self) -> Result<&mut JobDir, SortError> {
        if self.dir.is_none() {
            if self.resumable {
                self.manifest.inputs = self.inputs.fingerprints()?;
            }
            let temps = temp_dirs(&self.manifest.request);
            let manifest = self.resumable.then_some(&mut self.manifest);
            let mut dir = JobDir::create(&self.disk, &temps, manifest)?;
            if self.resumable {
                dir.keep_as(&self.keeping);
            }
            self.dir = Some(dir);
        }
        self.dir.as_mut().ok_or(SortError::Internal("a job without a directory"))
    }

    /// Takes note of misfits of the records that come next in the inputs; an error where there may be none.
    pub fn take_in(&mut self, misfits: &Misfits) -> Result<(), SortError> {
        if misfits.is_empty() {
            return Ok(());
        }
        self.manifest.misfits.combine(misfits);
        if self.request.checks.strict {
            let columns = self.records.key_columns();
            self.manifest.misfits.refuse(columns, &self.inputs, self.request.header)?;
        }
        Ok(())
    }

    /// Stores how far the job has come, where that can be of use.
    pub fn store(&mut self) -> Result<(), SortError> {
        if !self.resumable {
            return Ok(());
        }
        let Some(dir) = &mut self.dir else { return Ok(()) };
        if self.manifest.all_read && self.keeping.is_wished() {
            // Before anybody can see that it is past its first pass. What was stored before is of use, too.
            dir.stay();
            self.keeping.always();
        }
        let totals = self.disk.ledger().totals();
        let before = (self.manifest.moved, self.manifest.seconds);
        self.manifest.moved.0 += totals.read_bytes;
        self.manifest.moved.1 += totals.written_bytes;
        self.manifest.seconds += self.started.elapsed().as_secs_f64();
        let stored = dir.store(&self.manifest);
        (self.manifest.moved, self.manifest.seconds) = before;
        stored
    }

    /// Buffers for sorting, and a reader of the inputs from where the job stands.
    pub fn reader(&self, pieces: &PiecePool) -> PieceReader<R> {
        PieceReader::new(
            &self.records,
            &self.disk,
            self.inputs.clone(),
            pieces,
            self.manifest.read_upto,
            self.cancel,
        )
    }

    /// Where the output goes, if to files.
    pub fn output_dirs(&self) -> Vec<PathBuf> {
        output_dir(&self.request.output).into_iter().collect()
    }

    /// The turns of a pass from some files or directories to others, where it takes any.
    pub fn turns(&self, from: &[PathBuf], to: &[PathBuf]) -> Option<Arc<Turns>> {
        Turns::between(self.request.volume.as_ref(), from, to)
    }

    /// The turns of a pass from the inputs to spills.
    pub fn turns_of_forming(&self) -> Option<Arc<Turns>> {
        self.turns(&self.inputs.paths(), &temp_dirs(self.request))
    }

    /// The turns of a pass from spills to the output or other spills.
    pub fn turns_of_spills(&self) -> Option<Arc<Turns>> {
        let spills = temp_dirs(self.request);
        self.turns(&spills, &[self.output_dirs(), spills.clone()].concat())
    }

    /// Memory for a pass that sorts, with `bytes` left for other things.
    pub fn sort_memory(&self, bytes: usize) -> SortMemory {
        let budget = Budget { memory: self.budget.memory.saturating_sub(bytes), ..self.budget };
        let share = budget.pieces(&|bytes| self.records.scratch_bytes(bytes));
        SortMemory { pieces: PiecePool::new(&self.pool, share.bytes, share.count), load_pieces: share.load() }
    }

    /// Starts a sorted spill of about `bytes`.
    pub fn new_spill(&mut self, bytes: u64) -> Result<Spill<R>, SortError> {
        let places = self.places()?;
        let numbers = self.new_numbers(places.count() as u64);
        Spill::create(&self.records, &self.disk, places, numbers, self.request.compression, bytes)
    }

    /// Goes on with a spill of a killed job.
    pub fn spill_again(&mut self, state: OpenSpill) -> Result<Spill<R>, SortError> {
        let places = self.places()?;
        let numbers = self.new_numbers(places.count() as u64);
        Spill::resume(&self.records, &self.disk, places, numbers, self.request.compression, state)
    }

    /// Numbers for new runs.
    pub fn new_numbers(&mut self, count: u64) -> Range<u64> {
        let first = self.manifest.next_number;
        self.manifest.next_number += count;
        first..first + count
    }

    /// The places for spills.
    pub fn places(&mut self) -> Result<Places, SortError> {
        if let Some(places) = &self.places {
            return Ok(places.clone());
        }
        let disk = self.disk.clone();
        let places = Places::new(&disk, self.dir()?.dirs());
        Ok(self.places.insert(places).clone())
    }

    /// Removes runs that have been merged.
    pub fn remove_runs(&mut self, runs: &[Run]) -> Result<(), SortError> {
        let ours = || runs.iter().filter(|run| run.input.is_none());
        let files = ours().map(|run| run.path.clone()).collect();
        let gone = self.sweeper.remove(files, ours().map(|run| run.bytes).sum())?;
        self.passes.freed(gone);
        Ok(())
    }

    /// Completes the output, has the report of it written, then gives the output its name. `out` and
    /// `dropped` are the sums of the last pass.
    pub fn finish(
        mut self,
        mut target: impl Commit,
        out: &RecordSum,
        dropped: &RecordSum,
        plan: Option<Plan>,
    ) -> Result<Report, SortError> {
        let mut accounted = *out;
        accounted.combine(dropped);
        accounted.combine(&self.manifest.dropped);
        if accounted != self.manifest.sum_in {
            return Err(SortError::Checksum { read: self.manifest.sum_in, written: accounted });
        }
        self.sweeper.wait()?;
        let mut all_dropped = *dropped;
        all_dropped.combine(&self.manifest.dropped);
        let since = Instant::now();
        if let (Some(_), Some(mut file)) = (&self.dir, target.temporary().and_then(FileIdentity::of)) {
            file.bytes = target.bytes();
            self.manifest.finished = Some(Finished { file, out: *out, dropped: all_dropped });
            self.store()?;
        }
        target.seal()?;
        self.passes.committed(since.elapsed());
        let report = self.report((out, &all_dropped), plan);
        self.observer.complete(&report).inspect_err(|_| {
            // All of the work is done: it is not lost for the sake of a report.
            if self.resumable {
                self.keeping.always();
            }
        })?;
        target.commit()?;
        self.keeping.never();
        Ok(report)
    }

    /// What there is to say of a job that is done.
    fn report(&mut self, (out, dropped): (&RecordSum, &RecordSum), plan: Option<Plan>) -> Report {
        let (streams, streams_left_out) = files_of(self.disk.ledger());
        let peak_spill_bytes = self.passes.peak_spill_bytes();
        let passes = std::mem::replace(&mut self.passes, Passes::new(self.disk.ledger().clone()));
        let passes = passes.into_accounts();
        let columns =
            self.manifest.misfits.accounts(self.records.key_columns(), &self.inputs, self.request.header);
        let predicted_peak_disk_bytes = predicted_disk(plan.as_ref());
        Report {
            version: ascot_model::report::REPORT_VERSION,
            verb: if self.request.merge_only { "merged" } else { "sorted" }.into(),
            request: serde_json::to_value(self.request).unwrap_or_default(),
            predicted_seconds: plan
                .as_ref()
                .filter(|plan| plan.input_bytes.is_some())
                .map(|plan| plan.chosen.seconds()),
            plan,
            seconds: self.started.elapsed().as_secs_f64() + self.manifest.seconds,
            records_in: self.manifest.sum_in.count,
            bytes_in: self.manifest.sum_in.bytes,
            records_out: out.count,
            bytes_out: out.bytes,
            records_dropped: dropped.count,
            checksum: self.manifest.sum_in.to_string(),
            memory_bytes: self.budget.memory as u64,
            peak_memory_bytes: peak_memory_bytes(),
            peak_spill_bytes,
            peak_disk_bytes: self.disk.peak_bytes(),
            predicted_peak_disk_bytes,
            moved: PassAccount::moved_by(&passes),
            passes,
            streams,
            streams_left_out,
            columns,
            resumed: self.manifest.seconds > 0.0,
            notices: self.disk.notices(),
        }
    }
}

/// Most bytes of the disk that a plan says, where there is one for what there is.
pub fn predicted_disk(plan: Option<&Plan>) -> Option<u64> {
    plan.filter(|plan| plan.input_bytes.is_some()).map(|plan| plan.chosen.peak_disk_bytes)
}

/// The report of a job that died when only cleaning up was left.
pub fn report_of_finished(manifest: &Manifest, finished: &Finished, disk: &Disk) -> Report {
    Report {
        version: ascot_model::report::REPORT_VERSION,
        verb: "sorted".into(),
        request: serde_json::to_value(&manifest.request).unwrap_or_default(),
        predicted_seconds: None,
        plan: None,
        seconds: manifest.seconds,
        records_in: manifest.sum_in.count,
        bytes_in: manifest.sum_in.bytes,
        records_out: finished.out.count,
        bytes_out: finished.out.bytes,
        records_dropped: finished.dropped.count,
        checksum: manifest.sum_in.to_string(),
        memory_bytes: manifest.memory_bytes,
        peak_memory_bytes: peak_memory_bytes(),
        peak_spill_bytes: 0,
        peak_disk_bytes: 0,
        predicted_peak_disk_bytes: None,
        passes: Vec::new(),
        moved: PassAccount::moved_by(&[]),
        streams: Vec::new(),
        streams_left_out: Vec::new(),
        resumed: true,
        columns: Vec::new(),
        notices: disk.notices(),
    }
}

/// Runs a flow over inputs, checking for a stop between its steps.
pub fn drive<I, F>(
    inputs: &mut Bowtie<I, NoOutput>,
    flow: &mut F,
    cancel: &Cancel,
) -> Result<Duration, SortError>
where
    I: engine::BlockInput,
    F: Flow<I, NoOutput, Error = SortError>,
{
    flow::run(inputs, flow, || cancel.check())?;
    Ok(inputs.waited())
}
