//! Opening a directory at many ranks.
//!
//! ```text
//!   connect each has its buffers, and all have the same options       control messages only
//!   mode    rank 0 decides whether the directory is made or continued
//!   check   the layout is valid, or the directory can be continued
//!   make    rank 0 makes it or locks it
//!   open    the others open their logs in the directory at the path, which must be that of rank 0
//! ```
//!
//! All ranks take each step, or none does: a rank that cannot take it reports the reason, and all ranks get it at
//! once. Refusals that need no files come before rank 0 makes anything.

use std::fmt::Display;
use std::path::Path;

use ascot_io::{Disk, Pool};

use super::allreduce::{outcome_of, together as allreduced};
use super::balance;
use super::error::RankError;
use crate::error::IndexError;
use crate::format::layout::{AuxiliaryKind, Layout, Named, PartitionBy, Scheme};
use crate::format::manifest::Manifest;
use crate::routing::{CODE_DIFFERENT, Outcome, Router, RoutingSettings, Transport};
use crate::write::{Coordinator, LocalWriter, OpenMode, Opening, Share};

/// Purposes of the allreduces here.
const CONNECT: u8 = 11;
const CHECK: u8 = 7;
const OPEN: u8 = 1;
const OPENED: u8 = 2;
const MODE: u8 = 12;

/// Options of a directory that ranks write; the same at all ranks.
#[derive(Clone, Debug)]
pub struct RankOptions {
    /// Whether the directory is made or continued, and its layout; by default there is a partition for each rank.
    pub opening: Opening,
    /// Memory of this rank for routing and logs, bytes.
    pub memory_bytes: usize,
    /// How messages are routed.
    pub routing: RoutingSettings,
}

/// The result of opening.
pub(super) struct Opened {
    /// Set at rank 0.
    pub coordinator: Option<Coordinator>,
    pub local: LocalWriter,
    pub layout: Layout,
    /// Number of complete epochs.
    pub epochs: u64,
    /// The boundaries to begin with.
    pub boundaries: Vec<Vec<u8>>,
}

/// Connects the ranks: each has the buffers it needs, and all have the same options.
pub(super) fn connect<T: Transport>(transport: T, options: &RankOptions) -> Result<Router<T>, RankError> {
    let mut router = Router::without_lanes(transport, options.routing.patience);
    let parts = router.prepare(options.routing.clone(), &Pool::new(options.memory_bytes));
    let parts = parts.map_err(RankError::from);
    // If the router is dropped, all ranks learn of an error here.
    let combined = router.allreduce_options(CONNECT, outcome_of(CONNECT, &parts), &same(options));
    match (parts, combined.map(|combined| combined.failure)) {
        (Ok(parts), Ok(None)) => {
            router.begin(parts);
            Ok(router)
        }
        (Err(own), Ok(_)) => {
            router.leave();
            Err(own)
        }
        (Err(own), Err(_)) => Err(own),
        (Ok(_), Err(error)) => Err(error.into()),
        (Ok(_), Ok(Some((rank, code, text)))) => {
            router.leave();
            Err(if code == CODE_DIFFERENT {
                RankError::Options { text }
            } else {
                RankError::Peer { rank, text }
            })
        }
    }
}

/// Joins the opening only to report that this rank cannot open anything.
pub(super) fn decline<T: Transport>(transport: T, why: IndexError) -> RankError {
    let mut router = Router::without_lanes(transport, RoutingSettings::default().patience);
    let outcome = Outcome::Failed { code: u32::from(CONNECT), text: why.to_string() };
    if router.allreduce_options(CONNECT, outcome, "").is_ok() {
        router.leave();
    }
    why.into()
}

/// The options that all ranks must share, as text; memory, spare batches and patience may differ between ranks.
fn same(options: &RankOptions) -> String {
    let RankOptions { opening, routing, memory_bytes: _ } = options;
    let Opening { mode, rollback, request } = opening;
    fn or_any<T: Display>(asked: Option<T>) -> String {
        asked.map_or_else(|| "any".to_owned(), |asked| asked.to_string())
    }
    let attribute = request.attribute.as_ref().map(|attribute| attribute.to_string().replace(' ', "_"));
    let words = [
        format!("open={} rollback={}", mode.name(), or_any(*rollback)),
        format!("scheme={} key={}", or_any(request.scheme.map(Scheme::name)), or_any(request.key_bytes)),
        format!("value={} partitions={}", or_any(request.value_bytes), or_any(request.partitions)),
        format!("partition_by={}", or_any(request.partition_by.map(PartitionBy::name))),
        format!("seed={} block={}", or_any(request.seed), or_any(request.block_bytes)),
        format!("auxiliary={}", or_any(request.auxiliary.map(AuxiliaryKind::name))),
        format!("fingerprint={}", or_any(request.fingerprint_bits)),
        format!("route={:?} batch={}", routing.route, routing.batch_bytes),
        format!(
            "max_message={} ranks_per_node={}",
            routing.max_message_bytes,
            or_any(routing.ranks_per_node)
        ),
        // Last, because it may be long.
        format!("attribute={}", or_any(attribute)),
    ];
    words.join(" ").to_lowercase()
}

/// Checks, makes and opens the directory; each step succeeds at all ranks or at none.
pub(super) fn together<T: Transport>(
    router: &mut Router<T>,
    disk: &Disk,
    path: &Path,
    options: &RankOptions,
) -> Result<Opened, RankError> {
    let rank = router.rank();
    let goes_on = goes_on(router, path, &options.opening)?;
    // Before any file is made, so that a refusal leaves no files.
    let checked = check(router, path, options, goes_on);
    let ((layout, logs_bytes), _) = allreduced(router, CHECK, checked, &[])?;
    let made = match rank {
        0 => options.opening.coordinate(disk, path, &layout, goes_on).map(Some).map_err(RankError::from),
        _ => Ok(None),
    };
    let manifest = made.as_ref().ok().and_then(Option::as_ref).map(Coordinator::manifest);
    let (id, epochs) = manifest.map_or((0, 0), |manifest| (manifest.id, manifest.epochs));
    // Only rank 0 adds to the sums: the number of its directory, and the number of epochs.
    let (coordinator, sums) = allreduced(router, OPEN, made, &[id, epochs])?;
    let opened = open_logs(disk, path, rank, &sums, &layout, logs_bytes);
    let ((local, manifest), _) = allreduced(router, OPENED, opened, &[])?;
    let boundaries = manifest.next_boundaries();
    Ok(Opened { coordinator, local, epochs: manifest.epochs, layout: manifest.layout, boundaries })
}

/// Whether the directory is continued. If that depends on the file system, rank 0 decides, so that all ranks agree.
fn goes_on<T: Transport>(router: &mut Router<T>, path: &Path, opening: &Opening) -> Result<bool, RankError> {
    if opening.mode != OpenMode::Auto {
        return Ok(opening.goes_on(path)?);
    }
    let seen = if router.rank() == 0 { opening.goes_on(path).map_err(RankError::from) } else { Ok(false) };
    let says = u64::from(matches!(seen, Ok(true)));
    let (_, sums) = allreduced(router, MODE, seen, &[says])?;
    Ok(sums.first().is_some_and(|&sum| sum > 0))
}

/// The layout of the directory, and the memory left for logs.
fn check<T: Transport>(
    router: &Router<T>,
    path: &Path,
    options: &RankOptions,
    goes_on: bool,
) -> Result<(Layout, usize), RankError> {
    let size = router.topology().size();
    let layout = match goes_on {
        true => options.opening.go_on(Manifest::read(path)?, size, 1)?.layout,
        false => options.opening.request.layout(size, size),
    };
    let refused = |what: &str| Err(IndexError::Request(what.to_owned()).into());
    if layout.partitions > size {
        return refused("a directory that ranks write has at most one partition for each");
    }
    let by_range = layout.partition_by == PartitionBy::Range;
    if by_range && layout.partitions > balance::PARTITIONS_MAX {
        return refused("by key range there are at most 4096 partitions: say how many (partitions)");
    }
    let sample_bytes = if by_range { balance::memory_bytes(layout.partitions) } else { 0 };
    let taken = router.layout().memory_bytes() + sample_bytes;
    let logs_bytes = options.memory_bytes.saturating_sub(taken);
    LocalWriter::check_memory(&layout, &share_of(&layout, router.rank()), logs_bytes)?;
    Ok((layout, logs_bytes))
}

/// The logs of a directory that a rank writes.
fn share_of(layout: &Layout, rank: u32) -> Share {
    let partitions = if rank < layout.partitions { rank..rank + 1 } else { 0..0 };
    Share { partitions, writer: (layout.scheme != Scheme::Records).then_some(rank) }
}

/// Opens this rank's logs of the directory that rank 0 made.
fn open_logs(
    disk: &Disk,
    path: &Path,
    rank: u32,
    wanted: &[u64],
    layout: &Layout,
    memory_bytes: usize,
) -> Result<(LocalWriter, Manifest), RankError> {
    let mut manifest = Manifest::read(path)?;
    if wanted != [manifest.id, manifest.epochs] {
        return Err(RankError::NotShared { rank });
    }
    manifest.reshape(layout.shape());
    let share = share_of(&manifest.layout, rank);
    let local = LocalWriter::open(disk, path, &manifest, &share, memory_bytes)?;
    Ok((local, manifest))
}
