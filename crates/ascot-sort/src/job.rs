//! A job: the memory, streams and threads that its passes share, its stored state, and its end with a report.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ascot_io::clocks::in_stage;
use ascot_io::{AtomicOutput, BlockPool, Disk, Pool, Reservation};
use ascot_model::account::PassAccount;
use ascot_model::duplicates::DuplicatesAccount;
use ascot_model::plan::Plan;
use ascot_model::report::Report;
use ascot_model::stages;
use ascot_record::checksum::RecordSum;

use crate::api::{Caller, Cancel, Observer, Output, Parts, Result, SortError, SortRequest, Volumes};
use crate::merge::EmitThreads;
use crate::output::{
    Commit, DurableOutput, FileIdentity, OutputStream, OutputWriter, RollingFiles, temporary_names,
};
use crate::partition::KeySample;
use crate::plan::{
    Budget, ChunkShare, MergeBytes, corrected, merge_factor, output_dir, temp_dirs, volumes_seen,
};
use crate::read::{Inputs, RecordReader};
use crate::records::{Merged, Misfits, Records, Segment};
use crate::report::{JobSums, Passes, files_of, processors, report_of_records};
use crate::resources::{ChunkPool, Turns, descriptors};
use crate::runs::{
    BackgroundUnlink, Finished, JobDir, Keeping, Manifest, OpenSpill, OutputState, Run, SortMemory, Spill,
    SpillCompression, SpillDirs, ViewIndex,
};

/// The state that the passes of one job share.
pub struct Job<'a, R: Records> {
    /// Its records.
    pub records: Arc<R>,
    /// The request.
    pub request: &'a SortRequest,
    /// The plan it follows.
    pub plan: Plan,
    /// The disk it reads and writes.
    pub disk: Disk,
    /// Its memory.
    pub pool: Pool,
    /// The division of this memory.
    pub budget: Budget,
    /// The part of it that libraries take for the codecs of spills.
    _codecs: Reservation,
    /// Stops it.
    pub cancel: &'a Cancel,
    /// The account of the passes so far.
    pub passes: Passes,
    /// Its inputs.
    pub inputs: Inputs,
    /// The header of the output.
    pub header: Option<Vec<u8>>,
    /// The merging threads; none while their memory serves a split.
    pub emitters: Arc<EmitThreads>,
    /// The compression of its spills.
    pub compression: SpillCompression,
    /// Removes its spills, all of them before its directory is removed.
    unlink: BackgroundUnlink,
    /// Its directory, once it is created.
    pub dir: Option<JobDir>,
    /// The indexes and keys of the view that it makes, from its first run on.
    pub view_index: Option<ViewIndex>,
    /// Its spill directories, once they are created.
    spill_dirs: Option<SpillDirs>,
    /// Sorted chunks that stay in memory until the last merge: the last runs of the manifest.
    pub held: Vec<Vec<Segment>>,
    /// Bytes at the end of the inputs that a distribution plans to hold in memory.
    pub rest_bytes: u64,
    /// Memory of records held while the parts are sorted, bytes.
    pub held_memory: usize,
    /// Its state, as it is stored.
    pub manifest: Manifest,
    /// A sample of the keys of its parts, if these are sorted in groups.
    pub key_sample: Option<KeySample>,
    /// Whether a killed job can be resumed: inputs and output are files.
    pub resumable: bool,
    /// Whether its directory stays if it ends early.
    pub keeping: Keeping,
    /// What its report says that it did, if its request does not tell.
    pub verb: Option<&'static str>,
    /// The duplicates that its merges expected; none before the last merge, or if none are dropped.
    duplicates: Option<DuplicatesAccount>,
    /// Called when the output is complete.
    observer: &'a dyn Observer,
    started: Instant,
}

impl<'a, R: Records> Job<'a, R> {
    /// A job before its first pass.
    pub fn new(
        records: Arc<R>,
        request: &'a SortRequest,
        plan: Plan,
        disk: Disk,
        budget: Budget,
        inputs: Inputs,
        caller: Caller<'a>,
    ) -> Result<Self> {
        let Caller { observer, cancel } = caller;
        let passes = Passes::new(disk.ledger().clone());
        observer.began(passes.began());
        let pool = Pool::new(budget.memory);
        let codecs = pool.reserve(budget.codecs, "codecs of spills")?;
        disk.stop_when(cancel.flag());
        disk.space().reserve(inputs.record_bytes().unwrap_or(0));
        let splits_alone = match plan.chosen.method.as_str() {
            "split" => true,
            "distribute" => budget.splits_alone(records.record_bytes()) && plan.chosen.splits().count() == 1,
            _ => false,
        };
        let writes_files = matches!(request.output, Output::Path(_) | Output::Parts(_));
        let unlink = BackgroundUnlink::new(&disk);
        let manifest = Manifest::new(request, budget.memory as u64, budget.threads);
        let can_be_named = inputs.can_be_reopened() && writes_files && manifest.is_storable();
        let resumable = can_be_named && !request.merge_only;
        let rest_bytes = if plan.chosen.method == "distribute" { plan.chosen.held_bytes } else { 0 };
        let mut job = Job {
            started: passes.began(),
            passes,
            compression: SpillCompression::new(request, &plan, &disk),
            records,
            request,
            plan,
            disk,
            pool,
            budget,
            _codecs: codecs,
            cancel,
            inputs,
            header: None,
            emitters: Arc::new(EmitThreads::none()),
            unlink,
            dir: None,
            view_index: None,
            spill_dirs: None,
            held: Vec::new(),
            rest_bytes,
            held_memory: 0,
            manifest,
            key_sample: None,
            resumable,
            keeping: Keeping::new(cancel),
            verb: None,
            duplicates: None,
            observer,
        };
        if !splits_alone {
            job.start_merging_threads()?;
        }
        Ok(job)
    }

    /// Starts the merging threads, unless they run.
    pub fn start_merging_threads(&mut self) -> Result<()> {
        if self.emitters.are_none() {
            let Budget { threads, emit_blocks, block, .. } = self.budget;
            self.emitters =
                Arc::new(EmitThreads::start(&self.records, &self.pool, threads, emit_blocks, block)?);
        }
        Ok(())
    }

    /// Resumes the job whose directory is `dir`, in the state of `manifest`. If it ends early again, it can be resumed
    /// again.
    pub fn resume(&mut self, mut dir: JobDir, manifest: Manifest) {
        self.keeping.always();
        dir.keep_as(&self.keeping);
        self.dir = Some(dir);
        self.manifest = manifest;
    }

    /// Whether the plan is to sort in memory.
    pub fn fits_in_memory(&self) -> bool {
        self.plan.chosen.method == "in memory"
    }

    /// The volumes, with the profile of spills and output corrected by the requests so far, unless the user gave it.
    pub fn volumes(&self) -> Volumes {
        corrected(self.request, self.disk.ledger())
    }

    /// Maximum number of files merged at once, by the plan, or by what the job has learned: the profile of the volume,
    /// how much its runs shrink by compression, and how much duplicates are dropped.
    pub fn merge_factor(&self) -> usize {
        let runs = &self.manifest.runs;
        let ratio = self.compression.latest_ratio();
        if let Some(volume) = self.volumes().volume
            && !runs.is_empty()
            && (Some(&volume) != self.request.volumes.volume.as_ref()
                || ratio < 1.0
                || self.manifest.duplicates.are_many())
        {
            let merge = MergeBytes { runs: runs.len(), left_in: &|files| self.left_in(files), ratio };
            let memory = self.budget.streams() as u64;
            let factor = merge_factor(&volume, merge, self.writes_files(), memory);
            return factor.unwrap_or(usize::MAX).max(2);
        }
        let factor = self.plan.chosen.merge_factor.unwrap_or(u64::MAX);
        usize::try_from(factor).unwrap_or(usize::MAX).max(2)
    }

    /// Bytes of records in `files` files into which the present runs are merged.
    fn left_in(&self, files: f64) -> f64 {
        let Manifest { runs, duplicates, sum_in, .. } = &self.manifest;
        let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
        let now = duplicates.left_in(runs.len() as f64);
        let left = if now > 0.0 { bytes as f64 * duplicates.left_in(files) / now } else { bytes as f64 };
        let mean_bytes = sum_in.bytes as f64 / sum_in.count.max(1) as f64;
        self.request.top.map_or(left, |top| left.min(files * top as f64 * mean_bytes))
    }

    /// Estimates the duplicates from the passes before the last merge, which reads `read_bytes`.
    pub fn expect_duplicates(&mut self, read_bytes: u64) {
        let first_pass = self.manifest.duplicates;
        if first_pass.runs > 0 && self.plan.chosen.method == "merge" {
            let predicted_bytes = first_pass.left_of(self.manifest.sum_in.bytes as f64) as u64;
            let alpha = read_bytes as f64 / (read_bytes + predicted_bytes).max(1) as f64;
            self.duplicates = Some(DuplicatesAccount { first_pass, predicted_bytes, alpha });
        }
    }

    /// Whether passes after the first follow what the job learns about its volumes: the runs that a merge takes at
    /// once, and whether files are moved in long runs.
    fn has_later_choice(&self) -> bool {
        let chosen = &self.plan.chosen;
        chosen.method == "merge" || chosen.factors.len() > 1
    }

    /// Starts the output with its header, or resumes that of a killed job.
    pub fn open_output(&mut self) -> Result<OutputWriter<R>> {
        let blocks = self.output_blocks()?;
        self.open_output_through(blocks)
    }

    /// The same through `blocks`.
    pub fn open_output_through(&mut self, blocks: BlockPool) -> Result<OutputWriter<R>> {
        if let Output::Parts(parts) = &self.request.output {
            return self.open_rolling_output(parts, blocks, true);
        }
        if let Some(OutputState { durable, .. }) = &self.manifest.output
            && let Output::Path(path) = &self.request.output
        {
            let mut output =
                OutputWriter::resume(&self.records, &self.disk, path, durable, blocks, self.cancel)?;
            let durable = durable.clone();
            self.adopt(&mut output, &durable);
            return Ok(output);
        }
        let temporary = self.manifest.temporary.as_deref();
        let stream = OutputStream::create(&self.disk, &self.request.output, temporary)?;
        let mut output = OutputWriter::new(&self.records, stream, blocks, self.cancel);
        output.append(self.header.as_deref().unwrap_or_default())?;
        Ok(output)
    }

    /// Memory of the output.
    pub fn output_blocks(&self) -> Result<BlockPool> {
        let region = self.pool.region(self.budget.output_blocks * self.budget.block, "the output")?;
        Ok(BlockPool::new(region, self.budget.block))
    }

    /// Keeps or removes the unfinished output together with the job's directory, whose manifest names it.
    fn adopt(&mut self, output: &mut OutputWriter<R>, durable: &DurableOutput) {
        if let Some(dir) = &mut self.dir {
            output.keep();
            let sealed = durable.files.as_ref().map_or(0, |files| files.sealed.len());
            self.manifest.temporaries.iter().take(sealed).for_each(|temporary| dir.adopt(temporary));
            dir.adopt(&durable.temporary);
        }
    }

    /// Stores the progress of the output.
    pub fn store_output(&mut self, output: &mut OutputWriter<R>, state: OutputState) -> Result<()> {
        // Before the manifest names the file: everything that the manifest of a kept job names must be kept.
        self.adopt(output, &state.durable);
        self.manifest.output = Some(state);
        self.store()
    }

    /// Starts an output of several files of equal size. `by_key`: equal keys stay together.
    pub fn open_rolling_output(
        &mut self,
        parts: &Parts,
        blocks: BlockPool,
        by_key: bool,
    ) -> Result<OutputWriter<R>> {
        let total = self.inputs.record_bytes().ok_or_else(|| {
            SortError::Request(
                "parts are cut by size, and the size of a pipe is unknown\n  write it to a file first".into(),
            )
        })?;
        // The other half is for inputs and spills.
        parts.check(descriptors() / 2)?;
        let files = RollingFiles::new(parts, total, &self.disk, self.cancel, self.header.as_deref(), by_key);
        let files = files.named(&self.manifest.temporaries);
        let Some(OutputState { durable, .. }) = &self.manifest.output else {
            return OutputWriter::rolling(&self.records, files, blocks, self.cancel);
        };
        let durable = durable.clone();
        let mut output =
            OutputWriter::resume_rolling(&self.records, &self.disk, files, &durable, blocks, self.cancel)?;
        self.adopt(&mut output, &durable);
        Ok(output)
    }

    /// Creates the job's directory. A resumable job that is killed after this can be resumed from it. The manifest
    /// names the unfinished output.
    pub fn begin_spilling(&mut self) -> Result<()> {
        if self.resumable && self.manifest.unfinished().next().is_none() {
            match &self.request.output {
                Output::Path(path) => {
                    let name = AtomicOutput::name_for(path)?;
                    self.manifest.temporary = name.and_then(|name| std::path::absolute(name).ok());
                }
                Output::Parts(parts) => {
                    parts.check(descriptors() / 2)?;
                    self.manifest.temporaries = temporary_names(parts)?;
                }
                Output::Stdout | Output::Program => {}
            }
        }
        self.dir().map(|_| ())
    }

    /// The job's directory, created when it is first needed.
    pub fn dir(&mut self) -> Result<&mut JobDir> {
        if self.dir.is_none() {
            if self.resumable {
                // A merge has many inputs, of which each would cost two switches more.
                self.manifest.inputs = self.inputs.fingerprints(!self.request.merge_only)?;
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

    /// Counts misfits of the next records of the inputs; an error if the request is strict.
    pub fn take_in(&mut self, misfits: &Misfits) -> Result<()> {
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

    /// Stores the state of the job, if it can be resumed.
    pub fn store(&mut self) -> Result<()> {
        if !self.resumable {
            return Ok(());
        }
        let Some(dir) = &mut self.dir else { return Ok(()) };
        if self.manifest.all_read && self.cancel.keeps() {
            // Before another process can see that the job is past its first pass. The older state is useful, too.
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

    /// A reader of the inputs from the stored position on.
    pub fn reader(&self, chunks: &ChunkPool) -> RecordReader<R> {
        RecordReader::new(
            &self.records,
            &self.disk,
            self.inputs.clone(),
            chunks,
            self.manifest.read_end,
            self.cancel,
        )
    }

    /// The directory of the output, if it is a file or several.
    pub fn output_dirs(&self) -> Vec<PathBuf> {
        output_dir(&self.request.output).into_iter().collect()
    }

    /// Where its output is written: a directory, or the file to which standard output is redirected.
    pub fn output_paths(&self) -> Vec<PathBuf> {
        let redirected = self.request.output.is_redirected();
        self.output_dirs().into_iter().chain(redirected.then(|| PathBuf::from("/dev/stdout"))).collect()
    }

    /// Whether its output is files, and not a pipe or a device.
    pub fn writes_files(&self) -> bool {
        self.request.output.writes_files()
    }

    /// The turns of a pass from some files or directories to others, if reading and writing must alternate.
    pub fn turns(&self, from: &[PathBuf], to: &[PathBuf]) -> Option<Arc<Turns>> {
        Turns::between(self.volumes().volume.as_ref(), from, to)
    }

    /// The turns of a pass from the inputs to spills.
    pub fn turns_of_forming(&self) -> Option<Arc<Turns>> {
        self.turns(&self.inputs.paths(), &temp_dirs(self.request))
    }

    /// The turns of a pass from spills to the output or other spills.
    pub fn turns_of_spills(&self) -> Option<Arc<Turns>> {
        let spills = temp_dirs(self.request);
        self.turns(&spills, &[self.output_paths(), spills.clone()].concat())
    }

    /// Chunks for a pass that sorts; `bytes` stay free for other uses.
    fn sort_share(&self, bytes: usize) -> ChunkShare {
        let bytes = bytes + self.held_memory;
        let budget = Budget { memory: self.budget.memory.saturating_sub(bytes), ..self.budget };
        budget.chunks(&|bytes| self.records.scratch_bytes(bytes))
    }

    /// Whether parts can be sorted in `bytes` less than the memory left beside held records.
    pub fn can_sort(&self, bytes: usize) -> bool {
        self.sort_share(bytes).can_sort()
    }

    /// Memory for a pass that sorts; `bytes` stay free for other uses.
    pub fn sort_memory(&self, bytes: usize) -> SortMemory {
        let share = self.sort_share(bytes);
        SortMemory {
            chunks: ChunkPool::new(&self.pool, share.bytes, share.count, share.bytes * share.count),
            run_buffer_chunks: share.run_buffer(),
            part_chunks: share.part_buffer(),
        }
    }

    /// Starts a sorted spill of about `bytes` in the pass `pass`.
    pub fn new_spill(&mut self, pass: &'static str, bytes: u64) -> Result<Spill<R>> {
        let dirs = self.spill_dirs()?;
        let numbers = self.new_numbers(dirs.count() as u64);
        let codec = self.compression.of_pass(pass);
        Spill::create(&self.records, &self.disk, dirs, numbers, codec, bytes)
    }

    /// Resumes a spill of a killed job: runs that were being merged.
    pub fn resume_spill(&mut self, state: OpenSpill) -> Result<Spill<R>> {
        let dirs = self.spill_dirs()?;
        let numbers = self.new_numbers(dirs.count() as u64);
        let codec = self.compression.of_pass("merge some");
        Spill::resume(&self.records, &self.disk, dirs, numbers, codec, state)
    }

    /// Completes a spill that holds what `merged` counts; returns its runs.
    pub fn end_spill(&mut self, spill: Spill<R>, merged: &Merged) -> Result<Vec<Run>> {
        let runs = spill.finish()?;
        self.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        self.manifest.dropped.combine(&merged.dropped);
        Ok(runs)
    }

    /// Numbers for new runs.
    pub fn new_numbers(&mut self, count: u64) -> Range<u64> {
        let first = self.manifest.next_number;
        self.manifest.next_number += count;
        first..first + count
    }

    /// The spill directories, created when they are first needed.
    pub fn spill_dirs(&mut self) -> Result<SpillDirs> {
        if let Some(dirs) = &self.spill_dirs {
            return Ok(dirs.clone());
        }
        let disk = self.disk.clone();
        let dirs = SpillDirs::new(&disk, self.dir()?.dirs());
        Ok(self.spill_dirs.insert(dirs).clone())
    }

    /// Removes the files of merged runs.
    pub fn remove_runs(&mut self, runs: &[Run]) -> Result<()> {
        let ours = || runs.iter().filter(|run| run.input.is_none());
        let files = ours().map(|run| run.path.clone()).collect();
        let gone = self.unlink.remove(files, ours().map(|run| run.bytes).sum())?;
        self.passes.freed(gone);
        Ok(())
    }

    /// Seals the output, lets the observer write the report, then gives the output its name. `out` and `dropped` are
    /// the sums of the last pass.
    pub fn finish(mut self, mut output: impl Commit, out: &RecordSum, dropped: &RecordSum) -> Result<Report> {
        let mut accounted = *out;
        accounted.combine(dropped);
        accounted.combine(&self.manifest.dropped);
        if accounted != self.manifest.sum_in {
            return Err(SortError::Checksum { read: self.manifest.sum_in, written: accounted });
        }
        self.unlink.wait()?;
        let mut all_dropped = *dropped;
        all_dropped.combine(&self.manifest.dropped);
        if self.dir.is_some()
            && let Some((temporary, bytes)) = output.unfinished()
            && let Some(file) = FileIdentity::from_path(temporary)
        {
            let file = Some(FileIdentity { bytes, ..file });
            self.manifest.finished =
                Some(Finished { file, parts: Vec::new(), out: *out, dropped: all_dropped });
            self.store()?;
        }
        let stage = in_stage(stages::WRITE);
        output.seal()?;
        drop(stage);
        if !self.manifest.temporaries.is_empty() {
            let parts = output.sealed_parts()?;
            output.keep();
            if let Some(dir) = &mut self.dir {
                self.manifest.temporaries.iter().for_each(|temporary| dir.adopt(temporary));
            }
            self.manifest.finished = Some(Finished { file: None, parts, out: *out, dropped: all_dropped });
            self.store()?;
        }
        self.passes.committed();
        let report = self.report(out, &all_dropped);
        self.observer.complete(&report).inspect_err(|_| {
            // The work is done: keep it even if the report cannot be written.
            if self.resumable {
                self.keeping.always();
            }
        })?;
        output.commit()?;
        self.keeping.never();
        Ok(report)
    }

    /// The report of a job whose output is sealed.
    fn report(&mut self, out: &RecordSum, dropped: &RecordSum) -> Report {
        let (streams, streams_left_out) = files_of(self.disk.ledger());
        let peak_spill_bytes = self.passes.peak_spill_bytes();
        let passes = self.passes.take_accounts(processors());
        let sums = JobSums { read: &self.manifest.sum_in, out, dropped };
        let columns = self.records.key_columns();
        let plan = self.plan.clone();
        let of_records = report_of_records(self.request, sums);
        Report {
            verb: self.verb.map_or(of_records.verb, str::to_owned),
            predicted_seconds: plan.input_bytes.map(|_| plan.chosen.seconds()),
            predicted_peak_disk_bytes: predicted_disk(&plan),
            plan: Some(plan.reported()),
            seconds: self.started.elapsed().as_secs_f64() + self.manifest.seconds,
            memory_bytes: self.budget.memory as u64,
            peak_spill_bytes,
            peak_disk_bytes: self.disk.space().peak(),
            compression: Some(self.compression.account()).filter(|spills| !spills.passes.is_empty()),
            duplicates: self.duplicates,
            volumes: volumes_seen(self.request, self.disk.ledger(), self.has_later_choice()),
            moved: PassAccount::moved_by(&passes),
            passes,
            streams,
            streams_left_out,
            columns: self.manifest.misfits.accounts(columns, &self.inputs, self.request.header),
            resumed: self.manifest.seconds > 0.0,
            notices: self.disk.notices(),
            ..of_records
        }
    }
}

/// The peak disk use that a plan predicts, if the size of the inputs is known.
pub fn predicted_disk(plan: &Plan) -> Option<u64> {
    plan.input_bytes.map(|_| plan.chosen.peak_disk_bytes)
}

/// The report of a job that was killed when it only had to clean up.
pub fn report_of_finished(manifest: &Manifest, finished: &Finished, disk: &Disk) -> Report {
    let sums = JobSums { read: &manifest.sum_in, out: &finished.out, dropped: &finished.dropped };
    Report {
        seconds: manifest.seconds,
        memory_bytes: manifest.memory_bytes,
        resumed: true,
        notices: disk.notices(),
        ..report_of_records(&manifest.request, sums)
    }
}
