//! Reads the text of a volume's profile (docs/formats/volume.md).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ascot_model::host_measurement::HostMeasurement;
use ascot_model::measurement::{VolumeMeasurement, VolumeRequests};
use ascot_model::volume::VolumeProfile;
use ascot_model::volume_kind::VolumeKind;
use serde::de::DeserializeOwned;

/// The contents of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The volume.
    pub volume: VolumeProfile,
    /// The processors, if they were measured.
    pub host: Option<HostMeasurement>,
    /// The fastest requests, if they were measured.
    pub requests: Option<VolumeRequests>,
}

/// A text that is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is not TOML, or has other fields.
    #[error("not a volume's profile: {0}")]
    Text(String),
    /// Its figures are impossible.
    #[error(transparent)]
    Figures(#[from] ascot_model::volume::BadProfile),
}

/// A name that leads to no profile. Its text says what to name instead.
#[derive(Debug, thiserror::Error)]
pub enum ProfileNameError {
    /// No file has this path.
    #[error("{} does not exist\n  {INSTEAD}", .0.display())]
    NoFile(PathBuf),
    /// Neither a file nor a kind.
    #[error(
        "there is no profile {}\n  give the file of a profile (ascot probe DIR -o FILE), or a kind: {}",
        .0.display(), VolumeKind::NAMED.map(VolumeKind::word).join(", ")
    )]
    NoKind(PathBuf),
    /// A directory.
    #[error("{}: a directory is no profile\n  {INSTEAD}", .0.display())]
    Directory(PathBuf),
    /// A disk or a partition.
    #[error("{}: a device is no profile; a directory on it is a volume\n  {INSTEAD}", .0.display())]
    Device(PathBuf),
    /// A file with more bytes than a profile has, such as data.
    #[error("{}: this file is too long for a profile\n  {INSTEAD}", .0.display())]
    Long(PathBuf),
    /// The file cannot be read.
    #[error("{}: cannot read the profile: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no profile.
    #[error("{}: {source}\n  {INSTEAD}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Its fault.
        source: ProfileError,
    },
}

/// The longest file that is read as a profile: a measured one takes a few kilobytes.
const MAX_BYTES: u64 = 1 << 20;
const INSTEAD: &str =
    "docs/formats/volume.md shows what a profile holds; ascot probe DIR -o FILE measures one";

impl Profile {
    /// The profile of a file, or of a kind of volume by its word; `None`: flash, which is planned as without a profile.
    ///
    /// # Errors
    /// A name that leads to no profile.
    pub fn named(name: &OsStr) -> Result<Option<Profile>, ProfileNameError> {
        let path = Path::new(name);
        match name.to_str().and_then(VolumeKind::from_word) {
            Some(kind) => Ok(kind.profile().map(Profile::assumed)),
            None if path.exists() => Profile::read(path).map(Some),
            None if name.as_bytes().contains(&b'/') => Err(ProfileNameError::NoFile(path.to_path_buf())),
            None => Err(ProfileNameError::NoKind(path.to_path_buf())),
        }
    }

    fn read(path: &Path) -> Result<Profile, ProfileNameError> {
        let unreadable = |source| ProfileNameError::Unreadable { path: path.to_path_buf(), source };
        let kind = path.metadata().map_err(unreadable)?.file_type();
        if kind.is_dir() {
            return Err(ProfileNameError::Directory(path.to_path_buf()));
        }
        if kind.is_block_device() {
            return Err(ProfileNameError::Device(path.to_path_buf()));
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(ProfileNameError::Long(path.to_path_buf()));
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        Profile::parse(&text).map_err(|source| ProfileNameError::Content { path: path.to_path_buf(), source })
    }

    /// A profile without measurements.
    pub fn assumed(volume: VolumeProfile) -> Self {
        Profile { volume, host: None, requests: None }
    }

    /// The profile of a text.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let table: toml::Table = toml::from_str(text).map_err(not_a_profile)?;
        Profile::of_table(table)
    }

    pub(crate) fn of_table(mut table: toml::Table) -> Result<Profile, ProfileError> {
        // Both are parsed even if unused: a file with invalid tables is not trusted.
        let host = taken::<HostMeasurement>(&mut table, "host").map_err(not_a_profile)?;
        let measured = taken::<VolumeMeasurement>(&mut table, "measurement").map_err(not_a_profile)?;
        let volume: VolumeProfile = match toml::Value::Table(table.clone()).try_into() {
            Ok(volume) => volume,
            Err(error) => {
                let field = field_at_fault(&table);
                return Err(ProfileError::Text(field.unwrap_or_else(|| error.message().to_owned())));
            }
        };
        volume.check()?;
        if let Some(host) = &host {
            host.check()?;
        }
        let requests = measured.map(|measured| measured.requests());
        Ok(Profile { volume, host, requests })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn not_a_profile(error: toml::de::Error) -> ProfileError {
    ProfileError::Text(error.message().to_owned())
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

/// Removes a table from the parsed text and returns it.
pub(crate) fn taken<T: DeserializeOwned>(
    table: &mut toml::Table,
    name: &str,
) -> Result<Option<T>, toml::de::Error> {
    table.remove(name).map(toml::Value::try_into).transpose()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ascot_model::host::RecordClass;
    use ascot_model::host_measurement::KernelMeasurement;
    use ascot_model::measured_profile::MeasuredProfile;
    use ascot_model::measurement::{Figure, Speed, SwitchPoint};

    /// A profile as `ascot probe` measures it.
    pub(crate) fn measured() -> MeasuredProfile {
        let figure = |value: f64| Figure { value, spread: value / 7.0 };
        let speed = Speed { rate: figure(1.4e9), request_bytes: 1 << 20, depth: 4 };
        let switches = vec![SwitchPoint { files: 2, seconds: figure(1.25e-5) }];
        let measurement = VolumeMeasurement {
            read: speed,
            write: speed,
            duplex: figure(9.5e8),
            request_seconds: Some(figure(2e-5)),
            checkpoint_seconds: Some(figure(2e-3)),
            run_bytes: 1 << 18,
            read_switches: switches,
            write_switches: vec![SwitchPoint { files: 2, seconds: figure(-3e-6) }],
            cache: None,
            used_bytes: 1 << 32,
            repeats: 5,
            seconds: 38.5,
        };
        let kernel = KernelMeasurement {
            layout: "fixed:100".into(),
            class: RecordClass::Fixed,
            record_bytes: 100.0,
            keys: 2,
            sort: figure(1e9),
            merge: figure(8e8),
            merge_runs: Some(figure(6e8)),
            split: Some(figure(9e8)),
            wide_merge: None,
        };
        let host = HostMeasurement {
            threads: 2,
            fresh_memory: None,
            request_seconds: Some(figure(3e-5)),
            moving: Some(figure(5e9)),
            kernels: vec![kernel],
        };
        let volume = measurement.profile("a \"place\" (ext4)");
        MeasuredProfile { volume, measurement, host }
    }

    #[test]
    fn what_a_measurement_writes_is_read_again() {
        let written = measured();
        let profile = Profile::parse(&written.to_string()).unwrap();
        assert_eq!(profile.volume, written.volume);
        assert_eq!(profile.host, Some(written.host.clone()));
        assert_eq!(profile.requests, Some(written.measurement.requests()));
        let mut table: toml::Table = toml::from_str(&written.to_string()).unwrap();
        let measured: Option<VolumeMeasurement> = taken(&mut table, "measurement").unwrap();
        assert_eq!(measured, Some(written.measurement));
    }

    const GOOD: &str = "name = \"array\"\nread_bytes_per_s = 4e9\nwrite_bytes_per_s = 3e9\n";

    #[test]
    fn profiles_are_read_and_nonsense_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("array.toml");
        std::fs::write(&path, format!("{GOOD}switch_seconds = [[2, 0.004], [90, 0.016]]\n")).unwrap();
        let profile = Profile::read(&path).unwrap().volume;
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
            std::fs::write(&path, text).unwrap();
            let told = Profile::read(&path).unwrap_err().to_string();
            assert!(told.contains(word) && told.contains("array.toml"), "{told}");
        }
    }

    #[test]
    fn a_kind_stands_for_its_assumed_profile() {
        let named = |word: &str| Profile::named(OsStr::new(word));
        assert_eq!(named("flash").unwrap(), None);
        let disk = named("rotational").unwrap().unwrap();
        assert_eq!(Some(disk.volume), VolumeKind::Rotational.profile());
        assert!(named("./flash").is_err());
        let told = named("frob").unwrap_err().to_string();
        assert!(VolumeKind::NAMED.iter().all(|kind| told.contains(kind.word())), "{told}");
    }
}
