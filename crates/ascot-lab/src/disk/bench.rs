//! Runs passes: one thread for each volume and direction, all buffers from one pool.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ascot_io::{BlockPool, Pool, threads};
use ascot_model::random::SplitMix64;

use super::error::DiskError;
use super::lane::{Course, Lane, Moved, Source};
use super::phase::Pass;
use super::volume::{Volume, VolumeFile};

/// Buffers begin with bytes that no device compresses.
const SEED: u64 = 0x6173_636f_745f_6c61;
/// The depth of the writes that lay out the inputs, and of the first short measurement.
pub(super) const LAYOUT_DEPTH: usize = 4;

/// The volumes, the inputs on them, and the buffers.
pub(super) struct Bench<'a> {
    pub(super) inputs: Vec<VolumeFile>,
    pub(super) outputs: Vec<Volume>,
    pub(super) sizes: Sizes,
    blocks: BlockPool,
    cancel: &'a AtomicBool,
    /// Bytes moved so far.
    pub(super) moved: AtomicU64,
}

/// The requests of the volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) request_bytes: u64,
    /// Requests of each input.
    pub(super) input_requests: u64,
    /// Number of inputs.
    pub(super) inputs: u64,
    /// Number of outputs.
    pub(super) outputs: u64,
}

impl Sizes {
    /// Bytes of an input.
    pub(super) fn input_bytes(&self) -> u64 {
        self.input_requests.saturating_mul(self.request_bytes)
    }

    /// Requests of output `number`: the outputs divide those of all inputs, and the first ones take the remainder.
    pub(super) fn output_requests(&self, number: u64) -> u64 {
        let all = self.input_requests.saturating_mul(self.inputs);
        all / self.outputs + u64::from(number < all % self.outputs)
    }

    /// Bytes of output `number`.
    pub(super) fn output_bytes(&self, number: u64) -> u64 {
        self.output_requests(number).saturating_mul(self.request_bytes)
    }
}

/// The lanes of a pass: one for each input and for each output, if the pass moves it.
#[derive(Clone, Debug, Default)]
pub(super) struct PassResult {
    pub(super) read: Vec<Moved>,
    pub(super) written: Vec<Moved>,
    /// Outputs that could not be allocated in a pass with preallocation.
    pub(super) not_allocated: Vec<usize>,
    /// Seconds until the written bytes of all outputs are on the devices, after the last buffer.
    pub(super) sync_seconds: f64,
}

impl<'a> Bench<'a> {
    /// Files without contents on the inputs, and buffers of incompressible bytes.
    pub(super) fn new(
        inputs: &[Volume],
        outputs: &[Volume],
        sizes: Sizes,
        memory_bytes: usize,
        cancel: &'a AtomicBool,
    ) -> Result<Bench<'a>, DiskError> {
        let request_bytes = sizes.request_bytes as usize;
        let region_bytes = memory_bytes / request_bytes * request_bytes;
        let mut region = Pool::new(region_bytes).region(region_bytes, "requests")?;
        SplitMix64(SEED).fill(&mut region);
        let blocks = BlockPool::new(region, request_bytes);
        let inputs = inputs.iter().map(Volume::make).collect::<Result<_, _>>()?;
        Ok(Bench { inputs, outputs: outputs.to_vec(), sizes, blocks, cancel, moved: AtomicU64::new(0) })
    }

    /// Writes the inputs, one after another per volume, and puts them on their devices.
    pub(super) fn lay_out(&self) -> Result<(), DiskError> {
        let requests = self.sizes.input_requests;
        let lanes: Vec<Lane<'_>> =
            self.inputs.iter().map(|file| Lane { file, quota: requests, depth: LAYOUT_DEPTH }).collect();
        self.run(&[], &lanes)?;
        for input in &self.inputs {
            self.check()?;
            input.sync()?;
            input.drop_from_cache();
        }
        Ok(())
    }

    /// Runs a pass over all bytes; the outputs of the pass are removed at its end.
    pub(super) fn pass(&self, pass: &Pass) -> Result<PassResult, DiskError> {
        self.check()?;
        let mut outputs = Vec::new();
        let mut not_allocated = Vec::new();
        if pass.writes_outputs() {
            for (number, volume) in self.outputs.iter().enumerate() {
                let output = volume.make()?;
                if pass.preallocated && !output.allocate(self.sizes.output_bytes(number as u64))? {
                    not_allocated.push(number);
                }
                outputs.push(output);
            }
        }
        let requests = self.sizes.input_requests;
        let inputs = if pass.reads_inputs() { self.inputs.as_slice() } else { &[] };
        let reads: Vec<Lane<'_>> =
            inputs.iter().map(|file| Lane { file, quota: requests, depth: pass.reads }).collect();
        let lane = |(number, file)| {
            let quota = self.sizes.output_requests(number as u64);
            Lane { file, quota, depth: pass.writes }
        };
        let writes: Vec<Lane<'_>> = outputs.iter().enumerate().map(lane).collect();
        let [read, written] = self.run(&reads, &writes)?;
        let since = std::time::Instant::now();
        for output in &outputs {
            output.sync()?;
        }
        let sync_seconds = since.elapsed().as_secs_f64();
        for input in inputs {
            input.drop_from_cache();
        }
        Ok(PassResult { read, written, not_allocated, sync_seconds })
    }

    /// Drives the lanes at the same time. If there are lanes of both directions, the readers hand over to the writers.
    fn run(&self, reads: &[Lane<'_>], writes: &[Lane<'_>]) -> Result<[Vec<Moved>; 2], DiskError> {
        let stop = AtomicBool::new(false);
        let course = Course { blocks: &self.blocks, stop: &stop, cancel: self.cancel, moved: &self.moved };
        let is_handed = !reads.is_empty() && !writes.is_empty();
        let (sender, receiver) = crossbeam_channel::unbounded();
        let sink = is_handed.then_some(sender);
        let source = || if is_handed { Source::Handed(receiver.clone()) } else { Source::Free };
        let result = threads::scope(|scope| {
            let course = &course;
            let stop = &stop;
            let mut readers = Vec::new();
            for lane in reads {
                let sink = sink.clone();
                readers.push(scope.spawn("reader", move || ends(stop, lane.read(course, sink.as_ref()))));
            }
            // The channel ends with its last reader.
            drop(sink);
            let mut writers = Vec::new();
            for lane in writes {
                let source = source();
                writers.push(scope.spawn("writer", move || ends(stop, lane.write(course, &source))));
            }
            if readers.iter().chain(&writers).any(Result::is_err) {
                stop.store(true, Ordering::Relaxed);
            }
            let joined = [readers, writers].map(|lanes| {
                let moved = lanes.into_iter().map(|lane| lane?.join().map_err(DiskError::from).flatten());
                moved.collect::<Vec<Result<Moved, DiskError>>>()
            });
            let [read, written] =
                joined.map(|moved| moved.into_iter().collect::<Result<Vec<Moved>, DiskError>>());
            Ok::<_, DiskError>([read?, written?])
        });
        self.check()?;
        result
    }

    /// An error if the measurement was cancelled.
    fn check(&self) -> Result<(), DiskError> {
        if self.cancel.load(Ordering::Relaxed) { Err(DiskError::Cancelled) } else { Ok(()) }
    }
}

/// Stops the other lanes if this one failed.
fn ends(stop: &AtomicBool, moved: Result<Moved, DiskError>) -> Result<Moved, DiskError> {
    stop.fetch_or(moved.is_err(), Ordering::Relaxed);
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::phase::Directions;

    const REQUEST: u64 = 64 << 10;

    fn bench<'a>(directories: &[&std::path::Path], cancel: &'a AtomicBool) -> Bench<'a> {
        let volumes: Vec<Volume> = directories.iter().map(|path| Volume::find(path).unwrap()).collect();
        let sizes = Sizes { request_bytes: REQUEST, input_requests: 21, inputs: 2, outputs: 2 };
        Bench::new(&volumes, &volumes, sizes, 13 * REQUEST as usize, cancel).unwrap()
    }

    #[test]
    fn every_pass_moves_all_bytes_and_leaves_no_name() {
        let (a, b) = (tempfile::tempdir_in(".").unwrap(), tempfile::tempdir_in(".").unwrap());
        let cancel = AtomicBool::new(false);
        let bench = bench(&[a.path(), b.path()], &cancel);
        bench.lay_out().unwrap();
        for pass in Pass::all() {
            let moved = bench.pass(&pass).unwrap();
            assert_eq!(moved.read.len(), if pass.reads_inputs() { 2 } else { 0 }, "{pass:?}");
            assert_eq!(moved.written.len(), if pass.writes_outputs() { 2 } else { 0 }, "{pass:?}");
            for lane in moved.read.iter().chain(&moved.written) {
                assert_eq!(lane.bytes, 21 * REQUEST, "{pass:?}");
                assert!(lane.seconds > 0.0, "{pass:?}");
            }
            assert!(moved.not_allocated.is_empty());
        }
        assert_eq!(bench.blocks.free(), bench.blocks.total(), "all buffers came back");
        for directory in [&a, &b] {
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn outputs_receive_the_bytes_of_the_inputs() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let cancel = AtomicBool::new(false);
        let volume = Volume::find(directory.path()).unwrap();
        let sizes = Sizes { request_bytes: REQUEST, input_requests: 9, inputs: 1, outputs: 1 };
        let volumes = [volume.clone()];
        let bench = Bench::new(&volumes, &volumes, sizes, 8 * REQUEST as usize, &cancel).unwrap();
        bench.lay_out().unwrap();
        let output = volume.make().unwrap();
        let reads = [Lane { file: &bench.inputs[0], quota: 9, depth: 2 }];
        let writes = [Lane { file: &output, quota: 9, depth: 4 }];
        bench.run(&reads, &writes).unwrap();
        let bytes = |file: &VolumeFile| {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*file.file));
            std::fs::read(path).unwrap()
        };
        let (from, to) = (bytes(&bench.inputs[0]), bytes(&output));
        assert_eq!(from.len() as u64, 9 * REQUEST);
        assert!(from == to, "the single writer takes buffers in the order of the single reader");
        assert!(from[..4096].iter().filter(|byte| **byte == 0).count() < 64, "noise");
    }

    #[test]
    fn a_wish_to_stop_is_heard() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let cancel = AtomicBool::new(true);
        let bench = bench(&[directory.path(), directory.path()], &cancel);
        assert!(matches!(bench.lay_out(), Err(DiskError::Cancelled)));
        assert!(matches!(bench.pass(&Pass::all()[0]), Err(DiskError::Cancelled)));
    }

    #[test]
    fn outputs_divide_the_requests_of_the_inputs() {
        let sizes = Sizes { request_bytes: 10, input_requests: 5, inputs: 3, outputs: 4 };
        let requests: Vec<u64> = (0..4).map(|number| sizes.output_requests(number)).collect();
        assert_eq!(requests, [4, 4, 4, 3]);
        assert_eq!((sizes.input_bytes(), sizes.output_bytes(3)), (50, 30));
    }

    #[test]
    fn reading_alone_writes_nothing() {
        let alone = Pass::all().into_iter().find(|pass| pass.directions == Directions::Reading).unwrap();
        assert!(alone.reads_inputs() && !alone.writes_outputs());
    }
}
