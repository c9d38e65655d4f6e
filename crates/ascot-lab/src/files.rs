//! Names of the files and directories that studies make in the directory of the results.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The table of streams.
pub const STREAMS_TABLE: &str = "streams.csv";
/// The table of merge sorts.
pub const SORTS_TABLE: &str = "sorts.csv";
/// The parameters with which the results of streams are measured again.
pub const STREAMS_PARAMETERS: &str = "streams-parameters.csv";
/// The parameters with which the results of merge sorts are measured again.
pub const SORTS_PARAMETERS: &str = "sorts-parameters.csv";
/// The page.
pub const PAGE: &str = "index.html";
/// The directory of the charts.
pub const CHARTS: &str = "charts";

/// The header of the parameters of streams.
pub(crate) const STREAMS_HEADER: &str =
    "Stream Type;Total integers per file;Nr of streams;Buffer size range;Nr Loops";
/// The header of the parameters of merge sorts.
pub(crate) const SORTS_HEADER: &str = "Read Stream Type;Write Stream Type;Nr of streams;\
     Nr Integers in Memory;Buffer size range;Nr Loops;Input file;Output file;Ascending";

/// All of them.
pub(crate) const ALL: [&str; 6] =
    [STREAMS_TABLE, SORTS_TABLE, STREAMS_PARAMETERS, SORTS_PARAMETERS, PAGE, CHARTS];

/// Those that a study replaces.
pub const REPLACED: [&str; 3] = [PAGE, STREAMS_PARAMETERS, SORTS_PARAMETERS];

/// The element by which a page of the lab is recognised; it stands in the first kilobyte.
pub(crate) const PAGE_MARK: &str = "<meta name=\"generator\" content=\"ascot lab\">";

/// Whether one of the files that a study replaces is not one of the lab: somebody else's, which must stay. A file that
/// does not exist is not foreign.
///
/// # Errors
/// The system's.
pub fn is_foreign(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(1024).read_to_end(&mut start)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let start = String::from_utf8_lossy(&start);
    let name = path.file_name().unwrap_or_default();
    Ok(if name == STREAMS_PARAMETERS {
        start.lines().next() != Some(STREAMS_HEADER)
    } else if name == SORTS_PARAMETERS {
        start.lines().next() != Some(SORTS_HEADER)
    } else {
        !start.contains(PAGE_MARK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{About, page};
    use crate::{sorts, streams};

    #[test]
    fn only_other_pages_are_foreign() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(PAGE);
        assert!(!is_foreign(&path).unwrap());
        std::fs::write(&path, page(&About::default(), &[], &[])).unwrap();
        assert!(!is_foreign(&path).unwrap());
        std::fs::write(&path, "<html>mine</html>").unwrap();
        assert!(is_foreign(&path).unwrap());
        let path = dir.path().join(STREAMS_PARAMETERS);
        std::fs::write(&path, streams::parameters::text_of_cells(&[])).unwrap();
        assert!(!is_foreign(&path).unwrap());
        std::fs::write(&path, sorts::parameters::text_of_cells(&[])).unwrap();
        assert!(is_foreign(&path).unwrap());
    }
}
