//! The volumes that a job uses and the processors that it runs on, as far as they were measured.
//!
//! ```text
//!   inputs            input_volume, if they are on a volume of their own; else volume
//!   spills, output    volume
//! ```

use ascot_model::measurement::{HostMeasurement, VolumeRequests};
use ascot_model::volume::VolumeProfile;
use serde::{Deserialize, Serialize};

/// What was measured of the volumes and processors of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Volumes {
    /// The volume by which plans are costed; none: a usual flash volume is assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeProfile>,
    /// The requests with which that volume is fastest; none: the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<VolumeRequests>,
    /// The volume of the inputs, if it is not the one of spills and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_volume: Option<VolumeProfile>,
    /// The requests with which the volume of the inputs is fastest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<VolumeRequests>,
    /// The processors; none: usual ones are assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostMeasurement>,
}

impl Volumes {
    /// The volume of spills and output, or the one that is assumed.
    pub fn profile(&self) -> VolumeProfile {
        self.volume.clone().unwrap_or_else(VolumeProfile::assumed_flash)
    }

    /// Whether moving blocks of `files` files in turn would spend the time of the volume on switches.
    pub fn wants_runs(&self, files: usize) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume.wants_runs(files as f64))
    }
}
