//! Clients that write the frames of HTTP/2 themselves, and clients that never read.

use crate::kit::beside::Calm;
use crate::kit::client::Client;
use crate::kit::host::{Host, Setup};
use crate::kit::raw::Raw;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// How long a host may take to answer or to end a connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection of HTTP/2 without a library.
struct Http2 {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A length with a prefix of 7 bits (RFC 7541, 5.1).
fn length(value: usize) -> Vec<u8> {
    let Some(mut rest) = value.checked_sub(127) else { return vec![u8::try_from(value).unwrap()] };
    let mut bytes = vec![127];
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

/// A header that is not compressed; `indexed` adds it to the table of the connection.
fn literal(indexed: bool, name: &str, value: &str) -> Vec<u8> {
    let kind = if indexed { 0x40 } else { 0 };
    [vec![kind], length(name.len()), name.as_bytes().to_vec(), length(value.len()), value.as_bytes().to_vec()]
        .concat()
}

/// The headers of a request, and more of them.
fn head(host: &Host, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let authorization = format!("Bearer {}", host.key);
    let usual = [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("authorization", authorization.as_str()),
    ];
    usual.iter().chain(more).flat_map(|(name, value)| literal(false, name, value)).collect()
}

impl Http2 {
    async fn connect(host: &Host, settings: &[u8]) -> Self {
        let address = host.base.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
        let (reader, writer) = TcpStream::connect(address).await.unwrap().into_split();
        let mut connection = Self { reader, writer };
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        assert!(connection.send(&[preface, frame(SETTINGS, 0, 0, settings)].concat()).await);
        connection
    }

    /// Sends bytes; false if the host has closed the connection.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        self.writer.write_all(bytes).await.is_ok()
    }

    /// The next frame; `None` at the end of the connection.
    async fn next(&mut self) -> Option<Frame> {
        next(&mut self.reader).await
    }

    /// The first frame of a response or of a refusal.
    async fn outcome(&mut self) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if matches!(frame.kind, HEADERS | RST_STREAM | GOAWAY) {
                return Some(frame);
            }
        }
    }
}

async fn next(reader: &mut OwnedReadHalf) -> Option<Frame> {
    let mut head = [0; 9];
    reader.read_exact(&mut head).await.ok()?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]).try_into().unwrap()];
    reader.read_exact(&mut payload).await.ok()?;
    Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
}

/// Reads to the end of a connection; returns the code of the last `GOAWAY`, if one came.
async fn farewell(mut reader: OwnedReadHalf) -> Option<u32> {
    let mut code = None;
    while let Some(frame) = next(&mut reader).await {
        if frame.kind == GOAWAY {
            code = frame.payload.get(4..8).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
        }
    }
    code
}

/// Sends pieces until the host closes the connection; returns how many bytes it took.
async fn flood(writer: &mut OwnedWriteHalf, pieces: impl Iterator<Item = Vec<u8>>) -> (usize, bool) {
    let mut sent = 0;
    for piece in pieces {
        if writer.write_all(&piece).await.is_err() {
            return (sent, true);
        }
        sent += piece.len();
    }
    (sent, false)
}

/// A host with a well-behaved provider.
async fn host() -> (Host, Calm) {
    let calm = Calm::start().await;
    (Setup::new().config(&calm.config()).start(), calm)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_reset_at_once_leave_nothing_running() {
    let (host, calm) = host().await;
    let watch = calm.watch(&host).await;
    let asked = calm.asked();
    for (what, ends) in
        [("unfinished requests that are reset", 0), ("whole requests that are reset", END_STREAM)]
    {
        let path = if ends == 0 { "/v1/responses" } else { "/v1/models" };
        let method = if ends == 0 { "POST" } else { "GET" };
        let opened_and_reset = |place: u32| {
            let stream = place * 2 + 1;
            let opened = frame(HEADERS, END_HEADERS | ends, stream, &head(&host, method, path, &[]));
            [opened, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        };
        let reset = async {
            let Http2 { reader, mut writer } = Http2::connect(&host, &[]).await;
            let read = tokio::spawn(farewell(reader));
            let pieces = (0..20_000_u32).map(opened_and_reset);
            let (sent, closed) = flood(&mut writer, pieces).await;
            drop(writer);
            let code = tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
            println!("{what}: {sent} bytes were taken, closed by the host: {closed}, code {code:?}");
        };
        watch.beside(what, reset).await;
    }
    // Two streams of the watch itself.
    assert_eq!(calm.asked(), asked + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_without_end_close_the_connection() {
    let (host, calm) = host().await;
    let watch = calm.watch(&host).await;
    let flooded = async {
        let Http2 { reader, mut writer } = Http2::connect(&host, &[]).await;
        let read = tokio::spawn(farewell(reader));
        let begin = frame(HEADERS, 0, 1, &head(&host, "POST", "/v1/responses", &[]));
        let filler = literal(false, "x-filler", &"x".repeat(16_000));
        let more = std::iter::repeat_n(frame(CONTINUATION, 0, 1, &filler), 8_000);
        let (sent, closed) = flood(&mut writer, std::iter::once(begin).chain(more)).await;
        assert!(closed, "{sent} bytes of headers were taken");
        drop(writer);
        (sent, tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap())
    };
    let (sent, code) = watch.beside("headers without end", flooded).await;
    println!("{sent} bytes were sent before the end, code {code:?}");
    let empty = async {
        let Http2 { reader, mut writer } = Http2::connect(&host, &[]).await;
        let read = tokio::spawn(farewell(reader));
        let begin = frame(HEADERS, 0, 1, &head(&host, "POST", "/v1/responses", &[]));
        let more = std::iter::repeat_n(frame(CONTINUATION, 0, 1, b"").repeat(1_000), 5_000);
        let (sent, closed) = flood(&mut writer, std::iter::once(begin).chain(more)).await;
        assert!(closed, "{sent} bytes of empty frames were taken");
        drop(writer);
        (sent, tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap())
    };
    let (sent, code) = watch.beside("empty frames without end", empty).await;
    println!("{sent} bytes were sent before the end, code {code:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_grow_when_they_are_decoded_are_refused() {
    let (host, calm) = host().await;
    let watch = calm.watch(&host).await;
    let bomb = async {
        let mut connection = Http2::connect(&host, &[]).await;
        let mut headers = head(&host, "GET", "/v1/models", &[]);
        headers.extend(literal(true, "x-bomb", &"x".repeat(3_900)));
        // Each of these bytes stands for the header above: 47 MB when decoded.
        headers.extend(std::iter::repeat_n(0x80 | 62, 12_000));
        assert!(connection.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers)).await);
        let outcome = tokio::time::timeout(PATIENCE, connection.outcome()).await.unwrap();
        refused("headers that grow", outcome);
    };
    watch.beside("headers that grow", bomb).await;
}

/// A response whose status is not 200, a reset stream, or the end of the connection.
fn refused(what: &str, outcome: Option<Frame>) {
    let Some(frame) = outcome else { return println!("{what}: the connection ends") };
    let is_ok = frame.kind == HEADERS && frame.payload.first() == Some(&0x88);
    assert!(!is_ok, "{what}: status 200 on stream {}, flags {}", frame.stream, frame.flags);
    let told = ["data", "a response", "", "a reset stream", "", "", "", "the end of the connection"];
    println!("{what}: {}", told.get(usize::from(frame.kind)).unwrap_or(&""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_two_meanings_reach_no_provider() {
    let (host, calm) = host().await;
    let watch = calm.watch(&host).await;
    let asked = calm.asked();
    let body = br#"{"model":"calm/m","input":"smuggled"}"#;
    let table: [(&str, &[(&str, &str)]); 12] = [
        ("an encoding of HTTP/1.1", &[("transfer-encoding", "chunked")]),
        ("a header of the connection", &[("connection", "keep-alive")]),
        ("an upgrade", &[("upgrade", "h2c")]),
        ("a length that is too short", &[("content-length", "5")]),
        ("a length that is too long", &[("content-length", "5000")]),
        ("a length that is no number", &[("content-length", "+37")]),
        ("two lengths", &[("content-length", "37"), ("content-length", "5")]),
        ("a line end in a value", &[("x-a", "b\r\nx-smuggled: 1")]),
        ("a zero byte in a value", &[("x-a", "b\0c")]),
        ("a name in capitals", &[("X-Capital", "1")]),
        ("a name with a colon", &[("x:y", "1")]),
        ("a second path behind other headers", &[(":path", "/v1/models")]),
    ];
    for (what, more) in table {
        let sent = async {
            let mut connection = Http2::connect(&host, &[]).await;
            let more = [&[("content-type", "application/json")], more].concat();
            let headers = head(&host, "POST", "/v1/responses", &more);
            let opened = frame(HEADERS, END_HEADERS, 1, &headers);
            assert!(connection.send(&[opened, frame(DATA, END_STREAM, 1, body)].concat()).await);
            refused(what, tokio::time::timeout(PATIENCE, connection.outcome()).await.unwrap());
        };
        watch.beside(what, sent).await;
    }
    for path in ["/v1/responses HTTP/1.1\r\nx: y", "/v1/res ponses", "v1/responses", "*", ""] {
        let mut connection = Http2::connect(&host, &[]).await;
        let opened = frame(HEADERS, END_HEADERS, 1, &head(&host, "POST", path, &[]));
        assert!(connection.send(&[opened, frame(DATA, END_STREAM, 1, body)].concat()).await);
        refused(path, tokio::time::timeout(PATIENCE, connection.outcome()).await.unwrap());
    }
    assert_eq!(calm.asked(), asked + table.len(), "only the streams of the watch were sent");
}

/// Whether the host took what was sent.
async fn in_time(sent: impl Future<Output = bool>) -> bool {
    tokio::time::timeout(Duration::from_millis(200), sent).await == Ok(true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_read_hold_nothing_after_they_left() {
    let (host, calm) = host().await;
    let watch = calm.watch(&host).await;
    let pings = async {
        let mut connection = Http2::connect(&host, &[]).await;
        let pieces = [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])].concat().repeat(1_000);
        // The host stops reading when it cannot write its answers.
        let mut left = 200;
        while left > 0 && in_time(connection.send(&pieces)).await {
            left -= 1;
        }
    };
    watch.beside("pings without end", pings).await;
    let closed_windows = async {
        // SETTINGS_INITIAL_WINDOW_SIZE = 0: no body may be sent.
        let mut connection = Http2::connect(&host, &[0, 4, 0, 0, 0, 0]).await;
        let headers = head(&host, "GET", "/v1/models", &[]);
        let request = |place: u32| frame(HEADERS, END_HEADERS | END_STREAM, place * 2 + 1, &headers);
        assert!(connection.send(&(0..200).flat_map(request).collect::<Vec<u8>>()).await);
        let mut answered = 0;
        while answered < 200 {
            answered += u32::from(connection.next().await.unwrap().kind == HEADERS);
        }
    };
    watch.beside("200 answers that are not taken", closed_windows).await;
    let pipelined = async {
        let mut raw = Raw::connect(&host).await;
        let request =
            format!("GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", host.key);
        let requests = request.repeat(1_000);
        let mut left = 50;
        while left > 0 && in_time(raw.send(requests.as_bytes())).await {
            left -= 1;
        }
    };
    watch.beside("pipelined requests whose answers are not taken", pipelined).await;
    assert_eq!(Client::new(&host).get("/models").await.status, 200);
}
