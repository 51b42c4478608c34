//! Answers that are slow, cut short or too long, and servers that are gone.

use std::time::Duration;

use bytes::Bytes;
use cofferdam_egress::{Error, ExchangeLimits, Outgoing, Reply, ReplyBody, Unreached};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::kit::{LIMITS, PATIENCE, Server, config, egress, ok, origin, read_head, request};

/// Short enough to wait for, long enough for a loopback exchange on a busy machine.
const SHORT: Duration = Duration::from_millis(200);

async fn send(server: &Server, limits: ExchangeLimits) -> Result<Reply, Error> {
    let origin = origin(&server.url());
    egress(&config()).send(Outgoing { limits, ..request(&origin) }).await
}

/// Sends the bytes, then closes the connection.
async fn say(mut stream: TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
}

/// Sends the bytes, then waits until the client closes the connection.
async fn say_and_stay(mut stream: TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    let _gone = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn port_without_a_listener_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = origin(&format!("http://{}/v1", listener.local_addr().unwrap()));
    drop(listener);
    let error = egress(&config()).send(request(&origin)).await.unwrap_err();
    assert_eq!(error, Error::Unreachable(Unreached::Refused));
    assert!(error.is_connect());
}

#[tokio::test]
async fn connection_cut_before_the_head_is_broken() {
    let server = Server::script(|stream| say(stream, b"")).await;
    let error = send(&server, LIMITS).await.unwrap_err();
    assert_eq!(error, Error::Broken);
    assert!(!error.is_connect());
    assert_eq!(server.connections(), 1, "a request is sent once");
}

#[tokio::test]
async fn answer_that_is_not_http_is_broken() {
    let server = Server::script(|stream| say(stream, b"SSH-2.0-hello\r\n\r\n")).await;
    assert_eq!(send(&server, LIMITS).await.unwrap_err(), Error::Broken);
}

#[tokio::test]
async fn connection_cut_inside_the_body_is_broken() {
    let counted =
        Server::script(|stream| say(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort")).await;
    let chunked = Server::script(|stream| {
        say(stream, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n")
    })
    .await;
    for server in [counted, chunked] {
        let mut body = send(&server, LIMITS).await.unwrap().body;
        assert_eq!(body.chunk().await.unwrap().unwrap(), "short");
        assert_eq!(body.chunk().await, Err(Error::Broken));
        assert_eq!(body.chunk().await, Err(Error::Broken), "an error is repeated");
        assert_eq!(send(&server, LIMITS).await.unwrap().body.collect(64).await, Err(Error::Broken));
    }
}

#[tokio::test]
async fn silence_before_the_head_times_out() {
    let server = Server::script(|stream| say_and_stay(stream, b"")).await;
    let error = send(&server, ExchangeLimits { head: SHORT, ..LIMITS }).await.unwrap_err();
    assert_eq!(error, Error::TimedOut);
    assert!(!error.is_connect(), "the server may have the request");
}

#[tokio::test]
async fn silence_inside_the_body_times_out() {
    let server =
        Server::script(|stream| say_and_stay(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"))
            .await;
    let mut body = send(&server, ExchangeLimits { idle: SHORT, ..LIMITS }).await.unwrap().body;
    assert_eq!(body.chunk().await.unwrap().unwrap(), "short");
    assert_eq!(body.chunk().await, Err(Error::TimedOut));
    assert_eq!(body.chunk().await, Err(Error::TimedOut));
}

/// Six pauses together are longer than the idle time `PATIENT`. One is much shorter, also on a busy
/// machine.
const PAUSE: Duration = Duration::from_millis(120);
const PATIENT: Duration = Duration::from_millis(600);

async fn drip(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n").await.unwrap();
    for _ in 0..6 {
        // The client sends nothing, so this only waits.
        let pause = tokio::time::timeout(PAUSE, stream.read_u8()).await;
        assert!(pause.is_err());
        stream.write_all(b".").await.unwrap();
    }
}

#[tokio::test]
async fn idle_time_restarts_with_every_chunk() {
    let server = Server::script(drip).await;
    let body = send(&server, ExchangeLimits { idle: PATIENT, ..LIMITS }).await.unwrap().body;
    assert_eq!(body.collect(6).await.unwrap(), "......");
}

#[tokio::test]
async fn slow_connect_is_unreachable() {
    // A listener that never accepts completes TCP handshakes, but no TLS handshake.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = origin(&format!("https://{}/v1", listener.local_addr().unwrap()));
    let config = cofferdam_egress::EgressConfig { connect_timeout: SHORT, ..config() };
    let error = egress(&config).send(request(&origin)).await.unwrap_err();
    assert_eq!(error, Error::Unreachable(Unreached::TimedOut));
}

#[tokio::test]
async fn long_answers_are_too_large() {
    let announced =
        Server::script(|stream| say_and_stay(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")).await;
    let streamed = Server::script(|stream| {
        say_and_stay(
            stream,
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n",
        )
    })
    .await;
    for server in [announced, streamed] {
        let mut body = send(&server, ExchangeLimits { body_bytes_max: 8, ..LIMITS }).await.unwrap().body;
        assert_eq!(body.chunk().await, Err(Error::TooLarge));
        assert_eq!(body.chunk().await, Err(Error::TooLarge));
        assert_eq!(send(&server, LIMITS).await.unwrap().body.collect(8).await, Err(Error::TooLarge));
    }
}

#[tokio::test]
async fn answers_of_exactly_the_limit_pass() {
    let server = Server::script(|stream| {
        say_and_stay(
            stream,
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n",
        )
    })
    .await;
    let mut body = send(&server, ExchangeLimits { body_bytes_max: 8, ..LIMITS }).await.unwrap().body;
    let mut whole = Vec::new();
    while let Some(piece) = body.chunk().await.unwrap() {
        whole.extend_from_slice(&piece);
    }
    assert_eq!(whole, b"12345678");
    assert_eq!(body.chunk().await, Ok(None));
    assert_eq!(send(&server, LIMITS).await.unwrap().body.collect(8).await.unwrap(), "12345678");
}

#[tokio::test]
async fn heads_without_end_are_broken() {
    let server = Server::script(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        while stream.write_all(&b"x-filler: 0123456789\r\n".repeat(1000)).await.is_ok() {}
    })
    .await;
    assert_eq!(send(&server, LIMITS).await.unwrap_err(), Error::Broken);
}

#[tokio::test]
async fn dropped_body_closes_the_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = origin(&format!("http://{}/v1", listener.local_addr().unwrap()));
    let egress = egress(&config());
    let client = async {
        let mut body = egress.send(request(&origin)).await.unwrap().body;
        assert_eq!(body.chunk().await.unwrap().unwrap(), "endless");
        drop(body);
    };
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\nendless\r\n")
            .await
            .unwrap();
        // Returns when the client closes or resets the connection.
        let _end = stream.read_to_end(&mut Vec::new()).await;
    };
    tokio::time::timeout(PATIENCE, async { tokio::join!(client, server) }).await.unwrap();
}

/// Polls for a chunk once and drops the future, again and again, until the chunk is there.
async fn impatiently(body: &mut ReplyBody) -> Bytes {
    loop {
        if let Ok(piece) = tokio::time::timeout(Duration::ZERO, body.chunk()).await {
            return piece.unwrap().unwrap();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn dropped_call_for_a_chunk_loses_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = origin(&format!("http://{}/v1", listener.local_addr().unwrap()));
    let egress = egress(&config());
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n").await.unwrap();
        stream
    };
    let (reply, mut stream) = tokio::join!(egress.send(request(&origin)), serve);
    let mut body = reply.unwrap().body;
    let mut whole = Vec::new();
    for byte in *b"abc" {
        assert!(tokio::time::timeout(Duration::ZERO, body.chunk()).await.is_err(), "nothing was sent yet");
        stream.write_all(&[byte]).await.unwrap();
        whole.extend_from_slice(&tokio::time::timeout(PATIENCE, impatiently(&mut body)).await.unwrap());
    }
    assert_eq!(whole, b"abc");
    assert_eq!(body.chunk().await, Ok(None));
}

#[tokio::test]
async fn empty_body_ends_at_once() {
    let server = Server::start(ok).await;
    let origin = origin(&server.url());
    let outgoing = Outgoing { body: Bytes::new(), ..request(&origin) };
    let reply = egress(&config()).send(outgoing).await.unwrap();
    assert_eq!(reply.status, 200);
}
