//! Whole runs, with all peers in this process.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::*;

const SECRET: &[u8] = b"a secret of the tests of this file";

fn request(peers: Peers) -> NetRequest {
    NetRequest {
        peers,
        bytes: 1 << 20,
        block_bytes: 16 << 10,
        connections: vec![1],
        sweep: false,
        memory_bytes: None,
        wait_seconds: 10.0,
    }
}

fn quiet(request: &NetRequest) -> Result<NetReport, NetError> {
    run(request, &Arc::default(), &Silent)
}

/// Free addresses of this machine.
fn addresses(count: usize) -> Vec<String> {
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
}

fn listed(list: &[String], rank: usize, secret: &[u8]) -> Peers {
    Peers::Listed {
        listen: list[rank].clone(),
        name: None,
        list: list.to_vec(),
        token: Token::new(secret).unwrap(),
    }
}

/// The results of peers that run at the same time.
fn all(requests: Vec<NetRequest>) -> Vec<Result<NetReport, NetError>> {
    let running: Vec<_> =
        requests.into_iter().map(|request| std::thread::spawn(move || quiet(&request))).collect();
    running.into_iter().map(|peer| peer.join().unwrap()).collect()
}

#[test]
fn every_number_of_connections_and_peers_is_measured() {
    let many = NetRequest { connections: vec![1, 2, 3, 4], sweep: true, ..request(Peers::Local(3)) };
    let report = quiet(&many).unwrap();
    let rounds: Vec<(u32, u32)> =
        report.rounds.iter().map(|round| (round.peers, round.connections)).collect();
    assert_eq!(rounds, [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (3, 4)]);
    for round in &report.rounds {
        assert_eq!(round.rates.members.len(), round.peers as usize);
        assert!(round.rates.members.iter().all(|member| member.bytes_per_s > 0.0));
        assert!(round.rates.slowest.bytes_per_s <= round.rates.mean);
    }
    assert!(report.local && report.predicted_seconds > 0.0);
    let model = report.model.unwrap();
    assert!(model.fitted.own_cost && model.rates[0].peers == 4);
}

#[test]
fn all_peers_get_the_report_of_the_first() {
    let list = addresses(3);
    let results = all((0..3).map(|rank| request(listed(&list, rank, SECRET))).collect());
    let reports: Vec<NetReport> = results.into_iter().map(|result| result.unwrap()).collect();
    // A number that crosses the network as text may differ in its last bit.
    let rates = |report: &NetReport| {
        let members = report.rounds.iter().flat_map(|round| &round.rates.members);
        members.map(|member| (member.name.clone(), member.bytes_per_s.round() as u64)).collect::<Vec<_>>()
    };
    assert_eq!(rates(&reports[0]).len(), 3);
    for report in &reports {
        assert_eq!(rates(report), rates(&reports[0]));
        assert_eq!(report.peers, list);
    }
}

#[test]
fn another_token_is_an_error_on_both_sides() {
    let list = addresses(2);
    let results = all(vec![
        request(listed(&list, 0, SECRET)),
        request(listed(&list, 1, b"another secret of these tests")),
    ]);
    for (result, other) in results.into_iter().zip([&list[1], &list[0]]) {
        let error = result.unwrap_err();
        assert!(matches!(error, NetError::Refused { refusal: Refusal::Token, .. }), "{error}");
        assert!(error.to_string().contains(other.as_str()), "{error}");
    }
}

#[test]
fn other_parameters_are_named_on_both_sides() {
    let list = addresses(2);
    let other = NetRequest { bytes: 2 << 20, ..request(listed(&list, 1, SECRET)) };
    for result in all(vec![request(listed(&list, 0, SECRET)), other]) {
        let told = result.unwrap_err().to_string();
        assert!(told.contains("--bytes 2097152b instead of 1048576b") && told.contains(&list[1]), "{told}");
    }
}

#[test]
fn another_order_of_the_list_is_named() {
    let list = addresses(2);
    let turned = vec![list[1].clone(), list[0].clone()];
    let mut second = request(listed(&turned, 0, SECRET));
    second.wait_seconds = 1.0;
    let mut first = request(listed(&list, 0, SECRET));
    first.wait_seconds = 1.0;
    // Both take themselves for the first, and wait for the other.
    for result in all(vec![first, second]) {
        assert!(matches!(result.unwrap_err(), NetError::Missing { .. }));
    }
}

#[test]
fn missing_peers_are_named() {
    let list = addresses(3);
    let short = |rank| NetRequest { wait_seconds: 1.0, ..request(listed(&list, rank, SECRET)) };
    let results = all(vec![short(0), short(1)]);
    for result in results {
        let told = result.unwrap_err().to_string();
        assert!(told.contains(&list[2]) && !told.contains(&format!("{}, {}", list[1], list[2])), "{told}");
    }
    let told = quiet(&short(1)).unwrap_err().to_string();
    assert!(told.contains("missing") && told.contains(&list[0]), "{told}");
}

#[test]
fn a_port_in_use_is_named() {
    let list = addresses(2);
    let _held = TcpListener::bind(&list[0]).unwrap();
    let told = quiet(&request(listed(&list, 0, SECRET))).unwrap_err().to_string();
    assert!(told.contains(&list[0]) && told.contains("another program listens"), "{told}");
}

#[test]
fn callers_that_are_no_peers_do_not_disturb_a_run() {
    let list = addresses(2);
    let first = request(listed(&list, 0, SECRET));
    let running = std::thread::spawn(move || quiet(&first));
    let mut strangers = Vec::new();
    while strangers.len() < 3 {
        if let Ok(mut stranger) = TcpStream::connect(&list[0]) {
            stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            strangers.push(stranger);
        }
    }
    quiet(&request(listed(&list, 1, SECRET))).unwrap();
    running.join().unwrap().unwrap();
}

#[test]
fn a_cancelled_run_ends_soon_and_the_others_name_the_peer() {
    let list = addresses(2);
    let cancel = Arc::new(AtomicBool::new(false));
    let long = |rank| NetRequest { bytes: 1 << 40, ..request(listed(&list, rank, SECRET)) };
    let (first, second) = (long(0), long(1));
    let own = Arc::clone(&cancel);
    let cancelled = std::thread::spawn(move || run(&second, &own, &Silent));
    let other = std::thread::spawn(move || quiet(&first));
    std::thread::sleep(Duration::from_millis(500));
    let since = Instant::now();
    cancel.store(true, Ordering::Relaxed);
    assert!(matches!(cancelled.join().unwrap(), Err(NetError::Cancelled)));
    let told = other.join().unwrap().unwrap_err().to_string();
    assert!(told.contains(&format!("{} was interrupted", list[1])), "{told}");
    assert!(since.elapsed() < Duration::from_secs(8));
}

#[test]
fn buffers_that_memory_does_not_hold_are_refused() {
    let small = NetRequest { memory_bytes: Some(16 << 10), ..request(Peers::Local(2)) };
    let told = quiet(&small).unwrap_err().to_string();
    assert!(told.contains("--memory 16 KiB") && told.contains("32 KiB"), "{told}");
    assert!(quiet(&request(Peers::Local(1))).is_err() && quiet(&request(Peers::Local(99))).is_err());
}
