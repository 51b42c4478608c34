//! Requests of which an HTTP/2 server says that it has not processed them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use cofferdam_egress::{Egress, EgressConfig, Error, Origin};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::kit::{egress, origin, request, resolving, tls::Authority};

// Types of frames, flags and error codes (RFC 9113, sections 6 and 7).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `:status: 200`, an entry of the static table of HPACK.
const STATUS_200: &[u8] = &[0x88];

/// What the server sends after the request with a number, counted over all connections, has arrived
/// on a stream. It ends the connection if this is false.
type Script = fn(usize, u32) -> (Vec<u8>, bool);

/// A server that speaks frames. It runs until it is dropped.
struct FrameServer {
    egress: Egress,
    origin: Origin,
    counts: Arc<Counts>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl FrameServer {
    async fn start(script: Script) -> Self {
        let authority = Authority::new();
        let acceptor = authority.acceptor("api.test", &["h2"]);
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
        let origin = origin(&format!("https://api.test:{}/v1", listener.local_addr().unwrap().port()));
        let config = EgressConfig { roots: vec![authority.pem()], ..resolving("api.test", &["127.0.0.1"]) };
        let counts = Arc::<Counts>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, acceptor, script, Arc::clone(&counts)));
        Self { egress: egress(&config), origin, counts, _tasks: tasks }
    }

    async fn ask(&self) -> Result<(), Error> {
        let reply = self.egress.send(request(&self.origin)).await?;
        assert_eq!(reply.body.collect(16).await?, "fine");
        Ok(())
    }

    /// How many requests and connections have arrived.
    fn counts(&self) -> (usize, usize) {
        let Counts { requests, connections } = &*self.counts;
        (requests.load(Ordering::SeqCst), connections.load(Ordering::SeqCst))
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, script: Script, counts: Arc<Counts>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        counts.connections.fetch_add(1, Ordering::SeqCst);
        let stream = acceptor.accept(stream).await.unwrap();
        let counts = Arc::clone(&counts);
        // The client may close the connection at any time.
        connections.spawn(async move { drop(serve(stream, script, &counts).await) });
    }
}

async fn serve<S>(mut stream: S, script: Script, counts: &Counts) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.read_exact(&mut [0; PREFACE.len()]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, id @ ..] = head;
        stream.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await?;
        let id = u32::from_be_bytes(id);
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            HEADERS | DATA if flags & END_STREAM != 0 => {
                let number = counts.requests.fetch_add(1, Ordering::SeqCst) + 1;
                let (frames, goes_on) = script(number, id);
                stream.write_all(&frames).await?;
                if !goes_on {
                    return stream.shutdown().await;
                }
            }
            _ => {}
        }
        stream.flush().await?;
    }
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &id.to_be_bytes(), payload].concat()
}

fn fine(id: u32) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, id, STATUS_200), frame(DATA, END_STREAM, id, b"fine")].concat()
}

fn reset(id: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, id, &code.to_be_bytes())
}

/// The streams after `last` are not processed.
fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// A script, the outcome of the second request, and how many requests and connections arrived.
type Case = (&'static str, Script, Result<(), Error>, (usize, usize));

async fn check(cases: &[Case]) {
    for (name, script, outcome, counts) in cases {
        let server = FrameServer::start(*script).await;
        server.ask().await.unwrap();
        assert_eq!(server.ask().await, *outcome, "{name}");
        assert_eq!(server.counts(), *counts, "{name}");
    }
}

#[tokio::test]
async fn request_that_was_not_processed_is_sent_once_more() {
    let shut: Script = |number, id| match number {
        2 => (go_away(id - 2, NO_ERROR), true),
        _ => (fine(id), true),
    };
    let refused: Script = |number, id| match number {
        2 => (reset(id, REFUSED_STREAM), true),
        _ => (fine(id), true),
    };
    check(&[("GOAWAY", shut, Ok(()), (3, 2)), ("REFUSED_STREAM", refused, Ok(()), (3, 1))]).await;
}

#[tokio::test]
async fn request_is_not_sent_a_third_time() {
    let shut: Script = |number, id| match number {
        1 => (fine(id), true),
        _ => (go_away(id.saturating_sub(2), NO_ERROR), true),
    };
    let refused: Script = |number, id| match number {
        1 => (fine(id), true),
        _ => (reset(id, REFUSED_STREAM), true),
    };
    let outcome = Err(Error::Broken);
    check(&[("GOAWAY", shut, outcome, (3, 2)), ("REFUSED_STREAM", refused, outcome, (3, 1))]).await;
}

#[tokio::test]
async fn request_that_may_have_been_processed_is_not_sent_again() {
    let included: Script = |number, id| match number {
        2 => (go_away(id, NO_ERROR), false),
        _ => (fine(id), true),
    };
    let calmed: Script = |number, id| match number {
        2 => (go_away(id - 2, ENHANCE_YOUR_CALM), true),
        _ => (fine(id), true),
    };
    let failed: Script = |number, id| match number {
        2 => (reset(id, INTERNAL_ERROR), true),
        _ => (fine(id), true),
    };
    let (outcome, counts) = (Err(Error::Broken), (2, 1));
    check(&[
        ("GOAWAY that includes it", included, outcome, counts),
        ("GOAWAY with an error", calmed, outcome, counts),
        ("INTERNAL_ERROR", failed, outcome, counts),
    ])
    .await;
}

#[tokio::test]
async fn answer_on_a_connection_that_takes_no_more_requests_is_read_to_its_end() {
    let script: Script = |number, id| match number {
        1 => (frame(HEADERS, END_HEADERS, id, STATUS_200), true),
        2 => ([go_away(1, NO_ERROR), frame(DATA, END_STREAM, 1, b"fine")].concat(), true),
        _ => (fine(id), true),
    };
    let server = FrameServer::start(script).await;
    let first = server.egress.send(request(&server.origin)).await.unwrap();
    server.ask().await.unwrap();
    assert_eq!(first.body.collect(16).await.unwrap(), "fine");
    assert_eq!(server.counts(), (3, 2));
}
