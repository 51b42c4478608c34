//! Providers with a secret of the vault as their credential: the operator's or the caller's own.

use crate::kit::client::{Answer, Client};
use crate::kit::config::{MODEL, model};
use crate::kit::database::is_embedded;
use crate::kit::host::{Host, Setup, program};
use crate::kit::script;
use crate::kit::store::{rows_in, usage_of};
use crate::kit::upstream::{Reply, Upstream};
use cofferdam_store::UsageOutcome;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

const OPERATORS: &str = "sk-operator-7f3a91";
const CALLERS: &str = "sk-caller-55d0c2";
const INTERNS: &str = "sk-intern-b81e04";
const HOST: &str = "provider.test";

/// A host with providers `a`, `b`, ... that accept the operator's and the caller's keys.
fn host(upstreams: &[&Upstream]) -> Host {
    setup(upstreams).start()
}

fn setup(upstreams: &[&Upstream]) -> Setup {
    let mut config =
        format!("[egress]\nallow_plaintext_loopback = true\nresolve = {{ \"{HOST}\" = [\"127.0.0.1\"] }}\n");
    let names: Vec<&str> = ["a", "b"].into_iter().take(upstreams.len()).collect();
    for (name, upstream) in names.iter().zip(upstreams) {
        let base = upstream.base.replace("127.0.0.1", HOST);
        config += &format!(
            "[[providers]]\nname = \"{name}\"\nadapter = \"openai-chat\"\nbase_url = \"{base}\"\n\
             key = \"operator:provider_key\"\nbyok = \"own_key\"\n"
        );
    }
    config += &model(MODEL, "responses", &names);
    config += &model("test/embed", "embeddings", &names);
    Setup::new().config(&config)
}

pub(crate) fn put(host: &Host, name: &str, value: &str, bound_to: &str, scope: &[&str]) {
    let mut command = program();
    command.arg("--data").arg(host.data()).args(["secret", "put", name, "--host", bound_to]).args(scope);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

fn request() -> Value {
    json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}})
}

async fn ask(host: &Host, key: &str) -> Answer {
    let metadata = [("x-service-metadata", "enabled")];
    Client::with_key(host, key).post_with("/responses", &request(), &metadata).await
}

/// The `Authorization` header of the last request to the provider.
fn sent(upstream: &Upstream) -> String {
    let asked = upstream.asked();
    let header = asked.last().unwrap().headers.get("authorization").unwrap();
    header.to_str().unwrap().to_owned()
}

fn assert_byok(answer: &Answer, byok: bool) {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["usage"]["is_byok"], byok, "{}", answer.text);
    assert_eq!(answer.body["service_metadata"]["is_byok"], byok, "{}", answer.text);
}

#[tokio::test]
async fn a_caller_without_a_key_of_its_own_pays_for_an_answer_that_it_does_not_wait_for() {
    let mut a = Upstream::start().await;
    let priced = "[[models]]\nid = \"test/priced\"\n\
        endpoints = [{ provider = \"a\", model = \"m\", input = 1000000, output = 1000000 }]\n";
    let mut host = setup(&[&a]).config(priced).start();
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    // The head of an answer whose body never comes.
    let (_body, silent) = Reply::fed_as("application/json");
    a.reply(silent);
    let client = Client::new(&host);
    let request = json!({"model": "test/priced", "input": "four", "max_output_tokens": 9});
    let asking = async { client.post("/responses", &request).await };
    tokio::select! {
        answer = asking => panic!("{}", answer.text),
        _ = a.until_asked(1) => {}
    }
    a.dropped.recv().await.unwrap();
    assert_eq!(sent(&a), format!("Bearer {OPERATORS}"));
    let rows = usage_of(&mut host);
    let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert_eq!((row.outcome, row.byok_pico), (UsageOutcome::Cancelled, 0));
    assert!(row.cost_pico > 0);
}

#[tokio::test]
async fn operators_secret_is_sent_to_its_host_and_audited() {
    let a = Upstream::start().await;
    let mut host = host(&[&a]);
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    a.reply(script::chat("hello"));
    let answer = ask(&host, &host.key).await;
    assert_byok(&answer, false);
    assert_eq!(sent(&a), format!("Bearer {OPERATORS}"));

    // Requests do not wait for the audit record; it is on disk when the host has ended.
    assert!(!host.end().contains(OPERATORS));
    let records = host.command(&["vault", "audit"]);
    let entries = records.as_array().unwrap().iter().flat_map(|record| record["entries"].as_array().unwrap());
    let released = entries.filter(|entry| entry["action"] == "secret_released").collect::<Vec<_>>();
    let [released] = released.as_slice() else { panic!("{records}") };
    assert_eq!(released["vault"], "operator");
    assert_eq!(released["host"], HOST);
    assert_eq!(released["used_by"], "provider a");
    assert_eq!(released["request_id"], answer.body["id"]);
    assert!(!records.to_string().contains(OPERATORS));
    assert!(host.files_with(OPERATORS).is_empty());
}

#[tokio::test]
async fn a_secret_that_is_missing_or_bound_to_another_host_is_not_sent() {
    let a = Upstream::start().await;
    let host = host(&[&a]);
    let answer = ask(&host, &host.key).await;
    let metadata = &answer.body["error"]["metadata"];
    assert_eq!((answer.status, &metadata["refused_by"]), (503, &json!("host")), "{}", answer.text);
    host.until_logged("store it with `cofferdam secret put provider_key --operator --host provider.test`");
    for elsewhere in ["test", "api.provider.test", "rovider.test", "provider.tes"] {
        put(&host, "provider_key", OPERATORS, elsewhere, &["--operator"]);
        assert_eq!(ask(&host, &host.key).await.status, 503, "{elsewhere}");
    }
    assert!(a.asked().is_empty());
}

/// A missing operator secret is not a configuration error, neither at start nor in `serve --check`.
#[tokio::test]
async fn missing_operators_secret_is_a_warning_with_the_command_that_stores_it() {
    const COMMAND: &str = "cofferdam secret put provider_key --operator --host provider.test";
    let config = "[[providers]]\nname = \"a\"\nadapter = \"openai-chat\"\nbase_url = \"https://provider.test/v1\"\n\
        key = \"operator:provider_key\"\n";
    let setup = Setup::new().config(config);
    let output = setup.command_output(&["serve", "--check"]);
    assert!(output.status.success(), "{output:?}");
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(checked["operator_secrets"], "not checked: no store");
    assert!(!setup.data().join("store").exists());

    let mut host = setup.start();
    host.until_logged(COMMAND);
    let checked =
        |host: &Host| host.command(&["serve", "--check"])["operator_secrets"].as_str().unwrap().to_owned();
    assert!(checked(&host).contains(COMMAND), "{}", checked(&host));
    host.end();
    assert!(checked(&host).contains(COMMAND), "{}", checked(&host));
    let host = host.restart();
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    assert_eq!(checked(&host), "all stored");
    host.command(&["secret", "delete", "provider_key", "--operator"]);
    let before = host.log().matches(COMMAND).count();
    host.signal("HUP");
    // The last line of a reload.
    host.until_logged("configuration and plugins were read again");
    assert!(host.log().matches(COMMAND).count() > before, "{}", host.log());
}

#[tokio::test]
async fn the_callers_own_key_wins_while_it_is_bound_to_the_host() {
    let a = Upstream::start().await;
    let host = host(&[&a]);
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    let steps: [(&dyn Fn(), &str, bool); 4] = [
        (&|| {}, OPERATORS, false),
        (&|| put(&host, "own_key", CALLERS, HOST, &["--workspace", "default"]), CALLERS, true),
        (&|| put(&host, "own_key", CALLERS, "other.test", &["--workspace", "default"]), OPERATORS, false),
        (
            &|| {
                put(&host, "own_key", CALLERS, HOST, &["--workspace", "default"]);
                host.command(&["secret", "delete", "own_key", "--workspace", "default"]);
            },
            OPERATORS,
            false,
        ),
    ];
    for (step, value, byok) in steps {
        step();
        a.reply(script::chat("hello"));
        assert_byok(&ask(&host, &host.key).await, byok);
        assert_eq!(sent(&a), format!("Bearer {value}"));
    }
}

#[tokio::test]
async fn interns_secret_hides_the_workspaces_even_if_bound_elsewhere() {
    let a = Upstream::start().await;
    let host = host(&[&a]);
    host.command(&["intern", "create", "ada", "--workspace", "default"]);
    let key = host.command(&["key", "create", "--workspace", "default", "--intern", "ada"]);
    let key = key["key"].as_str().unwrap();
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    put(&host, "own_key", CALLERS, HOST, &["--workspace", "default"]);
    for (bound_to, value, byok) in
        [(None, CALLERS, true), (Some(HOST), INTERNS, true), (Some("b.test"), OPERATORS, false)]
    {
        if let Some(bound_to) = bound_to {
            put(&host, "own_key", INTERNS, bound_to, &["--intern", "ada"]);
        }
        a.reply(script::chat("hello"));
        assert_byok(&ask(&host, key).await, byok);
        assert_eq!(sent(&a), format!("Bearer {value}"));
    }
}

#[tokio::test]
async fn owner_of_a_refused_key_gets_the_error_without_the_key() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = host(&[&a, &b]);
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    for status in [401, 402, 403] {
        // A refused operator's key is not the caller's fault, so the next provider is tried.
        a.reply(script::refusal(status, &format!("bad key {OPERATORS}")));
        b.reply(script::refusal(status, "bad key"));
        let answer = ask(&host, &host.key).await;
        assert_eq!(answer.status, 502, "{}", answer.text);
        assert!(!answer.text.contains(OPERATORS));
    }
    let asked = b.asked().len();
    assert_eq!(asked, 3);
    put(&host, "own_key", CALLERS, HOST, &["--workspace", "default"]);
    for status in [401, 402, 403] {
        a.reply(script::refusal(status, &format!("bad key {CALLERS}")));
        let answer = ask(&host, &host.key).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.message().contains("Provider a"), "{}", answer.text);
        assert!(!answer.text.contains(CALLERS), "{}", answer.text);
        assert_eq!(answer.body["service_metadata"]["is_byok"], true, "{}", answer.text);
    }
    assert_eq!(b.asked().len(), asked);
}

#[tokio::test]
async fn an_error_that_spells_the_key_with_escapes_is_not_passed_on() {
    let a = Upstream::start().await;
    // The provider's plugin restores the key, which the search of its memory would find.
    let host = setup(&[&a]).without_canaries().start();
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    a.reply(script::refusal(400, "bad input"));
    let answer = ask(&host, &host.key).await;
    let raw = &answer.body["error"]["metadata"]["raw"];
    assert!(raw.as_str().is_some_and(|raw| raw.contains("bad input")), "{}", answer.text);
    for every in [1, 2, 3] {
        let key = script::escaped(OPERATORS, every);
        let body = format!("{{\"error\": {{\"message\": \"bad key {key}\"}}}}");
        let headers = vec![("content-type", "application/json".to_owned())];
        a.reply(Reply::Whole { status: 400, headers, body });
        let answer = ask(&host, &host.key).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(!answer.text.contains(OPERATORS), "{}", answer.text);
        let raw = &answer.body["error"]["metadata"]["raw"];
        assert!(raw.as_str().is_none_or(|raw| !raw.contains("\\u00")), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_part_of_an_answer_to_a_request_with_a_key_is_an_error() {
    let a = Upstream::start().await;
    let host = host(&[&a]);
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    let Reply::Whole { headers, body, .. } = script::chat("hello") else { panic!("a whole answer") };
    a.reply(Reply::Whole { status: 206, headers, body });
    let answer = ask(&host, &host.key).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
}

#[tokio::test]
async fn a_key_that_is_invalid_in_a_header_is_named_to_its_owner_and_not_sent() {
    let a = Upstream::start().await;
    let host = host(&[&a]);
    put(&host, "own_key", &format!("{CALLERS}\n\n"), HOST, &["--workspace", "default"]);
    let answer = ask(&host, &host.key).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(
        answer.message().contains("own_key") && answer.message().contains("line break"),
        "{}",
        answer.text
    );
    // No provider has said this.
    assert!(answer.message().starts_with("Provider a: the secret own_key"), "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["refused_by"], "host", "{}", answer.text);
    assert!(!answer.text.contains(CALLERS));
    assert!(a.asked().is_empty());
}

#[tokio::test]
async fn streams_and_embeddings_report_which_key_was_used() {
    let a = Upstream::start().await;
    let host = host(&[&a]);
    put(&host, "own_key", CALLERS, HOST, &["--workspace", "default"]);
    let client = Client::new(&host);
    a.reply(script::chat_stream(&["hello"]));
    let events = client.stream(&request()).await;
    assert_eq!(events.last().unwrap()["response"]["usage"]["is_byok"], true);
    a.reply(Reply::json(
        200,
        json!({
            "object": "list", "model": "e", "usage": {"prompt_tokens": 1, "total_tokens": 1},
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}]
        }),
    ));
    let answer = client.post("/embeddings", &json!({"model": "test/embed", "input": "x"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["usage"]["is_byok"], true);
    assert_eq!(sent(&a), format!("Bearer {CALLERS}"));
}

#[tokio::test]
async fn cost_on_the_callers_own_key_is_reported_and_not_charged() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = host(&[&a, &b]);
    put(&host, "own_key", CALLERS, HOST, &["--workspace", "default"]);
    host.command(&["credits", "add", "default", "1"]);
    let client = Client::new(&host);
    b.reply(script::chat("hello"));
    let only = json!({"only": ["b"]});
    let answer = client.post("/responses", &json!({"model": MODEL, "input": "x", "provider": only})).await;
    let usage = &answer.body["usage"];
    assert_eq!((&usage["cost"], &usage["is_byok"]), (&json!(0), &json!(true)), "{}", answer.text);
    // Seven tokens at 10 dollars per million.
    assert_eq!(usage["cost_details"]["upstream_inference_cost"], json!(0.00007), "{}", answer.text);
    let vectors =
        json!({"data": [{"index": 0, "embedding": [1]}], "usage": {"prompt_tokens": 9, "total_tokens": 9}});
    b.reply(Reply::json(200, vectors));
    let answer =
        client.post("/embeddings", &json!({"model": "test/embed", "input": "x", "provider": only})).await;
    let usage = &answer.body["usage"];
    assert_eq!((&usage["cost"], &usage["is_byok"]), (&json!(0), &json!(true)), "{}", answer.text);
    assert_eq!(usage["cost_details"]["upstream_inference_cost"], json!(0.00009), "{}", answer.text);
    assert_eq!(host.command(&["credits", "show", "default"])["left"], 1);
    assert_eq!(host.command(&["usage"])["total"]["byok_cost"], json!(0.00016));
    let rows = usage_of(&mut host);
    let told: Vec<_> = rows.iter().map(|row| (row.cost_pico, row.byok_pico)).collect();
    assert_eq!(told, [(0, 70_000_000), (0, 90_000_000)]);
}

/// Dollars that are reserved in the default workspace.
fn reserved(host: &Host) -> f64 {
    host.command(&["credits", "show", "default"])["reserved"].as_f64().unwrap()
}

#[tokio::test]
async fn cost_on_the_callers_own_key_is_not_reserved_nor_charged_after_a_kill() {
    if !is_embedded("a host of a database that was killed is charged when others find it dead") {
        return;
    }
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = host(&[&a, &b]);
    host.command(&["credits", "add", "default", "1"]);
    put(&host, "provider_key", OPERATORS, HOST, &["--operator"]);
    let request = json!({"model": MODEL, "input": "x", "provider": {"only": ["b"]}});
    let client = Client::new(&host);
    // The operator pays for this request, so its input is reserved.
    b.reply(Reply::Hang);
    tokio::select! {
        answer = client.post("/responses", &request) => panic!("{}", answer.text),
        _ = b.until_asked(1) => assert!(reserved(&host) > 0.0),
    }
    put(&host, "own_key", CALLERS, HOST, &["--workspace", "default"]);
    let given_back = async {
        while reserved(&host) > 0.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), given_back).await.expect("what was reserved is given back");
    b.reply(Reply::Hang);
    tokio::select! {
        answer = client.post("/responses", &request) => panic!("{}", answer.text),
        _ = b.until_asked(2) => assert_eq!(reserved(&host), 0.0),
    }
    host.kill();
    let rows = rows_in(&host.data(), 10);
    let running = rows.iter().find(|row| row.outcome == UsageOutcome::Interrupted).unwrap();
    assert_eq!(
        (running.cost_pico, running.provider.as_str()),
        (0, "b"),
        "the provider saw it, so there is a row"
    );
}
