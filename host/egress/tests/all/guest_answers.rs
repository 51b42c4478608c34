//! Guests' own requests: the answers (egress rules R18 to R22).

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use cofferdam_egress::{Egress, EgressConfig, Error, GuestLimits, GuestReply, GuestRequest, Placement};
use http::{Request, Response};
use http_body_util::Full;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::kit::{
    PATIENCE, Server, config, egress,
    guest::{NAME, Scene, VALUE, echo, get, text, whole, with_header},
    ok, read_head,
    vault::{self, Vault},
};

const LABEL: &str = "[secret:github_token]";

/// A server on loopback that plays a script, and a client that sends secrets to it.
struct Script {
    server: Server,
    egress: Egress,
    vault: Vault,
}

impl Script {
    async fn new<F: Future<Output = ()> + Send + 'static>(script: fn(TcpStream) -> F) -> Self {
        let server = Server::script(script).await;
        let config = EgressConfig { ports: vec![server.address.port()], ..config() };
        Self { egress: egress(&config), server, vault: Vault::new() }
    }

    fn request(&self) -> GuestRequest {
        get(&format!("http://localhost:{}/", self.server.address.port()))
    }

    async fn fetch(&self, request: GuestRequest) -> Result<GuestReply, Error> {
        let slot = Placement::header("x-access", "{}").unwrap();
        vault::fetch(&self.egress, request, vec![self.vault.injection(slot, NAME, VALUE, "localhost")]).await
    }

    async fn reply(&self) -> Result<GuestReply, Error> {
        self.fetch(self.request()).await
    }
}

/// Sends the parts one by one, if possible in one TCP segment each, and closes the connection.
async fn say(mut stream: TcpStream, parts: &[&[u8]]) {
    stream.set_nodelay(true).unwrap();
    for part in parts {
        stream.write_all(part).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
}

fn header<'a>(reply: &'a GuestReply, name: &str) -> Option<&'a str> {
    reply.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn echoed_request_comes_back_without_the_secret() {
    let scene = Scene::new(echo).await;
    let injections = vec![
        scene.bearer(),
        scene.vault.injection(Placement::query("k").unwrap(), "other_key", "q/+ \"secret\"", "api.test"),
        scene.vault.injection(Placement::json("/k").unwrap(), "third_key", "json\"\\/secret", "api.test"),
    ];
    let request =
        GuestRequest { method: "POST".to_owned(), body: Bytes::from_static(b"{}"), ..scene.get("/e") };
    let mut reply = scene.fetch(request, injections).await.unwrap();
    let body = String::from_utf8(whole(&mut reply.body).await.unwrap().to_vec()).unwrap();
    assert!(body.contains(&format!("authorization: Bearer {LABEL}\n")), "{body}");
    assert!(body.contains("/e?k=[secret:other_key]\n"), "{body}");
    assert!(body.ends_with("{\"k\":\"[secret:third_key]\"}"), "{body}");
    let reflected: Vec<String> = reply.body.reflected().iter().map(|sent| sent.name.to_string()).collect();
    assert_eq!(reflected, ["github_token", "other_key", "third_key"]);
}

#[tokio::test]
async fn answer_without_a_secret_reports_no_reflection() {
    let scene = Scene::new(ok).await;
    let mut reply = scene.fetch(scene.get("/"), vec![scene.bearer()]).await.unwrap();
    assert_eq!(whole(&mut reply.body).await.unwrap(), "fine");
    assert!(reply.body.reflected().is_empty());
}

/// Repeats the value in the encoding that the path names.
fn encoded(request: &Request<Bytes>) -> Response<Full<Bytes>> {
    let value = request.headers()["x-access"].to_str().unwrap();
    let hex = |upper: bool| {
        value
            .bytes()
            .map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") })
            .collect::<String>()
    };
    let body = match request.uri().path() {
        "/json" => serde_json::to_string(value).unwrap().into_bytes(),
        "/json-slash" => value.replace('/', "\\/").into_bytes(),
        "/base64" => STANDARD.encode(value).into_bytes(),
        "/basic" => STANDARD.encode(format!("user:{value}")).into_bytes(),
        "/basic-name" => STANDARD.encode(format!("{value}:x-oauth-basic")).into_bytes(),
        "/hex" => hex(false).into_bytes(),
        "/HEX" => hex(true).into_bytes(),
        "/percent" => url::form_urlencoded::byte_serialize(value.as_bytes()).collect::<String>().into_bytes(),
        "/utf16le" => value.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        "/utf16be" => value.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        "/html" => value.bytes().map(|byte| format!("&#{byte};")).collect::<String>().into_bytes(),
        _ => value.as_bytes().to_vec(),
    };
    let status = if request.uri().query() == Some("error") { 500 } else { 200 };
    Response::builder().status(status).body(Full::from([b"<".as_slice(), &body, b">"].concat())).unwrap()
}

#[tokio::test]
async fn value_is_found_in_every_encoding() {
    let scene = Scene::new(encoded).await;
    let slot = || Placement::header("x-access", "{}").unwrap();
    for way in [
        "raw",
        "json",
        "json-slash",
        "base64",
        "basic",
        "basic-name",
        "hex",
        "HEX",
        "percent",
        "utf16le",
        "utf16be",
        "html",
    ] {
        for query in ["", "?error"] {
            let request = scene.get(&format!("/{way}{query}"));
            let mut reply = scene.fetch(request, vec![scene.with(slot(), VALUE)]).await.unwrap();
            let body = whole(&mut reply.body).await.unwrap();
            let body = String::from_utf8_lossy(&body);
            assert!(body.contains(LABEL), "{way}: {body}");
            assert_eq!(reply.body.reflected().len(), 1, "{way}");
            // The base64 characters that also depend on neighbouring bytes stay.
            assert!(body.len() <= LABEL.len() + 24, "{way}: {body}");
        }
    }
}

#[tokio::test]
async fn values_in_headers_are_replaced_and_session_headers_removed() {
    fn heads(request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let value = request.headers()["x-access"].to_str().unwrap();
        Response::builder()
            .status(302)
            .header("x-plain", format!("a {value} b"))
            .header("x-base", STANDARD.encode(value))
            .header(
                "location",
                format!(
                    "https://api.test/?t={}",
                    value.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D")
                ),
            )
            .header("set-cookie", "session=1")
            .header("etag", "\"1\"")
            .header("www-authenticate", "Basic realm=x")
            .body(Full::default())
            .unwrap()
    }
    let scene = Scene::new(heads).await;
    let injection = scene.with(Placement::header("x-access", "{}").unwrap(), VALUE);
    let mut reply = scene.fetch(scene.get("/"), vec![injection]).await.unwrap();
    assert_eq!(header(&reply, "x-plain"), Some("a [secret:github_token] b"));
    assert_eq!(header(&reply, "location"), Some("https://api.test/?t=[secret:github_token]"));
    assert!(header(&reply, "x-base").unwrap().starts_with(LABEL));
    for gone in ["set-cookie", "etag", "www-authenticate", "content-length"] {
        assert_eq!(header(&reply, gone), None, "{gone}");
    }
    assert_eq!(reply.body.reflected().len(), 1, "the head counts before the body is read");
    assert_eq!(reply.body.reflected(), [], "each find is reported once");
}

#[tokio::test]
async fn value_split_over_chunks_is_found() {
    let script = Script::new(|stream| async move {
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        let mut parts = vec![head];
        parts.extend(
            format!("a{VALUE}z").bytes().map(|byte| format!("1\r\n{}\r\n", char::from(byte)).into_bytes()),
        );
        parts.push(b"0\r\n\r\n".to_vec());
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        say(stream, &parts).await;
    })
    .await;
    assert_eq!(text(script.reply().await.unwrap()).await, format!("a{LABEL}z"));
}

#[tokio::test]
async fn trailers_are_dropped() {
    let script = Script::new(|stream| async move {
        let tail = format!("0\r\nx-echo: {VALUE}\r\n\r\n");
        let head = b"HTTP/1.1 200 OK\r\ntrailer: x-echo\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n";
        say(stream, &[head, tail.as_bytes()]).await;
    })
    .await;
    let reply = script.reply().await.unwrap();
    assert_eq!(header(&reply, "trailer"), None);
    assert_eq!(text(reply).await, "body");
}

#[tokio::test]
async fn complete_events_are_not_delayed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let egress = egress(&EgressConfig { ports: vec![port], ..config() });
    let vault = Vault::new();
    let injection = vault.injection(Placement::header("x-access", "{}").unwrap(), NAME, VALUE, "localhost");
    let (seen, mut wait) = tokio::sync::mpsc::channel::<()>(1);
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ghp\n\n")
            .await
            .unwrap();
        // The second event is sent only when the first has arrived.
        wait.recv().await.unwrap();
        stream.write_all(b"data: 2\n\n").await.unwrap();
    };
    let client = async {
        let request = get(&format!("http://localhost:{port}/"));
        let mut body = vault::fetch(&egress, request, vec![injection]).await.unwrap().body;
        assert_eq!(body.chunk().await.unwrap().unwrap(), "data: ghp\n\n");
        seen.send(()).await.unwrap();
        assert_eq!(whole(&mut body).await.unwrap(), "data: 2\n\n");
    };
    tokio::time::timeout(PATIENCE, async { tokio::join!(server, client) }).await.unwrap();
}

#[tokio::test]
async fn encoded_answers_are_refused() {
    let gzip =
        Script::new(|stream| say(stream, &[b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b"]))
            .await;
    let brotli =
        Script::new(|stream| say(stream, &[b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\nx"])).await;
    let second = Script::new(|stream| {
        say(stream, &[b"HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\ncontent-encoding: gzip\r\n\r\nx"])
    })
    .await;
    let transfer = Script::new(|stream| {
        say(stream, &[b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"])
    })
    .await;
    for script in [gzip, brotli, second, transfer] {
        assert_eq!(script.reply().await.err(), Some(Error::Broken));
        let outcome = vault::fetch(&script.egress, script.request(), Vec::new()).await;
        assert_eq!(outcome.err(), Some(Error::Broken), "without a secret too");
    }
    let plain =
        Script::new(|stream| say(stream, &[b"HTTP/1.1 200 OK\r\ncontent-encoding: Identity\r\n\r\nx"])).await;
    assert_eq!(text(plain.reply().await.unwrap()).await, "x");
}

#[tokio::test]
async fn switch_to_another_protocol_is_refused() {
    let script = Script::new(|stream| {
        say(
            stream,
            &[b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nanything"],
        )
    })
    .await;
    assert_eq!(script.reply().await.err(), Some(Error::Broken));
}

#[tokio::test]
async fn heads_without_end_are_broken() {
    let script = Script::new(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nx-long: ").await.unwrap();
        // A hundred megabytes, or less if the client stops reading.
        let mut left = 1600;
        while left > 0 && stream.write_all(&[b'a'; 64 * 1024]).await.is_ok() {
            left -= 1;
        }
    })
    .await;
    assert_eq!(script.reply().await.err(), Some(Error::Broken));
}

#[tokio::test]
async fn long_heads_are_too_large_and_reflections_in_them_are_reported() {
    let script = Script::new(|stream| async move {
        let long = "a".repeat(65 * 1024);
        let head = format!("HTTP/1.1 200 OK\r\nx-key: {VALUE}\r\nx-long: {long}\r\n\r\nbody");
        say(stream, &[head.as_bytes()]).await;
    })
    .await;
    let mut reply = script.reply().await.unwrap();
    assert!(reply.headers.is_empty());
    assert_eq!(whole(&mut reply.body).await.err(), Some(Error::TooLarge));
    assert_eq!(reply.body.reflected().len(), 1);
}

#[tokio::test]
async fn bodies_are_bounded_with_their_labels() {
    let script = Script::new(|stream| async move {
        let body = "0123456789abcdef;".repeat(100);
        say(stream, &[b"HTTP/1.1 200 OK\r\n\r\n", body.as_bytes()]).await;
    })
    .await;
    let limits = |body_bytes_max| GuestLimits { body_bytes_max, total: PATIENCE };
    let longest = GuestRequest { limits: limits(1700), ..script.request() };
    assert_eq!(text(script.fetch(longest.clone()).await.unwrap()).await.len(), 1700);
    let shorter = GuestRequest { limits: limits(1699), ..script.request() };
    assert_eq!(whole(&mut script.fetch(shorter).await.unwrap().body).await.err(), Some(Error::TooLarge));
    // Each of the hundred values is replaced by a longer label.
    let slot = Placement::header("x-access", "{}").unwrap();
    let injection = script.vault.injection(slot, NAME, "0123456789abcdef", "localhost");
    let mut reply = vault::fetch(&script.egress, longest, vec![injection]).await.unwrap();
    assert_eq!(whole(&mut reply.body).await.err(), Some(Error::TooLarge));
}

#[tokio::test]
async fn time_limit_covers_the_whole_exchange() {
    let script = Script::new(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort").await.unwrap();
        let _gone = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let short = GuestLimits { body_bytes_max: 64, total: Duration::from_millis(300) };
    let mut body = script.fetch(GuestRequest { limits: short, ..script.request() }).await.unwrap().body;
    assert_eq!(body.chunk().await.unwrap().unwrap(), "short");
    assert_eq!(body.chunk().await, Err(Error::TimedOut));
    assert_eq!(body.chunk().await, Err(Error::TimedOut));
    let silent = Script::new(|mut stream| async move {
        let _gone = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let request = GuestRequest { limits: short, ..silent.request() };
    assert_eq!(silent.fetch(request).await.err(), Some(Error::TimedOut));
}

#[tokio::test]
async fn dropped_request_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let egress = egress(&EgressConfig { ports: vec![port], ..config() });
    let vault = Vault::new();
    let injection = vault.injection(Placement::header("x-access", "{}").unwrap(), NAME, VALUE, "localhost");
    let (arrived, wait) = tokio::sync::oneshot::channel();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        arrived.send(()).unwrap();
        // Returns when the client closes or resets the connection.
        let _end = stream.read_to_end(&mut Vec::new()).await;
    };
    let client = async {
        let request = get(&format!("http://localhost:{port}/"));
        tokio::select! {
            outcome = vault::fetch(&egress, request, vec![injection]) => panic!("{outcome:?}"),
            _ = wait => {}
        }
    };
    tokio::time::timeout(PATIENCE, async { tokio::join!(server, client) }).await.unwrap();
}

#[tokio::test]
async fn errors_and_debug_output_reveal_no_secret() {
    let scene = Scene::new(echo).await;
    let request = with_header(scene.get("/hidden"), "x-hidden", "hidden");
    assert!(!format!("{request:?}").contains("hidden"));
    let reply = scene.fetch(request, vec![scene.bearer()]).await.unwrap();
    let printed = format!("{reply:?}");
    for content in [VALUE, "ghp_", "hidden"] {
        assert!(!printed.contains(content), "{printed}");
    }
    let error =
        scene.fetch(get("https://internal-name.test:1/hidden"), vec![scene.bearer()]).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("internal"), "{error}");
}
