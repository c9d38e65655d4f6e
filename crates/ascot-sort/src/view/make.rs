//! Making a view: runs are formed beside it, and their directory becomes the view.
//!
//! ```text
//!   PARENT/ascot-<id>/    run-000001.run run-000002.run ...    a job's directory, found by `ascot clean`
//!                         view.index view.json                 once all runs are complete and durable
//!   PARENT/NAME.view/     the same directory, renamed
//! ```

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ascot_io::{Action, Disk, During, IoError, directory_of};
use ascot_model::report::Report;
use ascot_record::checksum::RecordSum;
use ascot_record::hex::to_hex;
use ascot_record::layout::Layout;

use crate::api::{Input, Result, SortError, SortRequest};
use crate::job::Job;
use crate::output::Commit;
use crate::plan::Budget;
use crate::records::Records;
use crate::runs::{Gather, JobDir, StoredView, VIEW_MANIFEST, ViewIndex};
use crate::view::block_size::block_bytes;
use crate::view::manifest::{Member, VIEW_VERSION, ViewManifest};

/// Refuses, before anything is read, a request that a view cannot satisfy.
pub fn check(request: &SortRequest, view: &Path) -> Result<()> {
    if request.unique {
        return Err(SortError::Request(
            "a view shows all records of its runs, to find any byte in it: --unique needs a file\n  write \
             one with -o FILE"
                .into(),
        ));
    }
    if request.top.is_some() {
        return Err(SortError::Request(
            "a view shows all records of its runs: --top needs a file\n  write one with -o FILE, or make a \
             view of all records and read its head: ascot view DIR --head N"
                .into(),
        ));
    }
    check_name(view)
}

/// Refuses a name under which no new view can be made.
pub fn check_name(view: &Path) -> Result<()> {
    if std::path::absolute(view).is_ok_and(|view| view.to_str().is_none()) {
        let why =
            "its path is not UTF-8, and a view stores the paths of its files as text\n  name another one";
        return Err(SortError::view(view, ErrorKind::InvalidInput, why));
    }
    if view.symlink_metadata().is_ok() {
        let why = "it exists already, and a view replaces nothing\n  remove it, or name another directory \
                   (--view DIR)";
        return Err(SortError::view(view, ErrorKind::AlreadyExists, why));
    }
    let parent = directory_of(view).to_path_buf();
    if parent.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        let why = "there is no such directory, so no view can be made in it\n  make it first (mkdir), or \
                   name another directory (--view DIR)";
        return Err(SortError::view(parent, ErrorKind::NotFound, why));
    }
    let stat = fs::metadata(&parent).during(Action::Inspect, &parent)?;
    if !stat.is_dir() {
        let why = "no directory: a view cannot be made in it";
        return Err(SortError::view(parent, ErrorKind::NotADirectory, why));
    }
    Ok(())
}

/// The memory of a job that makes a view, with the block size of the view's runs. `kept_bytes`: bytes kept of a
/// block's first record.
pub fn budget_of(budget: Budget, mean_bytes: f64, kept_bytes: f64, data_bytes: Option<u64>) -> Budget {
    let wanted = block_bytes(mean_bytes, kept_bytes, data_bytes.unwrap_or(0));
    let block = wanted.min(budget.block);
    let times = budget.block / block;
    Budget {
        block,
        emit_blocks: budget.emit_blocks * times,
        output_blocks: budget.output_blocks * times,
        ..budget
    }
}

impl<R: Records> Job<'_, R> {
    /// Forms sorted runs of the inputs, and makes a view of them.
    pub fn make_view(mut self, view: &Path, head: &[u8]) -> Result<Report> {
        self.resumable = self.inputs.can_be_reopened();
        if self.manifest.view.is_none() {
            let path = std::path::absolute(view).unwrap_or_else(|_| view.to_path_buf());
            self.manifest.view = Some(StoredView { path, sum: RecordSum::new() });
        }
        self.dir()?;
        let gather = if self.fits_in_memory() { Gather::AllThatFits } else { Gather::Buffers };
        if !self.manifest.all_read {
            let memory = self.sort_memory(0);
            let reader = self.reader(&memory.chunks).in_turn(self.turns_of_forming());
            self.form(reader, &memory, gather, None)?;
            self.manifest.all_read = true;
            self.store()?;
        }
        let sum = self.manifest.view.as_ref().map(|view| view.sum).unwrap_or_default();
        let mut runs = std::mem::take(&mut self.manifest.runs);
        // Runs that were formed before a resume have no keys yet.
        self.index_of_view(&mut runs)?;
        let members = runs.iter().map(Member::from_run).collect::<Result<Vec<_>, _>>()?;
        self.manifest.runs = runs;
        let index = self.view_index.take();
        let typed = matches!(self.request.layout, Layout::Csv { .. });
        let manifest = ViewManifest {
            version: VIEW_VERSION,
            request: self.manifest.request.clone(),
            name: name_of(self.request, view),
            header: self.header.as_deref().map(to_hex),
            head: if typed { to_hex(head) } else { String::new() },
            sum,
            members,
        };
        let dir = self.dir()?.path().to_path_buf();
        let output = Unnamed { manifest, index, disk: self.disk.clone(), dir, view: view.to_path_buf() };
        // From here on the directory either becomes the view or is removed.
        let job_dir = self.dir.take();
        self.verb = Some("made a view of");
        let result = self.finish(output, &sum, &RecordSum::new());
        if result.is_ok()
            && let Some(mut job_dir) = job_dir
        {
            job_dir.keep();
        }
        result
    }
}

/// A name for the file that the view represents: that of its only input, or the view's own.
fn name_of(request: &SortRequest, view: &Path) -> String {
    let named = match &request.inputs[..] {
        [Input::Path(path)] => path.file_name(),
        _ => None,
    };
    let own = view.file_stem().unwrap_or_default();
    named.unwrap_or(own).to_string_lossy().into_owned()
}

/// Renames a job's complete directory to `view`. The job's directory is private; the view gets the read and
/// search permissions of the directory that contains it.
pub fn give_name(disk: &Disk, dir: &Path, view: &Path) -> Result<()> {
    let parent = directory_of(view).to_path_buf();
    let mode = fs::metadata(&parent).during(Action::Create, view)?.permissions().mode() & 0o755;
    // Through a descriptor, so that a link put in the directory's place is not followed.
    let mut options = fs::OpenOptions::new();
    let open = options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(dir);
    let open = open.during(Action::Create, view)?;
    let stat = open.metadata().during(Action::Create, view)?;
    let me = rustix::process::geteuid().as_raw();
    // A job that was killed here may have changed the mode already.
    if stat.uid() != me || ![0o700, mode | 0o700].contains(&(stat.mode() & 0o777)) {
        return Err(IoError::Replaced { path: dir.to_path_buf() }.into());
    }
    open.set_permissions(fs::Permissions::from_mode(mode | 0o700)).during(Action::Create, view)?;
    disk.sync_dir(dir)?;
    disk.rename(dir, view)?;
    JobDir::remove_own(disk, view);
    disk.sync_dir(&parent)?;
    Ok(())
}

/// A view without its name: `commit` renames its directory.
struct Unnamed {
    manifest: ViewManifest,
    /// The indexes and keys of its runs, until they are sealed.
    index: Option<ViewIndex>,
    disk: Disk,
    dir: PathBuf,
    view: PathBuf,
}

impl Commit for Unnamed {
    fn seal(&mut self) -> Result<()> {
        // A job that failed after this point and was resumed has a manifest already.
        let old = self.dir.join(VIEW_MANIFEST);
        if old.symlink_metadata().is_ok() {
            self.disk.remove_file(&old)?;
        }
        if let Some(index) = self.index.take() {
            index.finish()?;
        }
        self.manifest.store(&self.disk, &self.dir)
    }

    fn commit(self) -> Result<()> {
        give_name(&self.disk, &self.dir, &self.view)
    }
}
