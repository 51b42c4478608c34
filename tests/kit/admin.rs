//! The admin listener: health, readiness and metrics.

use super::client::{Answer, http_to, read};
use super::host::Host;
use std::time::{Duration, Instant};

/// How long a host may take to reach a state that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the admin listener.
pub struct Admin {
    http: reqwest::Client,
    base: String,
}

impl Admin {
    pub fn new(host: &Host) -> Self {
        let http = http_to(host).build().unwrap();
        Self { http, base: host.admin.clone() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        read(self.http.get(format!("{}{path}", self.base)).send().await.unwrap()).await
    }

    /// A sample of `/metrics` by its full name with labels; 0 if it does not exist.
    pub async fn metric(&self, sample: &str) -> u64 {
        let text = self.get("/metrics").await.text;
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// Polls until `/readyz` answers 200.
    pub async fn until_ready(&self) {
        let end = Instant::now() + PATIENCE;
        while self.get("/readyz").await.status != 200 {
            assert!(Instant::now() < end, "the host does not become ready");
        }
    }

    /// Polls until a sample of `/metrics` is at least this value.
    pub async fn until_metric(&self, sample: &str, least: u64) {
        let end = Instant::now() + PATIENCE;
        while self.metric(sample).await < least {
            assert!(Instant::now() < end, "{sample} stays below {least}");
        }
    }
}
