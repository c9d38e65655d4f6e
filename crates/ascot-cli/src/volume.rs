//! Reads profiles of volumes from files (docs/formats/volume.md).

use std::ffi::OsString;
use std::path::Path;

use ascot_model::measurement::{HostMeasurement, VolumeMeasurement, VolumeRequests};
use ascot_model::volume::VolumeProfile;
use clap::ArgMatches;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

const INSTEAD: &str =
    "docs/formats/volume.md shows what a profile holds; ascot probe DIR -o FILE measures one";

/// The contents of a profile file.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The volume.
    pub volume: VolumeProfile,
    /// The processors, if they were measured.
    pub host: Option<HostMeasurement>,
    /// The fastest requests, if they were measured.
    pub requests: Option<VolumeRequests>,
}

/// The profile `--volume` names, or the assumed one.
pub fn profile(matches: &ArgMatches) -> Result<Profile, Failure> {
    let named = named(matches)?;
    Ok(named.unwrap_or_else(|| Profile {
        volume: VolumeProfile::assumed_flash(),
        host: None,
        requests: None,
    }))
}

/// The profile `--volume` names, if it names one.
pub fn named(matches: &ArgMatches) -> Result<Option<Profile>, Failure> {
    matches.get_one::<OsString>("volume").map(|path| read(Path::new(path))).transpose()
}

/// The profile `--volume-in` names, if the command has the flag and it is given.
pub fn for_inputs(matches: &ArgMatches) -> Result<Option<Profile>, Failure> {
    let path = matches.try_get_one::<OsString>("volume-in").ok().flatten();
    path.map(|path| read(Path::new(path))).transpose()
}

fn read(path: &Path) -> Result<Profile, Failure> {
    let text = std::fs::read_to_string(path).map_err(Failure::file(path, "cannot read the profile"))?;
    let refused = |what: String| Failure::usage(format!("{}: {what}", path.display()), INSTEAD);
    let wrong = |error: toml::de::Error| refused(format!("not a volume's profile: {}", error.message()));
    let mut table: toml::Table = toml::from_str(&text).map_err(wrong)?;
    // Both are parsed even if unused: a file with invalid tables is not trusted.
    let host = taken::<HostMeasurement>(&mut table, "host").map_err(wrong)?;
    let measured = taken::<VolumeMeasurement>(&mut table, "measurement").map_err(wrong)?;
    let volume: VolumeProfile = match toml::Value::Table(table.clone()).try_into() {
        Ok(volume) => volume,
        Err(error) => {
            return Err(refused(format!(
                "not a volume's profile: {}",
                field_at_fault(&table).unwrap_or_else(|| error.message().to_owned())
            )));
        }
    };
    volume.check().map_err(|error| refused(error.to_string()))?;
    if let Some(host) = &host {
        host.check().map_err(|error| refused(error.to_string()))?;
    }
    let requests = measured.map(|measured| measured.requests());
    Ok(Profile { volume, host, requests })
}

/// The field that makes a profile invalid, and its fault: a value that no valid profile has.
fn field_at_fault(table: &toml::Table) -> Option<String> {
    let right = toml::Table::try_from(VolumeProfile::simple("right", 1.0, 1.0, 0.0)).ok()?;
    table.iter().find_map(|(field, value)| {
        let mut tried = right.clone();
        tried.insert(field.clone(), value.clone());
        let error = toml::Value::Table(tried).try_into::<VolumeProfile>().err()?;
        let what = match field.as_str() {
            "switch_seconds" => "give seconds, or a list of [files, seconds]",
            _ => error.message(),
        };
        Some(format!("{field}: {what}"))
    })
}

/// Removes a table from the parsed file and returns it.
fn taken<T: DeserializeOwned>(table: &mut toml::Table, name: &str) -> Result<Option<T>, toml::de::Error> {
    table.remove(name).map(toml::Value::try_into).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::host::RecordClass;
    use ascot_model::measurement::{Figure, KernelMeasurement, MeasuredProfile, Speed, SwitchPoint};
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
    fn what_a_measurement_writes_is_read_again() {
        let figure = |value: f64| Figure { value, spread: value / 7.0 };
        let speed = Speed { rate: figure(1.4e9), request_bytes: 1 << 20, depth: 4 };
        let switches = vec![SwitchPoint { files: 2, seconds: figure(1.25e-5) }];
        let measurement = VolumeMeasurement {
            read: speed,
            write: speed,
            duplex: figure(9.5e8),
            run_bytes: 1 << 18,
            read_switches: switches.clone(),
            write_switches: vec![SwitchPoint { files: 2, seconds: figure(-3e-6) }],
            used_bytes: 1 << 32,
            repeats: 5,
            seconds: 38.5,
        };
        let kernel = KernelMeasurement {
            layout: "fixed:100".into(),
            class: RecordClass::Fixed,
            record_bytes: 100.0,
            sort: figure(1e9),
            merge: figure(8e8),
            wide_merge: Some(figure(6e8)),
        };
        let host = HostMeasurement { threads: 2, fresh_memory: Some(figure(3e9)), kernels: vec![kernel] };
        let volume = measurement.profile("a \"place\" (ext4)");
        let written = MeasuredProfile { volume, measurement, host };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("measured.toml");
        fs::write(&path, written.to_string()).unwrap();
        let profile = read(&path).unwrap();
        assert_eq!(profile.volume, written.volume);
        assert_eq!(profile.host, Some(written.host.clone()));
        assert_eq!(profile.requests, Some(written.measurement.requests()));
        let mut table: toml::Table = toml::from_str(&written.to_string()).unwrap();
        let measured: Option<VolumeMeasurement> = taken(&mut table, "measurement").unwrap();
        assert_eq!(measured, Some(written.measurement.clone()));
    }
}
