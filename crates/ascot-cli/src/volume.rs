//! Profiles of volumes, from files (docs/formats/volume.md).

use std::ffi::OsString;
use std::path::Path;

use ascot_model::volume::VolumeProfile;
use clap::ArgMatches;

use crate::failure::Failure;

/// The profile `--volume` names, or the assumed one.
pub fn profile(matches: &ArgMatches) -> Result<VolumeProfile, Failure> {
    match matches.get_one::<OsString>("volume") {
        Some(path) => read(Path::new(path)),
        None => Ok(VolumeProfile::assumed_flash()),
    }
}

fn read(path: &Path) -> Result<VolumeProfile, Failure> {
    let failed =
        |source| Failure::File { path: path.to_path_buf(), doing: "cannot read the profile", source };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let place = path.display();
    let instead = "docs/formats/volume.md shows what a profile holds";
    let profile: VolumeProfile = toml::from_str(&text).map_err(|error| {
        Failure::usage(format!("{place}: not a volume's profile: {}", error.message()), instead)
    })?;
    profile.check().map_err(|error| Failure::usage(format!("{place}: {error}"), instead))?;
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn profiles_are_read_and_nonsense_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("array.toml");
        let good = "name = \"array\"\nread_bytes_per_s = 4e9\nwrite_bytes_per_s = 3e9\n";
        fs::write(&path, format!("{good}switch_seconds = [[2, 0.004], [90, 0.016]]\n")).unwrap();
        let profile = read(&path).unwrap();
        assert!((profile.switch_seconds.seconds(90.0) - 0.016).abs() < 1e-12);
        for (text, word) in [
            (good.to_owned(), "switch_seconds"),
            (format!("{good}switch_seconds = -1.0"), "switch"),
            (format!("{good}switch_seconds = 0.1\nsped = 1"), "sped"),
            (format!("{}switch_seconds = 0.1", good.replace("4e9", "0.0")), "read_bytes_per_s"),
            ("what?".to_owned(), "profile"),
        ] {
            fs::write(&path, text).unwrap();
            let told = read(&path).unwrap_err().to_string();
            assert!(told.contains(word) && told.contains("array.toml"), "{told}");
        }
    }
}
