//! A secret's value is passed in through every interface and searched for in every output, in every
//! form in which it could be encoded.

use super::rows::setup;
use crate::kit::admin::Admin;
use crate::kit::canary::{Canary, FORMS, Form, written};
use crate::kit::client::{Client, read};
use crate::kit::config::{MODEL, model};
use crate::kit::host::{Host, list_files, program};
use crate::kit::script;
use crate::kit::shim::Shim;
use crate::kit::upstream::Upstream;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Every part has characters that each form encodes differently.
const VALUE: &str = "Kq7\"w\\é9 z/+Xm4<&>T2hB#pR8'é$Jd6=G?u0;c1N_fW9e";
/// A part of the value that is valid in a header.
const TOKEN: &str = "pR8'$Jd6=G?u0;c1N_fW9e";

/// A value that is valid in a header, for a provider.
const CREDENTIAL: &str = "sk-Zq8!r5/T+w3=Y&n7<c1>V#m4\"J\\p9%H:d2;L|x6~G^b0*";
const PROVIDER: &str = "provider.test";
/// The name of the place that holds everything the host ever wrote to files and sent on sockets.
const EVER: &str = "all that was ever written and sent";

/// The searched bytes, by description.
type Places = BTreeMap<String, Vec<u8>>;

#[tokio::test(flavor = "multi_thread")]
async fn a_value_appears_nowhere_except_in_the_request_to_its_provider() {
    let upstream = Upstream::start().await;
    let setup = setup().config(&provider(&upstream.base));
    let shim = Shim::new(&setup.data());
    let mut host = shim.on(setup).environment("COFFERDAM_LOG", "trace").start();
    let mut places = Places::new();
    requests(&host, &mut places).await;
    commands(&host, &mut places);
    answers(&host, &upstream, &mut places).await;
    places.insert("metrics".to_owned(), Admin::new(&host).get("/metrics").await.text.into_bytes());
    places.insert("readiness".to_owned(), Admin::new(&host).get("/readyz").await.text.into_bytes());
    of_the_process(&host, &mut places);
    host.end();
    places.insert("log".to_owned(), host.log().into_bytes());
    assert!(host.log().contains("\"level\":\"DEBUG\""), "the log is not at its loudest: {}", host.log());
    places.insert(EVER.to_owned(), shim.record_bytes());
    files(&host, &mut places);
    assert!(places.len() > 20, "{:?}", places.keys());
    assert_absent(&Canary::new(VALUE), &places);
    // The provider itself is sent the credential, so the recorded traffic contains it.
    places.remove(EVER);
    assert_absent(&Canary::new(CREDENTIAL), &places);
}

fn assert_absent(canary: &Canary, places: &Places) {
    for (place, bytes) in places {
        let found = canary.found(bytes);
        assert!(found.is_empty(), "{place}: {found:?}");
    }
    // Control: the search finds the value in each form wherever it is inserted.
    for (place, bytes) in places {
        for form in FORMS {
            let mut planted = bytes.clone();
            let at = planted.len() / 2;
            planted.splice(at..at, written(form, canary.value()));
            assert!(canary.found(&planted).contains(&form), "{form:?} is not seen in {place}");
        }
    }
}

fn provider(base: &str) -> String {
    format!(
        "[egress]\nallow_plaintext_loopback = true\nresolve = {{ \"{PROVIDER}\" = [\"127.0.0.1\"] }}\n\
         [[providers]]\nname = \"p\"\nadapter = \"openai-chat\"\nbase_url = \"{}\"\n\
         key = \"operator:provider_key\"\nbyok = \"own_key\"\n{}",
        base.replace("127.0.0.1", PROVIDER),
        model(MODEL, "responses", &["p"])
    )
}

/// The provider is sent the operator's credential, then the workspace's own, and echoes it.
async fn answers(host: &Host, upstream: &Upstream, places: &mut Places) {
    let client = Client::new(host);
    let request = json!({"model": MODEL, "input": "x"});
    for (scope, name, refused) in
        [("--operator", "provider_key", 502), ("--workspace default", "own_key", 401)]
    {
        let line = format!("secret put {name} --host {PROVIDER} {scope}");
        run_with(&host.data(), &line, CREDENTIAL, 0, places);
        upstream.reply(script::chat("hello"));
        upstream.reply(script::refusal(401, &format!("bad key {CREDENTIAL}")));
        for status in [200, refused] {
            let body = client.request(Method::POST, "/responses").body(request.to_string());
            let request = body.header("content-type", "application/json");
            keep(places, &format!("a request that used {name}, {status}"), request, status).await;
        }
        let sent = upstream.asked().pop().unwrap().headers["authorization"].clone();
        assert_eq!(sent, format!("Bearer {CREDENTIAL}").as_str());
    }
}

/// Sends a request and keeps the whole response.
async fn keep(places: &mut Places, what: &str, request: RequestBuilder, status: u16) {
    let answer = read(request.send().await.unwrap()).await;
    assert_eq!(answer.status, status, "{what}: {}", answer.text);
    let bytes = format!("{:?}\n{}", answer.headers, answer.text).into_bytes();
    places.insert(format!("answer to {what}"), bytes);
}

async fn requests(host: &Host, places: &mut Places) {
    let client = Client::new(host);
    let intern = host.command(&["intern", "create", "scout", "--workspace", "default"]);
    let intern = format!("/vault/interns/{}", intern["id"].as_str().unwrap());
    let good = json!({"hosts": ["api.example.com"], "value": VALUE}).to_string();
    let put = |path: &str, body: String| {
        client.request(Method::PUT, path).header("content-type", "application/json").body(body)
    };
    keep(places, "PUT", put("/vault/secrets/a", good.clone()), 200).await;
    keep(places, "PUT again", put("/vault/secrets/a", good.clone()), 200).await;
    keep(places, "PUT of an intern", put(&format!("{intern}/secrets/b"), good.clone()), 200).await;
    let copy = |names: serde_json::Value| {
        let request = client.request(Method::POST, &format!("{intern}/secrets/copy"));
        request.header("content-type", "application/json").body(json!({"names": names}).to_string())
    };
    keep(places, "copy", copy(json!(["a"])), 200).await;
    for path in ["/vault/secrets", &format!("{intern}/secrets"), &format!("{intern}/effective-secrets")] {
        keep(places, &format!("GET {}", path.len()), client.request(Method::GET, path), 200).await;
    }
    let escaped = String::from_utf8(written(Form::Percent, VALUE)).unwrap();
    let cut = good[..good.len() - 2].to_owned();
    let malformed = [
        ("half a body", cut),
        ("a bad host", json!({"hosts": [VALUE], "value": "x"}).to_string()),
        ("hosts that are no list", json!({"hosts": VALUE, "value": VALUE}).to_string()),
        ("a value that is no text", json!({"hosts": ["a.com"], "value": {"inner": VALUE}}).to_string()),
        ("a value that is too long", json!({"hosts": ["a.com"], "value": VALUE.repeat(2000)}).to_string()),
        ("an unknown member", json!({"hosts": [], VALUE: VALUE}).to_string()),
        (
            "a value twice",
            format!("{{\"value\": {v}, \"value\": {v}, \"hosts\": [\"a.com\"]}}", v = json!(VALUE)),
        ),
        ("no object", json!([VALUE]).to_string()),
        ("no JSON", VALUE.to_owned()),
    ];
    for (what, body) in malformed {
        keep(places, what, put("/vault/secrets/a", body), 400).await;
    }
    keep(places, "a large body", put("/vault/secrets/a", VALUE.repeat(30_000)), 413).await;
    keep(places, "a bad name", put(&format!("/vault/secrets/{escaped}"), good.clone()), 400).await;
    keep(places, "a bad name to copy", copy(json!([VALUE])), 400).await;
    keep(places, "no path", client.request(Method::GET, &format!("/{escaped}")), 404).await;
    keep(places, "no intern", client.request(Method::GET, &format!("/vault/interns/{escaped}/secrets")), 400)
        .await;
    keep(places, "a bad limit", client.request(Method::GET, &format!("/vault/secrets?limit={escaped}")), 400)
        .await;
    let deleting = client.request(Method::DELETE, "/vault/secrets/a").body(good.clone());
    keep(places, "DELETE with a body", deleting, 400).await;
    let typed = client.request(Method::PUT, "/vault/secrets/a").header("content-type", TOKEN).body(good);
    keep(places, "a bad type", typed, 400).await;
    let stranger =
        Client::with_key(host, TOKEN).request(Method::GET, "/vault/secrets").header("x-test", TOKEN);
    keep(places, "a bad key", stranger, 401).await;
    keep(places, "DELETE", client.request(Method::DELETE, &format!("{intern}/secrets/b")), 204).await;
}

/// Runs every command that handles values against the host, and some more on a separate directory.
fn commands(host: &Host, places: &mut Places) {
    let beside = |name: &str| host.directory().join(name).display().to_string();
    let legacy = json!({"name": "old", "value": VALUE}).to_string();
    std::fs::write(beside("legacy.jsonl"), format!("{legacy}\n")).unwrap();
    std::fs::write(beside("broken.jsonl"), format!("{legacy}\n{}\n", &legacy[..legacy.len() - 2])).unwrap();
    let import = format!("vault import-legacy {} --workspace default", beside("legacy.jsonl"));
    let broken = format!("vault import-legacy {} --workspace default", beside("broken.jsonl"));
    let backup = format!("vault backup {}", beside("backup"));
    let next = format!("vault rotate-root --new file:{}", beside("next.key"));
    let lines = [
        ("secret put c --host api.example.com --workspace default", 0),
        ("secret put c --host api.example.com --intern scout", 0),
        ("secret put openai_key --host api.openai.com --operator", 0),
        ("secret put Bad --host api.example.com", 1),
        ("secret put bad --host 127.0.0.1", 1),
        ("secret list", 0),
        (&import, 0),
        (&broken, 1),
        ("vault rotate-keys", 0),
        ("vault recovery new", 0),
        (&next, 0),
        ("vault verify", 0),
        ("vault audit", 0),
        (&backup, 0),
        ("secret delete c --workspace default", 0),
        ("status", 0),
    ];
    for (line, code) in lines {
        run(&host.data(), line, code, places);
    }
    std::fs::remove_file(beside("legacy.jsonl")).unwrap();
    std::fs::remove_file(beside("broken.jsonl")).unwrap();
    let restored = host.directory().join("restored");
    std::fs::create_dir(&restored).unwrap();
    std::fs::copy(host.data().join("root.key"), restored.join("root.key")).unwrap();
    run(&restored, &format!("vault restore {}", beside("backup")), 0, places);
    run(&restored, "secret put d --host api.example.com --workspace default", 0, places);
    run(&restored, "vault verify", 0, places);
}

/// Runs a command with the value on standard input and keeps its output.
fn run(data: &Path, line: &str, code: i32, places: &mut Places) {
    run_with(data, line, VALUE, code, places);
}

fn run_with(data: &Path, line: &str, input: &str, code: i32, places: &mut Places) {
    let mut command = program();
    command.env("COFFERDAM_LOG", "trace").arg("--json").arg("--data").arg(data).args(line.split(' '));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The command may have ended without reading its input.
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap_or_default();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
    places.insert(format!("`{line}` in {}", data.display()), [output.stdout, output.stderr].concat());
}

/// What the system shows of the process in `/proc`.
fn of_the_process(host: &Host, places: &mut Places) {
    for name in ["environ", "cmdline"] {
        let path = PathBuf::from(format!("/proc/{}/{name}", host.pid()));
        match std::fs::read(&path) {
            Ok(bytes) => {
                assert!(!bytes.is_empty());
                places.insert(path.display().to_string(), bytes);
            }
            // The process is not dumpable, so only root can read it.
            Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}"),
        }
    }
}

/// All files of the directories and the backup, without trailing zeros.
fn files(host: &Host, places: &mut Places) {
    let mut files = Vec::new();
    list_files(host.directory(), &mut files);
    for file in files {
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        places.insert(file.display().to_string(), bytes);
    }
}
