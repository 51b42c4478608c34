//! Recordings of providers and routers, and the cases that are made of them.

use super::files;
use super::kinds::{recorded, same};
use crate::hostile::guests::{install, offering};
use crate::kit::client::Client;
use crate::kit::config::{MODEL, STEADY, model, provider, several};
use crate::kit::guests::{built, folder};
use crate::kit::host::{Host, Setup, program};
use crate::kit::rogue::Rogue;
use crate::kit::upstream::{Closed, Reply, Upstream};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use toml::Table;

/// A project of a built plugin, with a case in `cases/recorded.toml`.
struct Project(TempDir);

impl Project {
    /// The plugin of this manifest, with its component beside it.
    fn of(manifest: &Path) -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        let name = manifest.file_stem().unwrap().to_str().unwrap();
        std::fs::create_dir(project.path("plugins")).unwrap();
        std::fs::create_dir(project.path("cases")).unwrap();
        std::fs::copy(manifest, project.path("plugin.toml")).unwrap();
        let component = project.path(&format!("plugins/{name}.wasm"));
        std::fs::copy(manifest.with_extension("wasm"), component).unwrap();
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, case: &Table) {
        std::fs::write(self.path("cases/recorded.toml"), case.to_string()).unwrap();
    }

    /// What `plugin test` finds wrong with the case.
    fn problems(&self) -> Value {
        let output = program().args(["plugin", "test", "--json"]).arg(self.0.path()).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert!(report.is_object(), "{}", String::from_utf8_lossy(&output.stderr));
        report["cases"][0]["problems"].clone()
    }
}

/// Replays a recording with the component beside this manifest, and makes a case of it.
#[track_caller]
fn case_of(recording: &Path, manifest: &Path) -> (Value, Table) {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("case.toml");
    let report = same(recording, &manifest.with_extension("wasm"), &["--case", case.to_str().unwrap()]);
    let case: Table = std::fs::read_to_string(case).unwrap().parse().unwrap();
    // The plugin breaks with this case as it did when it was recorded.
    let project = Project::of(manifest);
    project.write(&case);
    let broke = format!("plugin {} broke (unreachable)", manifest.file_stem().unwrap().to_str().unwrap());
    assert_eq!(project.problems(), json!([broke]), "{case}");
    (report, case)
}

/// The recording with this number, once it is written.
fn numbered(host: &Host, number: usize) -> PathBuf {
    let end = format!("-{number:06}.jsonl");
    host.until_logged(&end);
    files(host).into_iter().find(|file| file.to_str().unwrap().ends_with(&end)).unwrap()
}

#[tokio::test]
async fn attempt_of_a_provider_becomes_a_case_wherever_it_failed() {
    let (upstream, guests) = (Upstream::start().await, folder(&["provider-rogue"]));
    let deeds = ["trap-finish", "trap-feed", "trap-error", "trap-prepare"];
    let endpoint =
        |deed: &str| model(&format!("rogue/{deed}"), "responses", &["rogue"]).replace("upstream-rogue", deed);
    let config = STEADY.to_owned() + &provider("rogue", "rogue", &upstream.base);
    let config = deeds.iter().fold(config, |config, deed| config + &endpoint(deed));
    let setup = Setup::new().config(&config).config("[plugins.provider-rogue]\nrecord = 9\n");
    let host = setup.plugins(guests.path()).start();
    upstream.reply(Reply::sse(&[json!({"go": "first piece"}), json!({"go": "second piece"})]));
    upstream.reply(Reply::json(200, json!({"whole": "body"})));
    upstream.reply(Reply::json(503, json!({"error": "a reason"})));
    let places = ["decoder.finish", "decoder.feed", "dialect.map-error", "generation.prepare"];
    let mut cases = Vec::new();
    for (number, (deed, place)) in deeds.into_iter().zip(places).enumerate() {
        let request = json!({"model": format!("rogue/{deed}"), "input": "a question", "stream": true,
            "metadata": {"k": deed}});
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.status, 502, "{deed}: {}", answer.text);
        let (report, mut case) = case_of(&numbered(&host, number), &built("provider-rogue.toml"));
        assert_eq!(report["recorded"]["function"], place, "{report}");
        let Some(toml::Value::Array(list)) = case.remove("case") else { panic!("{case}") };
        let case = list[0].clone();
        assert_eq!(case["target"]["model"].as_str(), Some(deed), "{case}");
        assert!(case["request"].to_string().contains("a question"), "{case}");
        cases.push(case);
    }
    let feeds = cases[0]["stream"]["feeds"].as_array().unwrap();
    let frames: Vec<&str> = feeds
        .iter()
        .flat_map(|frames| frames.as_array().unwrap())
        .map(|frame| frame["text"].as_str().unwrap())
        .collect();
    assert_eq!(frames[..2], [r#"{"go":"first piece"}"#, r#"{"go":"second piece"}"#]);
    assert_eq!(cases[1]["answer"]["text"].as_str(), Some(r#"{"whole":"body"}"#));
    assert_eq!(cases[2]["answer"]["status"].as_integer(), Some(503));
    assert_eq!(cases[2]["answer"]["text"].as_str(), Some(r#"{"error":"a reason"}"#));
    assert!(cases[3].get("answer").is_none() && cases[3].get("stream").is_none());
}

#[tokio::test]
async fn embeddings_of_a_provider_become_a_case() {
    let guests = tempfile::tempdir().unwrap();
    install(guests.path(), "provider-broken", "provider", "", &Rogue::of("embedding-provider").build());
    let config = provider("broken", "broken", "http://127.0.0.1:9/v1")
        + &model("broken/embed", "embeddings", &["broken"]);
    let setup = Setup::new().config(STEADY).config(&config).config("[plugins.provider-broken]\nrecord = 1\n");
    let host = setup.plugins(guests.path()).start();
    let request = json!({"model": "broken/embed", "input": ["one", "two"], "dimensions": 8});
    let answer = Client::new(&host).post("/embeddings", &request).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    let (_, case) = case_of(&recorded(&host), &guests.path().join("provider-broken.toml"));
    let embeddings = &case["case"][0]["embeddings"];
    assert_eq!(embeddings["input"][1].as_str(), Some("two"), "{case}");
    assert_eq!(embeddings["dimensions"].as_integer(), Some(8), "{case}");
}

/// The same case with what its answer has to have, for a plugin that does not break.
fn expecting(case: &Table, expect: Table) -> Table {
    let mut case = case.clone();
    let first = case["case"].as_array_mut().unwrap()[0].as_table_mut().unwrap();
    first.insert("expect".to_owned(), expect.into());
    case
}

#[tokio::test]
async fn order_of_a_router_becomes_a_case_that_another_router_answers() {
    let (closed, guests) = (Closed::new(), tempfile::tempdir().unwrap());
    install(guests.path(), "router", "router", "", &Rogue::of("router").build());
    let config = STEADY.to_owned() + &several(&[&closed.base, &closed.base]);
    let setup = Setup::new().config(&config).config("[plugins.router]\nreplaces = true\nrecord = 1\n");
    let host = setup.plugins(guests.path()).start();
    let preferences = json!({"sort": "price", "order": ["b"]});
    let request = json!({"model": MODEL, "input": "x", "provider": preferences});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert!(answer.status >= 500, "{}", answer.text);

    let (report, case) = case_of(&recorded(&host), &guests.path().join("router.toml"));
    assert_eq!(report["recorded"]["function"], "route", "{report}");
    let candidates = case["case"][0]["candidates"].as_array().unwrap();
    let named: Vec<&str> = candidates.iter().map(|it| it["provider"].as_str().unwrap()).collect();
    assert_eq!(named.len(), 2, "{case}");
    // The router of the program gets the same input from the case.
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/router.toml");
    let project = Project::of(&own);
    let second = named.iter().position(|name| *name == "b").unwrap();
    let order = format!("order = [{second}, {}]", 1 - second).parse::<Table>().unwrap();
    project.write(&expecting(&case, order));
    assert_eq!(project.problems(), json!([]), "{case}");
}

#[tokio::test]
async fn choice_of_a_model_router_becomes_a_case_that_another_router_answers() {
    let guests = tempfile::tempdir().unwrap();
    let broken = offering(Rogue::of("model-router"), "picky");
    install(guests.path(), "router-broken", "router", "[router]\nid = \"broken\"\n", &broken.build());
    let setup = Setup::new().config("[plugins.router-broken]\nrecord = 1\n");
    let host = setup.plugins(guests.path()).start();
    let request = json!({"model": "service/picky", "input": "x",
        "plugins": [{"id": "broken", "pick": "local/demo"}]});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert!(answer.status >= 500, "{}", answer.text);

    let (report, case) = case_of(&recorded(&host), &guests.path().join("router-broken.toml"));
    assert_eq!(report["recorded"]["function"], "choose", "{report}");
    assert_eq!(case["case"][0]["choose"]["slug"].as_str(), Some("picky"), "{case}");
    let project = Project::of(&built("router-picky.toml"));
    project.write(&expecting(&case, "models = [\"local/demo\"]".parse().unwrap()));
    assert_eq!(project.problems(), json!([]), "{case}");
}

#[test]
fn recordings_that_no_case_can_say_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let head = json!({
        "cofferdam_recording": 1, "plugin": "router-x", "component_sha256": "00", "contract": "",
        "host_version": "", "request_id": "", "workspace": "", "now_ms": 0, "manifest": "",
        "grant": {"imports": [], "hosts": [], "any_host": false, "memory_mib": null, "deadline_ms": 1, "settings": {}},
    });
    let end = json!({"end": {"kind": "unreachable", "message": "broke", "function": "f", "backtrace": null}});
    let call =
        |function: &str, input: Value| json!({"call": {"function": function, "input": input}}).to_string();
    let huge = "x".repeat(1 << 20);
    let target = json!({"model": huge, "max_output": 0, "supports": [], "tier": "default", "options": {"$text": "{}"}});
    let prepare = call("generation.prepare", json!([{"$text": "{}"}, target]));
    for (calls, why) in [
        (String::new(), "the plugin failed while it was started, before it was called"),
        (call("slugs", json!([])), "it is a call of slugs, and no case makes one alone"),
        (prepare, "and `plugin test` reads files of 1048576"),
    ] {
        std::fs::write(
            folder.path().join("failed.jsonl"),
            format!("{head}\n{calls}\n{end}\n").replace("\n\n", "\n"),
        )
        .unwrap();
        let mut command = program();
        command.current_dir(folder.path()).args(["plugin", "replay", "failed.jsonl", "--case", "case.toml"]);
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("no case can be made of this recording") && told.contains(why), "{told}");
        assert!(output.status.code() == Some(1) && !folder.path().join("case.toml").exists());
    }
}
