//! When connections are reused, shared and closed.

use cofferdam_egress::{Egress, EgressConfig, Error, ExchangeLimits, GuestRequest, Origin, Outgoing};
use futures_util::future::join_all;
use http_body_util::Full;
use hyper::Response;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::kit::{
    LIMITS, PATIENCE, STREAMS_MAX, Server, config, egress,
    guest::{get, opened, text},
    ok, origin, read_head, request, resolving,
    tls::Authority,
    vault,
};

const FINE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";

async fn ask(egress: &Egress, origin: &Origin) -> Result<(), Error> {
    let reply = egress.send(request(origin)).await?;
    assert_eq!(reply.body.collect(16).await?, "fine");
    Ok(())
}

async fn ask_often(egress: &Egress, origin: &Origin, times: usize) {
    for outcome in join_all((0..times).map(|_| ask(egress, origin))).await {
        outcome.unwrap();
    }
}

#[tokio::test]
async fn concurrent_exchanges_use_own_connections_which_are_reused() {
    let server = Server::start(ok).await;
    let (egress, origin) = (egress(&config()), origin(&server.url()));
    ask_often(&egress, &origin, 8).await;
    let connections = server.connections();
    assert!((1..=8).contains(&connections), "{connections}");
    for _ in 0..connections {
        ask(&egress, &origin).await.unwrap();
    }
    assert_eq!(server.connections(), connections);
}

#[tokio::test]
async fn exchanges_share_an_http2_connection() {
    let authority = Authority::new();
    let server = Server::start_tls(authority.acceptor("api.test", &["h2"]), ok).await;
    let origin = origin(&format!("https://api.test:{}/v1", server.address.port()));
    let config = EgressConfig { roots: vec![authority.pem()], ..resolving("api.test", &["127.0.0.1"]) };
    let egress = egress(&config);
    ask(&egress, &origin).await.unwrap();
    ask_often(&egress, &origin, 8).await;
    assert_eq!(server.connections(), 1);
}

/// More than the HTTP/2 flow control lets through if the answer is not read.
static LONG: [u8; 4 << 20] = [b' '; 4 << 20];

/// A server that answers with [`LONG`] over HTTP/2.
async fn long_over_http2() -> (Server, Egress, Origin) {
    let authority = Authority::new();
    let long = |_: &_| Response::new(Full::from(&LONG[..]));
    let server = Server::start_tls(authority.acceptor("api.test", &["h2"]), long).await;
    let origin = origin(&format!("https://api.test:{}/v1", server.address.port()));
    let config = EgressConfig { roots: vec![authority.pem()], ..resolving("api.test", &["127.0.0.1"]) };
    (server, egress(&config), origin)
}

#[tokio::test]
async fn request_beyond_the_stream_limit_gets_another_connection() {
    let (server, egress, origin) = long_over_http2().await;
    let mut unread = Vec::new();
    for _ in 0..STREAMS_MAX {
        unread.push(egress.send(request(&origin)).await.unwrap());
    }
    assert_eq!(server.connections(), 1);
    unread.push(egress.send(request(&origin)).await.unwrap());
    assert_eq!(server.connections(), 2);
    drop(unread);
    ask_for_heads(&egress, &origin, 8).await;
    assert_eq!(server.connections(), 2);
}

async fn ask_for_heads(egress: &Egress, origin: &Origin, times: usize) {
    for outcome in join_all((0..times).map(|_| egress.send(request(origin)))).await {
        outcome.unwrap();
    }
}

/// All bodies together are longer than the HTTP library's own window for a connection.
#[tokio::test]
async fn unread_answers_hold_up_no_other_one_on_their_connection() {
    let (server, egress, origin) = long_over_http2().await;
    let limits = ExchangeLimits { body_bytes_max: LONG.len() as u64, ..LIMITS };
    let mut unread = Vec::new();
    for _ in 1..STREAMS_MAX {
        unread.push(egress.send(Outgoing { limits, ..request(&origin) }).await.unwrap());
    }
    let reply = egress.send(Outgoing { limits, ..request(&origin) }).await.unwrap();
    let body = tokio::time::timeout(PATIENCE, reply.body.collect(LONG.len())).await;
    assert_eq!(body.unwrap().unwrap().len(), LONG.len());
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn origins_do_not_share_connections() {
    let server = Server::start(ok).await;
    let egress = egress(&config());
    let port = server.address.port();
    for host in ["127.0.0.1", "localhost"] {
        for path in ["v1", "v2"] {
            ask(&egress, &origin(&format!("http://{host}:{port}/{path}"))).await.unwrap();
        }
    }
    assert_eq!(server.connections(), 2);
}

/// Answers once, then closes the connection.
async fn once(mut stream: TcpStream) {
    stream.write_all(FINE).await.unwrap();
}

#[tokio::test]
async fn connection_that_the_server_has_closed_is_not_used() {
    let server = Server::script(once).await;
    let (egress, origin) = (egress(&config()), origin(&server.url()));
    for round in 1..=3 {
        ask(&egress, &origin).await.unwrap();
        assert_eq!(server.connections(), round);
        // An exchange with another server. When it ends, the close of the first connection has
        // arrived.
        let other = Server::start(ok).await;
        ask(&egress, &crate::kit::origin(&other.url())).await.unwrap();
    }
}

/// Answers once, reads another request and closes the connection.
async fn once_and_a_half(mut stream: TcpStream) {
    stream.write_all(FINE).await.unwrap();
    read_head(&mut stream).await;
}

#[tokio::test]
async fn request_that_may_have_been_seen_is_not_sent_again() {
    let server = Server::script(once_and_a_half).await;
    let (egress, origin) = (egress(&config()), origin(&server.url()));
    ask(&egress, &origin).await.unwrap();
    assert_eq!(ask(&egress, &origin).await, Err(Error::Broken));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn connection_with_connection_close_is_not_kept() {
    let server = Server::script(|mut stream| async move {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\nfine")
            .await
            .unwrap();
        let _gone = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let (egress, origin) = (egress(&config()), origin(&server.url()));
    for round in 1..=2 {
        ask(&egress, &origin).await.unwrap();
        assert_eq!(server.connections(), round);
    }
}

#[tokio::test]
async fn answer_without_a_length_ends_with_its_connection() {
    let server = Server::script(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nfine").await.unwrap()
    })
    .await;
    let (egress, origin) = (egress(&config()), origin(&server.url()));
    ask(&egress, &origin).await.unwrap();
    ask(&egress, &origin).await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn connection_of_a_get_or_head_with_a_body_is_not_reused() {
    let authority = Authority::new();
    let table =
        [("GET", "", 1), ("HEAD", "", 1), ("POST", "{}", 1), ("GET", "GET / HTTP/1.1", 2), ("HEAD", "x", 2)];
    for (method, body, connections) in table {
        let server = Server::start_tls(authority.acceptor("api.test", &["http/1.1"]), ok).await;
        let egress = egress(&opened(&server, &authority));
        let plain = get(&format!("https://api.test:{}/", server.address.port()));
        for _ in 0..2 {
            let request = GuestRequest { method: method.to_owned(), body: body.into(), ..plain.clone() };
            text(vault::fetch(&egress, request, Vec::new()).await.unwrap()).await;
        }
        assert_eq!(server.connections(), connections, "{method} {body:?}");
    }
}

#[tokio::test]
async fn idle_connection_is_closed_without_another_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = origin(&format!("http://{}/v1", listener.local_addr().unwrap()));
    let egress = egress(&config());
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(FINE).await.unwrap();
        stream
    };
    let (outcome, mut stream) = tokio::join!(Box::pin(ask(&egress, &origin)), serve);
    outcome.unwrap();
    // From here on the clock jumps ahead whenever all tasks wait.
    tokio::time::pause();
    let end = tokio::time::timeout(20 * PATIENCE, stream.read_to_end(&mut Vec::new())).await;
    end.unwrap().unwrap();
}

#[tokio::test]
async fn long_request_is_sent_while_waiting_for_its_answer() {
    let server = Server::start(|request| {
        assert_eq!(request.body().len(), 8 << 20);
        ok(request)
    })
    .await;
    let origin = origin(&server.url());
    let body = vec![b' '; 8 << 20].into();
    let outgoing = Outgoing { body, ..request(&origin) };
    let reply = egress(&config()).send(outgoing).await.unwrap();
    assert_eq!(reply.body.collect(16).await.unwrap(), "fine");
}
