//! Servers that send a secret back (egress rules R18 to R20).

use super::{API, Bench, GRANT, OTHER, VALUE, assert_error, assert_ok};
use crate::kit::admin::Admin;
use crate::kit::canary::{FORMS, Form, written};
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::host::Setup;
use crate::kit::memory_group::MemoryGroup;
use crate::kit::script::{chat, chat_message, escaped};
use crate::kit::upstream::Reply;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn whole(headers: Vec<(&'static str, String)>, body: String) -> Reply {
    Reply::Whole { status: 200, headers, body }
}

fn holds(bytes: &[u8], part: &str) -> bool {
    memchr::memmem::find(bytes, part.as_bytes()).is_some()
}

#[tokio::test]
async fn every_common_encoding_of_a_value_is_redacted() {
    let bench = Bench::start(GRANT).await;
    let value = "sk-7Qw1/Zx9c+Lm4v\"&<probe";
    // A debugger's list of numbers is not a form that servers write.
    for form in FORMS.into_iter().filter(|form| *form != Form::Numbers) {
        let body = String::from_utf8(written(form, value)).unwrap();
        bench.site.reply(whole(vec![], format!("before {body} after")));
        // A new workspace each time; otherwise the secret would be suspended after several
        // reflections.
        let key = bench.workspace(&format!("{form:?}"), "api_key", value, API);
        let other = bench.run("probe", &key, json!({"requests": [{"url": bench.url(API, "/")}]})).await;
        let answer = &other["answers"][0];
        let text = answer["body"].as_str().unwrap();
        assert!(text.contains("[secret:api_key]"), "{form:?}: {text}");
        assert!(!text.contains(&body), "{form:?}: {text}");
    }
}

#[tokio::test]
async fn values_are_redacted_across_chunks_and_in_headers() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let (one, two) = VALUE.split_at(7);
    bench.site.reply(Reply::Split { pieces: vec![one.into(), two.into(), b" and ".to_vec(), VALUE.into()] });
    let answer = bench.get(&bench.url(API, "/")).await;
    assert_eq!(answer["body"], "[secret:api_key] and [secret:api_key]");
    bench
        .site
        .reply(whole(vec![("x-key", VALUE.to_owned()), ("set-cookie", VALUE.to_owned())], String::new()));
    let answer = bench.get(&bench.url(API, "/")).await;
    assert!(!answer.to_string().contains(VALUE), "{answer}");
    assert!(!answer.to_string().contains("set-cookie"), "{answer}");
}

#[tokio::test]
async fn responses_that_cannot_be_scanned_or_never_end_are_refused() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    for (reply, error) in [
        (whole(vec![("content-encoding", "gzip".to_owned())], "bomb".to_owned()), "broken"),
        (whole(vec![("content-encoding", "br".to_owned())], VALUE.to_owned()), "broken"),
        (whole(vec![], "x".repeat(2 << 20)), "too-large"),
        (Reply::Cut { content_type: "text/plain", pieces: vec!["half".to_owned()] }, "broken"),
        (Reply::Hang, "timeout"),
        (Reply::Comments, "timeout"),
    ] {
        bench.site.reply(reply);
        let request = json!({"url": bench.url(API, "/"), "body_bytes_max": 1 << 20, "timeout_ms": 1500});
        assert_error(&bench.probe(request).await, error);
    }
    let switch = Reply::Whole {
        status: 101,
        headers: vec![("upgrade", "x".to_owned()), ("connection", "upgrade".to_owned())],
        body: String::new(),
    };
    bench.site.reply(switch);
    assert_error(&bench.get(&bench.url(API, "/")).await, "broken");
}

#[tokio::test]
async fn a_value_is_searched_for_also_if_the_request_that_carried_it_failed() {
    // The second host gives the guest the value itself.
    let setup = Setup::new().without_canaries();
    let mut bench = Bench::with(setup, "", &format!("{GRANT}record = 8\n")).await;
    bench.secret("api_key", VALUE, API);
    let requests = json!([{"url": bench.url(API, "/"), "timeout_ms": 1500}, {"url": bench.url(OTHER, "/")}]);
    for (failing, error) in [
        (Reply::Whole { status: 206, headers: vec![], body: "part".to_owned() }, "broken"),
        (whole(vec![("content-encoding", "gzip".to_owned())], "bomb".to_owned()), "broken"),
        (Reply::Hang, "timeout"),
    ] {
        bench.site.reply(failing);
        bench.site.reply(whole(vec![], VALUE.to_owned()));
        let shown = bench.run("probe", &bench.host.key, json!({"requests": requests})).await;
        assert_error(&shown["answers"][0], error);
        assert_eq!(shown["answers"][1]["body"], "[secret:api_key]", "{error}: {shown}");
    }
    bench.site.reply(Reply::Whole { status: 206, headers: vec![], body: "part".to_owned() });
    bench.site.reply(whole(vec![], VALUE.to_owned()));
    let other = bench.workspace("other", "api_key", VALUE, API);
    bench.run("probe", &other, json!({"requests": requests, "broken": true})).await;
    bench.host.until_logged("not recorded: a secret that was sent for it occurs in its recording");
    bench.host.end();
    assert!(bench.host.files_with(VALUE).is_empty());
}

#[tokio::test]
async fn groups_of_secrets_are_limited_also_where_their_requests_fail() {
    let names: Vec<String> = (0..9).map(|number| format!("key_{number}")).collect();
    let secrets = GRANT.replace("[\"api_key\"]", &json!(names).to_string());
    let mut bench = Bench::start(&format!("{secrets}placeholder_headers = [\"x-key\"]\n")).await;
    for name in &names {
        bench.secret(name, &format!("{VALUE}-{name}"), API);
    }
    let header = |secret: &str, header: &str| json!({"secret": secret, "header": [header, "", ""]});
    let pairs = names.iter().flat_map(|one| names.iter().map(move |other| (one, other)));
    let requests: Vec<Value> = pairs
        .filter(|(one, other)| one != other)
        .map(|(one, other)| {
            let injections = [header(one, "authorization"), header(other, "x-key")];
            json!({"url": bench.url(API, "/"), "injections": injections})
        })
        .collect();
    // One call of a plugin has at most 32 requests. These three calls run side by side.
    let calls: Vec<Value> = requests[..66]
        .chunks(22)
        .map(|requests| {
            bench.site.reply(whole(vec![], String::new()));
            let arguments = json!({ "requests": requests }).to_string();
            json!({"id": format!("call_{}", requests[0]["injections"][0]["secret"]), "type": "function",
                "function": {"name": "probe", "arguments": arguments}})
        })
        .collect();
    for _ in calls.len()..66 {
        bench.site.reply(Reply::Whole { status: 206, headers: vec![], body: String::new() });
    }
    bench
        .model
        .reply(chat_message(&json!({"role": "assistant", "content": "", "tool_calls": calls}), "tool_calls"));
    bench.model.reply(chat("done"));
    let request = json!({"model": MODEL, "input": "Go.", "tools": [{"type": "service:probe"}]});
    let answer = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let asked = bench.model.asked().pop().unwrap();
    let shown: Vec<Value> = asked.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| serde_json::from_str(message["content"].as_str().unwrap()).unwrap())
        .collect();
    let with = |error: &str| {
        let answers = shown.iter().flat_map(|shown| shown["answers"].as_array().unwrap());
        answers.filter(|answer| answer["error"] == error).count()
    };
    assert_eq!((with("broken"), with("exhausted")), (61, 2), "{shown:?}");
    assert_eq!(bench.site.seen().len(), 64);
    bench.host.until_logged("more than 64 different groups of secrets");
    let refused = bench.audit("request_refused");
    assert_eq!(refused.iter().filter(|entry| entry["reason"] == "rule").count(), 2, "{refused:?}");
}

#[tokio::test]
async fn a_decoded_value_is_removed_from_questions_and_from_arguments_of_tools() {
    let grant = |on_reflection: &str| {
        let teller = GRANT.replace("tool-probe", "hook-teller");
        format!("{GRANT}{teller}imports = [\"model\", \"tool-call\"]\non_reflection = \"{on_reflection}\"\n")
    };
    // The guest decodes the value.
    let mut bench = Bench::with(Setup::new().without_canaries(), "", &grant("redact")).await;
    bench.secret("api_key", VALUE, API);
    let told = json!({"requests": [{"url": bench.url(OTHER, "/"), "method": "POST", "body": "told @"}]});
    let hook = json!({"id": "teller", "url": bench.url(API, "/"), "tool": "probe", "function": "probe",
        "question": json!({"model": MODEL, "input": "asked @"}).to_string(), "arguments": told.to_string()});
    let request = json!({"model": MODEL, "input": "Go.", "plugins": [hook]});
    bench.site.reply(whole(vec![], format!("\"{}\"", escaped(VALUE, 2))));
    bench.model.reply(chat("answer"));
    bench.model.reply(chat("done"));
    let answer = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(bench.model.asked()[0].body["messages"][0]["content"], "asked [secret:api_key]");
    assert_eq!(bench.site.last().body, "told [secret:api_key]");
    let reflected = bench.audit("secret_reflected");
    assert_eq!(reflected.len(), 2, "{reflected:?}");

    let bench = Bench::with(Setup::new().without_canaries(), "", &grant("block")).await;
    bench.secret("api_key", VALUE, API);
    let mut request = request;
    request["plugins"][0]["url"] = bench.url(API, "/").into();
    for question in ["{\"input\":\"asked @\"}", "{\"input\":\"asked\"}"] {
        request["plugins"][0]["question"] = question.into();
        bench.site.reply(whole(vec![], format!("\"{}\"", escaped(VALUE, 2))));
        bench.model.reply(chat("answer"));
        let answer = Client::new(&bench.host).post("/responses", &request).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(!answer.text.contains(VALUE), "{}", answer.text);
    }
    assert_eq!(bench.model.asked().len(), 1, "the question without the value");
    assert_eq!(bench.site.seen().len(), 2, "no tool was called");
}

#[tokio::test]
async fn a_decoded_value_gets_neither_into_the_log_nor_into_a_request_to_another_host() {
    let teller = GRANT.replace("tool-probe", "hook-teller");
    let grant = format!("{teller}imports = [\"model\", \"tool-call\"]\n");
    // The guest decodes the value.
    let mut bench = Bench::with(Setup::new().without_canaries(), "", &grant).await;
    let other = |path: &str| bench.url(OTHER, path);
    let next = |url: &str, header: &str, body: &str| json!({"url": url, "header": header, "body": body});
    let encoded = "{\"told\":\"@\"}";
    let requests = [
        (next(&other("/?told=@"), "x", ""), false),
        (next(&other("/"), "Bearer @", ""), false),
        (next(&other("/"), "x", encoded), false),
        (next(&other("/"), "x", "told"), true),
    ];
    for (index, (next, sent)) in requests.into_iter().enumerate() {
        // In a new workspace, because a secret that comes back too often is suspended.
        let key = bench.workspace(&format!("w{index}"), "api_key", VALUE, API);
        let hook = json!({"id": "teller", "url": bench.url(API, "/"), "line": "told @", "next": next});
        bench.site.reply(whole(vec![], format!("\"{}\"", escaped(VALUE, 2))));
        if sent {
            bench.site.reply(whole(vec![], "thanks".to_owned()));
            bench.model.reply(chat("done"));
        }
        let request = json!({"model": MODEL, "input": "Go.", "plugins": [hook]});
        let client = Client::with_key(&bench.host, &key);
        let answer = client.post("/responses", &request).await;
        assert_eq!(answer.status, if sent { 200 } else { 400 }, "{next}: {}", answer.text);
    }
    let seen = bench.site.seen();
    assert_eq!(seen.iter().filter(|seen| seen.body == "told").count(), 1);
    assert_eq!(seen.len(), 5, "three requests with the value were not sent");
    let log = bench.host.log();
    assert!(log.contains("[removed: the line held a secret that was sent for this plugin]"), "{log}");
    assert!(!log.contains(VALUE), "{log}");
    assert_eq!(bench.audit("secret_reflected").len(), 3);
}

#[tokio::test]
async fn long_answers_to_plugins_take_memory_of_the_budget_for_answers() {
    // All long answers of this host may have 8 MiB.
    let Some(group) = MemoryGroup::make(256) else { return };
    let bench = Bench::with(Setup::new().in_group(&group), "", GRANT).await;
    let long = json!({"url": bench.url(API, "/"), "body_bytes_max": 16 << 20});
    bench.site.reply(whole(vec![], "x".repeat(9 << 20)));
    assert_error(&bench.probe(long.clone()).await, "too-large");
    for _ in 0..2 {
        bench.site.reply(whole(vec![], "x".repeat(900 << 10)));
        assert_ok(&bench.probe(long.clone()).await);
    }
    assert_eq!(group.kills(), 0);
}

#[tokio::test]
async fn guest_memory_never_contains_a_value() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", "zq-7X_b", OTHER);
    // Values shorter than eight bytes are not redacted (egress rule R19), so the search of the
    // memory must find this one.
    let memory = |shown: &Value| STANDARD.decode(shown["memory"].as_str().unwrap()).unwrap();
    let told = |name: &str| json!({"requests": [{"url": bench.url(name, "/")}, {"url": bench.url(name, "/no"), "method": "POST", "body": "x"}], "memory": true});
    let shown = bench.run("probe", &bench.host.key, told(OTHER)).await;
    assert_ok(&shown["answers"][0]);
    assert!(holds(&memory(&shown), "zq-7X_b"), "the positive control is not found");
    bench.secret("api_key", VALUE, API);
    let shown = bench.run("probe", &bench.host.key, told(API)).await;
    assert_ok(&shown["answers"][0]);
    assert_eq!(bench.site.last().header("authorization"), Some(format!("Bearer {VALUE}").as_str()));
    let memory = memory(&shown);
    assert!(holds(&memory, "[secret:api_key]"), "what was echoed was seen");
    for form in FORMS {
        let text = written(form, VALUE);
        let middle = &text[text.len() / 4..text.len() * 3 / 4];
        assert!(memchr::memmem::find(&memory, middle).is_none(), "{form:?}");
    }
}

#[tokio::test]
async fn a_response_with_a_secret_can_be_blocked() {
    let mut bench = Bench::start(&format!("{GRANT}on_reflection = \"block\"\n")).await;
    bench.secret("api_key", VALUE, API);
    assert_error(&bench.get(&bench.url(API, "/")).await, "denied");
    bench.site.reply(whole(vec![], "nothing of it".to_owned()));
    assert_ok(&bench.get(&bench.url(API, "/")).await);
    let reflected = bench.audit("secret_reflected");
    let [reflected] = reflected.as_slice() else { panic!("{reflected:?}") };
    assert_eq!((&reflected["blocked"], &reflected["suspended"]), (&true.into(), &false.into()));
    assert_eq!((&reflected["name"], &reflected["host"]), (&"api_key".into(), &API.into()));
    assert_eq!(reflected["used_by"], "plugin tool-probe");
    assert_eq!(reflected["fingerprint"].as_str().unwrap().len(), 8);
}

#[tokio::test]
async fn reflections_in_responses_that_are_cut_off_count() {
    let mut bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let (pieces, reply) = Reply::fed_as("text/plain");
    pieces.send(VALUE.to_owned()).await.unwrap();
    bench.site.reply(reply);
    let slow = json!({"url": bench.url(API, "/"), "timeout_ms": 1500});
    assert_error(&bench.probe(slow).await, "timeout");
    bench
        .site
        .reply(whole(vec![("x-key", VALUE.to_owned()), ("x-long", "x".repeat(65 * 1024))], String::new()));
    assert_error(&bench.get(&bench.url(API, "/")).await, "too-large");
    assert_eq!(bench.audit("secret_reflected").len(), 2);
}

#[tokio::test]
async fn a_secret_reflected_too_often_is_suspended_even_after_a_reload() {
    let second = GRANT.replace("tool-probe", "tool-second");
    let mut bench = Bench::start(&format!("{GRANT}{second}")).await;
    bench.secret("api_key", VALUE, API);
    let url = bench.url(API, "/");
    for _ in 0..4 {
        assert_ok(&bench.get(&url).await);
    }
    assert_error(&bench.get(&url).await, "secret-unavailable");
    assert_eq!(bench.site.seen().len(), 4);
    // The suspension applies neither to another plugin nor to another workspace.
    let told = json!({"requests": [{"url": url}]});
    assert_ok(&bench.run("second", &bench.host.key, told.clone()).await["answers"][0]);
    let other = bench.workspace("other", "api_key", VALUE, API);
    assert_ok(&bench.run("probe", &other, told).await["answers"][0]);
    assert_error(&bench.get(&url).await, "secret-unavailable");
    let admin = Admin::new(&bench.host);
    let before = admin.metric("cofferdam_reloads_total").await;
    bench.host.signal("HUP");
    admin.until_metric("cofferdam_reloads_total", before + 1).await;
    assert_error(&bench.get(&url).await, "secret-unavailable");
    let reflected = bench.audit("secret_reflected");
    assert_eq!(reflected.len(), 6);
    assert_eq!(reflected.iter().filter(|entry| entry["suspended"] == true).count(), 1);
}
