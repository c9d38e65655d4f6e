//! Opening a directory at many ranks.
//!
//! What can be refused is refused before rank 0 makes anything. Then the others open their logs in what they find at
//! the path, which has to be what rank 0 made.

use std::path::Path;

use ascot_io::Disk;

use super::{RankError, RankOptions, balance, together as agreed};
use crate::error::IndexError;
use crate::format::manifest::{Layout, Manifest, PartitionBy, Scheme};
use crate::routing::{Router, Transport};
use crate::write::{Coordinator, LocalWriter, Share};

/// What ranks agree on here.
const CHECK: u8 = 7;
const OPEN: u8 = 1;
const OPENED: u8 = 2;

/// What opening yields.
pub(super) struct Opened {
    /// At rank 0.
    pub coordinator: Option<Coordinator>,
    pub local: LocalWriter,
    pub layout: Layout,
    /// Of the last epoch, if there was one.
    pub boundaries: Vec<Vec<u8>>,
}

/// Checks, makes, opens: a step at a time, each at all ranks or at none.
pub(super) fn together<T: Transport>(
    router: &mut Router<T>,
    disk: &Disk,
    path: &Path,
    options: &RankOptions,
) -> Result<Opened, RankError> {
    let rank = router.rank();
    // Before anything is made: what is refused leaves nothing behind.
    let checked = check(router, path, options);
    let ((layout, logs_bytes), _) = agreed(router, CHECK, checked, &[])?;
    let made = make(&layout, disk, path, options.append, rank);
    let id = made.as_ref().ok().and_then(Option::as_ref).map_or(0, |made| made.manifest().id);
    // Only rank 0 adds to the sum: it is the number of the directory that rank 0 made.
    let (coordinator, sums) = agreed(router, OPEN, made, &[id])?;
    let opened = open_logs(disk, path, rank, sums.first().copied(), logs_bytes);
    let ((local, manifest), _) = agreed(router, OPENED, opened, &[])?;
    let last = manifest.epochs.checked_sub(1);
    let boundaries = last.map_or(Vec::new(), |epoch| manifest.boundaries_of(epoch));
    Ok(Opened { coordinator, local, layout: manifest.layout, boundaries })
}

/// What the directory is or will be, and what memory is left for logs.
fn check<T: Transport>(
    router: &Router<T>,
    path: &Path,
    options: &RankOptions,
) -> Result<(Layout, usize), RankError> {
    let size = router.topology().size();
    let layout = if options.append {
        Manifest::read(path)?.layout
    } else {
        let filled = |count: u32| if count == 0 { size } else { count };
        let Layout { partitions, writers, .. } = options.layout;
        Layout { partitions: filled(partitions), writers: filled(writers), ..options.layout.clone() }
    };
    let refused = |what: &str| Err(IndexError::Request(what.to_owned()).into());
    if options.append && (layout.partitions > size || layout.writers != size) {
        return refused("the directory was written by another number of ranks: go on with it by as many");
    }
    if layout.partitions > size {
        return refused("a directory that ranks write has at most one partition for each");
    }
    if layout.writers != size {
        return refused("a directory that ranks write has each of them as a writer");
    }
    let by_range = layout.partition_by == PartitionBy::Range;
    if by_range && layout.partitions > balance::PARTITIONS_MOST {
        return refused("by key range there are at most 4096 partitions: say how many (partitions)");
    }
    let sample_bytes = if by_range { balance::memory_bytes(layout.partitions) } else { 0 };
    let taken = router.layout().memory_bytes() + sample_bytes;
    let logs_bytes = options.memory_bytes.saturating_sub(taken);
    LocalWriter::check_memory(&layout, &share_of(&layout, router.rank()), logs_bytes)?;
    Ok((layout, logs_bytes))
}

/// Rank 0 makes the directory or opens it to go on.
fn make(
    layout: &Layout,
    disk: &Disk,
    path: &Path,
    append: bool,
    rank: u32,
) -> Result<Option<Coordinator>, RankError> {
    match (rank, append) {
        (0, false) => Ok(Some(Coordinator::create(disk, path, layout.clone())?)),
        (0, true) => Ok(Some(Coordinator::append(disk, path)?)),
        _ => Ok(None),
    }
}

/// What of a directory a rank writes.
fn share_of(layout: &Layout, rank: u32) -> Share {
    let partitions = if rank < layout.partitions { vec![rank] } else { Vec::new() };
    Share { partitions, writer: (layout.scheme != Scheme::Records).then_some(rank) }
}

/// Opens what this rank writes of the directory that rank 0 made.
fn open_logs(
    disk: &Disk,
    path: &Path,
    rank: u32,
    id: Option<u64>,
    memory_bytes: usize,
) -> Result<(LocalWriter, Manifest), RankError> {
    let manifest = Manifest::read(path)?;
    if Some(manifest.id) != id {
        return Err(RankError::NotShared { rank });
    }
    let share = share_of(&manifest.layout, rank);
    let local = LocalWriter::open(disk, path, &manifest, &share, memory_bytes)?;
    Ok((local, manifest))
}
