//! How clients reach the hosts: by a balancer that knows nothing of keys, and leaves out hosts that are down.

use crate::kit::client::http;
use reqwest::Method;
use serde_json::Value;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longer than a host takes for its own answer to anything.
const PATIENCE: Duration = Duration::from_secs(40);

pub struct Doors {
    http: reqwest::Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The address of each host; `None` while it is left out.
    bases: Vec<Option<String>>,
    turn: usize,
}

/// A request and its answer.
pub struct Sent {
    pub host: usize,
    pub at: Instant,
    pub answered: Instant,
    /// `None`: no whole answer arrived.
    pub status: Option<u16>,
    /// Whether the host has got the request.
    pub has_arrived: bool,
    pub body: Value,
    pub id: Option<String>,
}

/// What the answer to a change says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    /// Nothing was changed.
    Refused,
    /// It may have been changed.
    Doubt,
}

impl Sent {
    /// # Panics
    /// The answer is one that no fault of a host or of the database explains.
    pub fn verdict(&self) -> Verdict {
        match self.status {
            Some(200 | 201 | 204) => Verdict::Done,
            Some(408 | 429 | 503) => Verdict::Refused,
            None if !self.has_arrived => Verdict::Refused,
            Some(500..) | None => Verdict::Doubt,
            Some(status) => panic!("host {}: {status}: {}", self.host, self.body),
        }
    }
}

impl Doors {
    pub fn new() -> Self {
        let http = http().timeout(PATIENCE).pool_max_idle_per_host(32).build().unwrap();
        Self { http, state: Mutex::default() }
    }

    /// Lets clients in by this host, or leaves it out.
    pub fn set(&self, host: usize, base: Option<&str>) {
        let mut state = self.state.lock().unwrap();
        let count = state.bases.len().max(host + 1);
        state.bases.resize(count, None);
        state.bases[host] = base.map(str::to_owned);
    }

    /// The hosts that clients can reach.
    pub fn open(&self) -> Vec<usize> {
        let state = self.state.lock().unwrap();
        (0..state.bases.len()).filter(|host| state.bases[*host].is_some()).collect()
    }

    /// Each host in turn.
    pub fn next(&self) -> usize {
        let open = self.open();
        let mut state = self.state.lock().unwrap();
        state.turn += 1;
        open[state.turn % open.len()]
    }

    pub async fn send(&self, host: usize, key: &str, method: Method, path: &str, body: &Value) -> Sent {
        let at = Instant::now();
        let base = self.state.lock().unwrap().bases[host].clone();
        let mut sent =
            Sent { host, at, answered: at, status: None, has_arrived: false, body: Value::Null, id: None };
        let Some(base) = base else { return sent };
        let mut request = self.http.request(method, format!("{base}{path}")).bearer_auth(key);
        if !body.is_null() {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        match request.send().await {
            Err(error) => sent.has_arrived = !error.is_connect(),
            Ok(response) => {
                sent.has_arrived = true;
                let status = response.status().as_u16();
                let id = response.headers().get("x-generation-id");
                sent.id = id.map(|id| id.to_str().unwrap().to_owned());
                if let Ok(text) = response.text().await {
                    sent.status = Some(status);
                    sent.body = serde_json::from_str(&text).unwrap_or(Value::String(text));
                }
            }
        }
        sent.answered = Instant::now();
        sent
    }

    pub async fn get(&self, host: usize, key: &str, path: &str) -> Sent {
        self.send(host, key, Method::GET, path, &Value::Null).await
    }
}
