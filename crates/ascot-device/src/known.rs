//! Finds what is known of the volume of a path: the stored profile of its device, or the assumed one of its kind.

use std::path::Path;

use ascot_model::known_volume::{KnownVolume, Origin};

use crate::recognise::{RecognisedVolume, System};
use crate::store::ProfileStore;

/// Looks up volumes, and collects notices about profiles that cannot be used, each once.
#[derive(Debug)]
pub struct VolumeFinder {
    system: System,
    store: Option<ProfileStore>,
    notices: Vec<String>,
}

impl VolumeFinder {
    /// A finder for this machine and user.
    pub fn here() -> Self {
        VolumeFinder { system: System::here(), store: ProfileStore::of_user(), notices: Vec::new() }
    }

    /// The volume of a file or directory, also of one that does not exist yet; `None` if the system does not tell.
    pub fn volume_of(&mut self, path: &Path) -> Option<KnownVolume> {
        self.system.volume_of(path).map(|volume| self.known(volume))
    }

    fn known(&mut self, volume: RecognisedVolume) -> KnownVolume {
        let mount = volume.mount.display().to_string();
        let device = volume.key.clone();
        match self.find(&volume) {
            Some(known) => KnownVolume { mount, ..known },
            None => KnownVolume {
                mount,
                device,
                profile: volume.kind.profile(),
                requests: None,
                host: None,
                origin: Origin::Recognised(volume.kind),
            },
        }
    }

    fn find(&mut self, volume: &RecognisedVolume) -> Option<KnownVolume> {
        let file = self.store.as_ref()?.find(volume)?;
        match file.content {
            Ok(found) => Some(KnownVolume {
                mount: found.stored.mount.clone(),
                device: found.stored.device.clone(),
                origin: Origin::Probed(found.stored.day().to_owned()),
                profile: Some(found.profile.volume),
                requests: found.profile.requests,
                host: found.profile.host,
            }),
            Err(reason) => {
                let notice = format!(
                    "the stored profile of the volume on {} is ignored: {reason} ({})\n  \
                     ascot probe DIR measures the volume again",
                    volume.mount.display(),
                    file.path.display()
                );
                if !self.notices.contains(&notice) {
                    self.notices.push(notice);
                }
                None
            }
        }
    }

    /// The notices so far.
    pub fn into_notices(self) -> Vec<String> {
        self.notices
    }
}
