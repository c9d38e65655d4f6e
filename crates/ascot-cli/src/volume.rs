//! The profiles of volumes for a command: those that the user names, and those that are found (docs/formats/volume.md).

use std::ffi::{OsStr, OsString};
use std::path::Path;

use ascot_device::Profile;
use ascot_model::known_volume::{Origin, VolumeOrigin};
use ascot_model::volume::VolumeProfile;
use ascot_sort::request::SortRequest;
use ascot_sort::{Volumes, Writes, find_volumes, is_same_on_any_volume, volumes_for_plan, volumes_of};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::progress::closing_notice;
use crate::values;

/// The default of `--volume`.
const VARIABLE: &str = "ASCOT_VOLUME";

/// A profile that the user names.
pub struct Named {
    /// The profile; `None`: that of flash, as without any.
    pub profile: Option<Profile>,
    /// The flag or variable.
    by: &'static str,
}

/// The profile that `--volume` or `ASCOT_VOLUME` names, if one of them is given.
pub fn named(matches: &ArgMatches) -> Result<Option<Named>> {
    if let Some(value) = matches.try_get_one::<OsString>("volume").ok().flatten() {
        return named_by(value, "--volume").map(Some);
    }
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    variable.map(|value| named_by(&value, VARIABLE)).transpose()
}

/// The profile that a word or a file names.
pub fn of_word(value: &OsStr, by: &'static str) -> Result<VolumeProfile> {
    let profile = named_by(value, by)?.profile.map(|profile| profile.volume);
    Ok(profile.unwrap_or_else(VolumeProfile::assumed_flash))
}

fn named_by(value: &OsStr, by: &'static str) -> Result<Named> {
    match Profile::named(value) {
        Ok(profile) => Ok(Named { profile, by }),
        Err(error) => Err(Failure::Usage(format!("{by}: {error}"))),
    }
}

/// The profiles of a job's volumes: those that flags name.
pub fn given(matches: &ArgMatches) -> Result<Volumes> {
    let mut volumes = Volumes::default();
    let origin =
        |of: &str, by: &str| VolumeOrigin { of: of.into(), mount: None, origin: Origin::Given(by.into()) };
    let inputs = matches.try_get_one::<OsString>("volume-in").ok().flatten();
    if let Some(Named { profile, by }) = named(matches)? {
        let of = if inputs.is_some() { "spills and output" } else { "all files" };
        volumes.origins.push(origin(of, by));
        if let Some(Profile { volume, host, requests }) = profile {
            volumes = Volumes { volume: Some(volume), host, requests, ..volumes };
        }
    }
    if let Some(value) = inputs {
        let named = named_by(value, "--volume-in")?;
        let profile = named.profile.unwrap_or_else(|| Profile::assumed(VolumeProfile::assumed_flash()));
        let Profile { volume, requests, .. } = profile;
        volumes.origins.push(origin("inputs", named.by));
        volumes = Volumes { input_volume: Some(volume), input_requests: requests, ..volumes };
    }
    Ok(volumes)
}

/// Finds the profiles of the volumes that no flag describes; returns notices about stored profiles that are ignored.
pub fn find(matches: &ArgMatches, request: &mut SortRequest, writes: Writes<'_>) -> Result<Vec<String>> {
    let one_file = matches!(writes, Writes::SpillsAndOutput | Writes::Nothing);
    let needless =
        one_file && !needs_volumes(matches) && !request.merge_only && is_same_on_any_volume(&request.inputs);
    if named(matches)?.is_some() || needless {
        return Ok(Vec::new());
    }
    let (volumes, notices) = find_volumes(request, writes);
    request.volumes = volumes;
    Ok(notices)
}

/// Whether the plan, which names the volumes, is shown or decides.
fn needs_volumes(matches: &ArgMatches) -> bool {
    let flag = |id| matches.try_get_one::<bool>(id).ok().flatten() == Some(&true);
    flag("explain")
        || flag("verbose")
        || ["report", "progress", "view"].iter().any(|id| values::is_given(matches, id))
}

/// What is known of the volume of a directory in which jobs read and write; `None`: the system does not tell.
pub fn of_directory(matches: &ArgMatches, dir: &Path) -> Result<Option<Volumes>> {
    if named(matches)?.is_some() {
        return given(matches).map(Some);
    }
    let (volumes, notices) = volumes_of(dir);
    notices.iter().for_each(|notice| closing_notice(matches, notice));
    Ok(volumes)
}

/// The volume for `ascot plan`: the one named, or that of this directory, and notices about it.
pub fn for_plan(matches: &ArgMatches) -> Result<(Volumes, Vec<String>)> {
    match named(matches)? {
        Some(named) => Ok((Volumes::for_plan(named.profile), Vec::new())),
        None => Ok(volumes_for_plan(Path::new("."))),
    }
}
