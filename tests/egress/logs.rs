//! `plugin logs`: the last lines about a plugin, from the running host.

use super::{API, Bench, GRANT, VALUE};
use crate::kit::admin::Admin;
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

fn lines(bench: &Bench, arguments: &[&str]) -> Vec<Value> {
    let command = [&["plugin", "logs", "tool-probe"], arguments].concat();
    let shown = bench.host.command(&command);
    assert_eq!(shown["plugin"], "tool-probe");
    shown["lines"].as_array().unwrap().clone()
}

/// The one line whose text begins so.
#[track_caller]
fn line<'l>(lines: &'l [Value], text: &str) -> &'l Value {
    let mut found = lines.iter().filter(|line| line["text"].as_str().unwrap().starts_with(text));
    let line = found.next();
    assert!(found.next().is_none(), "{text} twice in {lines:#?}");
    line.unwrap_or_else(|| panic!("no {text} in {lines:#?}"))
}

#[tokio::test]
async fn a_plugin_s_lines_and_those_of_the_host_about_it_are_shown_without_secrets_and_content() {
    let mut bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let body = format!("a page, and {VALUE}");
    bench.site.reply(Reply::Whole { status: 200, headers: vec![], body });
    let authorized = json!([{"secret": "api_key", "header": ["authorization", "", ""]}]);
    let request = json!({"url": bench.url(API, "/"), "injections": authorized});
    bench.run("probe", &bench.host.key, json!({"requests": [request], "log": true})).await;
    bench.get("https://evil.test/").await;
    bench
        .run("probe", &bench.host.key, json!({"requests": [], "broken": true, "text": "of the model"}))
        .await;

    let shown = lines(&bench, &[]);
    let spoken = line(&shown, "1 answers");
    assert_eq!(spoken["level"], "DEBUG", "the filter of the log does not apply: {spoken}");
    let id = spoken["request_id"].as_str().unwrap();
    assert!(bench.host.log().contains(id), "{spoken}");
    assert!(spoken["generation"].as_str().unwrap().starts_with("resp_"), "{spoken}");
    let answer = shown.iter().find(|line| line["text"].as_str().unwrap().contains("a page, and")).unwrap();
    assert!(answer["text"].as_str().unwrap().contains("[secret:api_key]"), "{answer}");
    assert_eq!((&answer["request_id"], &answer["level"]), (&spoken["request_id"], &json!("INFO")));
    assert!(shown.iter().any(|line| line["text"].as_str().unwrap().starts_with("plugin compiled")));
    let refused = line(&shown, "request refused: ");
    assert!(refused["text"].as_str().unwrap().contains("hosts = "), "{refused}");
    assert_ne!(refused["request_id"], spoken["request_id"]);
    let failed = line(&shown, "a call of a tool failed error=");
    assert!(failed["text"].as_str().unwrap().contains("a tool's item is not a JSON object"), "{failed}");
    assert_eq!(failed["level"], "WARN");
    // The host's own lines lead to the request too.
    for own in [refused, failed] {
        let id = own["generation"].as_str().unwrap_or_else(|| panic!("{own}"));
        let request = Admin::new(&bench.host).ask(&format!("requests/{id}")).await.body;
        assert_eq!(request["log_id"], own["request_id"], "{own}");
    }
    let all = Value::from(shown.clone()).to_string();
    assert!(!all.contains(VALUE) && !all.contains("of the model"), "{all}");

    // A reload keeps them, and the number of lines can be chosen.
    bench.host.signal("HUP");
    bench.host.until_logged("configuration and plugins were read again");
    let later = lines(&bench, &["--lines", "200"]);
    assert_eq!(&later[..shown.len()], shown, "a reload only adds lines");
    let last = bench.host.command(&["plugin", "logs", "tool-probe", "--lines", "1"]);
    assert_eq!(last["lines"].as_array().unwrap().len(), 1);
    assert_eq!(last["earlier"].as_u64().unwrap() as usize, later.len() - 1);
    assert_eq!(last["lines"][0], later[later.len() - 1]);

    bench.host.end();
    let output = bench.host.command_output(&["plugin", "logs", "tool-probe"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("no host runs with this data directory"), "{told}");
}
