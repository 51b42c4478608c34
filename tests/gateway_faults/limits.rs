//! Complaints about other gateways: scanners without a key exhaust them, tokens of streams are not
//! counted, and errors do not say who refused.

use crate::kit::client::{Answer, Client, http};
use crate::kit::config::{MODEL, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream};
use reqwest::Method;
use serde_json::{Value, json};

/// Requests of a scanner before the first measurement of memory.
const WARM_UP: usize = 300;
const SCANS: usize = 3_000;
/// The memory that these requests may leave behind: less than 3 KiB each, if it grew with their
/// number.
const GROWTH_KIB_MAX: u64 = 8 * 1024;

fn request() -> Value {
    json!({"model": MODEL, "input": "hi"})
}

fn refused_by(answer: &Answer) -> (&str, &str) {
    let metadata = &answer.body["error"]["metadata"];
    (metadata["refused_by"].as_str().unwrap_or(""), metadata["provider_name"].as_str().unwrap_or(""))
}

/// The resident memory of the process, in KiB.
fn resident_kib(host: &Host) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn commits(host: &Host) -> u64 {
    host.command(&["vault", "audit"]).as_array().unwrap().last().unwrap()["seq"].as_u64().unwrap()
}

/// Sends requests to all routes, alternately without a key and with an invented one.
async fn scan(host: &Host, count: usize) {
    let http = http().build().unwrap();
    let paths = ["responses", "embeddings", "keys", "credits", "vault/secrets", "none"];
    for (number, path) in paths.iter().cycle().take(count).enumerate() {
        let method = if number.is_multiple_of(2) { Method::POST } else { Method::GET };
        let mut asked = http.request(method, format!("{}/{path}", host.base)).body("{\"model\":\"x\"}");
        if !number.is_multiple_of(7) {
            asked = asked.bearer_auth(format!("cfd_{number:012}_{}_000000", "0".repeat(43)));
        }
        let status = asked.send().await.unwrap().status().as_u16();
        assert!([401, 404, 429].contains(&status), "{path}: {status}");
    }
}

/// In another gateway an unauthenticated scanner wrote 91,000 rows, and the page that listed them
/// crashed the process.
#[tokio::test]
async fn a_scanner_without_a_key_causes_no_writes_and_no_memory_growth() {
    let mut host = Setup::new().config("[limits]\nrequests_per_minute = 10\ntokens_per_minute = 10").start();
    host.until_all_compiled();
    let before = commits(&host);
    scan(&host, WARM_UP).await;
    let warm = resident_kib(&host);
    scan(&host, SCANS).await;
    let grown = resident_kib(&host).saturating_sub(warm);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    // The audit log has one record per minute for refused tokens, not one per request.
    assert!(commits(&host) - before < 10);
    assert!(usage_of(&mut host).is_empty());
}

/// All lists have a maximum page size.
#[tokio::test]
async fn pages_are_bounded() {
    let host = Setup::new().start();
    let key = host.command(&["key", "create", "--provisioning", "--workspace", "default"]);
    let client = Client::with_key(&host, key["key"].as_str().unwrap());
    for query in
        ["limit=101", "limit=0", "limit=-1", "limit=1000000000000", "offset=10001", "limit=1&limit=2"]
    {
        let answer = client.get(&format!("/keys?{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
        assert!(answer.message().starts_with("limit ") || answer.message().starts_with("offset "));
    }
}

/// In other gateways the tokens of streams were not counted, so limits and bills were too low.
#[tokio::test]
async fn a_stream_is_charged_like_the_same_response_in_one_body() {
    let a = Upstream::start().await;
    let mut host = Setup::new().config(&single("openai-chat", &a.base)).start();
    let client = Client::new(&host);
    a.reply(script::chat("hello"));
    client.post("/responses", &request()).await;
    a.reply(script::chat_stream(&["hello"]));
    client.stream(&request()).await;
    let rows = usage_of(&mut host);
    let tokens: Vec<(u64, u64)> = rows.iter().map(|row| (row.input_tokens, row.output_tokens)).collect();
    assert_eq!(tokens, [(7, 3), (7, 3)]);
}

/// In other gateways a refusal by the gateway's own limit looked like one by the provider.
#[tokio::test]
async fn every_refusal_says_whether_the_host_or_the_provider_refused() {
    let a = Upstream::start().await;
    let config = "[limits]\nrequests_per_minute = 12\n".to_owned() + &single("openai-chat", &a.base);
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    let limited = Reply::Whole {
        status: 429,
        headers: vec![("retry-after", "7".to_owned())],
        body: json!({"error": {"message": "slow down"}}).to_string(),
    };
    a.reply(limited);
    let theirs = client.post("/responses", &request()).await;
    assert_eq!((theirs.status, theirs.headers["retry-after"].to_str().unwrap()), (429, "7"));
    assert!(theirs.message().starts_with("Provider returned error: "), "{}", theirs.text);
    assert_eq!(refused_by(&theirs), ("provider", "one"));
    for status in [400, 402, 403, 404, 413, 422, 500, 503, 529] {
        a.reply(script::refusal(status, "no"));
        let answer = client.post("/responses", &request()).await;
        assert!(answer.message().starts_with("Provider returned error"), "{status}: {}", answer.text);
        assert_eq!(refused_by(&answer), ("provider", "one"), "{status}: {}", answer.text);
    }
    let nowhere = client.post("/responses", &json!({"model": "none/such", "input": "hi"})).await;
    assert_eq!((nowhere.status, refused_by(&nowhere)), (404, ("host", "")), "{}", nowhere.text);
    let wrong = client.post("/responses", &json!({"model": MODEL})).await;
    assert_eq!((wrong.status, refused_by(&wrong)), (400, ("host", "")), "{}", wrong.text);
    let ours = client.post("/responses", &request()).await;
    assert_eq!((ours.status, refused_by(&ours)), (429, ("host", "")), "{}", ours.text);
    assert!(ours.message().contains("this host allows this API key 12 requests per minute"), "{}", ours.text);
    let nobody = Client::with_key(&host, "wrong").post("/responses", &request()).await;
    assert_eq!((nobody.status, refused_by(&nobody)), (401, ("host", "")));
}
