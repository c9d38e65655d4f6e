//! Whole epochs between ranks that are threads: all arrives, in order, in the memory that was promised, whatever
//! the shape of the machine and of the traffic; and failures are told, not waited for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use ascot_io::Pool;
use ascot_model::routing_plan::RoutingJob;
use proptest::prelude::*;

use ascot_index::routing::*;
use ascot_testing::in_process::{Endpoint, Order, in_process};
use ascot_testing::limited::{Limited, Wire, WireSpeed};
use ascot_testing::virtual_peers::{SampledRank, sample_two_nodes};

const PURPOSE: u8 = 1;

/// What ranks send in each epoch.
#[derive(Clone, Debug)]
struct Traffic {
    messages: u32,
    longest: usize,
    /// Of 100 messages, how many go to rank 0.
    skew: u32,
    epochs: u32,
    /// Ranks that look only once in a while.
    slow: u32,
}

fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

/// Sender, receiver, number, epoch and padding of a length that tells them apart.
fn message(from: u32, to: u32, number: u32, epoch: u32, bytes: usize) -> Vec<u8> {
    let mut message: Vec<u8> = [from, to, number, epoch].iter().flat_map(|part| part.to_le_bytes()).collect();
    message.resize(16 + bytes, (from ^ number) as u8);
    message
}

/// Runs `each` for every rank in a thread of its own; the answers by rank.
fn on_ranks<R: Send>(topology: &Topology, order: Order, each: impl Fn(Endpoint) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let each = &each;
        let ends = in_process(topology, order);
        let threads: Vec<_> = ends.into_iter().map(|end| scope.spawn(move || each(end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What arrived: by sender and epoch, numbers in the order of arrival.
type Arrived = HashMap<(u32, u32), Vec<u32>>;
/// What was sent: by receiver and epoch, how many.
type Counted = HashMap<(u32, u32), u32>;

fn send_epochs<T: Transport>(
    router: &mut Router<T>,
    traffic: &Traffic,
) -> Result<(Arrived, Counted), RouteError> {
    let (rank, size) = (router.rank(), router.topology().size());
    let mut seed = u64::from(rank) + 17;
    let (mut arrived, mut sent) = (Arrived::new(), HashMap::new());
    for epoch in 0..traffic.epochs {
        let mut take = |message: &[u8]| {
            let part = |at: usize| u32::from_le_bytes(message[4 * at..4 * at + 4].try_into().unwrap());
            assert_eq!(part(1), rank, "a message for another rank");
            assert_eq!(part(3), epoch, "a message of another epoch");
            assert!(message[16..].iter().all(|&byte| byte == (part(0) ^ part(2)) as u8));
            arrived.entry((part(0), epoch)).or_default().push(part(2));
        };
        for _ in 0..traffic.messages {
            let to = if random(&mut seed) % 100 < traffic.skew { 0 } else { random(&mut seed) % size };
            let number = sent.entry((to, epoch)).or_insert(0);
            let bytes = random(&mut seed) as usize % (traffic.longest + 1);
            router.append(to, &message(rank, to, *number, epoch, bytes), &mut take)?;
            *number += 1;
            if rank < traffic.slow && random(&mut seed).is_multiple_of(64) {
                thread::sleep(Duration::from_micros(100));
            }
        }
        router.drain(&mut take)?;
        let agreement = router.allreduce(PURPOSE, Outcome::Well, &[u64::from(traffic.messages)])?;
        assert_eq!(agreement.failure, None);
        assert_eq!(agreement.sums, [u64::from(traffic.messages) * u64::from(size)]);
    }
    Ok((arrived, sent))
}

/// Runs the traffic and checks that everything arrived, once and in order.
fn check(
    topology: &Topology,
    order: Order,
    settings: &RoutingSettings,
    traffic: &Traffic,
) -> Vec<RoutingCounts> {
    let results = on_ranks(topology, order, |end| {
        let mut router = Router::new(end, settings.clone(), &Pool::new(64 << 20)).unwrap();
        let promised = router.layout().memory_bytes();
        assert_eq!(router.bytes_held() + router.layout().topology_bytes(), promised);
        let result = send_epochs(&mut router, traffic).unwrap();
        assert!(router.bytes_held() <= promised, "buffers have grown");
        router.leave();
        (result, router.counts().clone())
    });
    for to in 0..topology.size() {
        for from in 0..topology.size() {
            for epoch in 0..traffic.epochs {
                let sent = results[from as usize].0.1.get(&(to, epoch)).copied().unwrap_or(0);
                let arrived = results[to as usize].0.0.get(&(from, epoch)).cloned().unwrap_or_default();
                assert_eq!(arrived, (0..sent).collect::<Vec<_>>(), "from {from} to {to} in epoch {epoch}");
            }
        }
    }
    results.into_iter().map(|(_, counts)| counts).collect()
}

fn settings(route: Route, batch_bytes: usize, spare_batches: usize) -> RoutingSettings {
    let max_message_bytes = 200;
    let patience = Duration::from_secs(20);
    RoutingSettings { route, batch_bytes, max_message_bytes, spare_batches, ranks_per_node: None, patience }
}

const USUAL: Traffic = Traffic { messages: 3000, longest: 60, skew: 0, epochs: 3, slow: 0 };

#[test]
fn eight_ranks_on_four_nodes_directly_and_by_three_hops() {
    let topology = Topology::even(8, 2);
    for (route, batch_bytes) in [(Route::Direct, 512), (Route::ThreeHop, 512), (Route::ThreeHop, 64)] {
        let counts = check(&topology, Order::Free, &settings(route, batch_bytes, 2), &USUAL);
        let off_node: u64 = counts.iter().map(RoutingCounts::batches_off_node).sum();
        assert!(off_node > 0);
        for counts in &counts {
            assert_eq!(counts.hops[0].batches_off_node, 0, "the local lane left the node");
            if route == Route::ThreeHop {
                assert_eq!(counts.hops[2].batches_off_node, 0, "delivery left the node");
            }
        }
    }
}

#[test]
fn one_rank_alone_and_one_node_alone() {
    for (size, per_node) in [(1, 1), (3, 3), (3, 1)] {
        let topology = Topology::even(size, per_node);
        for route in [Route::Direct, Route::ThreeHop] {
            let counts = check(&topology, Order::Free, &settings(route, 256, 0), &USUAL);
            let off_node: u64 = counts.iter().map(RoutingCounts::bytes_off_node).sum();
            assert_eq!(off_node == 0, topology.nodes() == 1);
        }
    }
}

#[test]
fn emulated_nodes_are_those_asked_for() {
    let settings = RoutingSettings { ranks_per_node: Some(2), ..settings(Route::ThreeHop, 512, 2) };
    let counts = check(&Topology::even(8, 8), Order::Free, &settings, &USUAL);
    assert!(counts.iter().all(|counts| counts.bytes_off_node() > 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// All send to all with hardly any memory: no rank waits for ever, nothing is lost.
    #[test]
    fn nothing_is_lost_and_no_rank_waits_for_ever(
        size in 1u32..13,
        ranks_per_node in 1u32..6,
        shuffled in any::<bool>(),
        direct in any::<bool>(),
        batch_bytes in 64usize..400,
        spare in 0usize..3,
        longest in 0usize..180,
        skew in prop_oneof![Just(0u32), Just(100), 0u32..100],
        seed in any::<u64>(),
    ) {
        let topology = if shuffled {
            let marks: Vec<u32> = (0..size).map(|rank| rank.wrapping_mul(7) % size.div_ceil(ranks_per_node)).collect();
            Topology::listed(&marks)
        } else {
            Topology::even(size, ranks_per_node)
        };
        let route = if direct { Route::Direct } else { Route::ThreeHop };
        let traffic = Traffic { messages: 200, longest, skew, epochs: 2, slow: 0 };
        check(&topology, Order::OneAtATime { seed }, &settings(route, batch_bytes, spare), &traffic);
    }
}

#[test]
fn slow_receivers_hold_others_back_without_growing() {
    let traffic = Traffic { slow: 3, skew: 70, ..USUAL };
    for route in [Route::Direct, Route::ThreeHop] {
        let counts = check(&Topology::even(8, 2), Order::Free, &settings(route, 256, 1), &traffic);
        assert!(counts.iter().map(|counts| counts.waits).sum::<u64>() > 0);
    }
}

#[test]
fn a_rank_that_dies_is_an_error_for_all_others() {
    for order in [Order::Free, Order::OneAtATime { seed: 3 }] {
        for route in [Route::Direct, Route::ThreeHop] {
            let results = on_ranks(&Topology::even(8, 2), order, |end| {
                let rank = end.rank();
                let mut router = Router::new(end, settings(route, 256, 1), &Pool::new(8 << 20)).unwrap();
                let messages = if rank == 5 { 150 } else { 5000 };
                for number in 0..messages {
                    router.append(number % 8, &message(rank, number % 8, number, 0, 20), &mut |_| {})?;
                }
                if rank == 5 {
                    return Err(TransportError::PeerGone { rank: 5 }.into());
                }
                router.drain(&mut |_| {})
            });
            for result in results {
                let error = result.unwrap_err();
                let told = matches!(error, RouteError::Abandoned { .. });
                assert!(
                    told || matches!(error, RouteError::Transport(TransportError::PeerGone { .. })),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn a_rank_that_gives_up_says_why() {
    let results = on_ranks(&Topology::even(8, 2), Order::Free, |end| {
        let rank = end.rank();
        let mut router = Router::new(end, settings(Route::ThreeHop, 256, 1), &Pool::new(8 << 20)).unwrap();
        if rank == 6 {
            router.give_up("no room left on the volume");
            thread::sleep(Duration::from_millis(200));
            router.leave();
            return String::new();
        }
        let end = router.drain(&mut |_| {}).unwrap_err().to_string();
        assert_eq!(router.append(0, b"x", &mut |_| {}).unwrap_err().to_string(), end, "failures stay");
        end
    });
    for (rank, text) in results.iter().enumerate().filter(|(rank, _)| *rank != 6) {
        assert!(
            text.contains("rank 6 gave up: no room left on the volume") || text.contains("gone"),
            "{rank}: {text}"
        );
    }
    assert!(results.iter().any(|text| text.contains("no room left")));
}

/// A transport that does not report ranks that are gone; MPI does not either.
struct Blind(Endpoint);

impl Transport for Blind {
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn topology(&self) -> Topology {
        self.0.topology()
    }

    fn send(&mut self, to: u32, lane: Lane, batch: Vec<u8>) -> Result<(), TransportError> {
        match self.0.send(to, lane, batch) {
            Err(TransportError::PeerGone { .. }) => Ok(()),
            other => other,
        }
    }

    fn sent(&mut self) -> Result<Option<Sent>, TransportError> {
        self.0.sent()
    }

    fn receive(&mut self, lane: Lane, into: &mut Vec<u8>) -> Result<Option<u32>, TransportError> {
        self.0.receive(lane, into)
    }

    fn wait(&mut self, most: Duration) -> Result<(), TransportError> {
        match self.0.wait(most) {
            Err(TransportError::PeerGone { .. }) => {
                thread::sleep(Duration::from_millis(1));
                Ok(())
            }
            other => other,
        }
    }

    fn leave(&mut self) {
        self.0.leave();
    }
}

/// Its last word of the agreement is still under way then, to its children in the tree.
#[test]
fn a_rank_that_leaves_right_behind_an_agreement_is_told_to_all() {
    for leaving in [0, 1, 2, 6] {
        let results = on_ranks(&Topology::even(7, 3), Order::OneAtATime { seed: 11 }, |end| {
            let rank = end.rank();
            let blind = Blind(end);
            let mut router =
                Router::new(blind, settings(Route::ThreeHop, 256, 1), &Pool::new(8 << 20)).unwrap();
            router.drain(&mut |_| {})?;
            router.allreduce(PURPOSE, Outcome::Well, &[])?;
            if rank == leaving {
                return Err(TransportError::PeerGone { rank }.into());
            }
            let done = router.drain(&mut |_| {}).and_then(|()| router.allreduce(PURPOSE, Outcome::Well, &[]));
            // Others are still there to be told by this one.
            thread::sleep(Duration::from_millis(300));
            done
        });
        for (rank, result) in (0u32..).zip(results).filter(|(rank, _)| *rank != leaving) {
            let error = result.unwrap_err();
            let told = matches!(&error, RouteError::Abandoned { rank, .. } if *rank == leaving);
            assert!(told, "rank {rank}, as {leaving} left: {error}");
        }
    }
}

/// Ranks that wait for it through others name it, too; no rank that answers is named.
#[test]
fn a_rank_that_is_silent_is_named_by_all_others() {
    thread::scope(|scope| {
        for (ranks, per_node, route) in
            [(4, 2, Route::ThreeHop), (9, 3, Route::ThreeHop), (6, 3, Route::Direct)]
        {
            for silent in [0, 1, ranks - 1] {
                scope.spawn(move || one_is_silent(&Topology::even(ranks, per_node), route, silent));
            }
        }
    });
}

fn one_is_silent(topology: &Topology, route: Route, silent: u32) {
    let patience = Duration::from_millis(1500);
    let results = on_ranks(topology, Order::Free, |end| {
        let (rank, since) = (end.rank(), Instant::now());
        let patient = RoutingSettings { patience, ..settings(route, 256, 1) };
        let mut router = Router::new(end, patient, &Pool::new(8 << 20)).unwrap();
        let done = if rank == silent { Ok(()) } else { router.drain(&mut |_| {}) };
        assert!(since.elapsed() < 2 * patience, "rank {rank}: {:?}", since.elapsed());
        // As a process that is gone without a word: this transport would tell of it, and is not let.
        thread::sleep((3 * patience).saturating_sub(since.elapsed()));
        router.leave();
        done.map_err(|error| error.to_string())
    });
    for (rank, result) in (0u32..).zip(&results).filter(|(rank, _)| *rank != silent) {
        let (text, wanted) = (result.as_ref().unwrap_err(), format!("from rank {silent};"));
        assert!(text.contains(&wanted), "rank {rank}, {silent} of {} is silent: {text}", results.len());
    }
}

#[test]
fn failures_and_different_purposes_are_told_to_all() {
    for (failing, purpose, wanted) in [(true, 1u8, "disk is full"), (false, 2, "do not call the same thing")]
    {
        let results = on_ranks(&Topology::even(7, 3), Order::Free, |end| {
            let rank = end.rank();
            let mut router =
                Router::new(end, settings(Route::ThreeHop, 256, 1), &Pool::new(8 << 20)).unwrap();
            router.drain(&mut |_| {}).unwrap();
            let outcome = match failing && rank == 4 {
                true => Outcome::Failed { code: 28, text: "disk is full".into() },
                false => Outcome::Well,
            };
            let agreement = router.allreduce(if rank == 5 { purpose } else { 1 }, outcome, &[]).unwrap();
            router.leave();
            agreement.failure
        });
        for failure in results {
            assert!(failure.is_some_and(|(_, _, text)| text.contains(wanted)));
        }
    }
}

#[test]
fn messages_that_cannot_be_are_refused_and_nothing_breaks() {
    on_ranks(&Topology::even(2, 1), Order::Free, |end| {
        let mut router = Router::new(end, settings(Route::ThreeHop, 256, 1), &Pool::new(8 << 20)).unwrap();
        let long = router.append(1, &[0; 201], &mut |_| {}).unwrap_err();
        assert!(matches!(long, RouteError::TooLong { bytes: 201, max_bytes: 200 }));
        let nobody = router.append(2, b"", &mut |_| {}).unwrap_err();
        assert!(matches!(nobody, RouteError::NoSuchRank { rank: 2, size: 2 }));
        router.drain(&mut |_| {}).unwrap();
        router.allreduce(PURPOSE, Outcome::Well, &[]).unwrap();
        router.leave();
    });
}

#[test]
fn too_little_memory_names_what_would_do() {
    let end = in_process(&Topology::even(512, 16), Order::Free).swap_remove(0);
    let direct = RoutingSettings { route: Route::Direct, ..RoutingSettings::default() };
    let error = Router::new(end, direct, &Pool::new(8 << 20)).err().unwrap().to_string();
    assert!(error.contains("512 ranks on 32 nodes") && error.contains("by three hops"), "{error}");
}

#[test]
fn a_slow_wire_takes_its_time() {
    let topology = Topology::even(4, 2);
    let speed = WireSpeed { bytes_per_second: 1e6, latency_seconds: 1e-3 };
    let run = || {
        let wire = Wire::new(&topology, speed);
        let counts = on_ranks(&topology, Order::OneAtATime { seed: 1 }, |end| {
            let limited = Limited::new(end, &wire);
            let mut router =
                Router::new(limited, settings(Route::ThreeHop, 1024, 4), &Pool::new(8 << 20)).unwrap();
            send_epochs(&mut router, &Traffic { messages: 1000, longest: 60, skew: 0, epochs: 1, slow: 0 })
                .unwrap();
            router.leave();
            router.counts().clone()
        });
        let out = counts[0].bytes_off_node() + counts[1].bytes_off_node();
        (wire.last_seconds(), out as f64 / speed.bytes_per_second)
    };
    let (seconds, least) = run();
    assert!((least..6.0 * least).contains(&seconds), "{seconds} s, {least} s at least");
    assert_eq!(run().0, seconds, "virtual time is the same in every run");
}

#[test]
fn two_nodes_of_a_machine_that_is_not_there() {
    for ranks in [4096, 131_072] {
        let topology = Topology::even(ranks, 32);
        let settings =
            RoutingSettings { batch_bytes: 4096, max_message_bytes: 64, ..RoutingSettings::default() };
        let sample = sample_two_nodes(&topology, &settings, 8000, 60, &Pool::new(1 << 30)).unwrap();
        assert_eq!(sample.len(), 64);
        let remote = (topology.nodes() - 1) as usize;
        let of_node: usize = sample[..32].iter().map(|rank| rank.remote).sum();
        assert_eq!(of_node, remote, "the ranks of a node share all other nodes");
        for rank in &sample {
            let layout = Layout::new(&topology, rank.rank, &settings);
            assert_eq!(
                (rank.remote, rank.memory_bytes),
                (layout.connections(Lane::Wire), layout.memory_bytes())
            );
            // Each of its connections has sent at least its last batch, and all of them together what the node's
            // ranks have for the nodes it represents, and a little for addresses.
            let wire = rank.counts.hops[1];
            assert!(wire.batches >= rank.remote as u64 && wire.batches_off_node == wire.batches);
            let appended_on_node = rank.counts.appended_bytes as f64 * 32.0;
            let share = appended_on_node * rank.remote as f64 / topology.nodes() as f64;
            let (bytes, headers) = (wire.bytes as f64, 13.0 * wire.batches as f64);
            assert!(((bytes - headers) / share - 1.0).abs() < 0.15, "rank {}: {bytes} of {share}", rank.rank);
            let delivered = rank.counts.delivered as f64 / rank.counts.appended as f64;
            assert!((delivered - 1.0).abs() < 0.15, "{delivered} delivered for each appended");
            assert!(rank.counts.hops[0].bytes_off_node + rank.counts.hops[2].bytes_off_node == 0);
        }
    }
}

#[test]
fn plans_foretell_what_ranks_really_do() {
    let settings = RoutingSettings { batch_bytes: 4096, max_message_bytes: 64, ..RoutingSettings::default() };
    let (messages, bytes) = (8000, 60);
    for ranks in [1024, 4096, 131_072] {
        let topology = Topology::even(ranks, 32);
        let sample = sample_two_nodes(&topology, &settings, messages, bytes, &Pool::new(1 << 30)).unwrap();
        let plan = RoutingJob {
            ranks: u64::from(ranks),
            ranks_per_node: 32,
            batch_bytes: settings.batch_bytes as u64,
            epoch_bytes: messages * bytes as u64,
        };
        let plan = plan.three_hop();
        let most = |each: fn(&SampledRank) -> u64| sample.iter().map(each).max().unwrap();
        assert_eq!(most(|rank| rank.remote as u64), plan.remote_connections);
        assert_eq!(most(|rank| rank.neighbours as u64), plan.local_connections);
        // Beside the batches it fills, a rank has spare ones, the last that came on each lane, and seven words.
        let beside = (settings.spare_batches + 3) * settings.batch_bytes + 7 * 1024;
        assert_eq!(most(|rank| rank.memory_bytes as u64), plan.memory_bytes + beside as u64);
        // Addresses and lengths, and each connection's last batch, come on top.
        let wire = most(|rank| rank.counts.hops[1].batches) as f64;
        let (planned, last) = (plan.remote_messages as f64, plan.remote_connections as f64);
        assert!((0.9 * planned..1.1 * planned + last).contains(&wire), "{wire} batches, {planned} planned");
        let bytes = most(|rank| rank.counts.bytes_off_node()) as f64 / plan.remote_bytes as f64;
        assert!((0.9..1.2).contains(&bytes), "{bytes} of the bytes planned");
    }
}

#[test]
fn the_published_bound_holds_for_ranks_that_really_run() {
    let topology = Topology::even(131_072, 32);
    let settings = RoutingSettings::default();
    let sample = sample_two_nodes(&topology, &settings, 2000, 56, &Pool::new(2 << 30)).unwrap();
    let most = sample.iter().map(|rank| rank.memory_bytes).max().unwrap();
    assert!(most < 16_000_000, "{most} bytes");
}
