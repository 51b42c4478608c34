//! The sandbox: third-party guests are served, and a guest that misbehaves ends only its own
//! request.

use crate::kit::admin::Admin;
use crate::kit::beside::Calm;
use crate::kit::client::{Answer, Client, last_response};
use crate::kit::guests::{built, folder};
use crate::kit::host::{Host, Setup};
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time of one call of a provider plugin whose manifest sets none.
const BUDGET: Duration = Duration::from_millis(100);

/// A provider and its models; each model has the same name at the provider.
fn provider(name: &str, adapter: &str, base: Option<&str>, models: &[&str]) -> String {
    let base = base.map_or_else(String::new, |base| format!("base_url = \"{base}\"\n"));
    let mut config = format!("[[providers]]\nname = \"{name}\"\nadapter = \"{adapter}\"\n{base}");
    for model in models {
        config.push_str(&format!(
            "[[models]]\nid = \"{name}/{model}\"\nendpoints = [{{ provider = \"{name}\", model = \"{model}\" }}]\n"
        ));
    }
    config
}

#[tokio::test]
async fn a_provider_dropped_into_the_folder_answers_without_recompiling_the_host() {
    let guests = folder(&["provider-own"]);
    let host = Setup::new().config(&provider("mine", "own", None, &["m"])).plugins(guests.path()).start();
    let client = Client::new(&host);
    let whole = client.post("/responses", &json!({"model": "mine/m", "input": "draw"})).await;
    assert_eq!((whole.status, whole.output_text()), (200, "OWN:ward"), "{}", whole.text);
    let events = client.stream(&json!({"model": "mine/m", "input": "draw"})).await;
    assert_eq!(last_response(&events)["output"][0]["content"][0]["text"], "OWN:ward");
    let listed = host.command(&["plugin", "list"]);
    let own = listed.as_array().unwrap().iter().find(|plugin| plugin["name"] == "provider-own").unwrap();
    assert!(own["origin"].as_str().unwrap().starts_with(guests.path().to_str().unwrap()), "{own}");
}

#[tokio::test]
async fn a_router_dropped_into_the_folder_decides_the_order() {
    let guests = folder(&["router", "provider-own"]);
    let config = "[[providers]]\nname = \"first\"\nadapter = \"own\"\n\
        [[providers]]\nname = \"second\"\nadapter = \"own\"\n\
        [[models]]\nid = \"mine/m\"\nendpoints = [{ provider = \"first\", model = \"m\" }, { provider = \"second\", model = \"m\" }]\n\
        [plugins.router]\nreplaces = true";
    let host = Setup::new().config(config).plugins(guests.path()).start();
    let request = Client::new(&host).request(reqwest::Method::POST, "/responses");
    let request = request.header("x-service-metadata", "enabled");
    let request = request.body(json!({"model": "mine/m", "input": "draw"}).to_string());
    let answer = crate::kit::client::read(request.send().await.unwrap()).await;
    let metadata = &answer.body["service_metadata"];
    assert_eq!(metadata["strategy"], "own", "{}", answer.text);
    let available = metadata["endpoints"]["available"].as_array().unwrap();
    let selected = available.iter().find(|endpoint| endpoint["selected"] == true).unwrap();
    assert_eq!(selected["provider"], "second", "{}", answer.text);
}

#[tokio::test]
async fn a_new_dialect_needs_only_its_guest() {
    let upstream = Upstream::start().await;
    let config = provider("calm", "openai-chat", Some(&upstream.base), &["m"]);
    let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]});
    let request = json!({"model": "calm/m", "input": "hi"});

    let host = Setup::new().config(&config).start();
    upstream.reply(Reply::json(200, body.clone()));
    assert_eq!(Client::new(&host).post("/responses", &request).await.output_text(), "hello");

    let guests = folder(&["provider-openai-chat"]);
    let config = format!("{config}[plugins.provider-openai-chat]\nreplaces = true\n");
    let host = Setup::new().config(&config).plugins(guests.path()).start();
    upstream.reply(Reply::json(200, body));
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    assert_eq!(answer.body["error"]["code"], 502);
}

/// The misbehaviours, and the error kinds in metrics by which each may be stopped.
const DEEDS: [(&str, &[&str]); 6] = [
    ("loop", &["out_of_time"]),
    ("allocate", &["out_of_memory", "out_of_time"]),
    // Guest compilers put the stack at the start of memory, so an overflow leaves memory.
    ("recurse", &["stack_overflow", "out_of_bounds"]),
    ("trap", &["unreachable"]),
    ("list", &["out_of_bounds", "invalid_value", "output_too_large"]),
    ("log", &["out_of_time", "too_many_host_calls"]),
];

/// A host with the rogue provider and a well-behaved one.
async fn host_with_rogue(places: &[&str]) -> (Host, tempfile::TempDir, Upstream, Calm) {
    let (rogue, calm) = (Upstream::start().await, Calm::start().await);
    let guests = folder(&["provider-rogue"]);
    let mut models = vec!["echo".to_owned(), "marker".to_owned()];
    for place in places {
        let deeds = DEEDS.iter().map(|(deed, _)| *deed).chain(["flood", "disorder"]);
        models.extend(deeds.map(|deed| format!("{deed}-{place}")));
    }
    let models: Vec<&str> = models.iter().map(String::as_str).collect();
    let setup =
        Setup::new().config(&provider("rogue", "rogue", Some(&rogue.base), &models)).config(&calm.config());
    let host = setup.plugins(guests.path()).start();
    Admin::new(&host).until_ready().await;
    (host, guests, rogue, calm)
}

async fn assert_the_rogue_still_echoes(client: &Client) {
    let answer = client.post("/responses", &json!({"model": "rogue/echo", "input": "still here"})).await;
    assert_eq!((answer.status, answer.output_text()), (200, "still here"));
}

/// The answer to a request whose guest misbehaves, and the time that it took.
async fn misbehave(client: &Client, request: &Value) -> (Answer, Duration) {
    let began = Instant::now();
    let answer = client.post("/responses", request).await;
    let took = began.elapsed();
    assert_the_rogue_still_echoes(client).await;
    (answer, took)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misbehaving_guest_ends_only_its_own_request() {
    let (host, _guests, rogue, calm) = host_with_rogue(&["prepare", "feed"]).await;
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let watch = calm.watch(&host).await;
    for (deed, kinds) in DEEDS {
        let before = broken_calls(&admin, kinds).await;
        for (place, streamed) in [("prepare", false), ("prepare", true), ("feed", false), ("feed", true)] {
            // A reply that the rogue did not fetch must not be used for its next request.
            rogue.clear();
            rogue.reply(Reply::sse(&[json!({"go": 1})]));
            let request = json!({"model": format!("rogue/{deed}-{place}"), "input": "x", "stream": streamed});
            let what = format!("{deed}-{place} streamed={streamed}");
            let (answer, took) = watch.beside(&what, misbehave(&client, &request)).await;
            assert_eq!(answer.status, 502, "{what}: {}", answer.text);
            assert_eq!(answer.message(), "A plugin of this host failed while it spoke to the provider");
            assert_eq!(answer.body["error"]["metadata"]["refused_by"], "host");
            assert_eq!(answer.body["error"]["metadata"]["error_type"], "provider_unavailable");
            println!("{what}: {took:?}, {:?} beyond the budget", took.saturating_sub(BUDGET));
        }
        let counted = broken_calls(&admin, kinds).await - before;
        assert_eq!(counted, 4, "{deed}: {}", admin.get("/metrics").await.text);
    }
}

/// Calls of the rogue that ended with one of these error kinds.
async fn broken_calls(admin: &Admin, kinds: &[&str]) -> u64 {
    let mut sum = 0;
    for kind in kinds {
        let labels = format!("plugin=\"provider-rogue\",kind=\"{kind}\"");
        sum += admin.metric(&format!("cofferdam_plugin_errors_total{{{labels}}}")).await;
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misbehaving_guests_on_every_core_leave_other_streams_alone() {
    let (host, _guests, _rogue, calm) = host_with_rogue(&["prepare"]).await;
    let watch = calm.watch(&host).await;
    let mut rogues = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = Client::new(&host);
        rogues.spawn(async move {
            client.post("/responses", &json!({"model": "rogue/loop-prepare", "input": "x"})).await.status
        });
    }
    assert_eq!(watch.beside("eight loops at once", rogues.join_all()).await, [502; 8]);
    assert_the_rogue_still_echoes(&Client::new(&host)).await;
}

#[tokio::test]
async fn a_guest_may_misbehave_wherever_it_is_called() {
    let places = ["new", "finish", "error", "drop"];
    let (host, _guests, rogue, _calm) = host_with_rogue(&places).await;
    let client = Client::new(&host);
    for (deed, _) in DEEDS {
        for place in places {
            rogue.clear();
            rogue.reply(match place {
                "error" => Reply::json(500, json!({"error": "sorry"})),
                _ => Reply::sse(&[json!({"go": 1})]),
            });
            let request = json!({"model": format!("rogue/{deed}-{place}"), "input": "x"});
            let answer = client.post("/responses", &request).await;
            assert_eq!(answer.status, status_of(deed, place), "{deed}-{place}: {}", answer.text);
        }
    }
    assert_the_rogue_still_echoes(&client).await;
}

/// A misbehaviour after the response is complete harms no request, and the constructor of the
/// decoder returns no list.
fn status_of(deed: &str, place: &str) -> u16 {
    if place == "drop" || (deed, place) == ("list", "new") { 200 } else { 502 }
}

#[tokio::test]
async fn too_many_or_invalid_events_fail_only_that_request() {
    let (host, _guests, rogue, _calm) = host_with_rogue(&["prepare", "feed"]).await;
    let client = Client::new(&host);
    for model in ["flood-prepare", "flood-feed", "disorder-prepare", "disorder-feed"] {
        rogue.clear();
        rogue.reply(Reply::sse(&[json!({"go": 1})]));
        let answer =
            client.post("/responses", &json!({"model": format!("rogue/{model}"), "input": "x"})).await;
        assert_eq!(answer.status, 502, "{model}: {}", answer.text);
        assert_the_rogue_still_echoes(&client).await;
    }
}

#[tokio::test]
async fn guest_logs_are_bounded_and_contain_no_control_characters() {
    let (mut host, _guests, _rogue, _calm) = host_with_rogue(&["prepare"]).await;
    let request = json!({"model": "rogue/log-prepare", "input": "x"});
    assert_eq!(Client::new(&host).post("/responses", &request).await.status, 502);
    let dropped = "cofferdam_plugin_log_lines_dropped_total{plugin=\"provider-rogue\"}";
    Admin::new(&host).until_metric(dropped, 1).await;
    host.signal("TERM");
    host.wait();
    let log = host.log();
    let (told, lines): (Vec<&str>, Vec<&str>) = log
        .lines()
        .filter(|line| line.contains("\"target\":\"plugin::provider-rogue\""))
        .partition(|line| line.contains("were dropped"));
    assert!((1..=64).contains(&lines.len()), "{} lines of the guest", lines.len());
    assert_eq!(told.len(), 1, "{told:?}");
    let told: Value = serde_json::from_str(told[0]).unwrap();
    assert!(told["lines"].as_u64().unwrap() > 0 && told["plugin"] == "provider-rogue", "{told}");
    for line in lines {
        assert_eq!(line.matches("\"request_id\":").count(), 1, "{line}");
        assert!(line.contains("\"generation\":\"resp_"), "{line}");
    }
    assert!(!log.contains('\u{1b}') && !log.contains('\r'));
    for line in log.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "not a line of ours: {line}");
    }
}

/// The signature of a marker that an earlier call left and this call found.
async fn found_marker(client: &Client) -> Option<String> {
    let answer = client.post("/responses", &json!({"model": "rogue/marker", "input": "x"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = answer.output_text();
    assert!(text == "fresh" || text.starts_with("found "), "{text}");
    text.strip_prefix("found ").map(str::to_owned)
}

#[tokio::test]
async fn guest_memory_is_not_shared_between_workspaces() {
    let (host, _guests, _rogue, _calm) = host_with_rogue(&[]).await;
    host.command(&["workspace", "create", "other"]);
    let other = host.command(&["key", "create", "--workspace", "other"]);
    let clients = [Client::new(&host), Client::with_key(&host, other["key"].as_str().unwrap())];
    let mut found = [BTreeSet::new(), BTreeSet::new()];
    for _ in 0..10 {
        for (client, found) in clients.iter().zip(&mut found) {
            found.extend(found_marker(client).await);
        }
    }
    let [first, second] = &clients;
    for _ in 0..10 {
        let (a, b) = tokio::join!(found_marker(first), found_marker(second));
        found[0].extend(a);
        found[1].extend(b);
    }
    // Each workspace finds at most its own markers, and the two are distinct.
    assert!(found.iter().all(|names| names.len() <= 1), "{found:?}");
    assert!(found[0].is_disjoint(&found[1]), "{found:?}");
}

#[tokio::test]
async fn guest_memory_is_not_shared_between_keys() {
    let (host, _guests, _rogue, _calm) = host_with_rogue(&["prepare"]).await;
    let first = Client::new(&host);
    // Writing the marker grows the guest's memory; an instance that has grown is not kept for long.
    assert_eq!(found_marker(&first).await, None);
    let met = found_marker(&first).await;
    assert!(met.is_some(), "a call that went well leaves its instance to the next of the same key");
    for _ in 0..10 {
        found_marker(&first).await;
        let key = host.command(&["key", "create", "--workspace", "default"]);
        let second = Client::with_key(&host, key["key"].as_str().unwrap());
        assert_eq!(found_marker(&second).await, None);
    }
    let broken = Client::with_key(
        &host,
        host.command(&["key", "create", "--workspace", "default"])["key"].as_str().unwrap(),
    );
    assert_eq!(found_marker(&broken).await, None);
    let request = json!({"model": "rogue/trap-prepare", "input": "x"});
    assert_eq!(broken.post("/responses", &request).await.status, 502);
    assert_eq!(found_marker(&broken).await, None, "an instance that broke is never met again");
}

#[test]
fn an_incompatible_component_is_refused_at_start_with_one_line() {
    let fits = std::fs::read(built("router-own.wasm")).unwrap();
    let skewed = replaced(&fits, b"routing@0.1.0", b"routing@0.9.0");
    assert_ne!(fits, skewed);
    let table: [(&str, Vec<u8>, &str); 6] = [
        ("garbage", b"\x7fELF and so on".to_vec(), "is not WebAssembly"),
        ("empty", Vec::new(), "is empty"),
        ("cut short", fits[..fits.len() / 2].to_vec(), "router.wasm"),
        ("core module", b"\0asm\x01\0\0\0".to_vec(), "is a core module"),
        ("other world", std::fs::read(built("provider-own.wasm")).unwrap(), "the component is a provider"),
        ("another line", skewed, "is built for line 0.9 of cofferdam:plugin, this host serves 0.1: "),
    ];
    for (what, component, says) in table {
        let guests = folder(&["router"]);
        std::fs::write(guests.path().join("router.wasm"), component).unwrap();
        let replaces = "[plugins.router]\nreplaces = true";
        let output = Setup::new().config(replaces).plugins(guests.path()).fail();
        assert_eq!(output.status.code(), Some(78), "{what}: {output:?}");
        assert!(output.stdout.is_empty(), "{what}: {output:?}");
        let complaint = String::from_utf8(output.stderr).unwrap();
        let line = complaint.lines().last().unwrap();
        assert!(line.contains("router.toml") && line.contains(says), "{what}: {complaint}");
    }
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for start in 0..bytes.len() - from.len() {
        if bytes[start..].starts_with(from) {
            bytes[start..start + to.len()].copy_from_slice(to);
        }
    }
    bytes
}

/// Words of providers' formats. Those in quotes are also parts of names of the host itself.
const FOREIGN: [&str; 12] = [
    "chat/completions",
    "\"tool_calls\"",
    "content_block",
    "anthropic-version",
    "\"choices\"",
    "\"finish_reason\"",
    "stop_reason",
    "message_delta",
    "tool_use_id",
    "\"completion_tokens\"",
    "logit_bias",
    "generateContent",
];

#[test]
fn the_host_contains_no_provider_formats() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<_> =
        std::fs::read_dir(host).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let known = FOREIGN.iter().find(|word| text.contains(*word));
                assert_eq!(known, None, "{}", path.display());
            }
        }
    }
    assert!(files > 100, "only {files} sources were found");
}
