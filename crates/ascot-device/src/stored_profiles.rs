//! What users do with the stored profiles: store one, list them, remove some (`ascot probe`).

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ascot_model::measured_profile::MeasuredProfile;
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use serde::{Serialize, Serializer};

use crate::recognise::System;
use crate::store::{ProfileStore, StoreError, StoredFile, StoredProfile};

/// Numbers of files at which the list shows the cost of a switch.
const FILES_SHOWN: f64 = 8.0;
/// The word for all profiles.
const ALL: &str = "all";

/// A profile was not stored. Its text says how to keep it.
#[derive(Debug, thiserror::Error)]
#[error("the profile is not stored: {0}\n  keep it with -o FILE, and name it with --volume FILE")]
pub struct NotStored(#[from] NotStoredReason);

/// Why a profile was not stored.
#[derive(Debug, thiserror::Error)]
pub enum NotStoredReason {
    /// No directory for the state of the user.
    #[error("neither XDG_STATE_HOME nor HOME names a directory")]
    NoState,
    /// No key for the device.
    #[error("the system does not name the device of this volume")]
    NoDevice,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Stores the profile of the volume of `directory` for this user; returns the file.
///
/// # Errors
/// [`NotStored`], with what to do instead.
pub fn store_profile(profile: &MeasuredProfile, directory: &Path) -> Result<PathBuf, NotStored> {
    let store = ProfileStore::of_user().ok_or(NotStoredReason::NoState)?;
    let volume = System::here().volume_of(directory).ok_or(NotStoredReason::NoDevice)?;
    Ok(store.save(profile, &volume, SystemTime::now()).map_err(NotStoredReason::Store)?)
}

/// The stored profiles of this user. Their text is a table for people.
#[derive(Debug)]
pub struct StoredProfiles(pub Vec<StoredFile>);

/// Lists the stored profiles of this user.
///
/// # Errors
/// The directory cannot be read.
pub fn list_profiles() -> Result<StoredProfiles, StoreError> {
    ProfileStore::of_user().map_or(Ok(Vec::new()), |store| store.list()).map(StoredProfiles)
}

impl fmt::Display for StoredProfiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table(&self.0))
    }
}

impl Serialize for StoredProfiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Listed::new))
    }
}

/// A file of the store, for programs.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed<'f> {
    Unusable {
        file: String,
        unusable: String,
    },
    Profile {
        file: String,
        device: &'f str,
        device_bytes: u64,
        mount: &'f str,
        date: &'f str,
        volume: &'f VolumeProfile,
    },
}

impl<'f> Listed<'f> {
    fn new(stored_file: &'f StoredFile) -> Self {
        let file = stored_file.path.display().to_string();
        match &stored_file.content {
            Err(reason) => Listed::Unusable { file, unusable: reason.to_string() },
            Ok(StoredProfile { profile, stored }) => Listed::Profile {
                file,
                device: &stored.device,
                device_bytes: stored.device_bytes,
                mount: &stored.mount,
                date: &stored.date,
                volume: &profile.volume,
            },
        }
    }
}

/// One line a profile, columns as wide as their longest value.
fn table(files: &[StoredFile]) -> String {
    if files.is_empty() {
        return "no profiles are stored: ascot probe DIR measures a volume and stores its profile\n"
            .to_owned();
    }
    let mut rows =
        vec![["device", "mount", "reads", "writes", "both at once", "a switch", "date"].map(str::to_owned)];
    let mut unusable = String::new();
    for file in files {
        match &file.content {
            Err(reason) => {
                let _ = writeln!(unusable, "not used: {}: {reason}", file.path.display());
            }
            Ok(StoredProfile { profile, stored }) => {
                let VolumeProfile { read_bytes_per_s, write_bytes_per_s, duplex_bytes_per_s, .. } =
                    profile.volume;
                rows.push([
                    stored.device.clone(),
                    stored.mount.clone(),
                    units::rate(read_bytes_per_s),
                    units::rate(write_bytes_per_s),
                    duplex_bytes_per_s.map_or("-".to_owned(), units::rate),
                    format!("{:.3} ms", profile.volume.switch_seconds.seconds(FILES_SHOWN) * 1e3),
                    stored.day().to_owned(),
                ]);
            }
        }
    }
    let mut text = String::new();
    if rows.len() > 1 {
        for row in &rows {
            let cells = row.iter().enumerate().map(|(column, cell)| {
                let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
                format!("{cell:width$}")
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text + &unusable
}

/// Removes the profile of the volume of a path, that of a device by its key or its file, or `all` of them; returns
/// those that are removed.
///
/// # Errors
/// [`StoreError::NotFound`], or a file that cannot be removed.
pub fn forget_profiles(what: &Path) -> Result<Vec<StoredFile>, StoreError> {
    let nothing = || StoreError::NotFound(what.to_path_buf());
    let store = ProfileStore::of_user().ok_or_else(nothing)?;
    let volume = if what.exists() { System::here().volume_of(what) } else { None };
    let of_path = volume.as_ref().and_then(|volume| store.find(volume)).map(|found| found.path);
    let is_named = |file: &StoredFile| {
        let name = [file.path.file_name(), file.path.file_stem()];
        let key = file.content.as_ref().ok().map(|found| found.stored.device.as_str());
        what == Path::new(ALL)
            || of_path.as_ref() == Some(&file.path)
            || file.path == what
            || name.contains(&Some(what.as_os_str()))
            || key.is_some_and(|key| what.as_os_str() == key)
    };
    let mut removed = store.list()?;
    removed.retain(is_named);
    if removed.is_empty() {
        return Err(nothing());
    }
    removed.iter().try_for_each(|file| store.remove(file))?;
    Ok(removed)
}
