//! Names of the files and directories that studies make in the directory of the results.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The table of streams.
pub const STREAMS_TABLE: &str = "streams.csv";
/// The table of merge sorts.
pub const SORTS_TABLE: &str = "sorts.csv";
/// The page.
pub const PAGE: &str = "index.html";
/// The directory of the charts.
pub const CHARTS: &str = "charts";

/// All of them.
pub(crate) const ALL: [&str; 4] = [STREAMS_TABLE, SORTS_TABLE, PAGE, CHARTS];

/// The element by which a page of the lab is recognised; it stands in the first kilobyte.
pub(crate) const PAGE_MARK: &str = "<meta name=\"generator\" content=\"ascot lab\">";

/// Whether the file is not a page of the lab: somebody else's, which must stay. A file that does not exist is not
/// foreign.
///
/// # Errors
/// The system's.
pub fn is_foreign_page(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(1024).read_to_end(&mut start)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(!String::from_utf8_lossy(&start).contains(PAGE_MARK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{About, page};

    #[test]
    fn only_other_pages_are_foreign() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(PAGE);
        assert!(!is_foreign_page(&path).unwrap());
        std::fs::write(&path, page(&About::default(), &[], &[])).unwrap();
        assert!(!is_foreign_page(&path).unwrap());
        std::fs::write(&path, "<html>mine</html>").unwrap();
        assert!(is_foreign_page(&path).unwrap());
    }
}
