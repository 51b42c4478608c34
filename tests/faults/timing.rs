//! Measures whether the time of a refusal reveals which half of a token was wrong. The result is
//! printed, not asserted. Run it on a quiet machine with `cargo test -p cofferdam --test all
//! time_of_a_401 -- --ignored --nocapture`.

use crate::kit::host::{Host, Setup};
use crate::kit::random::{Random, seed};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

const SAMPLES: usize = 10_000;
/// Requests from one address; fewer than its limit of failed authentications.
const FROM_ONE: usize = 50;

#[test]
#[ignore = "a measurement for a quiet machine; it asserts nothing"]
fn time_of_a_401_does_not_reveal_whether_the_id_exists() {
    let host = Setup::new().start();
    // One id is unknown, the other is known with a wrong secret; both tokens have a valid checksum.
    let stranger = Setup::new().start();
    let unknown = stranger.key.clone();
    let wrong = with_id_of(&host.key, &unknown);
    let mut times = [Vec::new(), Vec::new()];
    let mut socket = connect(&host, 0);
    let mut random = Random::new(seed());
    for number in 0..2 * SAMPLES {
        if number % FROM_ONE == 0 {
            socket = connect(&host, number / FROM_ONE);
            // The first request on a connection has additional cost, so it is not measured.
            ask(&mut socket, &unknown);
        }
        let kind = random.below(2) as usize;
        let begin = Instant::now();
        assert!(ask(&mut socket, [&unknown, &wrong][kind]).starts_with("HTTP/1.1 401"));
        times[kind].push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let [unknown, wrong] = times.map(summary);
    let error = (unknown.1 / unknown.2 + wrong.1 / wrong.2).sqrt();
    let t = (unknown.0 - wrong.0) / error;
    println!(
        "unknown id {:.2} us, wrong secret {:.2} us, t = {t:.2} (beyond 3 they differ)",
        unknown.0, wrong.0
    );
}

/// The id of one token with the secret of another and a valid checksum, so that the host finds a
/// known id.
fn with_id_of(known: &str, other: &str) -> String {
    let part = |token: &str, number| token.split('_').nth(number).unwrap().to_owned();
    let body = format!("cfd_{}_{}", part(known, 1), part(other, 2));
    let mut crc = crc32(body.as_bytes());
    let mut digits = [0; 6];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[crc as usize % 62];
        crc /= 62;
    }
    let token = format!("{body}_{}", String::from_utf8(digits.to_vec()).unwrap());
    assert_eq!(token.len(), known.len());
    token
}

fn crc32(bytes: &[u8]) -> u32 {
    let bits = |value: u32, _| (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bits))
}

/// A connection from another loopback address, because failed authentications are limited by
/// address.
fn connect(host: &Host, number: usize) -> TcpStream {
    let address: SocketAddr =
        host.base.trim_start_matches("http://").trim_end_matches("/v1").parse().unwrap();
    let from = Ipv4Addr::new(127, 1, (number / 250) as u8, (number % 250) as u8 + 1);
    let workers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let socket = workers.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    socket.set_nonblocking(false).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

fn ask(socket: &mut TcpStream, token: &str) -> String {
    let request = format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = socket.read(&mut chunk).unwrap();
        assert!(count > 0, "the connection ended");
        answer.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            return String::from_utf8(answer).unwrap();
        }
    }
}

/// Mean, variance and number of the samples. The slowest twentieth is left out as noise of the
/// machine.
fn summary(mut times: Vec<f64>) -> (f64, f64, f64) {
    times.sort_by(f64::total_cmp);
    times.truncate(times.len() / 20 * 19);
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, variance, count)
}
