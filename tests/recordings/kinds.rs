//! Recordings of hooks, of questions to models, and of an earlier version of a plugin.

use super::files;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::guests::{built, folder};
use crate::kit::host::{Host, Setup, program};
use crate::kit::upstream::Upstream;
use crate::tools::models::{Models, question};
use crate::tools::script::{answer, call, calls};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The only recording of a host, once it is written.
pub(super) fn recorded(host: &Host) -> PathBuf {
    host.until_logged("a failing call was recorded");
    let files = files(host);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// The report of a replay with this component, which has to go as recorded.
#[track_caller]
pub(super) fn same(recording: &Path, component: &Path, more: &[&str]) -> Value {
    let mut command = program();
    command.args(["plugin", "replay", "--json"]).arg(recording).arg(component).args(more);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["same"], true, "{report}");
    report
}

/// What `plugin test` finds wrong with the case of a recording, in a project of this plugin.
fn problems(recording: &Path, plugin: &str) -> Value {
    let project = tempfile::tempdir().unwrap();
    let path = |name: &str| project.path().join(name);
    std::fs::create_dir(path("plugins")).unwrap();
    std::fs::create_dir(path("cases")).unwrap();
    let component = path(&format!("plugins/{plugin}.wasm"));
    std::fs::copy(built(&format!("{plugin}.wasm")), &component).unwrap();
    std::fs::copy(built(&format!("{plugin}.toml")), path("plugin.toml")).unwrap();
    same(recording, &component, &["--case", path("cases/recorded.toml").to_str().unwrap()]);
    let output = program().args(["plugin", "test", "--json"]).arg(project.path()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert!(report.is_object(), "{}", String::from_utf8_lossy(&output.stderr));
    report["cases"][0]["problems"].clone()
}

#[tokio::test]
async fn a_hook_that_asked_a_model_is_replayed_and_becomes_a_case() {
    let models = Models::with("[plugins.hook-asker]\nimports = [\"model\"]\nrecord = 1").await;
    models.a.reply(answer(false, "It is fine."));
    let entry = json!({"id": "asking", "model": "m/a", "break": true});
    let request = json!({"model": MODEL, "input": "Go.", "plugins": [entry]});
    let refused = Client::new(&models.host).post("/responses", &request).await;
    assert!(refused.status >= 500, "{}", refused.text);

    let file = recorded(&models.host);
    let report = same(&file, &built("hook-asker.wasm"), &[]);
    assert!(report["log"].to_string().contains("broken after It is fine."), "{report}");
    let problems = problems(&file, "hook-asker");
    assert_eq!(problems, json!(["plugin hook-asker broke (unreachable)"]));
}

#[tokio::test]
async fn a_question_of_a_tool_to_a_model_is_replayed_and_becomes_a_case() {
    let models = Models::with("[plugins.tool-asker]\nimports = [\"model\"]\nrecord = 1").await;
    let arguments = json!({"text": question("m/a").to_string()}).to_string();
    models.outer.reply(calls(false, "", &[call("c1", "break", &arguments)]));
    models.outer.reply(answer(false, "done"));
    models.a.reply(answer(false, "Because."));
    let request = json!({"model": MODEL, "input": "Go.", "tools": [{"type": "service:asker"}]});
    assert_eq!(models.ask(&request, false).await["status"], "completed");

    let file = recorded(&models.host);
    let report = same(&file, &built("tool-asker.wasm"), &[]);
    assert!(report["log"].to_string().contains("Because."), "{report}");
    assert_eq!(problems(&file, "tool-asker"), json!(["plugin tool-asker broke (unreachable)"]));
}

/// A folder with an edition of the probe. Each has other bytes.
fn edition(number: u8) -> tempfile::TempDir {
    let folder = folder(&["tool-probe"]);
    let path = |extension: &str| folder.path().join(format!("tool-probe.{extension}"));
    let manifest = std::fs::read_to_string(path("toml")).unwrap();
    std::fs::write(path("toml"), manifest.replace("0.1.0", &format!("0.{number}.0"))).unwrap();
    let mut component = std::fs::read(path("wasm")).unwrap();
    // A custom section with the name `e` and one byte.
    component.extend([0, 3, 1, b'e', number]);
    std::fs::write(path("wasm"), component).unwrap();
    folder
}

#[tokio::test]
async fn a_recording_of_the_version_before_is_replayed_without_naming_its_component() {
    let upstream = Upstream::start().await;
    let grant = "[plugins.tool-probe]\nhosts = [\"api.test\"]\nrecord = 1\n";
    let setup = Setup::new().config(&single("openai-chat", &upstream.base)).config(grant);
    let editions = [1, 2, 3].map(edition);
    let file_of = |index: usize| {
        let file: &tempfile::TempDir = &editions[index];
        file.path().join("tool-probe.wasm").to_str().unwrap().to_owned()
    };
    let installed = setup.command_output(&["plugin", "install", &file_of(0)]);
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let host = setup.start();
    upstream.reply(calls(false, "", &[call("c1", "probe", "{\"broken\":true}")]));
    upstream.reply(answer(false, "done"));
    let request = json!({"model": MODEL, "input": "Go.", "tools": [{"type": "service:probe"}]});
    assert_eq!(Client::new(&host).ask(&request, false).await["status"], "completed");
    let file = recorded(&host);
    let replay = ["plugin", "replay", file.to_str().unwrap()];

    host.command(&["plugin", "update", &file_of(1)]);
    let report = host.command(&replay);
    assert_eq!((&report["same"], &report["recorded_component"]), (&json!(true), &json!(true)), "{report}");

    host.command(&["plugin", "update", &file_of(2)]);
    let output = host.command_output(&replay);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("nor its installed plugins have it: name the component"), "{told}");
}
