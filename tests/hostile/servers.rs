//! Providers that write the bytes of HTTP themselves.

use crate::kit::beside::Calm;
use crate::kit::client::{Client, events_of};
use crate::kit::config::{STEADY, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script::chat_events;
use crate::kit::upstream::sse_event;
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a server does after it has read a request. Then it closes the connection.
#[derive(Clone)]
pub(super) enum Act {
    Send(Vec<u8>),
    /// Sends this again and again until the host closes the connection.
    Endless(Vec<u8>),
    /// Waits until the host closes the connection.
    Stall,
}

pub(super) fn send(text: &str) -> Act {
    Act::Send(text.as_bytes().to_vec())
}

pub(super) fn endless(text: &str) -> Act {
    Act::Endless(text.as_bytes().to_vec())
}

/// A server that plays the same acts on every request.
struct Server {
    base: String,
    acts: Arc<Mutex<Vec<Act>>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let acts: Arc<Mutex<Vec<Act>>> = Arc::default();
        let task = tokio::spawn(serve(listener, Arc::clone(&acts)));
        Self { base, acts, task }
    }

    fn play(&self, acts: &[Act]) {
        *self.acts.lock().unwrap() = acts.to_vec();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, acts: Arc<Mutex<Vec<Act>>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        connections.spawn(answer(socket, Arc::clone(&acts)));
    }
}

async fn answer(mut socket: TcpStream, acts: Arc<Mutex<Vec<Act>>>) {
    while read_request(&mut socket).await.is_some() {
        let acts = acts.lock().unwrap().clone();
        if !play(&mut socket, &acts).await {
            return;
        }
    }
}

/// Whether the connection stays open for another request.
pub(super) async fn play(socket: &mut (impl AsyncRead + AsyncWrite + Unpin), acts: &[Act]) -> bool {
    let mut stays = false;
    for act in acts {
        match act {
            Act::Send(bytes) => {
                if socket.write_all(bytes).await.is_err() {
                    return false;
                }
                stays = bytes.ends_with(SURPLUS.as_bytes());
            }
            Act::Endless(bytes) => while socket.write_all(bytes).await.is_ok() {},
            Act::Stall => while socket.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {},
        }
    }
    stays
}

/// Reads one request and returns its text in lower case. `None` at the end of the connection.
pub(super) async fn read_request(socket: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let Ok(count @ 1..) = socket.read(&mut buffer).await else { return None };
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Some(text);
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const WORD: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n";
/// A second answer that no request asked for.
const SURPLUS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 19\r\n\r\n{\"surplus\":\"poison\"}";

/// A host with the hostile provider `evil` and the well-behaved one.
async fn host(evil: &Server, calm: &Calm) -> Host {
    host_within(evil, calm, "first_event_ms = 600\nidle_ms = 600")
}

/// The same with these limits of time.
fn host_within(evil: &Server, calm: &Calm, timeouts: &str) -> Host {
    let evil = provider("evil", "openai-chat", &evil.base);
    let config = format!(
        "{STEADY}[timeouts]\n{timeouts}\n{evil}\
         [[models]]\nid = \"evil/m\"\nendpoints = [{{ provider = \"evil\", model = \"m\", first_event_ms = 600 }}]\n"
    );
    Setup::new().config(&config).config(&calm.config()).start()
}

/// Asks the hostile provider. The answer has to be an error, or a stream that fails.
async fn fails(client: &Client, what: &str, streamed: bool) {
    let request = json!({"model": "evil/m", "input": "x", "stream": streamed});
    let answer = client.post("/responses", &request).await;
    if answer.status == 200 {
        assert!(streamed, "{what}: {}", answer.text);
        let last = events_of(&answer.text).pop().unwrap();
        assert_eq!(last["type"], "response.failed", "{what}: {}", answer.text);
        println!("{what}, streamed: {}", last["response"]["error"]);
    } else {
        assert!([502, 504, 524].contains(&answer.status), "{what}: {}", answer.text);
        assert!(!answer.text.contains("poison"), "{what}: {}", answer.text);
        println!("{what}, streamed {streamed}: {} {}", answer.status, answer.message());
    }
}

type Case = (&'static str, Vec<Act>);

/// Answers that end or stop at some point.
fn silences() -> Vec<Case> {
    vec![
        ("it closes the connection", vec![]),
        ("it says nothing", vec![Act::Stall]),
        ("half a head, then nothing", vec![send("HTTP/1.1 200 OK\r\ncontent-ty"), Act::Stall]),
        ("half a head, then the end", vec![send("HTTP/1.1 200 OK\r\ncontent-ty")]),
        ("a head, then nothing", vec![send(SSE), Act::Stall]),
        ("a head, then the end", vec![send(SSE)]),
        ("half an event, then nothing", vec![send(SSE), send("data: {\"choices\""), Act::Stall]),
        ("a word, then nothing", vec![send(SSE), send(WORD), Act::Stall]),
        ("a word, then the end", vec![send(SSE), send(WORD)]),
    ]
}

/// Answers that are not what they say.
fn lies() -> Vec<Case> {
    vec![
        ("another protocol", vec![send("SSH-2.0-poison\r\n"), Act::Stall]),
        ("HTTP/2 without being asked", vec![Act::Send(vec![0, 0, 0, 4, 0, 0, 0, 0, 0]), Act::Stall]),
        ("a status that is none", vec![send("HTTP/1.1 99999 OK\r\n\r\n")]),
        (
            "a switch to another protocol",
            vec![send("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"), Act::Stall],
        ),
        ("two lengths", vec![send(OK), send("content-length: 5\r\ncontent-length: 50\r\n\r\n"), send("{}")]),
        ("a length that is no number", vec![send(OK), send("content-length: +2\r\n\r\n{}")]),
        (
            "a length beyond what is sent",
            vec![send(OK), send("content-type: application/json\r\ncontent-length: 5000\r\n\r\n{}")],
        ),
        (
            "a length beyond all numbers",
            vec![send(OK), send("content-length: 99999999999999999999999\r\n\r\n{}")],
        ),
        (
            "a length that cuts the answer",
            vec![
                send(OK),
                send("content-type: application/json\r\ncontent-length: 5\r\n\r\n"),
                send("{\"choices\": []}"),
            ],
        ),
        ("a chunk whose length is no number", vec![send(CHUNKED), send("poison\r\n\r\n")]),
        ("a chunk that is not whole", vec![send(CHUNKED), send("ffff\r\n"), send(WORD)]),
        (
            "compression that was not asked for",
            vec![
                send(OK),
                send("content-encoding: gzip\r\ncontent-type: text/event-stream\r\n\r\n"),
                Act::Send(vec![0x1f, 0x8b, 8, 0]),
                Act::Stall,
            ],
        ),
        ("bytes that are no text", vec![send(SSE), Act::Send(b"data: \xff\xfe\n\n".to_vec())]),
    ]
}

/// Answers without end.
fn floods() -> Vec<Case> {
    let long = "x".repeat(16_000);
    vec![
        ("no HTTP", vec![endless("\0\u{1}garbage poison\r\n")]),
        ("answers in advance without end", vec![endless("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")]),
        ("headers without end", vec![send(OK), endless("x-filler: poison\r\n")]),
        ("one header without end", vec![send(OK), send("x-filler: "), endless(&long)]),
        ("a chunk of 2^64 bytes", vec![send(CHUNKED), send("ffffffffffffffffff\r\n"), endless(&long)]),
        ("extensions of a chunk without end", vec![send(CHUNKED), send("5;"), endless(&long)]),
        ("trailers without end", vec![send(CHUNKED), send("0\r\n"), endless("x-trailer: poison\r\n")]),
        ("an event without end", vec![send(SSE), send("data: \""), endless(&long)]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_breaks_http_fails_its_own_requests_only() {
    let (evil, calm) = (Server::start().await, Calm::start().await);
    let host = host(&evil, &calm).await;
    let (client, watch) = (Client::new(&host), calm.watch(&host).await);
    let table = [silences(), lies(), floods()].concat();
    for (what, acts) in table {
        for streamed in [false, true] {
            evil.play(&acts);
            watch.beside(what, fails(&client, what, streamed)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_without_end_that_are_no_event_end_with_the_limits_of_time() {
    let (evil, calm) = (Server::start().await, Calm::start().await);
    let host = host_within(&evil, &calm, "first_event_ms = 600\nidle_ms = 600\ntotal_ms = 3000");
    let client = Client::new(&host);
    let request = json!({"model": "evil/m", "input": "x", "stream": true});
    for filler in ["\n", ": poison\n\n"] {
        let endless = endless(&filler.repeat(1_000));
        evil.play(&[send(SSE), endless.clone()]);
        let answer = client.post("/responses", &request).await;
        assert_eq!(answer.status, 504, "before the first event: {}", answer.text);
        evil.play(&[send(SSE), send(WORD), endless]);
        let answer = client.post("/responses", &request).await;
        let last = events_of(&answer.text).pop().unwrap();
        assert_eq!(last["type"], "response.failed", "after a word: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_cut_anywhere_fails_or_is_whole() {
    let (evil, calm) = (Server::start().await, Calm::start().await);
    let host = host(&evil, &calm).await;
    let (client, watch) = (Client::new(&host), calm.watch(&host).await);
    let events: Vec<String> = chat_events(&["one ", "two "]).iter().map(sse_event).collect();
    let whole = events.concat();
    // At the end of each event, in its middle, and one byte before its end.
    let mut places = vec![0];
    let mut end = 0;
    for event in &events {
        places.extend([end + event.len() / 2, end + event.len() - 1, end + event.len()]);
        end += event.len();
    }
    for place in places {
        evil.play(&[send(CHUNKED), send(&format!("{:x}\r\n{}\r\n", place.max(1), &whole[..place]))]);
        let request = json!({"model": "evil/m", "input": "x", "stream": true});
        let asked = client.post("/responses", &request);
        let answer = watch.beside(&format!("cut after {place} bytes"), asked).await;
        if answer.status != 200 {
            assert_eq!(answer.status, 502, "{place}: {}", answer.text);
            continue;
        }
        let last = events_of(&answer.text).pop().unwrap();
        let ended = whole[..place].contains("[DONE]") || whole[..place].contains("finish_reason\":\"stop");
        if !ended {
            assert_eq!(last["type"], "response.failed", "{place}: {}", answer.text);
        }
        assert!(["response.failed", "response.completed"].contains(&last["type"].as_str().unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_no_request_asked_for_is_never_given_to_another() {
    let (evil, calm) = (Server::start().await, Calm::start().await);
    let host = host(&evil, &calm).await;
    let (client, watch) = (Client::new(&host), calm.watch(&host).await);
    let message = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "mine"}, "finish_reason": "stop"}]}).to_string();
    let answer =
        format!("{OK}content-type: application/json\r\ncontent-length: {}\r\n\r\n{message}", message.len());
    evil.play(&[send(&format!("{answer}{SURPLUS}"))]);
    for _ in 0..10 {
        let request = json!({"model": "evil/m", "input": "x"});
        let asked = client.post("/responses", &request);
        let answer = watch.beside("an answer that was not asked for", asked).await;
        assert_eq!((answer.status, answer.output_text()), (200, "mine"));
    }
}
