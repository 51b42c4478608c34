//! A client of the API: plain HTTP, and streams read event by event.

use super::host::Host;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a response may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A builder of HTTP clients without a key.
pub fn http() -> reqwest::ClientBuilder {
    // The client requires a TLS provider to be installed.
    rustls::crypto::ring::default_provider().install_default().ok();
    // The host closes a connection that is idle for 30 s. A client that used it at that moment would lose its request.
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).pool_idle_timeout(Duration::from_secs(10))
}

/// A body of so many pieces of 64 KiB, and how many of them were taken for sending.
pub fn counted_body(pieces: usize) -> (reqwest::Body, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let pieces = (0..pieces).map(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok::<_, std::io::Error>(vec![b' '; 64 << 10])
    });
    (reqwest::Body::wrap_stream(futures_util::stream::iter(pieces)), taken)
}

/// A builder of clients that trust the certificate of this host.
pub fn http_to(host: &Host) -> reqwest::ClientBuilder {
    let Some(root) = &host.root else { return http() };
    http().tls_certs_only([reqwest::Certificate::from_pem(root.as_bytes()).unwrap()])
}

/// A client with a key.
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: String,
}

/// A response that was read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Answer {
    /// The text of the first part of the first message.
    pub fn output_text(&self) -> &str {
        let message = self.body["output"]
            .as_array()
            .and_then(|items| items.iter().find(|item| item["type"] == "message"))
            .unwrap_or_else(|| panic!("no message in {}", self.text));
        message["content"][0]["text"].as_str().unwrap()
    }

    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_else(|| panic!("no error in {}", self.text))
    }
}

impl Client {
    /// Uses the key made at the first start.
    pub fn new(host: &Host) -> Self {
        Self::with_key(host, &host.key)
    }

    pub fn with_key(host: &Host, key: &str) -> Self {
        let http = http_to(host).build().unwrap();
        Self { http, base: host.base.clone(), key: key.to_owned() }
    }

    /// A client that connects from another loopback address.
    pub fn from_address(host: &Host, key: &str, address: std::net::Ipv4Addr) -> Self {
        let http = http().local_address(std::net::IpAddr::from(address));
        Self { http: http.build().unwrap(), ..Self::with_key(host, key) }
    }

    /// The same key, for a host that was started again.
    pub fn at(self, host: &Host) -> Self {
        Self { base: host.base.clone(), ..self }
    }

    /// A request with the key; `path` is relative to `/v1`.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.key)
    }

    pub async fn get(&self, path: &str) -> Answer {
        read(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_bytes(path, body.to_string().into_bytes()).await
    }

    pub async fn post_with(&self, path: &str, body: &Value, headers: &[(&'static str, &str)]) -> Answer {
        let mut request = self.request(Method::POST, path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(request.body(body.to_string()).send().await.unwrap()).await
    }

    /// Sends `POST /responses`, streamed or not; returns the finished response.
    pub async fn ask(&self, body: &Value, streamed: bool) -> Value {
        if streamed {
            return last_response(&self.stream(body).await).clone();
        }
        let answer = self.post("/responses", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    /// Sends `POST /responses` for a stream that is read one event at a time.
    pub async fn open(&self, body: &Value) -> Events {
        let mut body = body.clone();
        body["stream"] = Value::Bool(true);
        let request = self.request(Method::POST, "/responses").body(body.to_string());
        let response = request.header("content-type", "application/json").send().await.unwrap();
        assert_eq!(response.status(), 200);
        Events { response, buffer: String::new() }
    }

    pub async fn post_bytes(&self, path: &str, body: Vec<u8>) -> Answer {
        let request = self.request(Method::POST, path).header("content-type", "application/json").body(body);
        read(request.send().await.unwrap()).await
    }

    /// Sends `POST /responses` for a stream; returns its events without `[DONE]` and checks their
    /// form.
    pub async fn stream(&self, body: &Value) -> Vec<Value> {
        self.stream_with(body, &[]).await
    }

    /// Like [`Self::stream`], with further headers.
    pub async fn stream_with(&self, body: &Value, headers: &[(&str, &str)]) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = Value::Bool(true);
        let mut request = self.request(Method::POST, "/responses").body(body.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.header("content-type", "application/json").send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, 200, "{text}");
        events_of(&text)
    }
}

/// A running stream. Dropping it closes the connection.
pub struct Events {
    response: Response,
    buffer: String,
}

impl Events {
    /// The next event; `None` after `[DONE]`.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let data = block.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                let event = (data != "[DONE]").then(|| serde_json::from_str(data).unwrap());
                self.buffer = rest.to_owned();
                return event;
            }
            self.more().await;
        }
    }

    /// Waits for further bytes of the stream.
    pub async fn more(&mut self) {
        let chunk = self.response.chunk().await.unwrap().expect("the stream ends without [DONE]");
        self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
    }

    /// The bytes that have arrived and were not returned as events.
    pub fn unread(&self) -> &str {
        &self.buffer
    }

    /// Reads up to the first event of this type.
    pub async fn until(&mut self, kind: &str) -> Value {
        while let Some(event) = self.next().await {
            if event["type"] == kind {
                return event;
            }
        }
        panic!("there is no {kind}");
    }
}

/// Reads a response to its end. The body is null if it is not JSON.
pub async fn read(response: Response) -> Answer {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { status, headers, body, text }
}

/// The events of a whole stream. Checks that names and types agree, that sequence numbers rise from
/// 0, and that `[DONE]` is last and occurs once.
pub fn events_of(stream: &str) -> Vec<Value> {
    let mut events = Vec::new();
    let mut done = false;
    for block in stream.split("\n\n").filter(|block| !block.is_empty()) {
        assert!(!done, "something follows [DONE]: {block}");
        let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with(':')).collect();
        match lines[..] {
            ["data: [DONE]"] => done = true,
            [name, data] => {
                let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                assert_eq!(event["type"], name.strip_prefix("event: ").unwrap());
                assert_eq!(event["sequence_number"], events.len());
                events.push(event);
            }
            [] => {}
            _ => panic!("not an event: {block}"),
        }
    }
    assert!(done, "the stream ends without [DONE]: {stream}");
    events
}

pub fn text_of(events: &[Value]) -> String {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}

pub fn types_of(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

pub fn last_response(events: &[Value]) -> &Value {
    &events.last().unwrap()["response"]
}
