//! The admin listener: health, readiness, metrics and the admin API.

use super::client::{Answer, http_to, read};
use super::host::Host;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a host may take to reach a state that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the admin listener.
pub struct Admin {
    http: reqwest::Client,
    base: String,
    /// The operator token of the data directory.
    pub token: String,
}

impl Admin {
    pub fn new(host: &Host) -> Self {
        let http = http_to(host).build().unwrap();
        let token = std::fs::read_to_string(host.data().join("operator.token")).unwrap();
        Self { http, base: host.admin.clone(), token: token.trim_end().to_owned() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        read(self.http.get(format!("{}{path}", self.base)).send().await.unwrap()).await
    }

    /// A request without a bearer.
    pub fn plain(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    /// A request with the operator token.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.plain(method, path).bearer_auth(&self.token)
    }

    /// `GET` of a path of the admin API.
    pub async fn ask(&self, path: &str) -> Answer {
        read(self.request(Method::GET, &format!("/admin/v1/{path}")).send().await.unwrap()).await
    }

    /// `POST` to a path of the admin API.
    pub async fn change(&self, path: &str, members: &Value) -> Answer {
        let request = self
            .request(Method::POST, &format!("/admin/v1/{path}"))
            .header("content-type", "application/json")
            .body(members.to_string());
        read(request.send().await.unwrap()).await
    }

    /// A sample of `/metrics` by its full name with labels; 0 if it does not exist.
    pub async fn metric(&self, sample: &str) -> u64 {
        self.shown_metric(sample).await.unwrap_or(0)
    }

    /// A sample of `/metrics` by its full name with labels, if it exists.
    pub async fn shown_metric(&self, sample: &str) -> Option<u64> {
        let text = self.get("/metrics").await.text;
        let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
        Some(value.parse().unwrap())
    }

    /// Polls until `/readyz` answers 200.
    pub async fn until_ready(&self) {
        let end = Instant::now() + PATIENCE;
        while self.get("/readyz").await.status != 200 {
            assert!(Instant::now() < end, "the host does not become ready");
        }
    }

    /// Polls until `/readyz` says that the host is stopping.
    pub async fn until_draining(&self) {
        let end = Instant::now() + PATIENCE;
        while self.get("/readyz").await.body["draining"] != true {
            assert!(Instant::now() < end, "the host does not stop");
        }
    }

    /// Polls until a sample of `/metrics` is at least this value.
    pub async fn until_metric(&self, sample: &str, least: u64) {
        let end = Instant::now() + PATIENCE;
        while self.metric(sample).await < least {
            assert!(Instant::now() < end, "{sample} stays below {least}");
        }
    }

    /// The last request that has ended, with its steps. Polls until there is one.
    pub async fn last_timeline(&self) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let listed = self.ask("requests?limit=1").await.body;
            if let (Some(id), true) =
                (listed["data"][0]["request_id"].as_str(), listed["running"] == json!([]))
            {
                return self.ask(&format!("requests/{id}")).await.body;
            }
            assert!(Instant::now() < end, "no request has ended: {listed}");
        }
    }
}
