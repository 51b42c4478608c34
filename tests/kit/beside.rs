//! A paced stream beside something hostile, and what the host holds before and after it.

use super::admin::Admin;
use super::client::{Client, events_of};
use super::config::provider;
use super::host::Host;
use super::script::{ending, word};
use super::upstream::{Reply, Upstream, sse_event};
use serde_json::json;
use std::time::{Duration, Instant};

/// The time between two chunks of the paced stream.
const PACE: Duration = Duration::from_millis(10);
/// How long a host may take to give back what it held.
const PATIENCE: Duration = Duration::from_secs(60);

/// A well-behaved provider. Its model is `calm/m`.
pub struct Calm(Upstream);

/// A host that is watched while something hostile happens to it.
pub struct Watch<'h> {
    host: &'h Host,
    admin: Admin,
    calm: &'h Calm,
    before: Held,
}

/// What the process of a host holds, as the kernel counts it.
#[derive(Debug, Clone, Copy)]
struct Held {
    sockets: usize,
    threads: u64,
    resident_kib: u64,
}

impl Calm {
    pub async fn start() -> Self {
        Self(Upstream::start().await)
    }

    /// The provider with its model, for the configuration of the host.
    pub fn config(&self) -> String {
        let model = "[[models]]\nid = \"calm/m\"\nendpoints = [{ provider = \"calm\", model = \"m\" }]\n";
        provider("calm", "openai-chat", &self.0.base) + model
    }

    /// How many requests arrived, those of watches included.
    pub fn asked(&self) -> usize {
        self.0.asked().len()
    }

    /// Notes what the host holds after a first stream.
    pub async fn watch<'h>(&'h self, host: &'h Host) -> Watch<'h> {
        let admin = Admin::new(host);
        admin.until_ready().await;
        Beside::start(host, self).await.end().await;
        let mut watch = Watch { host, admin, calm: self, before: Held::of(host.pid()) };
        watch.until_idle().await;
        watch.before = Held::of(host.pid());
        watch
    }
}

impl Watch<'_> {
    /// Runs `deed` beside a paced stream. The stream has to be complete, and the host has to give back everything
    /// that it held for the deed; what it holds is compared with the beginning of the watch, so that nothing adds up
    /// over several deeds. The longest gap of the stream is printed.
    pub async fn beside<T>(&self, what: &str, deed: impl Future<Output = T>) -> T {
        let beside = Beside::start(self.host, self.calm).await;
        let outcome = deed.await;
        let gap = beside.end().await;
        self.until_rest(what).await;
        let Held { sockets, threads, resident_kib } = Held::of(self.host.pid());
        println!(
            "{what}: largest gap beside it {gap:?}, {sockets} sockets, {threads} threads, {resident_kib} KiB \
             resident ({} before)",
            self.before.resident_kib
        );
        outcome
    }

    /// Waits until nothing runs and no instance is in use.
    async fn until_idle(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let metrics = self.admin.get("/metrics").await.text;
            let gauge = |name: &str| {
                let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
                value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse::<u64>().unwrap()
            };
            let held = [
                gauge("cofferdam_requests_running"),
                gauge("cofferdam_streams_running"),
                gauge("cofferdam_instances").saturating_sub(gauge("cofferdam_instances_idle")),
            ];
            if held == [0; 3] {
                return;
            }
            assert!(Instant::now() < end, "requests, streams and instances that do not end: {held:?}");
        }
    }

    async fn until_rest(&self, what: &str) {
        self.until_idle().await;
        let end = Instant::now() + PATIENCE;
        while Held::of(self.host.pid()).sockets > self.before.sockets + kept_max() {
            let (held, before) = (Held::of(self.host.pid()), self.before);
            assert!(Instant::now() < end, "{what}: sockets stay open: {held:?} after {before:?}");
            tokio::task::yield_now().await;
        }
    }
}

/// Connections that may stay open for further requests: one of each thread to each of two providers, and those of the
/// test's own clients.
fn kept_max() -> usize {
    2 * std::thread::available_parallelism().unwrap().get() + 2
}

impl Held {
    fn of(pid: u32) -> Self {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let is_socket = |path: std::path::PathBuf| path.to_string_lossy().starts_with("socket:");
        let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Self {
            sockets: links.filter(|path| is_socket(path.clone())).count(),
            threads: number("Threads:"),
            resident_kib: number("VmRSS:"),
        }
    }
}

/// A stream of the well-behaved provider with a chunk every 10 ms until it is ended.
struct Beside {
    end: tokio::sync::oneshot::Sender<()>,
    read: tokio::task::JoinHandle<(String, Duration)>,
}

impl Beside {
    async fn start(host: &Host, calm: &Calm) -> Self {
        let (feed, reply) = Reply::fed();
        calm.0.reply(reply);
        let (end, mut ended) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut pace = tokio::time::interval(PACE);
            while ended.try_recv().is_err() {
                pace.tick().await;
                feed.send(sse_event(&word("beat "))).await.unwrap();
            }
            for event in ending("stop") {
                feed.send(sse_event(&event)).await.unwrap();
            }
        });
        let body = json!({"model": "calm/m", "input": "go", "stream": true}).to_string();
        let request = Client::new(host).request(reqwest::Method::POST, "/responses").body(body);
        let mut response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let read = tokio::spawn(async move {
            let (mut text, mut gap, mut last) = (String::new(), Duration::ZERO, Instant::now());
            while let Some(bytes) = response.chunk().await.unwrap() {
                gap = gap.max(last.elapsed());
                last = Instant::now();
                text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            (text, gap)
        });
        Self { end, read }
    }

    /// Ends the stream, which must be complete; returns the longest gap between two chunks.
    async fn end(self) -> Duration {
        self.end.send(()).unwrap();
        let (text, gap) = self.read.await.unwrap();
        assert_eq!(events_of(&text).last().unwrap()["type"], "response.completed");
        gap
    }
}
