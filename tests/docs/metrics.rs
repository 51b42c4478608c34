//! `docs/reference/metrics.md`, from the metrics of a host in which each has happened once.

use super::generated;
use super::markdown::{Page, root};
use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::host::Setup;
use crate::kit::site::Authority;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Metrics that count by name have a sample for each name that there is: a destination of finished requests, and
/// a plugin that broke because it has no memory: a hook, so that the model still answers.
const CONFIG: &str = "[[broadcast]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"https://hooks.example.com/in\"\n\
    [plugins.hook-response-healing]\nmemory_mib = 1\n";

#[tokio::test]
async fn the_generated_page_of_metrics_is_current() {
    let certificate = Authority::new().issue(&["127.0.0.1"]);
    let host = Setup::new().config(CONFIG).tls(&certificate).start();
    let client = Client::new(&host);
    let mut request = json!({"model": "local/demo", "input": "Tell me the datetime in Europe/Paris.",
        "tools": [{"type": "service:datetime"}]});
    let answer = client.post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    request["plugins"] = json!([{"id": "response-healing"}]);
    let answer = client.post("/responses", &request).await;
    assert_eq!(answer.status, 500, "{}", answer.text);
    let admin = Admin::new(&host);
    // A request is counted when its answer is out.
    admin.until_metric("cofferdam_requests_total{route=\"responses\",status=\"500\"}", 1).await;
    let text = admin.get("/metrics").await.text;

    let (mut table, mut all) = (String::new(), BTreeSet::new());
    table.push_str("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n");
    for family in text.split("# HELP ").skip(1) {
        let (head, samples) = family.split_once("\n# TYPE ").unwrap();
        let (name, help) = head.split_once(' ').unwrap();
        let (kind, samples) = samples.split_once('\n').unwrap();
        let kind = kind.split_once(' ').unwrap().1;
        let labels = labels(samples.lines().next().unwrap_or_else(|| panic!("no sample of {name}")));
        writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
        all.extend(labels);
    }
    generated::check("reference/metrics.md", &table);

    let page = Page::read(root().join("docs/reference/metrics.md")).text;
    let is_explained = |label: &String| page.contains(&format!("\n| {label} | "));
    let missing: Vec<String> = all.into_iter().filter(|label| !is_explained(label)).collect();
    assert!(missing.is_empty(), "the page does not explain the labels {missing:?}");
}

/// The names of the labels of a sample, but for the bound of a histogram's bucket.
fn labels(sample: &str) -> Vec<String> {
    let Some((_, labels)) = sample.split_once('{') else { return Vec::new() };
    let names = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name);
    names.filter(|name| *name != "le").map(|name| format!("`{name}`")).collect()
}
