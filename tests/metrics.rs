//! `/metrics` as Prometheus reads it, and the alerts and the dashboard that are made for it.

use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, cached_chat, chat_stream};
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The most samples of one host.
const SERIES_MAX: usize = 20_000;
/// The most that plugins add when each has done everything, which a test of the server counts.
const PLUGIN_SERIES_MAX: usize = 11_500;
/// A metric of the alerts that only a host with TLS has.
const WITH_TLS_ONLY: &str = "cofferdam_certificate_expiry_seconds";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// The names in a text that are names of metrics of this host.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names = words.filter(|word| word.starts_with("cofferdam_") || word.starts_with("process_"));
    let base = |name: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name).to_owned()
    };
    names.map(base).collect()
}

/// The expressions of all panels, with the variables of the dashboard filled in.
fn dashboard_expressions() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deploy/grafana/cofferdam.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert_eq!(panels.len(), 16);
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let filled = targets.map(|target| {
        let written = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
        ["$model", "$provider", "$plugin"].iter().fold(written, |text, name| text.replace(name, ".*"))
    });
    let filled: Vec<String> = filled.collect();
    for expression in &filled {
        assert!(!expression.contains('$'), "an unknown variable: {expression}");
    }
    filled
}

/// Runs promtool with this input. `None` without promtool, which only `COFFERDAM_PROMTOOL` requires.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let started = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            let is_required = std::env::var_os("COFFERDAM_PROMTOOL").is_some();
            assert!(!is_required, "promtool cannot be started: {error}");
            return None;
        }
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// A host on which most things have happened once.
async fn busy_host() -> (Host, Admin) {
    let host = Setup::new().start();
    let request = json!({"model": "local/demo", "input": "Tell me the datetime in Europe/Paris.",
        "tools": [{"type": "service:datetime"}], "plugins": [{"id": "response-healing"}]});
    assert_eq!(Client::new(&host).post("/responses", &request).await.status, 200);
    assert_eq!(Client::new(&host).get("/nothing").await.status, 404);
    let admin = Admin::new(&host);
    admin.until_metric("cofferdam_requests_total{route=\"none\",status=\"404\"}", 1).await;
    (host, admin)
}

#[tokio::test]
async fn prometheus_takes_the_text() {
    let (_host, admin) = busy_host().await;
    let text = admin.get("/metrics").await.text;
    let mut families = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        assert!(families.insert(line.split(' ').next().unwrap()), "twice: {line}");
    }
    let mut known = BTreeSet::new();
    for sample in samples(&text) {
        let (name, value) = sample.rsplit_once(' ').unwrap();
        assert!(known.insert(name), "twice: {sample}");
        value.parse::<f64>().unwrap();
    }
    if let Some((is_valid, said)) = promtool(&["check", "metrics"], &text) {
        assert!(is_valid, "{said}");
    }
}

#[tokio::test]
async fn alerts_and_dashboard_name_metrics_that_exist() {
    let (_host, admin) = busy_host().await;
    let text = admin.get("/metrics").await.text;
    let heads = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let mut known: BTreeSet<String> = heads.map(str::to_owned).collect();
    known.insert(WITH_TLS_ONLY.to_owned());
    let alerts = std::fs::read_to_string(root().join("deploy/prometheus/alerts.yml")).unwrap();
    let mut named = names_in(&alerts);
    assert!(named.len() > 9, "{named:?}");
    named.extend(names_in(&dashboard_expressions().join("\n")));
    let unknown: Vec<&String> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "/metrics has no {unknown:?}");
}

#[test]
fn every_expression_of_the_dashboard_can_be_parsed() {
    let mut rules = "groups:\n- name: panels\n  rules:\n".to_owned();
    for (number, expression) in dashboard_expressions().iter().enumerate() {
        // A string of JSON is one of YAML.
        writeln!(rules, "  - record: panel_{number}\n    expr: {}", json!(expression)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panels.yml");
    std::fs::write(&file, rules).unwrap();
    if let Some((is_valid, said)) = promtool(&["check", "rules", file.to_str().unwrap()], "") {
        assert!(is_valid, "{said}");
    }
}

#[test]
fn every_alert_fires_when_it_should() {
    let folder = root().join("deploy/prometheus");
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
        let file = folder.join(arguments[2]);
        let tried = promtool(&[arguments[0], arguments[1], file.to_str().unwrap()], "");
        if let Some((is_valid, said)) = tried {
            assert!(is_valid, "{said}");
        }
    }
    let alerts = std::fs::read_to_string(folder.join("alerts.yml")).unwrap();
    let page = std::fs::read_to_string(root().join("docs/operate.md")).unwrap();
    let runbooks = alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook: docs/operate.md#"));
    let headings: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("#### ")).map(str::to_lowercase).collect();
    for runbook in runbooks {
        assert!(headings.contains(runbook), "docs/operate.md has no heading for {runbook}");
    }
}

#[tokio::test]
async fn a_request_is_counted_by_model_and_provider_and_named_in_its_log_line() {
    let upstream = Upstream::start().await;
    let config = single("openai-chat", &upstream.base).replace("input = 0", "input = 1, output = 2");
    let mut host = Setup::new().config(&config).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    upstream.reply(cached_chat("hello"));
    assert_eq!(client.post("/responses", &json!({"model": MODEL, "input": "x"})).await.status, 200);
    upstream.reply(chat_stream(&["a", "b"]));
    client.stream(&json!({"model": MODEL, "input": "x", "stream": true})).await;
    admin.until_metric("cofferdam_attempt_seconds_count{provider=\"one\"}", 2).await;
    let text = admin.get("/metrics").await.text;
    for sample in [
        // Seven tokens each, five of the first from the provider's cache.
        "cofferdam_tokens_total{model=\"test/model\",direction=\"input\"} 9",
        "cofferdam_tokens_total{model=\"test/model\",direction=\"cached_input\"} 5",
        "cofferdam_tokens_total{model=\"test/model\",direction=\"output\"} 6",
        "cofferdam_cost_dollars_total{model=\"test/model\",paid=\"credit\"} 0.000026",
        "cofferdam_cost_dollars_total{model=\"test/model\",paid=\"byok\"} 0",
        "cofferdam_first_content_seconds_count{provider=\"one\"} 1",
        "cofferdam_turns_bucket{le=\"1\"} 2",
    ] {
        assert!(text.lines().any(|line| line == sample), "no {sample} in\n{text}");
    }
    host.signal("TERM");
    host.wait();
    let log = host.log();
    let lines = log.lines().filter(|line| line.contains("cofferdam::access"));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{log}");
    for line in lines {
        let (model, attempts, outcome) = (&line["model"], &line["attempts"], &line["outcome"]);
        assert_eq!((model, attempts, outcome), (&json!(MODEL), &json!(1), &json!("completed")), "{line}");
    }
}

#[tokio::test]
async fn counters_go_on_after_a_reload() {
    let (host, admin) = busy_host().await;
    let counters = |text: &str| -> Vec<(String, f64)> {
        let counted = samples(text).filter_map(|sample| sample.rsplit_once(' '));
        let is_counter = |name: &str| {
            let metric = name.split('{').next().unwrap();
            metric.ends_with("_total") || metric.ends_with("_count") || metric.ends_with("_sum")
        };
        let counted = counted.filter(|(name, _)| is_counter(name));
        counted.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    };
    let before = counters(&admin.get("/metrics").await.text);
    let attempts = "cofferdam_attempts_total{provider=\"demo\",outcome=\"answered\"}";
    assert!(before.iter().any(|(name, count)| name == attempts && *count > 0.0), "{before:?}");
    host.signal("HUP");
    admin.until_metric("cofferdam_reloads_total", 1).await;
    let after = counters(&admin.get("/metrics").await.text);
    for (name, count) in before {
        let now = after.iter().find(|(known, _)| *known == name);
        assert!(now.is_some_and(|(_, now)| *now >= count), "{name} was {count} and is {now:?}");
    }
}

/// More models, providers, endpoints and plugins than have samples of their own, and all destinations
/// that there may be.
fn maximal() -> (String, tempfile::TempDir) {
    let mut config = String::new();
    for number in 0..70 {
        write!(config, "[[providers]]\nname = \"p{number}\"\nadapter = \"demo\"\n").unwrap();
    }
    for number in 0..16 {
        let url = "https://hooks.example.com/in";
        write!(config, "[[broadcast]]\nname = \"b{number}\"\nkind = \"webhook\"\nurl = \"{url}\"\n").unwrap();
    }
    for number in 0..300 {
        let endpoint = |shift: usize| {
            let provider = (number + shift) % 70;
            format!("{{ provider = \"p{provider}\", model = \"demo-1\" }}")
        };
        let endpoints = (0..3).map(endpoint).collect::<Vec<_>>().join(", ");
        write!(config, "[[models]]\nid = \"m/{number}\"\nendpoints = [{endpoints}]\n").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let built = root().join("plugins");
    let manifest = std::fs::read_to_string(built.join("tool-datetime.toml")).unwrap();
    for number in 0..120 {
        let named = manifest.replace("\"tool-datetime\"", &format!("\"tool-x{number}\""));
        let named = named.replace("\"datetime\"", &format!("\"x{number}\""));
        std::fs::write(folder.path().join(format!("tool-x{number}.toml")), named).unwrap();
        let component = folder.path().join(format!("tool-x{number}.wasm"));
        std::fs::copy(built.join("tool-datetime.wasm"), component).unwrap();
    }
    (config, folder)
}

#[tokio::test]
async fn a_large_configuration_has_a_bounded_number_of_series() {
    let (config, folder) = maximal();
    let host = Setup::new().config(&config).plugins(folder.path()).start();
    let admin = Admin::new(&host);
    admin.until_ready().await;
    let text = admin.get("/metrics").await.text;
    let others = samples(&text).filter(|sample| !sample.starts_with("cofferdam_plugin_")).count();
    assert!((5_000..SERIES_MAX - PLUGIN_SERIES_MAX).contains(&others), "{others} series");
    for label in ["model", "provider", "plugin", "upstream"] {
        assert!(text.contains(&format!("{label}=\"other\"")), "no {label} is counted with others");
    }
    if let Some((is_valid, said)) = promtool(&["check", "metrics"], &text) {
        assert!(is_valid, "{said}");
    }
}

#[tokio::test]
async fn answers_are_counted_by_how_they_end_and_not_by_their_status() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let request = json!({"model": MODEL, "input": "x"});
    upstream.reply(script::chat("whole"));
    assert_eq!(client.post("/responses", &request).await.status, 200);
    upstream.reply(script::refusal(400, "too long"));
    assert_eq!(client.post("/responses", &request).await.status, 400);
    upstream.reply(Reply::cut(&[script::opening(), script::word("half")]));
    client.stream(&request).await;
    for (outcome, count) in [("completed", 1), ("refused", 1), ("failed", 1), ("cancelled", 0)] {
        admin.until_metric(&format!("cofferdam_answers_total{{outcome=\"{outcome}\"}}"), count).await;
    }
}
