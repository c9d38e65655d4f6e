//! Measures the volume of a directory, and finds the profiles of the volumes that jobs use.
//!
//! ```text
//!   target  whether the directory can be measured, and the space for it
//!   area    nameless files on the volume: they vanish with the process, however it ends
//!   drive   requests in flight against areas for a slice of time: bytes moved, and time
//!   volume  the slices, their repetitions, and the resulting figures
//!   cache   bursts of writes: the bytes after which a device is slower
//! ```
//!
//! It knows the volumes that jobs use:
//!
//! ```text
//!   recognise  the kind of a volume, and a key for its device   (mounts, block_device: what the kernel tells)
//!   store      the measured profiles of this user, by device    (profile: their text; stored_profiles: the list)
//!   known      the volume of a path: its stored profile, or a careful one for its kind
//! ```
//!
//! `node_type` reads what was measured of the machines of a cluster.
//!
//! It also samples the use of resources while a job runs:
//!
//! ```text
//!   monitor    processors, memory, disks and network over time, from the counters of the kernel
//! ```
//!
//! Requests bypass the page cache. Every figure is measured several times, in rounds over all figures, so that a
//! disturbance appears as spread and not as a property of one figure.

mod area;
mod block_device;
mod cache;
mod checkpoint;
mod drive;
mod error;
mod known;
pub mod monitor;
mod mounts;
mod node_type;
mod profile;
mod recognise;
mod store;
mod stored_profiles;
mod target;
mod volume;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ascot_model::measurement::VolumeMeasurement;
use ascot_model::volume::VolumeProfile;

pub use error::ProbeError;
use error::Result;
pub use known::VolumeFinder;
pub use node_type::{NodeTypeError, named_node_type};
pub use profile::{Profile, ProfileError, ProfileNameError};
pub use recognise::{RecognisedVolume, System};
pub use store::{ProfileStore, StoreError, Stored, StoredFile, StoredProfile, Unusable};
pub use stored_profiles::{NotStored, StoredProfiles, forget_profiles, list_profiles, store_profile};
pub use target::file_system;

/// Default duration in seconds.
pub const DEFAULT_SECONDS: f64 = 40.0;
/// Minimum and maximum duration in seconds.
pub const SECONDS_RANGE: (f64, f64) = (1.0, 600.0);
/// Default maximum space, bytes.
pub const DEFAULT_BYTES: u64 = 4 << 30;
/// Minimum space of a measurement, bytes.
pub const MIN_BYTES: u64 = 32 << 20;

/// A request to measure.
#[derive(Clone, Debug)]
pub struct ProbeRequest {
    /// A directory on the volume.
    pub directory: PathBuf,
    /// Maximum bytes to use on the volume.
    pub bytes: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// A measured volume, and notices about the measurement.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The profile for plans.
    pub volume: VolumeProfile,
    /// The figures.
    pub measurement: VolumeMeasurement,
    /// Deviations from the request.
    pub notices: Vec<String>,
}

/// Measures a volume. `cancel` ends it early with [`ProbeError::Cancelled`]; `progress` receives the completed share
/// periodically.
pub fn probe(request: &ProbeRequest, cancel: &AtomicBool, progress: &dyn Fn(f64)) -> Result<Probed> {
    let began = Instant::now();
    let target = target::Target::find(&request.directory, request.bytes)?;
    let clock = Clock { began, budget: Duration::from_secs_f64(request.seconds), cancel, progress };
    let measurement = volume::measure(&target, &clock)?;
    let volume = measurement.profile(&target.name);
    Ok(Probed { volume, measurement, notices: target.notices })
}

/// The time budget, cancellation and progress of a measurement.
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

    /// The time at which this share of the budget is spent.
    fn share(&self, share: f64) -> Instant {
        self.began + self.budget.mul_f64(share)
    }

    /// Seconds until `then`; 0 if it is past.
    fn seconds_until(then: Instant) -> f64 {
        then.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    fn elapsed(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Reports progress; an error if the measurement was cancelled.
    fn tick(&self) -> Result<()> {
        (self.progress)((self.elapsed() / self.budget.as_secs_f64()).min(1.0));
        if self.cancel.load(Ordering::Relaxed) { Err(ProbeError::Cancelled) } else { Ok(()) }
    }
}
