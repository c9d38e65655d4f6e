//! `ascot probe --list` and `--forget`, and the storing of a new profile.

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use ascot_device::{ProfileStore, StoredFile, StoredProfile, System};
use ascot_model::measured_profile::MeasuredProfile;
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::numbers;
use crate::sys::print;

/// Numbers of files at which the list shows the cost of a switch.
const FILES_SHOWN: f64 = 8.0;
/// The word for all profiles.
const ALL: &str = "all";

/// Stores the profile of the volume of `directory`; returns a notice.
pub fn store(profile: &MeasuredProfile, directory: &Path) -> String {
    let Some(store) = ProfileStore::of_user() else {
        return "the profile is not stored: neither XDG_STATE_HOME nor HOME names a directory\n  \
                keep it with -o FILE, and name it with --volume FILE"
            .to_owned();
    };
    let Some(volume) = System::here().volume_of(directory) else {
        return "the profile is not stored: the system does not name the device of this volume\n  \
                keep it with -o FILE, and name it with --volume FILE"
            .to_owned();
    };
    match store.save(profile, &volume, SystemTime::now()) {
        Ok(path) => format!("stored {}: jobs on this volume use it from now on", path.display()),
        Err(error) => format!(
            "the profile is not stored: {error}\n  keep it with -o FILE, and name it with --volume FILE"
        ),
    }
}

/// `ascot probe --list`.
pub fn list(as_json: bool) -> Result<u8, Failure> {
    let files = match ProfileStore::of_user() {
        Some(store) => store.list()?,
        None => Vec::new(),
    };
    let text = if as_json {
        numbers::json(&files.iter().map(object).collect::<Vec<Value>>())?
    } else if files.is_empty() {
        "no profiles are stored: ascot probe DIR measures a volume and stores its profile\n".to_owned()
    } else {
        table(&files)
    };
    print(&text)?;
    Ok(0)
}

fn object(file: &StoredFile) -> Value {
    let path = file.path.display().to_string();
    match &file.content {
        Err(reason) => json!({ "file": path, "unusable": reason.to_string() }),
        Ok(StoredProfile { profile, stored }) => json!({
            "file": path,
            "device": stored.device,
            "device_bytes": stored.device_bytes,
            "mount": stored.mount,
            "date": stored.date,
            "volume": profile.volume,
        }),
    }
}

/// One line a profile, columns as wide as their longest value.
fn table(files: &[StoredFile]) -> String {
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

/// `ascot probe --forget`: removes the profile of the volume of a path, that of a device by its key or its file, or all
/// of them.
pub fn forget(what: &Path) -> Result<u8, Failure> {
    let Some(store) = ProfileStore::of_user() else { return Err(nothing(what)) };
    let files = store.list()?;
    let removed: Vec<&StoredFile> = if what == Path::new(ALL) {
        files.iter().collect()
    } else {
        let volume = if what.exists() { System::here().volume_of(what) } else { None };
        let of_path = volume.as_ref().and_then(|volume| store.find(volume)).map(|found| found.path);
        let is_named = |file: &&StoredFile| {
            let name = [file.path.file_name(), file.path.file_stem()];
            let key = file.content.as_ref().ok().map(|found| found.stored.device.as_str());
            of_path.as_ref() == Some(&file.path)
                || file.path == what
                || name.contains(&Some(what.as_os_str()))
                || key.is_some_and(|key| what.as_os_str() == key)
        };
        files.iter().filter(is_named).collect()
    };
    if removed.is_empty() {
        return Err(nothing(what));
    }
    let mut text = String::new();
    for file in removed {
        store.remove(file)?;
        let _ = match &file.content {
            Ok(found) => writeln!(text, "forgot {} ({})", found.stored.device, found.stored.mount),
            Err(_) => writeln!(text, "removed {}", file.path.display()),
        };
    }
    print(&text)?;
    Ok(0)
}

fn nothing(what: &Path) -> Failure {
    Failure::usage(
        format!("no profile is stored for {}", what.display()),
        "ascot probe --list shows what is stored; name a device, a directory on its volume, or all",
    )
}
