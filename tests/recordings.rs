//! Failing calls of plugins are recorded, and replayed in another place with the built program.

mod attempts;
mod kinds;

use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::guests::{built, folder};
use crate::kit::host::{Host, Setup, program};
use crate::kit::upstream::Upstream;
use crate::tools::script::{answer, call, calls};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

/// A host with a tool that breaks on demand, and a model that calls it.
struct Bench {
    host: Host,
    upstream: Upstream,
    _guests: TempDir,
}

impl Bench {
    /// Starts with more lines of the tool's configuration.
    async fn start(lines: &str) -> Self {
        let (upstream, guests) = (Upstream::start().await, folder(&["tool-rogue"]));
        let grant = format!("[plugins.tool-rogue]\nimports = [\"request\"]\n{lines}");
        let setup = Setup::new().config(&single("openai-chat", &upstream.base)).config(&grant);
        Self { host: setup.plugins(guests.path()).start(), upstream, _guests: guests }
    }

    /// Makes the model call a function of the tool.
    async fn call(&self, function: &str, arguments: &str) {
        self.upstream.reply(calls(false, "", &[call("c1", function, arguments)]));
        self.upstream.reply(answer(false, "done"));
        let request = json!({"model": MODEL, "input": "Go.", "tools": [{"type": "service:rogue"}]});
        assert_eq!(Client::new(&self.host).ask(&request, false).await["status"], "completed");
    }

    /// Makes a call that fails, as the host's recording with this number; returns its file.
    async fn recorded(&self, function: &str, arguments: &str, number: usize) -> PathBuf {
        self.call(function, arguments).await;
        let end = format!("-{number:06}.jsonl");
        self.host.until_logged(&end);
        let file = files(&self.host).into_iter().find(|file| file.to_str().unwrap().ends_with(&end));
        file.unwrap()
    }
}

/// The recordings of a host, oldest first.
pub fn files(host: &Host) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(host.data().join("recordings")).into_iter().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Replays a copy of the recording in a directory of its own.
fn replay(recording: &Path, edit: impl FnOnce(String) -> String, arguments: &[&str]) -> Output {
    let elsewhere = tempfile::tempdir().unwrap();
    let text = edit(std::fs::read_to_string(recording).unwrap());
    std::fs::write(elsewhere.path().join("failed.jsonl"), text).unwrap();
    std::fs::copy(built("tool-rogue.wasm"), elsewhere.path().join("tool.wasm")).unwrap();
    let command = ["plugin", "replay", "failed.jsonl", "tool.wasm", "--data", "none"];
    program().current_dir(elsewhere.path()).args(command).args(arguments).output().unwrap()
}

/// The report of a replay that went the same way.
#[track_caller]
fn same(recording: &Path) -> Value {
    let output = replay(recording, |text| text, &["--json"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&report["same"], &report["recorded_component"]), (&json!(true), &json!(true)), "{report}");
    assert_eq!(report["recorded"]["kind"], report["replayed"]["kind"], "{report}");
    report
}

/// What a replay of an edited recording prints, which goes another way.
#[track_caller]
fn different(recording: &Path, from: &str, to: &str) -> String {
    let output = replay(recording, |text| text.replace(from, to), &[]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.starts_with("different  "), "{told}");
    told
}

#[tokio::test]
async fn a_trap_is_replayed_in_another_place() {
    let bench = Bench::start("record = 2\n").await;
    bench.host.until_logged("failing calls of this plugin are recorded, with their content");
    let file = bench.recorded("trap", r#"{"text":"a word of the model"}"#, 0).await;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert!(std::fs::read_to_string(&file).unwrap().contains("a word of the model"));

    let report = same(&file);
    assert_eq!(report["recorded"]["kind"], "unreachable", "{report}");
    assert_eq!(report["recorded"]["function"], "invoke");
    assert!(report["replayed"]["backtrace"].as_str().unwrap().contains("wasm"), "{report}");
    let shown = replay(&file, |text| text, &[]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.starts_with("same       tool-rogue broke (unreachable) in invoke, as recorded"), "{shown}");

    let told = different(&file, "[\"trap\",", "[\"echo\",");
    assert!(told.contains("recorded: the call broke (unreachable); now: the guest answers"), "{told}");
    assert!(told.contains("a word of the model"), "{told}");
}

#[test]
fn a_check_of_the_configuration_does_not_say_that_calls_are_recorded() {
    let setup = Setup::new().config("[plugins.tool-datetime]\nrecord = 2\n").argument("--check");
    let output = setup.serve().output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !log.contains("are recorded"), "{log}");
}

#[tokio::test]
async fn an_answer_that_breaks_a_rule_is_compared_byte_for_byte() {
    let bench = Bench::start("record = 2\n").await;
    let file = bench.recorded("lie", "{}", 0).await;
    assert_eq!(same(&file)["recorded"]["kind"], "invalid_answer");
    let told = different(&file, "no object", "an object");
    assert!(told.contains("the output differs: recorded"), "{told}");
}

#[tokio::test]
async fn a_deadline_is_replayed_as_a_limit_of_fuel() {
    let bench = Bench::start("record = 2\ndeadline_ms = 50\n").await;
    let file = bench.recorded("hang", "{}", 0).await;
    let report = same(&file);
    assert_eq!(report["recorded"]["kind"], "out_of_time");
    assert_eq!(report["fuel_max"], 100_000_000, "{report}");
    assert_eq!(report["fuel"], report["fuel_max"], "{report}");
}

#[tokio::test]
async fn only_the_last_failing_calls_are_kept_and_none_without_the_setting() {
    let bench = Bench::start("record = 2\n").await;
    bench.call("echo", "{}").await;
    bench.call("refuse", "{}").await;
    bench.call("fail", "{}").await;
    for number in 0..3 {
        bench.recorded("trap", &format!("{{\"text\":\"call {number}\"}}"), number).await;
    }
    let kept: Vec<String> =
        files(&bench.host).iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert_eq!(kept.len(), 2);
    assert!(kept[0].contains("call 1") && kept[1].contains("call 2"));

    let mut bench = Bench::start("").await;
    bench.call("trap", "{}").await;
    bench.host.end();
    assert!(!bench.host.data().join("recordings").exists());
}

#[tokio::test]
async fn a_recording_becomes_a_case_of_plugin_test() {
    let bench = Bench::start("record = 2\n").await;
    let file = bench.recorded("trap", r#"{"text":"x","list":[1,{"a":true}]}"#, 0).await;
    let case = bench.host.directory().join("case.toml");
    let arguments = ["--case", case.to_str().unwrap()];
    assert!(replay(&file, |text| text, &arguments).status.success());
    let written: toml::Table = std::fs::read_to_string(&case).unwrap().parse().unwrap();
    let call = &written["case"][0]["call"];
    assert_eq!(call["function"].as_str(), Some("trap"));
    assert_eq!(call["arguments"]["list"][1]["a"].as_bool(), Some(true), "{written}");
    assert_eq!(replay(&file, |text| text, &arguments).status.code(), Some(1), "it is never overwritten");
}

#[test]
fn what_cannot_be_replayed_is_told_with_what_mends_it() {
    let folder = tempfile::tempdir().unwrap();
    let complaint = |text: &str| {
        std::fs::write(folder.path().join("failed.jsonl"), text).unwrap();
        let output = program().current_dir(folder.path()).args(["plugin", "replay", "failed.jsonl"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let told = complaint("nothing");
    assert!(told.contains("failed.jsonl line 1: this is not a recording"), "{told}");
    let told = complaint("{\"cofferdam_recording\":9}");
    assert!(told.contains("failed.jsonl has form 9; this program reads form 1"), "{told}");
    let head = json!({
        "cofferdam_recording": 1, "plugin": "tool-x", "component_sha256": "00", "contract": "",
        "host_version": "", "request_id": "", "workspace": "", "now_ms": 0, "manifest": "",
        "grant": {"imports": [], "hosts": [], "any_host": false, "memory_mib": null, "deadline_ms": 1, "settings": null},
    });
    let told = complaint(&head.to_string());
    assert!(told.contains("does not say how the call ended"), "{told}");
    let end = json!({"end": {"kind": "unreachable", "message": "", "function": "invoke", "backtrace": null}});
    let told = complaint(&format!("{head}\n{end}\n"));
    assert!(told.contains("nor its installed plugins have it: name the component"), "{told}");
}
