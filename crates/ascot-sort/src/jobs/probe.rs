//! Measures a volume and the processors into a profile (`ascot probe`).

use std::path::Path;

use ascot_device::{ProbeError, ProbeRequest, Probed};
use ascot_model::measured_profile::MeasuredProfile;

use crate::api::{Cancel, Result, SortError};
use crate::jobs::measure_host::{MeasuredJobs, measure_host};

/// The share of the time for measuring the processors.
const HOST_SHARE: f64 = 0.15;

/// A profile, and notices about its measurement.
#[derive(Clone, Debug)]
pub struct ProbedProfile {
    /// The profile.
    pub profile: MeasuredProfile,
    /// Deviations from the request.
    pub notices: Vec<String>,
}

/// Measures the volume of the directory of `request` and the processors, one after the other, in about the seconds of
/// the request. `progress` receives the completed share periodically.
///
/// # Errors
/// [`SortError::Probe`], those of small sorts in the directory, and [`SortError::Cancelled`].
pub fn probe(request: &ProbeRequest, cancel: &Cancel, progress: &dyn Fn(f64)) -> Result<ProbedProfile> {
    let ProbeRequest { directory, seconds, .. } = request;
    let of_volume = ProbeRequest { seconds: seconds * (1.0 - HOST_SHARE), ..request.clone() };
    let share_of_volume = |done: f64| progress(done * (1.0 - HOST_SHARE));
    let probed = ascot_device::probe(&of_volume, &cancel.flag(), &share_of_volume);
    let Probed { volume, mut measurement, notices } = probed.map_err(|error| match error {
        ProbeError::Cancelled => SortError::Cancelled,
        error => SortError::Probe(Box::new(error)),
    })?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share_of_host = |done: f64| progress(1.0 - HOST_SHARE * (1.0 - done));
    let directory: &Path = directory;
    let MeasuredJobs { host, device_request_seconds } =
        measure_host(directory, threads, seconds * HOST_SHARE, cancel, &share_of_host)?;
    measurement.request_seconds = device_request_seconds;
    let volume = measurement.profile(&volume.name);
    Ok(ProbedProfile { profile: MeasuredProfile { volume, measurement, host }, notices })
}
