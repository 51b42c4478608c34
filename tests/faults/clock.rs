//! The date steps back while the host runs: durations must be measured with the monotonic clock.

use super::rows::setup;
use crate::kit::client::{Client, read};
use crate::kit::host::{Host, Setup};
use crate::kit::shim::Shim;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: i64 = 3600;

async fn put(host: &Host, name: &str) -> (u16, Value) {
    let request = Client::new(host).request(Method::PUT, &format!("/vault/secrets/{name}"));
    let request = request.header("content-type", "application/json");
    let body = json!({"hosts": ["api.example.com"], "value": "x"}).to_string();
    let answer = read(request.body(body).send().await.unwrap()).await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn setting_the_date_back_changes_only_dates() {
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let mut host = shim.on(setup).start();
    let (status, before) = put(&host, "a").await;
    assert_eq!(status, 200);
    shim.shift_date(-HOUR);
    let (status, after) = put(&host, "b").await;
    assert_eq!(status, 200);
    let date = |body: &Value| body["data"]["created_at"].as_str().unwrap().to_owned();
    assert!(date(&after) < date(&before), "the date did not step back");
    // A replaced secret keeps its creation date, whatever the date is now.
    let (_, again) = put(&host, "a").await;
    assert_eq!(date(&again), date(&before));
    host.end();
    let host = Setup::after(&host).start();
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
}

#[tokio::test]
async fn retired_vault_keys_are_deleted_by_a_running_host_after_30_days() {
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let host = shim.on(setup).start();
    assert_eq!(put(&host, "a").await.0, 200);
    host.command(&["vault", "rotate-keys"]);
    let deleted = || host.command(&["vault", "audit"]).to_string().contains("vault_keys_deleted");
    shim.shift_date(30 * 24 * HOUR - 60);
    assert!(!deleted());
    shim.shift_date(30 * 24 * HOUR + 60);
    let end = Instant::now() + PATIENCE;
    while !deleted() {
        assert!(Instant::now() < end, "the key is still there");
    }
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
}

#[tokio::test]
async fn rate_limits_recover_although_the_date_stepped_back() {
    let setup = Setup::new().config("[vault]\nrate_limit = { writes_per_minute = 60 }");
    let shim = Shim::new(&setup.data());
    let host = shim.on(setup).start();
    let end = Instant::now() + PATIENCE;
    while put(&host, "a").await.0 != 429 {
        assert!(Instant::now() < end, "the limit is never reached");
    }
    shim.shift_date(-HOUR);
    while put(&host, "a").await.0 != 200 {
        assert!(Instant::now() < end, "the limit stays shut");
    }
}
