//! Recordings of failing calls that sent a secret.

use super::{API, Bench, GRANT, VALUE};
use crate::kit::guests::built;
use crate::kit::host::program;
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

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
    let escape = |(place, letter): (usize, char)| match place % 2 {
        0 => format!("\\u{:04x}", u32::from(letter)),
        _ => letter.to_string(),
    };
    let escaped: String = VALUE.chars().enumerate().map(escape).collect();
    bench.site.reply(page(format!("{{\"a\":\"{escaped}\"}}")));
    fail(&bench).await;
    bench.host.until_logged("not recorded: a secret that was sent for it occurs in its recording");
    bench.host.end();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert!(bench.host.files_with(VALUE).is_empty());
    assert!(!bench.host.log().contains(VALUE));
}
