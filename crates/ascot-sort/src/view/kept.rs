//! Reads the indexes and the keys that a view keeps of its runs: those of many runs with one request.

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ascot_io::{Action, Disk, During, Filled, IoError, RunId, RunIndex, read_range};

use crate::api::{Result, SortError};
use crate::read::read_index_of;
use crate::view::manifest::{Kept, Member, blocks_of};

/// Maximum bytes of the indexes and keys that are read at once, unless those of one run are more.
const BATCH_BYTES: u64 = 2 << 20;

/// The index and the keys of a run, as the view keeps them.
pub struct IndexAndKeys {
    /// Its blocks.
    pub index: Arc<RunIndex>,
    /// The form in which the view keeps them.
    pub index_bytes: Vec<u8>,
    /// Its keys, in the form of their file.
    pub keys: Vec<u8>,
}

/// Some members of a view whose indexes and keys are read at once.
pub struct Batch<'m> {
    /// The members.
    pub members: &'m [Member],
    /// Their indexes and keys, if they are in one range of a file.
    bytes: Option<Filled>,
    /// Offset of these bytes in it.
    offset: u64,
}

impl<'m> Batch<'m> {
    /// Reads the indexes and keys of the first of `members`, as many as lie together; none: there are no members.
    pub fn first_of(members: &'m [Member], disk: &Disk, view: &Path) -> Result<Option<Self>> {
        let Some(first) = members.first() else { return Ok(None) };
        let Some((path, range)) = first.in_index() else {
            let alone = members.iter().take_while(|member| member.in_index().is_none()).count();
            return Ok(Some(Batch { members: &members[..alone], bytes: None, offset: 0 }));
        };
        let Range { start, mut end } = range;
        let mut count = 1;
        for member in &members[1..] {
            match member.in_index() {
                Some((same, next))
                    if same == path && next.start == end && next.end - start <= BATCH_BYTES =>
                {
                    (end, count) = (next.end, count + 1);
                }
                _ => break,
            }
        }
        let filled = read_range(disk, &view.join(path), start..end, "view")?;
        let (members, _) = members.split_at(count);
        Ok(Some(Batch { members, bytes: Some(filled), offset: start }))
    }

    /// The index and the keys of one of its members, verified.
    pub fn of(&self, member: &Member, disk: &Disk, view: &Path) -> Result<IndexAndKeys> {
        let Some((_, range)) = member.in_index() else { return beside(member, disk, view) };
        let from = (range.start - self.offset) as usize;
        let bytes = self.bytes.as_ref().map(Filled::bytes).unwrap_or_default();
        let kept = bytes.get(from..from + (range.end - range.start) as usize).unwrap_or_default();
        let (index, keys) = kept.split_at(kept.len().min(member.index_len()));
        let path = member.keys_path(view);
        verify(index, member.index_crc, &path, member)?;
        verify(keys, member.keys_crc, &path, member)?;
        let index_bytes = index.to_vec();
        let keys = keys.to_vec();
        Ok(IndexAndKeys { index: index_of(member, &index_bytes, &path)?, index_bytes, keys })
    }
}

/// The index of a member, in the form in which the view keeps it.
fn index_of(member: &Member, bytes: &[u8], path: &Path) -> Result<Arc<RunIndex>> {
    if member.file.is_some() {
        let kept = Kept { number: member.number, bytes: member.bytes, size: member.size };
        return Ok(Arc::new(blocks_of(bytes, kept, path)?));
    }
    let bad = |what| IoError::BadIndex { path: path.to_path_buf(), offset: 0, what };
    let index = RunIndex::from_bytes(bytes).map_err(bad)?;
    if index.id != RunId(member.number) {
        return Err(bad("it belongs to another run").into());
    }
    Ok(Arc::new(index))
}

/// The same of a member of a view of an older version: they are in files beside its run, and at its end.
fn beside(member: &Member, disk: &Disk, view: &Path) -> Result<IndexAndKeys> {
    let read = |path: &Path| fs::read(path).during(Action::Read, path);
    let path = member.keys_path(view);
    let keys = read(&path)?;
    verify(&keys, member.keys_crc, &path, member)?;
    if member.file.is_some() {
        let path = path.with_extension("blocks");
        let index_bytes = read(&path)?;
        verify(&index_bytes, member.index_crc, &path, member)?;
        return Ok(IndexAndKeys { index: index_of(member, &index_bytes, &path)?, index_bytes, keys });
    }
    let path = view.join(&member.path);
    let index = read_index_of(disk, &path, RunId(member.number))?;
    // As it is stored: another version of the run format has other bytes for the same blocks.
    let size = fs::metadata(&path).during(Action::Inspect, &path)?.len();
    let index_bytes = read_range(disk, &path, index.data_end()..size, "run index")?.bytes().to_vec();
    verify(&index_bytes, member.index_crc, &path, member)?;
    Ok(IndexAndKeys { index, index_bytes, keys })
}

/// Refuses bytes with another checksum than the manifest says.
fn verify(bytes: &[u8], crc: u32, path: &Path, member: &Member) -> Result<()> {
    if crc32fast::hash(bytes) == crc {
        return Ok(());
    }
    let run = member.path.file_name().unwrap_or_default().to_string_lossy();
    let why = format!(
        "the index or the keys of {run} have changed since\n  make the view again: it would show wrong records"
    );
    Err(SortError::view(path, ErrorKind::InvalidData, why))
}
