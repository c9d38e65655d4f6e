//! Measures the volume a directory lies on, and the host, into a profile that plans are made with.
//!
//! ```text
//!   target  may it be measured there, and in how much space
//!   area    nameless files on the volume: they are gone when the process is, however it ends
//!   drive   requests in flight against areas for a slice of time: what moved, in how long
//!   volume  which slices, how often, and the figures they give
//!   host    sorting and merging in memory, by the kernels that jobs use
//! ```
//!
//! Requests bypass the page cache. Every figure is measured several times, in rounds that go through all of
//! them, so that a disturbance shows as spread and not as a property of whatever was measured just then.

mod area;
mod drive;
mod error;
mod host;
mod target;
mod volume;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ascot_model::measurement::MeasuredProfile;

pub use error::ProbeError;
pub use host::measure as measure_host;

/// The unit of direct access.
const PAGE: u64 = ascot_io::PAGE_BYTES as u64;
/// Seconds taken where none are asked for.
pub const DEFAULT_SECONDS: f64 = 40.0;
/// Fewest and most seconds that make sense.
pub const SECONDS_RANGE: (f64, f64) = (1.0, 600.0);
/// Most room taken where none is asked for, bytes.
pub const DEFAULT_BYTES: u64 = 4 << 30;
/// Least room a measurement needs, bytes.
pub const MIN_BYTES: u64 = 32 << 20;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct ProbeRequest {
    /// A directory on the volume.
    pub directory: PathBuf,
    /// Most bytes to take on it.
    pub bytes: u64,
    /// Seconds the measurement may take.
    pub seconds: f64,
    /// Compute threads there are.
    pub threads: usize,
}

/// A profile, and what is worth knowing about how it came about.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The figures.
    pub profile: MeasuredProfile,
    /// Words on what was done otherwise than asked.
    pub notices: Vec<String>,
}

/// The share of the time that the processors are measured.
const HOST_SHARE: f64 = 0.1;

/// Measures volume and host. `cancel` ends it early, with [`ProbeError::Cancelled`]; `progress` is told the
/// share that is done, from time to time.
pub fn probe(
    request: &ProbeRequest,
    cancel: &AtomicBool,
    progress: &dyn Fn(f64),
) -> Result<Probed, ProbeError> {
    let began = Instant::now();
    let target = target::Target::find(&request.directory, request.bytes)?;
    let seconds = request.seconds.clamp(SECONDS_RANGE.0, SECONDS_RANGE.1);
    let clock = Clock { began, budget: Duration::from_secs_f64(seconds), cancel, progress };
    let host_until = clock.share(HOST_SHARE);
    let host = host::measure(&clock, host_until, request.threads)?;
    let measurement = volume::measure(&target, &clock)?;
    let volume = measurement.profile(&target.name);
    Ok(Probed { profile: MeasuredProfile { volume, measurement, host }, notices: target.notices })
}

/// The time there is, and who may end it early.
pub struct Clock<'a> {
    began: Instant,
    budget: Duration,
    cancel: &'a AtomicBool,
    progress: &'a dyn Fn(f64),
}

impl<'a> Clock<'a> {
    /// A clock that starts now.
    pub fn start(seconds: f64, cancel: &'a AtomicBool, progress: &'a dyn Fn(f64)) -> Self {
        Clock { began: Instant::now(), budget: Duration::from_secs_f64(seconds), cancel, progress }
    }

    /// When so much of the budget is spent.
    fn share(&self, share: f64) -> Instant {
        self.began + self.budget.mul_f64(share)
    }

    /// Seconds until `then`; 0 where it is past.
    fn seconds_until(then: Instant) -> f64 {
        then.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    fn elapsed(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Tells how far it is; an error where it was asked to stop.
    fn tick(&self) -> Result<(), ProbeError> {
        (self.progress)((self.elapsed() / self.budget.as_secs_f64()).min(1.0));
        if self.cancel.load(Ordering::Relaxed) { Err(ProbeError::Cancelled) } else { Ok(()) }
    }
}
