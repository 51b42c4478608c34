//! A host in a control group with a limit of memory. The kernel kills a process that reaches the
//! limit, so the host has to refuse requests before that.

use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::{model, provider};
use crate::kit::host::Setup;
use crate::kit::memory_group::MemoryGroup;
use crate::kit::rogue::Rogue;
use crate::kit::script;
use crate::kit::upstream::{Asked, Reply, Upstream};
use bytes::Bytes;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MIB: usize = 1 << 20;
/// Length of the text of a long answer.
const ANSWER_MIB: usize = 12;
/// Memory of a guest that takes 1 MiB after the other and then runs until its time is over.
const HOARD_MIB: usize = 80;
/// Ends a request that hangs. Under the load of this test a busy machine takes minutes for an answer.
const HANG: Duration = Duration::from_secs(600);

/// A hook that takes memory and keeps it.
fn install_hoarder(folder: &Path) {
    let pages = HOARD_MIB * 16;
    let hoard = format!(
        "(loop $l (if (i32.lt_u (memory.size) (i32.const {pages})) (then \
           (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable)) \
           (memory.fill (i32.mul (i32.sub (memory.size) (i32.const 16)) (i32.const 65536)) (i32.const 1) \
             (i32.const {MIB})) \
           (br $l)))) \
         (loop $m (br $m)) unreachable"
    );
    let component = Rogue::of("request-hook").with_body("on-request@0.1.0#handle", &hoard).build();
    let manifest = "name = \"hook-hoarder\"\nkind = \"hook\"\nversion = \"1.0.0\"\n\
        description = \"Takes memory.\"\n[hook]\nid = \"hoarder\"\nphases = [\"on-request\"]\n\
        [limits]\nmemory_mib = 128\ndeadline_ms = 100\n";
    std::fs::write(folder.join("hook-hoarder.wasm"), component).unwrap();
    std::fs::write(folder.join("hook-hoarder.toml"), manifest).unwrap();
}

/// How often each client sends its request.
fn rounds() -> usize {
    crate::kit::random::count(1, 3)
}

/// The status of a request that has to be answered, or refused as documented. 0 for a long request that
/// was cut off: a host that refuses one reads the rest only as long as it arrives without a pause of a
/// second; then it closes the connection, and the client may see only that.
async fn status_of(request: reqwest::RequestBuilder, is_long: bool) -> u16 {
    let response = match request.timeout(HANG).send().await {
        Ok(response) => response,
        Err(error) => {
            assert!(is_long && !error.is_timeout(), "the host does not answer: {error:?}");
            return 0;
        }
    };
    let status = response.status().as_u16();
    let has_wait = response.headers().contains_key("retry-after");
    assert!(has_wait || !matches!(status, 429 | 503), "a refusal with {status} does not say when to retry");
    drop(response.bytes().await);
    status
}

/// Requests for models from this many clients, some times; returns how often each status was
/// the answer, and as 0 how often a long request was cut off.
async fn send(client: &Client, clients: usize, body: Bytes) -> BTreeMap<u16, usize> {
    let one = async || {
        let mut statuses = Vec::new();
        for _ in 0..rounds() {
            let request = client.request(Method::POST, "/responses").body(body.clone());
            let request = request.header("content-type", "application/json");
            statuses.push(status_of(request, body.len() > MIB).await);
        }
        statuses
    };
    let statuses = join_all((0..clients).map(|_| one())).await;
    count(statuses.into_iter().flatten())
}

fn count(statuses: impl Iterator<Item = u16>) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for status in statuses {
        *counts.entry(status).or_default() += 1;
    }
    counts
}

fn bytes(request: &Value) -> Bytes {
    Bytes::from(request.to_string())
}

/// A long answer, as one body or as a stream of events.
fn long_answer(asked: &Asked) -> Reply {
    let text = "x".repeat(MIB);
    if asked.body["stream"] == true {
        script::chat_stream(&[text.as_str(); ANSWER_MIB])
    } else {
        script::chat(&text.repeat(ANSWER_MIB))
    }
}

/// Secrets of the maximum length, from several clients at once.
async fn store_secrets(client: &Client) -> BTreeMap<u16, usize> {
    let one = async |writer: usize| {
        let mut statuses = Vec::new();
        for number in 0..rounds() {
            let request = client.request(Method::PUT, &format!("/vault/secrets/s{writer}_{number}"));
            let body = json!({"hosts": ["api.example.com"], "value": "v".repeat(64 << 10)}).to_string();
            let request = request.header("content-type", "application/json").body(body);
            statuses.push(status_of(request, true).await);
        }
        statuses
    };
    count(join_all((0..16).map(one)).await.into_iter().flatten())
}

/// Asks small questions until the load is over; returns the statuses.
async fn ask_beside(client: &Client, is_over: &AtomicBool) -> BTreeMap<u16, usize> {
    let body = json!({"model": "local/demo", "input": "Hello!"}).to_string();
    let mut statuses = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let request = client.request(Method::POST, "/responses").body(body.clone());
        statuses.push(status_of(request.header("content-type", "application/json"), false).await);
    }
    count(statuses.into_iter())
}

/// Starts a host with this limit, puts it under each load in turn, and then all at once.
async fn overload(mib: u64) {
    let Some(group) = MemoryGroup::make(mib) else { return };
    let (prompts, answers) = (Upstream::start().await, Upstream::start().await);
    prompts.always(|_| script::chat("short"));
    answers.always(long_answer);
    let guests = tempfile::tempdir().unwrap();
    install_hoarder(guests.path());
    let config = provider("prompts", "openai-chat", &prompts.base)
        + &provider("answers", "openai-chat", &answers.base)
        + "[[providers]]\nname = \"local\"\nadapter = \"demo\"\n[[models]]\nid = \"local/demo\"\n\
           endpoints = [{ provider = \"local\", model = \"demo\" }]\n"
        + &model("test/prompts", "responses", &["prompts"])
        + &model("test/answers", "responses", &["answers"])
        + "[vault]\nrate_limit = { reads_per_minute = 0, writes_per_minute = 0 }\n";
    // Another host fills the cache, so that this test measures requests and not the compiler.
    Setup::new().config(&config).plugins(guests.path()).start().until_all_compiled();
    let mut host = Setup::new().config(&config).plugins(guests.path()).in_group(&group).start();
    host.until_all_compiled();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let free = admin.metric("cofferdam_memory_free_bytes").await;
    assert_eq!(admin.metric("cofferdam_memory_limit_bytes").await, mib << 20);
    let resident = admin.metric("process_resident_memory_bytes").await;
    let is_over = AtomicBool::new(false);
    let load = async {
        let prompt = bytes(&json!({"model": "test/prompts", "input": "x".repeat(12 * MIB)}));
        println!("{mib} MiB, prompts: {:?}", send(&client, 24, prompt.clone()).await);
        prompts.clear();
        let whole = bytes(&json!({"model": "test/answers", "input": "x"}));
        let streamed = bytes(&json!({"model": "test/answers", "input": "x", "stream": true}));
        println!("{mib} MiB, answers: {:?}", send(&client, 12, whole.clone()).await);
        println!("{mib} MiB, streams: {:?}", send(&client, 12, streamed.clone()).await);
        let hoard = json!({"model": "local/demo", "input": "x", "plugins": [{"id": "hoarder"}]});
        let hoard = bytes(&hoard);
        println!("{mib} MiB, guests: {:?}", send(&client, 12, hoard.clone()).await);
        println!("{mib} MiB, secrets: {:?}", store_secrets(&client).await);
        let calls = json!({"model": "local/demo", "input": "Tell me the datetime in Europe/Paris.",
            "tools": [{"type": "service:datetime"}]});
        println!("{mib} MiB, tool calls: {:?}", send(&client, 64, bytes(&calls)).await);
        let all = tokio::join!(
            send(&client, 12, prompt),
            send(&client, 4, whole),
            send(&client, 4, streamed),
            send(&client, 6, hoard),
            store_secrets(&client)
        );
        println!("{mib} MiB, all at once: {all:?}");
        is_over.store(true, Ordering::Relaxed);
    };
    let ((), beside) = tokio::join!(load, ask_beside(&client, &is_over));
    println!("{mib} MiB, small requests beside: {beside:?}");
    assert!(beside.keys().all(|status| [200, 429, 503].contains(status)), "{beside:?}");
    assert!(beside.contains_key(&200), "{beside:?}");
    // Most of what the load took is given back, without further requests.
    admin.until_metric("cofferdam_memory_free_bytes", free - (free / 4)).await;
    assert_eq!(admin.metric("cofferdam_memory_short").await, 0);
    let after = admin.metric("process_resident_memory_bytes").await;
    println!("{mib} MiB, resident before and after: {} and {} MiB", resident >> 20, after >> 20);
    assert_eq!(client.post("/responses", &json!({"model": "local/demo", "input": "x"})).await.status, 200);
    let log = host.end();
    println!("{mib} MiB, memory was short {} times", log.matches("memory is short").count());
    assert_eq!(group.kills(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_beyond_the_memory_limit_ends_in_refusals() {
    for mib in [512, 256, 1024].into_iter().take(crate::kit::random::count(1, 3)) {
        overload(mib).await;
    }
}

#[tokio::test]
async fn requests_for_models_are_refused_while_memory_is_short() {
    let Some(group) = MemoryGroup::make(512) else { return };
    let host = Setup::new().in_group(&group).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    admin.until_ready().await;
    let request = json!({"model": "local/demo", "input": "x"});
    assert_eq!(client.post("/responses", &request).await.status, 200);
    // Another process of the group takes so much that less than a quarter is left.
    let free = admin.metric("cofferdam_memory_free_bytes").await;
    let ballast = group.hold((free >> 20) - 100);
    host.until_logged("memory is short");
    let refused = client.post("/responses", &request).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(admin.metric("cofferdam_memory_short").await, 1);
    assert_eq!(client.get("/models").await.status, 200, "what takes little memory is answered");
    let secret = json!({"hosts": ["api.example.com"], "value": "a value that is stored"}).to_string();
    let put = client.request(Method::PUT, "/vault/secrets/a").header("content-type", "application/json");
    assert_eq!(put.body(secret).send().await.unwrap().status(), 200);
    drop(ballast);
    host.until_logged("memory is no longer short");
    assert_eq!(client.post("/responses", &request).await.status, 200);
    assert_eq!(group.kills(), 0);
}
