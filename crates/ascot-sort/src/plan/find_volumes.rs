//! Finds the profile of each volume of a job for which the user named none.
//!
//! ```text
//!   spills (a merge: and output) ──> the one whose switches cost most ──> `volume`
//!   inputs, if no device of theirs is written ──────────────────────────> `input_volume`
//! ```
//!
//! Invariant: if all volumes behave as flash, the job is planned as without any profile.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use ascot_device::{Profile, VolumeFinder};
use ascot_io::directory_of;
use ascot_model::known_volume::{KnownVolume, Origin, VolumeOrigin};
use ascot_model::volume::VolumeProfile;

use crate::api::{Input, SortRequest, Volumes};
use crate::plan::volumes::{input_paths, output_dir, temp_dirs};
use crate::resources::device_of;

/// The files that a job writes.
#[derive(Clone, Copy, Debug)]
pub enum Writes<'a> {
    /// Spills and an output.
    SpillsAndOutput,
    /// Several files, and perhaps spills before.
    SpillsAndParts,
    /// Only an output.
    Output,
    /// Spills that become the view of this name.
    View(&'a Path),
    /// Nothing.
    Nothing,
}

/// Up to this many bytes of input a sort is one read and one write on any volume, and looking its volumes up takes as
/// long as the rest of the job.
const BYTES_OF_ANY_VOLUME: u64 = 1 << 20;

/// Whether a sort of these inputs does the same on every volume.
pub fn is_same_on_any_volume(inputs: &[Input]) -> bool {
    let bytes_of = |input: &Input| match input {
        Input::Path(path) => path.metadata().ok().filter(Metadata::is_file).map(|file| file.len()),
        Input::Range(range) => Some(range.end.saturating_sub(range.start)),
        Input::Stdin | Input::Program => None,
    };
    let bytes: Option<u64> = inputs.iter().map(bytes_of).sum();
    bytes.is_some_and(|bytes| bytes <= BYTES_OF_ANY_VOLUME)
}

/// What is known of the volume of a directory in which jobs read and write, `None` if the system does not tell; and
/// notices about stored profiles that are ignored.
pub fn volumes_of(dir: &Path) -> (Option<Volumes>, Vec<String>) {
    let mut finder = VolumeFinder::here();
    let volumes = finder.volume_of(dir).map(|found| Volumes {
        volume: found.profile,
        requests: found.requests,
        host: found.host,
        origins: vec![VolumeOrigin { of: "all files".into(), mount: None, origin: found.origin }],
        ..Volumes::default()
    });
    (volumes, finder.into_notices())
}

/// The volume of a directory, for the plan of a job on files that need not exist (`plan_job`), and notices as
/// [`volumes_of`] returns them.
pub fn volumes_for_plan(dir: &Path) -> (Volumes, Vec<String>) {
    let mut finder = VolumeFinder::here();
    let profile = finder.volume_of(dir).and_then(|found| {
        let mut volume = found.profile?;
        if matches!(found.origin, Origin::Probed(_)) {
            volume.name = format!("{}, {}", volume.name, found.origin);
        }
        Some(Profile { volume, host: found.host, requests: found.requests })
    });
    (Volumes::for_plan(profile), finder.into_notices())
}

/// The volumes of a request that names none for its spills and output, and notices about stored profiles that are
/// ignored.
pub fn find_volumes(request: &SortRequest, writes: Writes<'_>) -> (Volumes, Vec<String>) {
    let mut finder = VolumeFinder::here();
    let volumes = found_by(request, writes, &mut |path| finder.volume_of(path));
    (volumes, finder.into_notices())
}

/// The volumes of a request. `find` looks one up; it is called once for each device.
fn found_by(
    request: &SortRequest,
    writes: Writes<'_>,
    find: &mut dyn FnMut(&Path) -> Option<KnownVolume>,
) -> Volumes {
    let mut found = Found { find, by_device: HashMap::new() };
    let inputs = found.all(&input_paths(request));
    let spills = match writes {
        Writes::SpillsAndOutput | Writes::SpillsAndParts => found.all(&temp_dirs(request)),
        Writes::View(dir) => found.all(&[directory_of(dir).to_path_buf()]),
        Writes::Output | Writes::Nothing => Vec::new(),
    };
    let output = match writes {
        Writes::SpillsAndOutput | Writes::SpillsAndParts | Writes::Output => {
            found.all(&output_dir(&request.output).into_iter().collect::<Vec<_>>())
        }
        Writes::View(_) | Writes::Nothing => Vec::new(),
    };
    let mut volumes = request.volumes.clone();
    let deciding = match writes {
        Writes::Nothing => inputs.clone(),
        // One pass from the inputs to the output needs no spills.
        Writes::SpillsAndParts => [output.as_slice(), &spills].concat(),
        _ if request.merge_only || spills.is_empty() => [output.as_slice(), &spills].concat(),
        _ => spills.clone(),
    };
    let written = [output.as_slice(), &spills].concat();
    if let Some(decided) = KnownVolume::most_careful(&deciding) {
        volumes.volume.clone_from(&decided.profile);
        volumes.requests = decided.requests;
        volumes.host.clone_from(&decided.host);
    }
    if volumes.input_volume.is_none() && are_apart(&inputs, &written) {
        let of_inputs = KnownVolume::most_careful(&inputs);
        let known = |volume: &KnownVolume| volume.profile.is_some();
        if let Some(apart) = of_inputs.filter(|volume| known(volume) || deciding.iter().any(known)) {
            let profile = apart.profile.clone();
            volumes.input_volume = Some(profile.unwrap_or_else(VolumeProfile::assumed_flash));
            volumes.input_requests = apart.requests;
            volumes.host = volumes.host.or_else(|| apart.host.clone());
        }
    }
    let given = std::mem::take(&mut volumes.origins);
    let inputs: &[KnownVolume] = if given.is_empty() { &inputs } else { &[] };
    volumes.origins = given;
    volumes.origins.extend(origins([("inputs", inputs), ("spills", &spills), ("output", &output)]));
    volumes
}

/// Known volumes by device.
struct Found<'f> {
    find: &'f mut dyn FnMut(&Path) -> Option<KnownVolume>,
    by_device: HashMap<u64, Option<KnownVolume>>,
}

impl Found<'_> {
    /// The volumes of some files, each once.
    fn all(&mut self, paths: &[PathBuf]) -> Vec<KnownVolume> {
        let mut devices = Vec::new();
        let mut volumes = Vec::new();
        for path in paths {
            let Some(device) = device_of(path) else { continue };
            if devices.contains(&device) {
                continue;
            }
            devices.push(device);
            volumes.extend(self.by_device.entry(device).or_insert_with(|| (self.find)(path)).clone());
        }
        volumes
    }
}

/// Whether the inputs have devices of their own.
fn are_apart(inputs: &[KnownVolume], written: &[KnownVolume]) -> bool {
    let is_written = |input: &KnownVolume| written.iter().any(|volume| volume.device == input.device);
    !inputs.is_empty() && !written.is_empty() && !inputs.iter().any(is_written)
}

/// The origin of each volume, with all its roles.
fn origins(roles: [(&str, &[KnownVolume]); 3]) -> Vec<VolumeOrigin> {
    let mut origins: Vec<(Vec<&str>, &KnownVolume)> = Vec::new();
    for (role, volumes) in roles {
        for volume in volumes {
            let same = |(_, other): &&mut (Vec<&str>, &KnownVolume)| {
                other.mount == volume.mount && other.origin == volume.origin
            };
            match origins.iter_mut().find(same) {
                Some((known, _)) => known.push(role),
                None => origins.push((vec![role], volume)),
            }
        }
    }
    let origin = |(roles, volume): (Vec<&str>, &KnownVolume)| VolumeOrigin {
        of: match roles.split_last() {
            Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
            _ => roles.concat(),
        },
        mount: Some(volume.mount.clone()),
        origin: volume.origin.clone(),
    };
    origins.into_iter().map(origin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::volume_kind::VolumeKind;

    fn known(mount: &str, kind: VolumeKind) -> KnownVolume {
        KnownVolume {
            mount: mount.into(),
            device: mount.into(),
            profile: kind.profile(),
            requests: None,
            host: None,
            origin: Origin::Recognised(kind),
        }
    }

    #[test]
    fn volumes_are_apart_if_no_device_is_shared() {
        use VolumeKind::{Flash, Rotational};
        let disk = known("/disk", Rotational);
        let other = known("/flash", Flash);
        assert!(are_apart(std::slice::from_ref(&disk), std::slice::from_ref(&other)));
        // Another partition of the same disk.
        let partition = KnownVolume { mount: "/disk2".into(), ..disk.clone() };
        assert!(!are_apart(&[disk.clone(), other.clone()], &[partition]));
        assert!(!are_apart(&[], std::slice::from_ref(&other)));
        assert!(!are_apart(&[disk], &[]));
    }

    #[test]
    fn only_sorts_of_small_files_are_the_same_on_any_volume() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: u64| {
            let path = directory.path().join(name);
            std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
            Input::Path(path)
        };
        let half = BYTES_OF_ANY_VOLUME / 2;
        let (a, b, c) = (file("a", half), file("b", half), file("c", 1));
        assert!(is_same_on_any_volume(&[a.clone(), b.clone()]));
        assert!(!is_same_on_any_volume(&[a.clone(), b, c]));
        assert!(!is_same_on_any_volume(&[a, Input::Stdin]));
        assert!(!is_same_on_any_volume(&[Input::Path(directory.path().to_path_buf())]));
    }

    #[test]
    fn roles_on_one_volume_are_named_together() {
        use VolumeKind::{Flash, Fuse};
        let here = [known("/", Flash)];
        let there = [known("/m", Fuse)];
        let text = |inputs: &[KnownVolume]| {
            let all = origins([("inputs", inputs), ("spills", &here), ("output", &here)]);
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(text(&here), "inputs, spills and output on /, recognised as flash");
        assert_eq!(
            text(&there),
            "inputs on /m, recognised as a FUSE file system; spills and output on /, recognised as flash"
        );
    }
}
