//! The writer of one rank: it appends, sends and receives records, and ends epochs together with all ranks.

use std::path::Path;
use std::sync::Arc;

use ascot_io::Disk;

use super::allreduce::together;
use super::balance::Balance;
use super::error::RankError;
use super::message;
use super::open::{self, RankOptions};
use crate::error::IndexError;
use crate::format::layout::{Layout, PartitionBy, Scheme};
use crate::format::pointer::{POINTER_BYTES, Pointer};
use crate::routing::{RouteError, Router, RoutingCounts, Transport, Waiting};
use crate::write::{Coordinator, LocalWriter};

/// Purposes of the allreduces, which detect ranks that call different functions.
const EPOCH: u8 = 3;
const COMMIT: u8 = 4;
const CLOSE: u8 = 5;
const CLOSED: u8 = 6;

/// Initial capacity of a message buffer, large enough not to share an allocator's small blocks: if ranks are threads
/// of one process, small blocks that they pass and free are reused on a cache line with another rank's.
const MESSAGE_ROOM: usize = 4096;

/// One rank's writer of a directory that many ranks write.
pub struct RankWriter<T: Transport> {
    router: Router<T>,
    local: LocalWriter,
    /// Set at rank 0.
    coordinator: Option<Coordinator>,
    layout: Layout,
    /// Set if partitions are by key range.
    balance: Option<Balance>,
    message: Vec<u8>,
    /// Number of complete epochs known to this rank.
    epochs: u64,
    /// Records appended to the open epoch, and in total.
    appended: u64,
    appended_in_all: u64,
    failure: Option<Arc<RankError>>,
    /// Whether all ranks know of the failure.
    failure_shared: bool,
}

/// The result of an epoch at all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankEpoch {
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// Records of all ranks.
    pub records: u64,
}

/// Memory of one rank, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankMemory {
    /// Buffers of routing, allocated for the writer's lifetime.
    pub routing: usize,
    /// The memory that logs may use.
    pub logs: usize,
    /// The peak use of logs.
    pub logs_peak: usize,
}

impl<T: Transport> RankWriter<T> {
    /// Opens the directory at all ranks; all call it with the same options. Rank 0 makes it.
    ///
    /// # Errors
    /// Those of [`Coordinator::create`] and [`LocalWriter::open`] at the rank that has them, and [`RankError::Peer`]
    /// at all others; [`RankError::Options`] at all if options differ; [`RouteError`] if ranks do not reach each
    /// other.
    pub fn open(transport: T, disk: &Disk, path: &Path, options: &RankOptions) -> Result<Self, RankError> {
        let mut router = open::connect(transport, options)?;
        let opened = open::together(&mut router, disk, path, options);
        if let Err(error) = &opened
            && !matches!(error, RankError::Route(_))
        {
            // All ranks know of the failure.
            router.leave();
        }
        let open::Opened { coordinator, local, layout, epochs, boundaries } = opened?;
        let by_range = layout.partition_by == PartitionBy::Range;
        let balance = by_range.then(|| Balance::new(layout.partitions, boundaries));
        Ok(Self {
            router,
            local,
            coordinator,
            layout,
            balance,
            message: Vec::with_capacity(MESSAGE_ROOM),
            epochs,
            appended: 0,
            appended_in_all: 0,
            failure: None,
            failure_shared: false,
        })
    }

    /// Joins the opening for a rank that cannot open anything: all others learn the reason instead of waiting for it.
    /// This rank gets the reason itself.
    pub fn decline(transport: T, why: IndexError) -> RankError {
        open::decline(transport, why)
    }

    /// Appends a record to the epoch.
    ///
    /// # Errors
    /// A record that does not fit the directory is refused, and nothing is lost. After any other error the epoch will
    /// not complete; call [`end_epoch`](Self::end_epoch) or [`close`](Self::close) to inform all ranks.
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> Result<(), RankError> {
        self.check_well()?;
        self.layout.check_record(key, value)?;
        self.check_length(key, value)?;
        let boundaries = self.balance.as_ref().map_or(&[][..], |balance| &balance.boundaries);
        let partition = self.layout.partition_of(key, boundaries);
        if let Some(balance) = &mut self.balance {
            balance.see(key);
        }
        if let Err(error) = self.send(partition, key, value) {
            return self.noted(Err(error));
        }
        self.appended += 1;
        self.appended_in_all += 1;
        // A record that arrived during the call may have failed on a full disk.
        self.check_well()
    }

    /// Receives records of other ranks. Call it occasionally during long periods without appends, so that others need
    /// not wait.
    pub fn progress(&mut self) -> Result<(), RankError> {
        self.check_well()?;
        let Self { router, local, layout, failure, .. } = self;
        let mut delivery = Receiving { partition: router.rank(), local, layout, failure };
        let moved = router.progress(&mut |message| delivery.take(message)).map(drop);
        self.noted(moved.map_err(RankError::from))?;
        self.check_well()
    }

    /// Ends the epoch at all ranks, which all call it: the epoch is durable and complete.
    ///
    /// # Errors
    /// If any rank failed, all get an error, the epoch is not complete, and no more records are accepted.
    pub fn end_epoch(&mut self) -> Result<RankEpoch, RankError> {
        self.check_reachable()?;
        let ended = self.end_together();
        self.noted(ended)
    }

    /// Closes the directory at all ranks, which all call it. Records appended since the end of the last epoch become
    /// an epoch.
    ///
    /// # Errors
    /// As [`end_epoch`](Self::end_epoch).
    pub fn close(mut self) -> Result<(), RankError> {
        let ended = self.check_reachable().and_then(|()| self.end_open_epoch());
        if ended.is_err() && !self.failure_shared {
            // Dropping the router informs the other ranks.
            return ended;
        }
        let Self { mut router, local, coordinator, .. } = self;
        let closed = ended.and_then(|()| close_files(&mut router, local, coordinator));
        router.leave();
        closed
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.router.rank()
    }

    /// The number of complete epochs, which is the number of the open epoch.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Records appended at this rank since the writer was opened.
    pub fn records(&self) -> u64 {
        self.appended_in_all
    }

    /// Counts of routing.
    pub fn counts(&self) -> &RoutingCounts {
        self.router.counts()
    }

    /// Memory in use.
    pub fn memory(&self) -> RankMemory {
        let pool = self.local.pool();
        let routing = self.router.layout().memory_bytes();
        RankMemory { routing, logs: pool.budget(), logs_peak: pool.peak() }
    }

    // ------------------------------------------------------------ inside

    fn check_well(&self) -> Result<(), RankError> {
        match &self.failure {
            Some(cause) => Err(RankError::Failed { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Refuses collective calls after the ranks know of a failure or cannot reach each other.
    fn check_reachable(&self) -> Result<(), RankError> {
        let unreachable = matches!(self.failure.as_deref().map(RankError::cause), Some(RankError::Route(_)));
        if self.failure_shared || unreachable { self.check_well() } else { Ok(()) }
    }

    /// Keeps the first failure for later calls.
    fn noted<R>(&mut self, result: Result<R, RankError>) -> Result<R, RankError> {
        result.map_err(|error| {
            let cause = Arc::new(error);
            self.failure.get_or_insert(cause.clone());
            RankError::Now(cause)
        })
    }

    /// Refuses a record whose message would be too long, before any part of it is stored.
    fn check_length(&self, key: &[u8], value: &[u8]) -> Result<(), RankError> {
        let travels = match self.layout.scheme {
            Scheme::Records => value.len(),
            Scheme::Pointers => POINTER_BYTES,
            Scheme::Ranks => return Ok(()),
        };
        let length = if self.layout.key_bytes.is_none() { 10 } else { 0 };
        let bytes = length + key.len() + travels;
        let max_bytes = self.router.longest_message();
        if bytes > max_bytes { Err(RouteError::TooLong { bytes, max_bytes }.into()) } else { Ok(()) }
    }

    fn send(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<(), RankError> {
        if self.router.topology().size() == 1 {
            // Of any length: it is not sent.
            return Ok(self.local.put_own(&self.layout, partition, key, value)?);
        }
        let message = &mut self.message;
        match self.layout.scheme {
            Scheme::Records => message::put_keyed(message, &self.layout, key, value),
            Scheme::Pointers => {
                let pointer = self.local.store_value(value)?;
                message::put_keyed(message, &self.layout, key, &pointer.to_bytes());
            }
            Scheme::Ranks => {
                self.local.store_record(key, value)?;
                message::put_rank(message, self.layout.hash(key), self.router.rank());
            }
        }
        let Self { router, local, layout, failure, message, .. } = self;
        let mut waiting = Waiting::default();
        loop {
            let mut delivery = Receiving { partition: router.rank(), local, layout, failure };
            if router.try_append(partition, message, &mut |message| delivery.take(message))? {
                return Ok(());
            }
            // Another rank is flushing a table and does not receive now. Instead of waiting, and making it wait later,
            // this rank flushes its own tables now.
            if failure.is_some() || !local.flush_fuller_half()? {
                router.wait(&mut waiting)?;
            }
        }
    }

    /// Waits until all records of all ranks for this epoch have arrived at their owners. All ranks call it after their
    /// last record; [`end_epoch`](Self::end_epoch), which also does this, follows.
    pub fn drain(&mut self) -> Result<(), RankError> {
        let Self { router, local, layout, failure, .. } = self;
        let mut delivery = Receiving { partition: router.rank(), local, layout, failure };
        Ok(router.drain(&mut |message| delivery.take(message))?)
    }

    fn end_together(&mut self) -> Result<RankEpoch, RankError> {
        self.drain()?;
        let ended = match self.failure.take() {
            Some(cause) => Err(RankError::Now(cause)),
            None => self.local.end_epoch().map_err(RankError::from),
        };
        let arrived = ended.as_ref().map_or(0, |counts| counts.partition_records);
        let appended = std::mem::take(&mut self.appended);
        let (_, sums) = self.allreduce(EPOCH, ended, &[appended, arrived])?;
        let appended = sums.first().copied().unwrap_or(0);
        let arrived = sums.get(1).copied().unwrap_or(0);
        if appended != arrived {
            // All ranks see the same sums and reach the same result.
            self.failure_shared = true;
            return Err(RankError::Count { appended, arrived });
        }
        let boundaries = self.balance.as_ref().map_or(Vec::new(), |balance| balance.boundaries.clone());
        if let Some(balance) = &mut self.balance
            && appended > 0
        {
            balance.rebalance(&mut self.router, appended)?;
        }
        let committed = match &mut self.coordinator {
            Some(coordinator) => coordinator.commit(&boundaries).map(|()| coordinator.manifest().epochs),
            None => Ok(0),
        };
        let epochs = committed.as_ref().map_or(0, |epochs| *epochs);
        let (_, sums) = self.allreduce(COMMIT, committed.map_err(RankError::from), &[epochs])?;
        let epochs = sums.first().copied().unwrap_or(0);
        self.epochs = epochs;
        Ok(RankEpoch { epoch: epochs.saturating_sub(1), records: appended })
    }

    /// Ends the open epoch if any rank has records in it.
    fn end_open_epoch(&mut self) -> Result<(), RankError> {
        self.drain()?;
        let well = self.failure.take().map_or(Ok(()), |cause| Err(RankError::Now(cause)));
        let (_, sums) = self.allreduce(CLOSE, well, &[self.appended])?;
        if sums.first().is_some_and(|&appended| appended > 0) {
            self.end_together()?;
        }
        Ok(())
    }

    fn allreduce<R>(
        &mut self,
        purpose: u8,
        own: Result<R, RankError>,
        sums: &[u64],
    ) -> Result<(R, Vec<u64>), RankError> {
        let agreed = together(&mut self.router, purpose, own, sums);
        self.failure_shared |= agreed.is_err();
        agreed
    }
}

/// Takes messages that arrive. After a failure it drops them, so that others do not wait for this rank.
struct Receiving<'a> {
    /// The partition that this rank owns, if it owns one.
    partition: u32,
    local: &'a mut LocalWriter,
    layout: &'a Layout,
    failure: &'a mut Option<Arc<RankError>>,
}

impl Receiving<'_> {
    fn take(&mut self, message: &[u8]) {
        if self.failure.is_none()
            && let Err(error) = self.put(message)
        {
            *self.failure = Some(Arc::new(error.into()));
        }
    }

    fn put(&mut self, message: &[u8]) -> Result<(), IndexError> {
        let garbled = || IndexError::Request("a message between ranks cannot be read".to_owned());
        if self.layout.scheme == Scheme::Ranks {
            let (hash, rank) = message::take_rank(message).ok_or_else(garbled)?;
            return self.local.put_rank(self.partition, hash, rank);
        }
        let keyed = message::take_keyed(self.layout, message).ok_or_else(garbled)?;
        if self.layout.scheme == Scheme::Records {
            return self.local.put_record(self.partition, keyed.key, keyed.value);
        }
        let pointer = Pointer::from_bytes(keyed.value).ok_or_else(garbled)?;
        self.local.put_pointer(self.partition, keyed.key, pointer)
    }
}

/// Closes the logs of all ranks, then the directory.
fn close_files<T: Transport>(
    router: &mut Router<T>,
    local: LocalWriter,
    coordinator: Option<Coordinator>,
) -> Result<(), RankError> {
    together(router, CLOSE, local.finish().map_err(RankError::from), &[])?;
    let closed = coordinator.map_or(Ok(()), |coordinator| coordinator.close().map(drop));
    together(router, CLOSED, closed.map_err(RankError::from), &[])?;
    Ok(())
}
