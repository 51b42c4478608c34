//! Recordings of failing calls that sent a secret.

use super::{API, Bench, GRANT, OTHER, VALUE};
use crate::kit::guests::built;
use crate::kit::host::program;
use crate::kit::script::escaped;
use crate::kit::upstream::Reply;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

fn page(body: String) -> Reply {
    Reply::Whole { status: 200, headers: vec![], body }
}

/// The probe sends its secret, then breaks a rule with its answer.
async fn fail(bench: &Bench) {
    let request = json!({"url": bench.url(API, "/"), "injections": [{"secret": "api_key", "header": ["authorization", "", ""]}]});
    bench.run("probe", &bench.host.key, json!({"requests": [request], "broken": true})).await;
}

#[tokio::test]
async fn answers_of_other_hosts_are_replayed_and_a_secret_is_in_no_recording() {
    let mut bench = Bench::start(&format!("{GRANT}record = 8\n")).await;
    bench.secret("api_key", VALUE, API);

    // The value is in no answer, or was removed from it: the call is recorded.
    bench.site.reply(page(format!("a page, and {VALUE}")));
    fail(&bench).await;
    assert_eq!(bench.site.last().header("authorization"), Some(VALUE), "the secret was sent");
    bench.host.until_logged("a failing call was recorded");
    let folder = bench.host.data().join("recordings");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("a page, and [secret:api_key]") && !text.contains(VALUE), "{text}");

    let mut replay = program();
    replay.args(["plugin", "replay", "--json"]).arg(file).arg(built("tool-probe.wasm"));
    let output = replay.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{report}");
    // The request, and the seed that WASI has for each guest.
    assert_eq!((&report["same"], &report["imports"]), (&json!(true), &json!(2)), "{report}");
    assert_eq!(report["replayed"]["kind"], "invalid_answer");

    // A value with some of its letters escaped is not found in an answer. A guest may decode it, so
    // nothing is recorded.
    bench.site.reply(page(format!("{{\"a\":\"{}\"}}", escaped(VALUE, 2))));
    fail(&bench).await;
    bench.host.until_logged("not recorded: a secret that was sent for it occurs in its recording");
    bench.host.end();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert!(bench.host.files_with(VALUE).is_empty());
    assert!(!bench.host.log().contains(VALUE));
}

/// Makes a case of a recording in a project of its plugin, and tries the project.
fn tried(recording: &Path, plugin: &str, edit: impl FnOnce(String) -> String) -> (String, Value) {
    let project = tempfile::tempdir().unwrap();
    for folder in ["plugins", "cases"] {
        std::fs::create_dir(project.path().join(folder)).unwrap();
    }
    let component = project.path().join(format!("plugins/{plugin}.wasm"));
    std::fs::copy(built(&format!("{plugin}.wasm")), &component).unwrap();
    std::fs::copy(built(&format!("{plugin}.toml")), project.path().join("plugin.toml")).unwrap();
    let case = project.path().join("cases/recorded.toml");
    let run = |arguments: &[&Path]| -> Output {
        let mut command = program();
        command.current_dir(project.path()).args(["plugin", arguments[0].to_str().unwrap(), "--json"]);
        command.args(&arguments[1..]).output().unwrap()
    };
    let told = run(&["replay".as_ref(), recording, &component, "--case".as_ref(), &case]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let text = edit(std::fs::read_to_string(&case).unwrap());
    std::fs::write(&case, &text).unwrap();
    let report = run(&["test".as_ref(), project.path()]);
    let parsed = serde_json::from_slice(&report.stdout);
    (text, parsed.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&report.stderr))))
}

#[tokio::test]
async fn a_recording_of_requests_becomes_a_case_that_fails_in_the_same_way() {
    let bench =
        Bench::start(&format!("{GRANT}record = 1\n[plugins.tool-probe.config]\nunit = \"m\"\n")).await;
    bench.secret("api_key", VALUE, API);
    let headers = vec![("content-type", "text/plain".to_owned())];
    bench.site.reply(Reply::Whole { status: 418, headers, body: format!("a page, and {VALUE}") });
    let location = vec![("location", bench.url(OTHER, "/b"))];
    bench.site.reply(Reply::Whole { status: 302, headers: location, body: String::new() });
    bench.site.reply(page("second \u{0}".to_owned()));
    let injections = json!([{"secret": "api_key", "header": ["authorization", "", ""]}]);
    let requests = json!([
        {"url": bench.url(API, "/a"), "method": "POST", "body": "x", "injections": injections},
        {"url": "https://evil.test/"},
        {"url": bench.url(OTHER, "/old"), "redirects": 1},
    ]);
    bench.run("probe", &bench.host.key, json!({"requests": requests, "broken": true})).await;
    bench.host.until_logged("a failing call was recorded");
    let mut files = std::fs::read_dir(bench.host.data().join("recordings")).unwrap();
    let file = files.next().unwrap().unwrap().path();

    let (text, report) = tried(&file, "tool-probe", |text| text);
    let written: toml::Table = text.parse().unwrap();
    let case = &written["case"][0];
    assert_eq!(case["config"]["unit"].as_str(), Some("m"), "{text}");
    assert!(case["now"].as_str().unwrap().starts_with("20"), "{text}");
    assert_eq!(case["secrets"]["api_key"][0].as_str(), Some(API));
    let http = case["http"].as_array().unwrap();
    assert_eq!(http.len(), 4, "{text}");
    assert_eq!(
        (http[0]["method"].as_str(), http[0]["answer"]["status"].as_integer()),
        (Some("POST"), Some(418))
    );
    assert_eq!(http[0]["answer"]["text"].as_str(), Some("a page, and [secret:api_key]"));
    assert_eq!(
        (http[1]["answer"]["error"].as_str(), http[1]["optional"].as_bool()),
        (Some("denied"), Some(true))
    );
    let tried_case = &report["cases"][0];
    let rule = "plugin tool-probe broke a rule of the contract: a tool's item is not a JSON object";
    assert_eq!(tried_case["problems"], json!([rule]), "{report}");

    // Without the mistake, the guest shows what it was answered: the same as in the recording.
    let (_, report) = tried(&file, "tool-probe", |text| {
        let mended = text.replace("broken = true\n", "");
        assert_ne!(mended, text);
        mended.replace("name = ", "expect = { for_model = { contains = \"second\" } }\nname = ")
    });
    assert_eq!(report["cases"][0]["problems"], json!([]), "{report}");
}
