//! The profiles of volumes for a command: those that the user names, and those that are found (docs/formats/volume.md).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ascot_device::{Profile, VolumeFinder};
use ascot_model::known_volume::{Origin, VolumeOrigin};
use ascot_model::volume::VolumeProfile;
use ascot_model::volume_kind::VolumeKind;
use ascot_sort::request::SortRequest;
use ascot_sort::{Volumes, Writes, find_volumes, is_same_on_any_volume};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::progress::closing_notice;
use crate::values;

const INSTEAD: &str =
    "docs/formats/volume.md shows what a profile holds; ascot probe DIR -o FILE measures one";
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
pub fn named(matches: &ArgMatches) -> Result<Option<Named>, Failure> {
    if let Some(value) = matches.try_get_one::<OsString>("volume").ok().flatten() {
        return named_by(value, "--volume").map(Some);
    }
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    variable.map(|value| named_by(&value, VARIABLE)).transpose()
}

/// The profile that a word or a file names.
pub fn of_word(value: &OsStr, by: &'static str) -> Result<VolumeProfile, Failure> {
    let profile = named_by(&value.to_owned(), by)?.profile.map(|profile| profile.volume);
    Ok(profile.unwrap_or_else(VolumeProfile::assumed_flash))
}

fn named_by(value: &OsString, by: &'static str) -> Result<Named, Failure> {
    let profile = match value.to_str().and_then(VolumeKind::from_word) {
        Some(kind) => kind.profile().map(Profile::assumed),
        None if Path::new(value).exists() => Some(read(Path::new(value))?),
        None if value.as_bytes().contains(&b'/') => {
            return Err(Failure::usage(
                format!("{by}: {} does not exist", Path::new(value).display()),
                INSTEAD,
            ));
        }
        None => {
            let kinds = VolumeKind::NAMED.map(VolumeKind::word).join(", ");
            return Err(Failure::usage(
                format!("{by}: there is no profile {}", Path::new(value).display()),
                format!("give the file of a profile (ascot probe DIR -o FILE), or a kind: {kinds}"),
            ));
        }
    };
    Ok(Named { profile, by })
}

fn read(path: &Path) -> Result<Profile, Failure> {
    if path.is_dir() {
        return Err(Failure::usage(format!("{}: a directory is no profile", path.display()), INSTEAD));
    }
    let text = std::fs::read_to_string(path).map_err(Failure::file(path, "cannot read the profile"))?;
    Profile::parse(&text).map_err(|error| Failure::usage(format!("{}: {error}", path.display()), INSTEAD))
}

/// The profiles of a job's volumes: those that flags name.
pub fn given(matches: &ArgMatches) -> Result<Volumes, Failure> {
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
pub fn find(
    matches: &ArgMatches,
    request: &mut SortRequest,
    writes: Writes<'_>,
) -> Result<Vec<String>, Failure> {
    let one_file = matches!(writes, Writes::SpillsAndOutput | Writes::Nothing);
    let needless =
        one_file && !needs_volumes(matches) && !request.merge_only && is_same_on_any_volume(&request.inputs);
    if named(matches)?.is_some() || needless {
        return Ok(Vec::new());
    }
    let mut finder = VolumeFinder::here();
    request.volumes = find_volumes(request, writes, &mut |path| finder.volume_of(path));
    Ok(finder.into_notices())
}

/// Whether the plan, which names the volumes, is shown or decides.
fn needs_volumes(matches: &ArgMatches) -> bool {
    let flag = |id| matches.try_get_one::<bool>(id).ok().flatten() == Some(&true);
    flag("explain")
        || flag("verbose")
        || ["report", "progress", "view"].iter().any(|id| values::is_given(matches, id))
}

/// What is known of the volume of a directory in which jobs read and write.
pub fn of_directory(matches: &ArgMatches, dir: &Path) -> Result<Volumes, Failure> {
    if named(matches)?.is_some() {
        return given(matches);
    }
    let mut finder = VolumeFinder::here();
    let found = finder.volume_of(dir);
    finder.into_notices().iter().for_each(|notice| closing_notice(matches, notice));
    Ok(found.map_or_else(Volumes::default, |found| {
        let origin = VolumeOrigin { of: "all files".into(), mount: None, origin: found.origin };
        let (volume, requests, host) = (found.profile, found.requests, found.host);
        Volumes { volume, requests, host, origins: vec![origin], ..Volumes::default() }
    }))
}

/// The volumes of a view that is read; `None`: those on which it was made.
pub fn of_view(matches: &ArgMatches, dir: &Path) -> Result<Option<Volumes>, Failure> {
    if named(matches)?.is_some() {
        return given(matches).map(Some);
    }
    let mut finder = VolumeFinder::here();
    let found = finder.volume_of(dir);
    finder.into_notices().iter().for_each(|notice| closing_notice(matches, notice));
    Ok(found.map(|found| {
        let origin = VolumeOrigin { of: "all files".into(), mount: None, origin: found.origin };
        Volumes { volume: found.profile, host: found.host, origins: vec![origin], ..Volumes::default() }
    }))
}

/// The profile for `ascot plan`: the one named, or that of the volume of this directory, and notices about it.
pub fn for_plan(matches: &ArgMatches) -> Result<(Profile, Vec<String>), Failure> {
    let flash = || Profile::assumed(VolumeProfile::assumed_flash());
    if let Some(named) = named(matches)? {
        return Ok((named.profile.unwrap_or_else(flash), Vec::new()));
    }
    let mut finder = VolumeFinder::here();
    let found = finder.volume_of(Path::new("."));
    let profile = found.and_then(|found| {
        let mut volume = found.profile?;
        if matches!(found.origin, Origin::Probed(_)) {
            volume.name = format!("{}, {}", volume.name, found.origin);
        }
        Some(Profile { volume, host: found.host, requests: found.requests })
    });
    Ok((profile.unwrap_or_else(flash), finder.into_notices()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const GOOD: &str = "name = \"array\"\nread_bytes_per_s = 4e9\nwrite_bytes_per_s = 3e9\n";

    #[test]
    fn profiles_are_read_and_nonsense_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("array.toml");
        fs::write(&path, format!("{GOOD}switch_seconds = [[2, 0.004], [90, 0.016]]\n")).unwrap();
        let profile = read(&path).unwrap().volume;
        assert!((profile.switch_seconds.seconds(90.0) - 0.016).abs() < 1e-12);
        for (text, word) in [
            (GOOD.to_owned(), "switch_seconds"),
            (format!("{GOOD}switch_seconds = -1.0"), "switch"),
            (format!("{GOOD}switch_seconds = 0.1\nsped = 1"), "sped"),
            (format!("{}switch_seconds = 0.1", GOOD.replace("4e9", "0.0")), "read_bytes_per_s"),
            ("what?".to_owned(), "profile"),
            (format!("{GOOD}switch_seconds = 0.1\n[host]\nthreads = 2"), "kernels"),
            (format!("{GOOD}switch_seconds = 0.1\n[host]\nthreads = 0\nkernels = []"), "threads"),
            (format!("{GOOD}switch_seconds = 0.1\n[measurement]\nrepeats = 5"), "read"),
        ] {
            fs::write(&path, text).unwrap();
            let told = read(&path).unwrap_err().to_string();
            assert!(told.contains(word) && told.contains("array.toml"), "{told}");
        }
    }

    #[test]
    fn a_kind_stands_for_its_assumed_profile() {
        let named = |word: &str| named_by(&OsString::from(word), "--volume").map(|named| named.profile);
        assert_eq!(named("flash").unwrap(), None);
        let disk = named("rotational").unwrap().unwrap();
        assert_eq!(Some(disk.volume), VolumeKind::Rotational.profile());
        assert!(named("./flash").is_err());
        let told = named("frob").unwrap_err().to_string();
        assert!(VolumeKind::NAMED.iter().all(|kind| told.contains(kind.word())), "{told}");
    }
}
