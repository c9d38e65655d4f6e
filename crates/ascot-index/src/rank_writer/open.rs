//! Opening a directory at many ranks.
//!
//! ```text
//!   meet    each has its buffers, and all have the same options       words alone: nothing is routed yet
//!   check   the directory can be, or is there to go on with
//!   make    rank 0 makes it or locks it
//!   open    the others open their logs in what they find at the path, which has to be what rank 0 has
//! ```
//!
//! Each step is taken by all ranks or by none: whoever cannot take it says why, and all hear it at once. What can be
//! refused is refused before rank 0 makes anything.

use std::path::Path;

use ascot_io::{Disk, Pool};

use super::{RankError, RankOptions, balance, outcome_of, together as agreed};
use crate::error::IndexError;
use crate::format::manifest::{Layout, Manifest, PartitionBy, Scheme};
use crate::routing::{CODE_DIFFERENT, Meeting, Outcome, Router, RoutingSettings, Transport};
use crate::write::{Coordinator, LocalWriter, Share};

/// What ranks agree on here.
const MEET: u8 = 11;
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

/// Ranks meet: each has the buffers it needs, and all were given the same options.
pub(super) fn meet<T: Transport>(transport: T, options: &RankOptions) -> Result<Router<T>, RankError> {
    let mut meeting = Meeting::new(transport, options.routing.patience);
    let parts = meeting.prepare(options.routing.clone(), &Pool::new(options.memory_bytes));
    let parts = parts.map_err(RankError::from);
    // An error here is told to all when the meeting is dropped.
    let agreement = meeting.agree(MEET, outcome_of(MEET, &parts), &same(options));
    match (parts, agreement.map(|agreement| agreement.failure)) {
        (Ok(parts), Ok(None)) => Ok(meeting.begin(parts)),
        (Err(own), Ok(_)) => {
            meeting.leave();
            Err(own)
        }
        (Err(own), Err(_)) => Err(own),
        (Ok(_), Err(error)) => Err(error.into()),
        (Ok(_), Ok(Some((rank, code, text)))) => {
            meeting.leave();
            Err(if code == CODE_DIFFERENT {
                RankError::Options { text }
            } else {
                RankError::Peer { rank, text }
            })
        }
    }
}

/// Meets the others only to say that this rank cannot open anything.
pub(super) fn decline<T: Transport>(transport: T, why: IndexError) -> RankError {
    let mut meeting = Meeting::new(transport, RoutingSettings::default().patience);
    let outcome = Outcome::Failed { code: u32::from(MEET), text: why.to_string() };
    if meeting.agree(MEET, outcome, "").is_ok() {
        meeting.leave();
    }
    why.into()
}

/// The options that all ranks must share, in words; memory, spare batches and patience are each rank's own.
fn same(options: &RankOptions) -> String {
    let RankOptions { layout, routing, append, memory_bytes: _ } = options;
    let any = |bytes: Option<u32>| bytes.map_or("any".to_owned(), |bytes| bytes.to_string());
    let attribute = layout.attribute.as_ref().map_or("none".to_owned(), |attribute| {
        format!("{}:{}:{:?}", attribute.name.replace(' ', "_"), attribute.offset, attribute.kind)
    });
    let words = [
        format!("append={append} scheme={:?} key={}", layout.scheme, any(layout.key_bytes)),
        format!(
            "value={} partitions={} writers={}",
            any(layout.value_bytes),
            layout.partitions,
            layout.writers
        ),
        format!("partition_by={:?} seed={} block={}", layout.partition_by, layout.seed, layout.block_bytes),
        format!("auxiliary={:?} fingerprint={}", layout.auxiliary, layout.fingerprint_bits),
        format!("route={:?} batch={}", routing.route, routing.batch_bytes),
        format!("max_message={} ranks_per_node={}", routing.max_message_bytes, any(routing.ranks_per_node)),
        // Last: it may be long.
        format!("attribute={attribute}"),
    ];
    words.join(" ").to_lowercase()
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
    let manifest = made.as_ref().ok().and_then(Option::as_ref).map(Coordinator::manifest);
    let (id, epochs) = manifest.map_or((0, 0), |manifest| (manifest.id, manifest.epochs));
    // Only rank 0 adds to the sums: they are the number of the directory that rank 0 has, and its epochs.
    let (coordinator, sums) = agreed(router, OPEN, made, &[id, epochs])?;
    let opened = open_logs(disk, path, rank, &sums, logs_bytes);
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
        let layout = Manifest::read(path)?.layout;
        check_lengths(&layout, &options.layout)?;
        layout
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

/// Refuses lengths that are asked for and are not those of the directory that is there.
fn check_lengths(there: &Layout, asked: &Layout) -> Result<(), IndexError> {
    let pairs = [("key", there.key_bytes, asked.key_bytes), ("value", there.value_bytes, asked.value_bytes)];
    for (what, there, asked) in pairs {
        if let Some(asked) = asked.filter(|&asked| Some(asked) != there) {
            let there = there.map_or("any length".to_owned(), |bytes| format!("{bytes}"));
            return Err(IndexError::Request(format!(
                "{what}={asked}, and the directory that is there has {what}s of {there}: leave it out to go on"
            )));
        }
    }
    Ok(())
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
    wanted: &[u64],
    memory_bytes: usize,
) -> Result<(LocalWriter, Manifest), RankError> {
    let manifest = Manifest::read(path)?;
    if wanted != [manifest.id, manifest.epochs] {
        return Err(RankError::NotShared { rank });
    }
    let share = share_of(&manifest.layout, rank);
    let local = LocalWriter::open(disk, path, &manifest, &share, memory_bytes)?;
    Ok((local, manifest))
}
