//! A client of the API: plain HTTP, and streams read event by event.

use super::host::Host;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use std::time::Duration;

/// How long any answer may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of plain HTTP, without a key.
pub fn http() -> reqwest::ClientBuilder {
    // No other HTTP is spoken, but the client wants its cryptography chosen.
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().timeout(PATIENCE)
}

/// A client with a key.
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: String,
}

/// An answer read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Answer {
    /// The text of the first message's first part.
    pub fn output_text(&self) -> &str {
        let message = self.body["output"]
            .as_array()
            .and_then(|items| items.iter().find(|item| item["type"] == "message"))
            .unwrap_or_else(|| panic!("no message in {}", self.text));
        message["content"][0]["text"].as_str().unwrap()
    }

    /// `error.message`.
    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_else(|| panic!("no error in {}", self.text))
    }
}

impl Client {
    /// A client with the host's first key.
    pub fn new(host: &Host) -> Self {
        Self::with_key(host, &host.key)
    }

    /// A client with another key.
    pub fn with_key(host: &Host, key: &str) -> Self {
        let http = http().build().unwrap();
        Self { http, base: host.base.clone(), key: key.to_owned() }
    }

    /// A client with a key at another of the machine's own addresses, `127.0.0.N`.
    pub fn from_address(host: &Host, key: &str, address: std::net::Ipv4Addr) -> Self {
        let http = http().local_address(std::net::IpAddr::from(address));
        Self { http: http.build().unwrap(), ..Self::with_key(host, key) }
    }

    /// A request with the key, path below `/v1`.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.key)
    }

    pub async fn get(&self, path: &str) -> Answer {
        read(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_bytes(path, body.to_string().into_bytes()).await
    }

    /// A request with further headers.
    pub async fn post_with(&self, path: &str, body: &Value, headers: &[(&'static str, &str)]) -> Answer {
        let mut request = self.request(Method::POST, path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(request.body(body.to_string()).send().await.unwrap()).await
    }

    /// `POST /responses`, streamed or not; the finished response.
    pub async fn ask(&self, body: &Value, streamed: bool) -> Value {
        if streamed {
            return last_response(&self.stream(body).await).clone();
        }
        let answer = self.post("/responses", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    /// `POST /responses`, streamed and read one event at a time.
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

    /// `POST /responses`, streamed: the events, without `[DONE]`, whose form is checked.
    pub async fn stream(&self, body: &Value) -> Vec<Value> {
        self.stream_with(body, &[]).await
    }

    /// The same with more headers.
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

/// A stream on its way. Dropping it closes the connection.
pub struct Events {
    response: Response,
    buffer: String,
}

impl Events {
    /// The next event; none after `[DONE]`.
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

    /// Waits until there are bytes that were not read yet.
    pub async fn more(&mut self) {
        let chunk = self.response.chunk().await.unwrap().expect("the stream ends without [DONE]");
        self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
    }

    /// What has come and was not read yet.
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

/// Reads an answer to its end; the body is null when it is not JSON.
pub async fn read(response: Response) -> Answer {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { status, headers, body, text }
}

/// The events of a whole stream: names and types agree, numbers rise from 0,
/// `[DONE]` is last and only there.
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

/// All text deltas joined.
pub fn text_of(events: &[Value]) -> String {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}

/// The types of the events in their order.
pub fn types_of(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// The response of the terminal event.
pub fn last_response(events: &[Value]) -> &Value {
    &events.last().unwrap()["response"]
}
