//! What one address and one key may take of a host: connections, and processor time of tools.

use super::{PATIENCE, limits, other_key};
use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::upstream::{Asked, Reply, Upstream};
use crate::tools::script::{Call, answer, call, calls};
use crate::tools::told;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An address of this machine other than loopback. Connecting a UDP socket sends nothing and only
/// chooses its own address; the other one is reserved for documentation (RFC 5737).
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// A connection on which the host has answered; `None` where the host has closed it.
async fn connection(address: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /v1/models HTTP/1.1\r\nHost: host.test\r\n\r\n").await.ok()?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.ok()?;
    assert_eq!(&head, b"HTTP/1.1 401");
    Some(stream)
}

/// A host that takes two connections of an address, and its port.
fn limited(config: &str) -> (Host, u16) {
    let config = limits("connections_per_address = 2") + config;
    let host = Setup::new().listen("0.0.0.0:0").config(&config).start();
    let address: SocketAddr = host.banner["listen"].as_str().unwrap().parse().unwrap();
    (host, address.port())
}

#[tokio::test]
async fn connections_of_an_address_are_limited_unless_it_is_loopback_or_a_trusted_proxy() {
    let Some(address) = outer_address() else {
        eprintln!("SKIPPED: this machine has only loopback addresses, whose connections are not limited");
        return;
    };
    let (host, port) = limited("");
    let outer = SocketAddr::new(address, port);
    let held = [connection(outer).await.unwrap(), connection(outer).await.unwrap()];
    for _ in 0..3 {
        assert!(connection(outer).await.is_none(), "a third connection was served");
    }
    Admin::new(&host).until_metric("cofferdam_connections_refused_total", 3).await;
    host.until_logged("connections of this address are refused");
    let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let mut inner = Vec::new();
    for _ in 0..4 {
        inner.push(connection(loopback).await.unwrap());
    }
    drop(held);
    let end = Instant::now() + PATIENCE;
    while connection(outer).await.is_none() {
        assert!(Instant::now() < end, "closed connections still count");
    }

    let (_host, port) = limited(&format!("[server]\ntrusted_proxies = [\"{address}/32\"]\n"));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(connection(SocketAddr::new(address, port)).await.unwrap());
    }
}

#[tokio::test]
async fn one_address_leaves_connections_to_the_admin_listener() {
    let Some(address) = outer_address() else {
        eprintln!("SKIPPED: this machine has only loopback addresses, whose connections are not limited");
        return;
    };
    let host = Setup::new().admin("0.0.0.0:0").start();
    let port = host.banner["admin"].as_str().unwrap().parse::<SocketAddr>().unwrap().port();
    let outer = SocketAddr::new(address, port);
    let healthy = async |address| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: host.test\r\n\r\n").await.ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.ok()?;
        assert_eq!(&head, b"HTTP/1.1 200");
        Some(stream)
    };
    let mut held = Vec::new();
    while let Some(stream) = healthy(outer).await {
        held.push(stream);
        assert!(held.len() <= 16, "one address has {} connections", held.len());
    }
    let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    assert!(healthy(loopback).await.is_some());
}

/// The turns of a model that makes six long calls when it is asked for many, and else a short one.
fn turn(asked: &Asked) -> Reply {
    let streamed = asked.body["stream"] == true;
    if !told(asked).is_empty() {
        return answer(streamed, "done");
    }
    let ids: Vec<String> = (0..CALLS).map(|place| format!("c{place}")).collect();
    let hanging: Vec<Call<'_>> = ids.iter().map(|id| call(id, "hang", "{}")).collect();
    match asked.body["messages"][0]["content"] == "many" {
        true => calls(streamed, "", &hanging),
        false => calls(streamed, "", &[call("c", "echo", r#"{"text":"x"}"#)]),
    }
}

const CALLS: u32 = 6;
/// The processor time of each long call.
const TIME: Duration = Duration::from_millis(500);

/// At most half of the processors run tools of one key, however many calls its model makes.
#[tokio::test]
async fn tool_calls_of_one_key_leave_processors_to_other_keys() {
    let upstream = Upstream::start().await;
    let guests = folder(&["tool-rogue"]);
    let grant =
        format!("[plugins.tool-rogue]\nimports = [\"request\"]\ndeadline_ms = {}\n", TIME.as_millis());
    let config = single("openai-chat", &upstream.base) + &grant;
    let host = Setup::new().config(&config).plugins(guests.path()).start();
    let (greedy, other) = (Client::new(&host), Client::with_key(&host, &other_key(&host)));
    let request = |input: &str| json!({"model": MODEL, "input": input, "tools": [{"type": "service:rogue"}]});
    let (many, one) = (request("many"), request("one"));
    upstream.always(turn);
    // The plugin is compiled for its first call.
    other.ask(&one, false).await;

    let mut events = greedy.open(&many).await;
    let mut ends = Vec::new();
    let running = async {
        while ends.len() < CALLS as usize {
            let done = events.until("response.output_item.done").await;
            assert_eq!(done["item"]["status"], "failed", "{done}");
            ends.push(Instant::now());
        }
    };
    let meanwhile = async {
        upstream.until_asked(3).await;
        let response = other.ask(&one, false).await;
        assert_eq!(response["output"][0]["status"], "completed", "{response}");
        let ended = upstream.asked().iter().any(|asked| told(asked).len() == CALLS as usize);
        assert!(!ended, "the other key has waited for all of these calls");
    };
    tokio::join!(running, meanwhile);
    // A call begins when an earlier one ends, and takes its processor time then. The half allows for
    // events that arrive late.
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let at_once = (processors / 2).max(1);
    let gaps: Vec<_> = ends.windows(at_once + 1).map(|ends| ends[at_once] - ends[0]).collect();
    assert!(gaps.iter().all(|gap| *gap >= TIME / 2), "more than {at_once} ran at once: {gaps:?}");
}
