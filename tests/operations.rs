//! The life of a host: health and metrics, reloads, kills, and its connections.

mod stopping;

use crate::kit::admin::Admin;
use crate::kit::client::{Client, events_of};
use crate::kit::deadline;
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup, program, program_at};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn chat_model(base: &str, name: &str) -> String {
    format!(
        "[[providers]]\nname = \"calm\"\nadapter = \"openai-chat\"\nbase_url = \"{base}\"\n\
         [[models]]\nid = \"calm/{name}\"\nendpoints = [{{ provider = \"calm\", model = \"{name}\" }}]\n"
    )
}

fn chunk(text: &str) -> String {
    sse_event(&json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

#[tokio::test]
async fn health_readiness_and_metrics_need_no_key_and_contain_no_secret() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    admin.until_ready().await;
    assert_eq!(admin.get("/healthz").await.body, json!({"status": "ok"}));
    let ready = admin.get("/readyz").await.body;
    assert_eq!(
        ready,
        json!({"ready": true, "plugins_compiled": true, "store_writable": true, "draining": false})
    );
    let client = Client::new(&host);
    client.post("/responses", &json!({"model": "local/demo", "input": "a very private word"})).await;
    client.post("/responses", &json!({"model": "none/such", "input": "x"})).await;
    client.stream(&json!({"model": "local/demo", "input": "x"})).await;
    let metrics = admin.get("/metrics").await;
    assert_eq!(metrics.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    for (sample, least) in [
        ("cofferdam_ready", 1),
        ("cofferdam_requests_total{route=\"responses\",status=\"200\"}", 2),
        ("cofferdam_requests_total{route=\"responses\",status=\"404\"}", 1),
        ("cofferdam_stream_first_byte_seconds_count", 1),
        ("cofferdam_attempts_total{provider=\"demo\",outcome=\"answered\"}", 2),
        ("cofferdam_plugin_calls_total{plugin=\"provider-demo\"}", 2),
        ("cofferdam_plugin_calls_total{plugin=\"router\"}", 2),
    ] {
        admin.until_metric(sample, least).await;
    }
    assert!(!metrics.text.contains("private") && !metrics.text.contains("none/such"));
    assert!(!host.log().contains("private"), "content is in the log");
    assert_prometheus(&metrics.text);
    assert_eq!(admin.get("/other").await.status, 404);
}

/// Checks that every sample belongs to the family before it and that no sample is repeated.
fn assert_prometheus(text: &str) {
    let (mut family, mut seen) = (String::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            kind.split(' ').next().unwrap().clone_into(&mut family);
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(sample.starts_with(&family), "{line} in {family}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(seen.insert(sample.to_owned()), "{line} comes twice");
        }
    }
    assert!(seen.len() > 20);
}

#[tokio::test]
async fn reload_applies_a_valid_configuration_and_refuses_an_invalid_one() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&chat_model(&upstream.base, "one")).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let file = host.directory().join("cofferdam.toml");
    let model = |name: &'static str| client.get(name);
    assert_eq!(model("/models/calm/two").await.status, 404);

    let both = format!(
        "{}[[models]]\nid = \"calm/two\"\nendpoints = [{{ provider = \"calm\", model = \"two\" }}]\n",
        chat_model(&upstream.base, "one")
    );
    std::fs::write(&file, both).unwrap();
    host.signal("HUP");
    admin.until_metric("cofferdam_reloads_total", 1).await;
    assert_eq!(model("/models/calm/one").await.status, 200);
    assert_eq!(model("/models/calm/two").await.status, 200);

    std::fs::write(&file, "[server]\nlistn = 1\n").unwrap();
    host.signal("HUP");
    admin.until_metric("cofferdam_reloads_refused_total", 1).await;
    host.until_logged("cofferdam.toml:2:1: server.listn");
    assert_eq!(model("/models/calm/two").await.status, 200);
    let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]});
    upstream.reply(Reply::json(200, body));
    let answer = client.post("/responses", &json!({"model": "calm/two", "input": "hi"})).await;
    assert_eq!((answer.status, answer.output_text()), (200, "hello"), "{}", answer.text);
}

#[tokio::test]
async fn restart_warnings_compare_with_the_running_settings() {
    let mut host = Setup::new().config("[limits]\nstreams = 7").start();
    let admin = Admin::new(&host);
    let file = host.directory().join("cofferdam.toml");
    for (reloads, config) in [
        (1, "[limits]\nstreams = 9\n[vault]\nroot_key = \"env:NEXT\""),
        (2, "[limits]\nstreams = 7"),
        (3, ""),
    ] {
        std::fs::write(&file, config).unwrap();
        host.signal("HUP");
        admin.until_metric("cofferdam_reloads_total", reloads).await;
    }
    host.end();
    let warned = |key: &str| {
        let line = format!("this change takes effect at the next start\",\"key\":\"{key}\"");
        host.log().matches(&line).count()
    };
    // Returning to the running value is no change. Any other value is one, whatever the previous
    // reload had.
    assert_eq!((warned("limits.streams"), warned("vault.root_key"), warned("server.listen")), (2, 1, 0));
}

#[tokio::test]
async fn a_stream_that_runs_outlives_a_reload() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&chat_model(&upstream.base, "m")).start();
    let admin = Admin::new(&host);
    let (feed, mut response, mut text) = running_stream(&host, &upstream).await;
    std::fs::write(host.directory().join("cofferdam.toml"), "").unwrap();
    host.signal("HUP");
    admin.until_metric("cofferdam_reloads_total", 1).await;
    assert_eq!(Client::new(&host).get("/models/calm/m").await.status, 404);
    finish(feed, &mut response, &mut text).await;
}

#[tokio::test]
async fn reload_reads_plugins_again_and_refuses_a_broken_one() {
    let plugins = folder(&["provider-own"]);
    let config = "[[providers]]\nname = \"mine\"\nadapter = \"own\"\n\
        [[models]]\nid = \"mine/m\"\nendpoints = [{ provider = \"mine\", model = \"m\" }]";
    let host = Setup::new().config(config).plugins(plugins.path()).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let request = json!({"model": "mine/m", "input": "draw"});
    assert_eq!(client.post("/responses", &request).await.output_text(), "OWN:ward");

    let component = plugins.path().join("provider-own.wasm");
    let good = std::fs::read(&component).unwrap();
    std::fs::write(&component, b"").unwrap();
    host.signal("HUP");
    admin.until_metric("cofferdam_reloads_refused_total", 1).await;
    assert_eq!(client.post("/responses", &request).await.output_text(), "OWN:ward");

    std::fs::write(&component, good).unwrap();
    let manifest = plugins.path().join("provider-own.toml");
    let newer =
        std::fs::read_to_string(&manifest).unwrap().replace("version = \"0.1.0\"", "version = \"0.2.0\"");
    std::fs::write(&manifest, newer).unwrap();
    host.signal("HUP");
    admin.until_metric("cofferdam_reloads_total", 1).await;
    let listed = host.command(&["plugin", "list"]);
    let own = listed.as_array().unwrap().iter().find(|plugin| plugin["name"] == "provider-own").unwrap();
    assert_eq!(own["version"], "0.2.0");
    assert_eq!(client.post("/responses", &request).await.output_text(), "OWN:ward");
}

#[test]
fn an_address_in_use_is_named() {
    let host = Setup::new().start();
    let taken = host.banner["listen"].as_str().unwrap();
    let mut command = program();
    command.arg("--data").arg(host.directory().join("other")).args(["serve", "--admin", "127.0.0.1:0"]);
    let output = command.args(["--listen", taken]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains(taken));
}

/// A stream whose first chunk has arrived.
async fn running_stream(
    host: &Host,
    upstream: &Upstream,
) -> (tokio::sync::mpsc::Sender<String>, reqwest::Response, String) {
    let (feed, reply) = Reply::fed();
    upstream.reply(reply);
    feed.send(chunk("first ")).await.unwrap();
    let request = json!({"model": "calm/m", "input": "go", "stream": true}).to_string();
    let request = Client::new(host).request(reqwest::Method::POST, "/responses").body(request);
    let mut response = request.send().await.unwrap();
    let mut text = String::new();
    while !text.contains("first ") {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    (feed, response, text)
}

async fn finish(
    feed: tokio::sync::mpsc::Sender<String>,
    response: &mut reqwest::Response,
    text: &mut String,
) {
    feed.send(chunk("last")).await.unwrap();
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    feed.send(sse_event(&end)).await.unwrap();
    feed.send(sse_event(&json!("[DONE]"))).await.unwrap();
    drop(feed);
    while let Some(bytes) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    let events = events_of(text);
    assert_eq!(events.last().unwrap()["type"], "response.completed", "{text}");
    assert_eq!(crate::kit::client::text_of(&events), "first last");
}

#[test]
fn every_acknowledged_key_survives_a_kill() {
    let mut host = Setup::new().start();
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        acknowledged.extend(create_until_killed(&mut host));
        host = host.restart();
        let listed = host.command(&["key", "list"]);
        let ids: BTreeSet<&str> =
            listed.as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap()).collect();
        for key in &acknowledged {
            assert!(ids.contains(key["id"].as_str().unwrap()), "{} is lost", key["id"]);
        }
        let workers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let last = acknowledged.last().unwrap()["key"].as_str().unwrap();
        assert_eq!(workers.block_on(Client::with_key(&host, last).get("/key")).status, 200);
    }
}

/// Creates keys from three threads and kills the host meanwhile; returns the acknowledged keys.
fn create_until_killed(host: &mut Host) -> Vec<Value> {
    let data = host.data();
    let (sender, receiver) = std::sync::mpsc::sync_channel(64);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (sender, data) = (sender.clone(), &data);
            scope.spawn(move || {
                (0..6).filter_map(|_| create_key(data)).for_each(|key| sender.send(key).unwrap())
            });
        }
        drop(sender);
        let mut keys: Vec<Value> = receiver.iter().take(6).collect();
        host.kill();
        keys.extend(receiver);
        keys
    })
}

/// Creates a key; `None` if the host ended before the acknowledgement.
fn create_key(data: &Path) -> Option<Value> {
    let mut command = program_at(data);
    command.arg("--json").args(["key", "create", "--workspace", "default"]);
    serde_json::from_slice(&command.output().unwrap().stdout).ok()
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let host = Setup::new().start();
    let address = host.base.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let mut socket = TcpStream::connect(&address).await.unwrap();
    for _ in 0..3 {
        let request =
            format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", host.key);
        socket.write_all(request.as_bytes()).await.unwrap();
        let text = read_answer(&mut socket).await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("local/demo"), "{text}");
    }
}

/// Reads one response with a content length.
async fn read_answer(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                return text;
            }
        }
        let count = socket.read(&mut chunk).await.unwrap();
        assert_ne!(count, 0, "the connection ended: {text}");
        bytes.extend_from_slice(&chunk[..count]);
    }
}

#[tokio::test]
async fn http_2_with_prior_knowledge_is_served() {
    let host = Setup::new().start();
    rustls::crypto::ring::default_provider().install_default().ok();
    let http = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let request = json!({"model": "local/demo", "input": "good morning", "stream": true}).to_string();
    let request = http.post(format!("{}/responses", host.base)).bearer_auth(&host.key).body(request);
    let response = request.send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, reqwest::Version::HTTP_2));
    let events = events_of(&response.text().await.unwrap());
    assert_eq!(events.last().unwrap()["type"], "response.completed");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_until_one_is_free() {
    let host = Setup::new().config("[limits]\nconnections = 2").start();
    let admin = Admin::new(&host);
    let address = host.base.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let request = format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", host.key);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(&address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        read_answer(&mut socket).await;
        open.push(socket);
    }
    let mut waiting = TcpStream::connect(&address).await.unwrap();
    waiting.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(admin.metric("cofferdam_connections").await, 2);
    assert_eq!(admin.metric("cofferdam_requests_total{route=\"models\",status=\"200\"}").await, 2);
    drop(open.pop());
    assert!(read_answer(&mut waiting).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn status_models_and_plugins_are_printed_as_text() {
    let host = Setup::new().start();
    Admin::new(&host).until_ready().await;
    let run = |command: &str| {
        let output = program().arg("--data").arg(host.data()).args(command.split(' ')).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let status = run("status");
    assert!(status.contains(&format!("yes, process {}", host.pid())), "{status}");
    assert!(status.contains(&host.admin), "{status}");
    assert!(run("models").lines().any(|line| line.starts_with("local/demo ")));
    let plugins = run("plugin list");
    assert!(
        plugins.lines().any(|line| line.starts_with("router ") && line.contains("compiled")),
        "{plugins}"
    );
    let status = host.command(&["status"]);
    assert_eq!(status["serving"]["ready"], true);
    assert_eq!(status["serving"]["pid"], host.pid());
    assert_eq!(status["store"]["counts"]["workspaces"], 1);
}

#[tokio::test]
async fn a_host_whose_plugins_are_cached_is_ready_soon() {
    let host = Setup::new().start();
    Admin::new(&host).until_ready().await;
    let host = host.restart();
    let greeted = host.spawned.elapsed();
    Admin::new(&host).until_ready().await;
    println!("from start to greeting {greeted:?}, to ready {:?}", host.spawned.elapsed());
    let listed = host.command(&["plugin", "list"]);
    let state = |name: &str| {
        let plugin = listed.as_array().unwrap().iter().find(|plugin| plugin["name"] == name).unwrap();
        plugin["state"].as_str().unwrap().to_owned()
    };
    for plugin in ["router", "provider-demo"] {
        assert!(state(plugin).contains("from the cache"), "{plugin}: {}", state(plugin));
    }
}

#[tokio::test]
async fn a_client_that_goes_away_frees_the_provider() {
    let mut upstream = Upstream::start().await;
    let host = Setup::new().config(&chat_model(&upstream.base, "m")).start();
    let (feed, response, _) = running_stream(&host, &upstream).await;
    let asked = upstream.asked();
    assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(asked[0].body["model"], "m");
    assert!(!asked[0].headers.contains_key("authorization"), "the client's key went to the provider");
    drop(response);
    upstream.dropped.recv().await.unwrap();
    Admin::new(&host).until_metric("cofferdam_streams_abandoned_total", 1).await;
    drop(feed);
}

#[tokio::test]
async fn a_provider_that_breaks_off_fails_the_stream() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&chat_model(&upstream.base, "m")).start();
    upstream.reply(Reply::Cut { content_type: "text/event-stream", pieces: vec![chunk("first ")] });
    let events = Client::new(&host).stream(&json!({"model": "calm/m", "input": "go"})).await;
    assert_eq!(events.last().unwrap()["type"], "response.failed");
}

#[test]
fn an_invalid_log_filter_is_named_and_the_host_starts() {
    let mut host = Setup::new().environment("COFFERDAM_LOG", "no=such=filter").start();
    host.signal("TERM");
    host.wait();
    assert!(host.log().contains("the value of COFFERDAM_LOG is ignored"), "{}", host.log());
    assert!(host.log().contains("\"listening\""), "{}", host.log());
}

#[test]
fn the_log_has_the_format_that_is_asked_for() {
    let mut host = Setup::new().environment("COFFERDAM_LOG_FORMAT", "text").start();
    host.end();
    assert!(host.log().contains(" INFO listening "), "{}", host.log());
    assert!(!host.log().contains(['{', '\u{1b}']), "{}", host.log());
    let mut wrong = Setup::new().environment("COFFERDAM_LOG_FORMAT", "xml").start();
    wrong.end();
    assert!(wrong.log().contains("the value of COFFERDAM_LOG_FORMAT is ignored"), "{}", wrong.log());
    assert!(wrong.log().contains("it takes `text` or `json`"), "{}", wrong.log());
}

#[test]
fn rust_log_applies_without_cofferdam_log() {
    let mut quiet = Setup::new().environment("RUST_LOG", "error").start();
    assert!(!quiet.end().contains("\"listening\""), "{}", quiet.log());
    let own = Setup::new().environment("RUST_LOG", "error").environment("COFFERDAM_LOG", "info");
    own.start().until_logged("\"listening\"");
}

#[test]
fn public_addresses_without_a_proxy_are_warned_of() {
    let serve = |config: &str| {
        let setup = Setup::new().config(&format!("[server]\nlisten = \"0.0.0.0:0\"\n{config}"));
        setup.write_config();
        let mut command = program();
        command.args(["--json", "--data"]).arg(setup.data());
        command.arg("--config").arg(setup.directory().join("cofferdam.toml")).args([
            "serve",
            "--admin",
            "127.0.0.1:0",
        ]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut greeting = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
        Command::new("kill").arg(child.id().to_string()).status().unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
    };
    assert!(serve("").contains("unencrypted"));
    assert!(!serve("trusted_proxies = [\"10.0.0.0/8\"]").contains("unencrypted"));
}

/// How often a thread of the host went to sleep, by the name of the thread.
fn sleeps_of(host: &Host, thread: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", host.pid())).unwrap();
    let of_name =
        |task: &Path| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == thread);
    let task = tasks.map(|task| task.unwrap().path()).find(|task| of_name(task)).unwrap();
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn thread_that_interrupts_guests_sleeps_while_there_is_no_instance() {
    let host = Setup::new().start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    admin.until_ready().await;
    let request = json!({"model": "local/demo", "input": "x"});
    let ticks = async || {
        let before = sleeps_of(&host, "epoch");
        assert_eq!(client.post("/responses", &request).await.status, 200);
        // The instances of the request are kept for ten seconds.
        deadline::until("ticks", async || sleeps_of(&host, "epoch") > before + 2).await;
    };
    ticks().await;
    let no_instance = async || {
        let kept = admin.metric("cofferdam_instances_idle").await;
        kept + admin.metric("cofferdam_instances").await == 0
    };
    deadline::until("the end of all instances", no_instance).await;
    let asleep = async || {
        let before = sleeps_of(&host, "epoch");
        for _ in 0..20 {
            admin.get("/healthz").await;
        }
        sleeps_of(&host, "epoch") == before
    };
    deadline::until("a thread that sleeps", asleep).await;
    ticks().await;
}
