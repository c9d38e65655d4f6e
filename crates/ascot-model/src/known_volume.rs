//! A volume that a job uses, with its profile and the origin of the profile; and the one that decides where several
//! have the same role.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host_measurement::HostMeasurement;
use crate::measurement::VolumeRequests;
use crate::volume::VolumeProfile;
use crate::volume_kind::VolumeKind;

/// A volume, and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownVolume {
    /// Where it is mounted.
    pub mount: String,
    /// Its device: volumes of one device share its head.
    pub device: String,
    /// Its profile; `None`: flash is assumed.
    pub profile: Option<VolumeProfile>,
    /// The fastest requests, if they were measured.
    pub requests: Option<VolumeRequests>,
    /// The processors, if they were measured.
    pub host: Option<HostMeasurement>,
    /// Where the profile comes from.
    pub origin: Origin,
}

/// Where a profile comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A flag or variable names it.
    Given(String),
    /// `ascot probe` measured it on this day.
    Probed(String),
    /// The system tells the kind.
    Recognised(VolumeKind),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Given(by) => write!(f, "given by {by}"),
            Origin::Probed(date) => write!(f, "probed on {date}"),
            Origin::Recognised(kind) => write!(f, "recognised as {}", kind.words()),
        }
    }
}

/// The role of a volume in a job, and the origin of its profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeOrigin {
    /// `inputs`, `spills`, `output`, several of them, or `all files`.
    pub of: String,
    /// Where it is mounted, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Where its profile comes from.
    pub origin: Origin,
}

impl fmt::Display for VolumeOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mount {
            Some(mount) => write!(f, "{} on {mount}, {}", self.of, self.origin),
            None => write!(f, "{}: {}", self.of, self.origin),
        }
    }
}

impl KnownVolume {
    /// Bytes that could be moved in the time of a switch: the length of run that the volume needs.
    fn bytes_of_switch(&self) -> f64 {
        let flash;
        let profile = match &self.profile {
            Some(profile) => profile,
            None => {
                flash = VolumeProfile::assumed_flash();
                &flash
            }
        };
        profile.switch_seconds.seconds(2.0) * profile.read_bytes_per_s.min(profile.write_bytes_per_s)
    }

    /// Of several volumes with the same role, the one whose switches cost most: the others lose little by long runs.
    pub fn most_careful(volumes: &[KnownVolume]) -> Option<&KnownVolume> {
        volumes.iter().reduce(
            |kept, next| {
                if next.bytes_of_switch() > kept.bytes_of_switch() { next } else { kept }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(kind: VolumeKind) -> KnownVolume {
        KnownVolume {
            mount: format!("/{}", kind.word()),
            device: kind.word().into(),
            profile: kind.profile(),
            requests: None,
            host: None,
            origin: Origin::Recognised(kind),
        }
    }

    #[test]
    fn of_several_volumes_the_one_that_seeks_decides() {
        use VolumeKind::{Flash, Memory, Rotational, Virtual};
        let careful = |kinds: &[VolumeKind]| {
            let volumes: Vec<KnownVolume> = kinds.iter().copied().map(volume).collect();
            KnownVolume::most_careful(&volumes).map(|volume| volume.mount.clone())
        };
        assert_eq!(careful(&[Flash, Rotational, Memory]).as_deref(), Some("/rotational"));
        assert_eq!(careful(&[Memory, Virtual]).as_deref(), Some("/virtual"));
        assert_eq!(careful(&[]), None);
    }

    #[test]
    fn origins_read_as_sentences() {
        let of = |origin, mount: Option<&str>| {
            VolumeOrigin { of: "spills".into(), mount: mount.map(Into::into), origin }.to_string()
        };
        let recognised = Origin::Recognised(VolumeKind::Fuse);
        assert_eq!(of(recognised, Some("/m")), "spills on /m, recognised as a FUSE file system");
        assert_eq!(of(Origin::Given("--volume".into()), None), "spills: given by --volume");
        let probed = Origin::Probed("2026-01-02".into());
        assert_eq!(of(probed, Some("/")), "spills on /, probed on 2026-01-02");
    }
}
