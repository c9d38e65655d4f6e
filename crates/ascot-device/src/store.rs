//! The profiles that `ascot probe` keeps for this user, one file a device (docs/formats/profile.md).
//!
//! ```text
//!   checksum = "crc32c:89abcdef"      of all bytes after this line
//!   name = ...                        the profile
//!   [stored]                          the device, machine, date
//! ```
//!
//! Invariants: a file appears whole or not at all. A file that is damaged, or was measured on another machine or
//! device, gives a reason and no profile. A look-up opens one file.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ascot_io::{AtomicOutput, IoError, crc32c};
use ascot_model::measured_profile::MeasuredProfile;
use ascot_record::hex::to_hex;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

use crate::profile::{Profile, ProfileError, taken};
use crate::recognise::RecognisedVolume;

/// The version of the format.
const VERSION: u32 = 1;
/// The directory below that of the user's state.
const DIRECTORY: &str = "ascot/profiles";
const EXTENSION: &str = "toml";
/// Longer files are not read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Characters of a key in a file's name.
const MAX_NAME: usize = 60;

/// A profile could not be stored, listed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory or a file in it.
    #[error("{}: cannot {doing}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// `make the directory`, `be removed`, ...
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file could not be written.
    #[error(transparent)]
    Output(#[from] IoError),
    /// No stored profile has this name.
    #[error(
        "no profile is stored for {}\n  ascot probe --list shows what is stored; name a device, a directory on its \
         volume, or all",
        .0.display()
    )]
    NotFound(PathBuf),
}

/// A stored profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    File(#[from] io::Error),
    /// Its bytes are not those that were written.
    #[error("it is damaged")]
    Damaged,
    /// A later version wrote it.
    #[error("it has version {0} of the format, this program reads version {VERSION}")]
    Version(u32),
    /// It is whole, but not a profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// It was measured on another machine.
    #[error("it comes from another machine")]
    Machine,
    /// The device has another name or size.
    #[error("its device has changed")]
    Device,
}

/// A profile, and where and when it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredProfile {
    /// The profile.
    pub profile: Profile,
    /// The device, machine and date.
    pub stored: Stored,
}

/// The device, machine and date of a stored profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// Version of the format.
    version: u32,
    /// The device's key.
    pub device: String,
    /// Bytes of the device; 0: without a fixed size.
    pub device_bytes: u64,
    /// Where it was mounted.
    pub mount: String,
    /// The machine: a digest of its identity.
    machine: String,
    /// When it was measured, in UTC.
    pub date: String,
}

impl Stored {
    /// The day, without the time.
    pub fn day(&self) -> &str {
        self.date.split('T').next().unwrap_or_default()
    }
}

/// A file of the store.
#[derive(Debug)]
pub struct StoredFile {
    /// The file.
    pub path: PathBuf,
    /// Its contents, or why they cannot be used.
    pub content: Result<StoredProfile, Unusable>,
}

/// The directory of stored profiles.
#[derive(Clone, Debug)]
pub struct ProfileStore {
    directory: PathBuf,
    machine: String,
}

impl ProfileStore {
    /// The store of this user; `None` if neither `XDG_STATE_HOME` nor `HOME` names a directory.
    pub fn of_user() -> Option<Self> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        Some(Self { directory: state.join(DIRECTORY), machine: machine() })
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Stores the profile of a volume, in place of the one before; returns the file.
    pub fn save(
        &self,
        profile: &MeasuredProfile,
        volume: &RecognisedVolume,
        now: SystemTime,
    ) -> Result<PathBuf, StoreError> {
        let path = self.path_of(&volume.key);
        let stored = Stored {
            version: VERSION,
            device: volume.key.clone(),
            device_bytes: volume.bytes,
            mount: volume.mount.display().to_string(),
            machine: self.machine.clone(),
            date: humantime::format_rfc3339_seconds(now).to_string(),
        };
        let mut directory = DirBuilder::new();
        directory.recursive(true).mode(0o700);
        directory.create(&self.directory).map_err(|source| StoreError::File {
            path: self.directory.clone(),
            doing: "make the directory",
            source,
        })?;
        AtomicOutput::with_bytes(&path, "profile", text(profile, &stored).as_bytes())?.commit()?;
        Ok(path)
    }

    /// The profile of a volume; `None` if there is none.
    pub fn find(&self, volume: &RecognisedVolume) -> Option<StoredFile> {
        let path = self.path_of(&volume.key);
        let content = match read(&path) {
            Err(Unusable::File(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            other => other.and_then(|profile| self.checked(profile, Some(volume))),
        };
        Some(StoredFile { path, content })
    }

    /// All files, by name.
    pub fn list(&self) -> Result<Vec<StoredFile>, StoreError> {
        let failed = |source| StoreError::File { path: self.directory.clone(), doing: "be read", source };
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                paths.push(path);
            }
        }
        paths.sort_unstable();
        let checked = |path: PathBuf| {
            let content = read(&path).and_then(|profile| self.checked(profile, None));
            StoredFile { path, content }
        };
        Ok(paths.into_iter().map(checked).collect())
    }

    /// Removes a file of the store.
    pub fn remove(&self, file: &StoredFile) -> Result<(), StoreError> {
        fs::remove_file(&file.path).map_err(|source| StoreError::File {
            path: file.path.clone(),
            doing: "be removed",
            source,
        })
    }

    /// The profile, if it is from this machine, and of the given volume.
    fn checked(
        &self,
        profile: StoredProfile,
        volume: Option<&RecognisedVolume>,
    ) -> Result<StoredProfile, Unusable> {
        if profile.stored.machine != self.machine {
            return Err(Unusable::Machine);
        }
        let changed = |volume: &RecognisedVolume| {
            let Stored { device, device_bytes, .. } = &profile.stored;
            *device != volume.key || *device_bytes != volume.bytes
        };
        if volume.is_some_and(changed) { Err(Unusable::Device) } else { Ok(profile) }
    }

    /// The file of a device: its key in plain letters, and the key's checksum.
    fn path_of(&self, key: &str) -> PathBuf {
        let plain: String =
            key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(MAX_NAME).collect();
        self.directory.join(format!("{plain}-{:08x}.{EXTENSION}", crc32c(&[key.as_bytes()])))
    }
}

/// The text of a file.
fn text(profile: &MeasuredProfile, stored: &Stored) -> String {
    let header = toml::Table::try_from(stored).map(|table| table.to_string()).unwrap_or_default();
    let body = format!("{profile}\n[stored]\n{header}");
    format!("checksum = \"crc32c:{:08x}\"\n{body}", crc32c(&[body.as_bytes()]))
}

fn read(path: &Path) -> Result<StoredProfile, Unusable> {
    if !fs::metadata(path)?.is_file() {
        return Err(Unusable::Damaged);
    }
    let mut text = String::new();
    let mut file = File::open(path)?.take(MAX_FILE_BYTES);
    match file.read_to_string(&mut text) {
        // Not UTF-8.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Unusable::Damaged),
        other => other?,
    };
    parse(&text)
}

fn parse(text: &str) -> Result<StoredProfile, Unusable> {
    let (line, body) = text.split_once('\n').ok_or(Unusable::Damaged)?;
    if line != format!("checksum = \"crc32c:{:08x}\"", crc32c(&[body.as_bytes()])) {
        return Err(Unusable::Damaged);
    }
    let mut table: toml::Table = toml::from_str(body).map_err(|_| Unusable::Damaged)?;
    let version = table.get("stored").and_then(|stored| stored.get("version")?.as_integer());
    match version.map(u32::try_from) {
        Some(Ok(VERSION)) => {}
        Some(Ok(other)) => return Err(Unusable::Version(other)),
        _ => return Err(Unusable::Damaged),
    }
    let stored = taken::<Stored>(&mut table, "stored").ok().flatten().ok_or(Unusable::Damaged)?;
    Ok(StoredProfile { profile: Profile::of_table(table)?, stored })
}

/// A digest of the machine's identity, which must not leave the machine as it is (machine-id(5)). Empty: the machine
/// has none.
fn machine() -> String {
    let files = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
    let identity =
        files.iter().find_map(|file| fs::read_to_string(file).ok().filter(|id| !id.trim().is_empty()));
    let Some(identity) = identity else { return String::new() };
    let digest = Md5::new().chain_update("ascot profiles ").chain_update(identity.trim()).finalize();
    to_hex(&digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::measured;
    use ascot_model::volume_kind::VolumeKind;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    fn volume(key: &str) -> RecognisedVolume {
        RecognisedVolume { kind: VolumeKind::Flash, key: key.into(), bytes: 7000, mount: "/a \"b\"".into() }
    }

    fn store() -> (tempfile::TempDir, ProfileStore) {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join("new").join(DIRECTORY);
        (state, ProfileStore { directory, machine: "here".into() })
    }

    fn then() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    #[test]
    fn a_profile_is_found_by_its_device() {
        let (_state, store) = store();
        assert!(store.find(&volume("wwid:1")).is_none());
        assert!(store.list().unwrap().is_empty());
        let path = store.save(&measured(), &volume("wwid:1"), then()).unwrap();
        let mode = fs::metadata(store.directory()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let found = store.find(&volume("wwid:1")).unwrap();
        assert_eq!(found.path, path);
        let found = found.content.unwrap();
        assert_eq!(found.profile, Profile::parse(&measured().to_string()).unwrap());
        assert_eq!(found.stored.day(), "2023-11-14");
        assert_eq!((found.stored.mount.as_str(), found.stored.device.as_str()), ("/a \"b\"", "wwid:1"));
        assert!(store.find(&volume("wwid/1")).is_none());
        assert_eq!(store.list().unwrap().len(), 1);
        store.remove(&store.list().unwrap()[0]).unwrap();
        assert!(store.find(&volume("wwid:1")).is_none());
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let (_state, store) = store();
        let path = store.save(&measured(), &volume("a"), then()).unwrap();
        let good = fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(7).chain([0, good.len() - 1]) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            fs::write(&path, &bad).unwrap();
            let found = store.find(&volume("a")).unwrap();
            assert!(matches!(found.content, Err(Unusable::Damaged)), "byte {at}: {:?}", found.content);
        }
        for cut in [0, 1, 30, good.len() - 1] {
            fs::write(&path, &good[..cut]).unwrap();
            assert!(matches!(store.find(&volume("a")).unwrap().content, Err(Unusable::Damaged)), "{cut}");
        }
    }

    #[test]
    fn profiles_of_other_machines_devices_and_versions_are_not_used() {
        let (_state, store) = store();
        let path = store.save(&measured(), &volume("a"), then()).unwrap();
        let elsewhere = ProfileStore { machine: "there".into(), ..store.clone() };
        assert!(matches!(elsewhere.find(&volume("a")).unwrap().content, Err(Unusable::Machine)));
        assert!(matches!(elsewhere.list().unwrap()[0].content, Err(Unusable::Machine)));
        let grown = RecognisedVolume { bytes: 8000, ..volume("a") };
        assert!(matches!(store.find(&grown).unwrap().content, Err(Unusable::Device)));
        fs::copy(&path, store.path_of("b")).unwrap();
        assert!(matches!(store.find(&volume("b")).unwrap().content, Err(Unusable::Device)));
        // Whole, but not a profile of this version.
        let body = fs::read_to_string(&path).unwrap();
        let body = body.split_once('\n').unwrap().1;
        let rewritten = |from: &str, to: &str| {
            let body = body.replace(from, to);
            let sum = crc32c(&[body.as_bytes()]);
            fs::write(&path, format!("checksum = \"crc32c:{sum:08x}\"\n{body}")).unwrap();
            store.find(&volume("a")).unwrap().content.unwrap_err()
        };
        assert!(matches!(rewritten("version = 1", "version = 2"), Unusable::Version(2)));
        assert!(matches!(rewritten("version = 1", "version = \"x\""), Unusable::Damaged));
        assert!(matches!(rewritten("mount =", "mounts ="), Unusable::Damaged));
        assert!(matches!(
            rewritten("read_bytes_per_s = 1.4e9", "read_bytes_per_s = -1.0"),
            Unusable::Profile(_)
        ));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error() {
        let (state, store) = store();
        fs::write(state.path().join("new"), "a file").unwrap();
        let told = store.save(&measured(), &volume("a"), then()).unwrap_err().to_string();
        assert!(told.contains("profiles"), "{told}");
    }
}
