//! The parts of a router besides its transport: next hops, lanes and their buffers, all made at once.
//!
//! Invariant: all buffers are reserved from the pool before the first is allocated.

use ascot_io::{Pool, PoolError, Reservation};

use super::error::RouteError;
use super::lane::{LaneState, Spare, spare_buffers};
use super::layout::{Layout, RoutingSettings, peers};
use super::next_hop::NextHops;
use super::topology::{Route, Topology};
use super::transport::{Lane, Transport};

/// The parts of a router.
pub struct Parts {
    pub(super) layout: Layout,
    pub(super) next_hops: NextHops,
    /// By lane: local, wire, deliver.
    pub(super) lanes: [LaneState; 3],
    pub(super) spare: Spare,
    _memory: Option<Reservation>,
}

impl Parts {
    /// The parts of a router over `transport`, made before anything is sent.
    ///
    /// # Errors
    /// Invalid settings; buffers that do not fit the pool, here or at the rank that needs the most.
    pub fn new(
        transport: &impl Transport,
        settings: RoutingSettings,
        pool: &Pool,
    ) -> Result<Self, RouteError> {
        settings.check()?;
        let topology = match settings.ranks_per_node {
            Some(ranks) => Topology::even(transport.topology().size(), ranks),
            None => transport.topology(),
        };
        let rank = transport.rank();
        let layout = Layout::new(&topology, rank, &settings);
        // Uses the memory of the rank that needs the most, so that all ranks get the same result.
        let heaviest = Layout::heaviest(&topology, &settings).memory_bytes();
        let purpose = "batches of messages between ranks";
        let memory = pool.reserve(heaviest.max(layout.memory_bytes()), purpose).and_then(|memory| {
            drop(memory);
            pool.reserve(layout.memory_bytes(), purpose)
        });
        let refused = |source| memory_error(&topology, rank, &settings, source);
        let memory = memory.map_err(refused)?;
        let peers = |lane| peers(&topology, rank, settings.route, lane);
        let lane = |lane| LaneState::new(lane, peers(lane), &settings, pool);
        let [local, wire, deliver] = Lane::DATA.map(lane);
        let mut lanes = [local.map_err(refused)?, wire.map_err(refused)?, deliver.map_err(refused)?];
        let next_hops = NextHops::new(topology.clone(), rank, settings.route);
        for (lane, state) in Lane::DATA.into_iter().zip(&mut lanes) {
            state.flush_from(if lane == Lane::Wire { next_hops.node } else { rank } as usize);
        }
        let spare_batches = if layout.batches() == 0 { 0 } else { settings.spare_batches };
        let spare = spare_buffers(spare_batches, settings.batch_bytes, pool).map_err(refused)?;
        Ok(Self { layout, next_hops, lanes, spare, _memory: Some(memory) })
    }

    /// Parts without lanes for messages.
    pub(super) fn without_lanes(transport: &impl Transport, settings: RoutingSettings) -> Self {
        let topology = transport.topology();
        let rank = transport.rank();
        let layout = Layout::new(&topology, rank, &settings);
        let next_hops = NextHops::new(topology, rank, settings.route);
        let lanes = Lane::DATA.map(|lane| LaneState::without_peers(lane, &settings));
        Self { layout, next_hops, lanes, spare: Spare::default(), _memory: None }
    }
}

/// The error of buffers that do not fit, with a setting that needs less if there is one.
fn memory_error(topology: &Topology, rank: u32, settings: &RoutingSettings, source: PoolError) -> RouteError {
    let bytes = |route| {
        let settings = RoutingSettings { route, ..settings.clone() };
        Layout::new(topology, rank, &settings).memory_bytes()
    };
    let three = bytes(Route::ThreeHop);
    let (way, hint) = match settings.route {
        Route::Direct if three < bytes(Route::Direct) => {
            ("each sending to each", format!("; by three hops {three} bytes are enough"))
        }
        Route::Direct => ("each sending to each", String::new()),
        Route::ThreeHop => ("by three hops", "; smaller batches need less".to_owned()),
    };
    RouteError::Memory { ranks: topology.size(), nodes: topology.nodes(), way, source, hint }
}
