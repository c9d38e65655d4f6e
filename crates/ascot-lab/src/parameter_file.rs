//! Reading a file of parameters: text of a limited length, whatever the file is.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::error::LabError;

/// Longer files are not files of parameters.
const MAX_BYTES: u64 = 16 << 20;

/// The text of the file.
///
/// # Errors
/// The system's; a file that is too long or not text.
pub(crate) fn text_of(path: &Path) -> Result<String, LabError> {
    let read = || {
        let mut text = Vec::new();
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("it is too long for a file of parameters"));
        }
        String::from_utf8(text).map_err(|_| io::Error::other("it is not text"))
    };
    read().map_err(LabError::file("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_end_and_without_text_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.csv");
        std::fs::write(&path, "a;b").unwrap();
        assert_eq!(text_of(&path).unwrap(), "a;b");
        std::fs::write(&path, b"\xff").unwrap();
        assert!(text_of(&path).unwrap_err().to_string().contains("not text"));
        assert!(text_of(Path::new("/dev/zero")).unwrap_err().to_string().contains("too long"));
    }
}
