//! Access rights of keys outside the vault, and the guarantee that tokens are not stored or logged.

mod gone;

use crate::kit::client::{Answer, Client};
use crate::kit::host::{Host, Setup};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;

/// One key of each kind in the workspace `default`, and the host.
struct Keys {
    host: Host,
    keys: Vec<(&'static str, String)>,
}

fn text(document: &Value, name: &str) -> String {
    document[name].as_str().unwrap().to_owned()
}

fn key(host: &Host, line: &str) -> Value {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    host.command(&arguments)
}

fn keys() -> Keys {
    let host = Setup::new().start();
    key(&host, "intern create scout --workspace default");
    key(&host, "workspace create outside --no-programme");
    let revoked = key(&host, "key create --workspace default");
    key(&host, &format!("key revoke {}", text(&revoked, "id")));
    let made = |line: &str| text(&key(&host, line), "key");
    let keys = vec![
        ("member", made("key create --workspace default")),
        ("intern", made("key create --workspace default --intern scout")),
        ("provisioning", made("key create --workspace default --provisioning")),
        ("unscoped", made("key create --no-scope")),
        ("outside", made("key create --workspace outside")),
        ("revoked", text(&revoked, "key")),
        ("unknown", "cfd_000000000000_0000000000000000000000000000000000000000000_000000".to_owned()),
    ];
    Keys { host, keys }
}

/// `200` and no message, or a status and a message.
type Verdict = (u16, &'static str);

const YES: Verdict = (200, "");
const BAD_KEY: Verdict = (401, "Invalid or missing API key");
const NO_INFERENCE: Verdict = (403, "This kind of key cannot be used for inference");
const MANAGEMENT: Verdict = (403, "Only management keys can perform this operation");
const NOT_FOUND: Verdict = (404, "Not found");

/// The result of each key at a route: member, intern, provisioning, unscoped, outside the
/// programme, revoked, unknown.
type Row = [Verdict; 7];

const INFERENCE: Row = [YES, YES, NO_INFERENCE, NO_INFERENCE, YES, BAD_KEY, BAD_KEY];
const CATALOG: Row = [YES, YES, YES, YES, YES, BAD_KEY, BAD_KEY];
const KEYS: Row = [MANAGEMENT, NOT_FOUND, YES, MANAGEMENT, MANAGEMENT, BAD_KEY, BAD_KEY];
const CREDITS: Row = [YES, NOT_FOUND, NOT_FOUND, NOT_FOUND, YES, BAD_KEY, BAD_KEY];

fn table() -> Vec<(Method, String, Value, Row)> {
    let response = json!({"model": "local/demo", "input": "hi"});
    let embedding = json!({"model": "local/embed", "input": "hi"});
    let nothing = Value::Null;
    vec![
        (Method::POST, "/responses".to_owned(), response, INFERENCE),
        (Method::POST, "/embeddings".to_owned(), embedding, INFERENCE),
        (Method::GET, "/models".to_owned(), nothing.clone(), CATALOG),
        (Method::GET, "/models/local/demo".to_owned(), nothing.clone(), CATALOG),
        (Method::GET, "/key".to_owned(), nothing.clone(), CATALOG),
        (Method::GET, "/keys".to_owned(), nothing.clone(), KEYS),
        (Method::GET, "/credits".to_owned(), nothing, CREDITS),
    ]
}

async fn ask(client: &Client, method: Method, path: &str, body: &Value) -> Answer {
    let mut request = client.request(method, path);
    if !body.is_null() {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    crate::kit::client::read(request.send().await.unwrap()).await
}

#[tokio::test]
async fn access_of_each_kind_of_key_at_each_route_matches_the_contract() {
    let keys = keys();
    for (method, path, body, row) in table() {
        for ((kind, token), verdict) in keys.keys.iter().zip(row) {
            let answer = ask(&Client::with_key(&keys.host, token), method.clone(), &path, &body).await;
            assert!(!answer.text.contains(token), "{}", answer.text);
            assert_verdict(&format!("{kind} {method} {path}"), &answer, verdict);
        }
    }
}

fn assert_verdict(what: &str, answer: &Answer, (status, message): Verdict) {
    assert_eq!(answer.status, status, "{what}: {}", answer.text);
    if status != 200 {
        assert_eq!(answer.message(), message, "{what}: {}", answer.text);
        assert_eq!(answer.body["error"]["code"], status, "{what}: {}", answer.text);
    }
}

#[tokio::test]
async fn malformed_authorization_headers_get_the_documented_errors() {
    let host = Setup::new().start();
    rustls::crypto::ring::default_provider().install_default().ok();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let bearer = format!("Bearer {}", host.key);
    let (missing, invalid) = ("Missing Authentication header", "Invalid or missing API key");
    let table: [(&[&str], &str); 7] = [
        (&[], missing),
        (&[""], invalid),
        (&["Bearer"], invalid),
        (&["Basic YTpi"], invalid),
        (&[&host.key], invalid),
        (&["Bearer not-a-key"], invalid),
        (&[&bearer, &bearer], invalid),
    ];
    for (headers, message) in table {
        for (path, expected) in [("/models", message), ("/vault/secrets", invalid)] {
            let request = http.get(format!("{}{path}", host.base));
            let request =
                headers.iter().fold(request, |request, header| request.header("authorization", *header));
            let answer = crate::kit::client::read(request.send().await.unwrap()).await;
            assert_eq!((answer.status, answer.message()), (401, expected), "{headers:?} {path}");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
    }
    // One character too many, one too few, and another case.
    for wrong in
        [format!("{}x", host.key), host.key[..host.key.len() - 1].to_owned(), host.key.to_uppercase()]
    {
        assert_eq!(Client::with_key(&host, &wrong).get("/models").await.status, 401, "{wrong}");
    }
}

#[tokio::test]
async fn errors_contain_only_the_member_id_of_the_key() {
    let keys = keys();
    let member = text(&keys.host.command(&["member", "list"])[0], "id");
    for (kind, token) in &keys.keys {
        let answer = Client::with_key(&keys.host, token).post("/responses", &json!({"model": 5})).await;
        match *kind {
            "member" | "provisioning" => {
                assert_eq!(answer.body["user_id"], member.as_str(), "{kind}: {}", answer.text);
            }
            "outside" => assert!(answer.body["user_id"].is_string()),
            _ => assert_eq!(answer.body["user_id"], Value::Null, "{kind}: {}", answer.text),
        }
    }
}

#[tokio::test]
async fn key_route_describes_the_callers_key() {
    let keys = keys();
    for (kind, token) in keys.keys.iter().take(4) {
        let answer = Client::with_key(&keys.host, token).get("/key").await;
        assert_eq!(answer.body["data"]["kind"], *kind, "{}", answer.text);
        assert!(!answer.text.contains(token));
    }
    let expiring = key(&keys.host, "key create --workspace default --expires-days 1 --name short");
    let answer = Client::with_key(&keys.host, &text(&expiring, "key")).get("/key").await;
    let data = &answer.body["data"];
    assert_eq!((&data["expires_at"], &data["name"]), (&expiring["expires_at"], &"short".into()));
}

#[tokio::test]
async fn revoking_a_key_and_deleting_an_intern_take_effect_at_once() {
    let keys = keys();
    let host = &keys.host;
    let made = key(host, "key create --workspace default");
    let client = Client::with_key(host, &text(&made, "key"));
    assert_eq!(client.get("/models").await.status, 200);
    key(host, &format!("key revoke {}", text(&made, "id")));
    assert_eq!(client.get("/models").await.status, 401);

    let (_, token) = &keys.keys[1];
    let client = Client::with_key(host, token);
    assert_eq!(client.get("/models").await.status, 200);
    key(host, "intern delete scout");
    assert_eq!(client.get("/models").await.status, 401);
}

#[tokio::test]
async fn leaving_the_programme_hides_the_vault_at_once() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    assert_eq!(client.get("/vault/secrets").await.status, 200);
    key(&host, "workspace set default --programme off");
    assert_eq!(client.get("/vault/secrets").await.status, 404);
    assert_eq!(client.get("/models").await.status, 200);
}

#[tokio::test]
async fn the_vault_is_refused_on_a_regional_host_name() {
    let host = Setup::new().config("[server]\nregional_hosts = [\"eu.api.example.com\"]").start();
    let request =
        Client::new(&host).request(Method::GET, "/vault/secrets").header("host", "EU.api.example.com:443");
    let answer = crate::kit::client::read(request.send().await.unwrap()).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    assert!(answer.message().starts_with("The Intern API does not support regional data residency yet"));
    let request = Client::new(&host).request(Method::GET, "/models").header("host", "eu.api.example.com");
    assert_eq!(request.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_token_is_shown_once_and_never_stored() {
    let keys = keys();
    for (_, token) in &keys.keys {
        let client = Client::with_key(&keys.host, token);
        client.get("/key").await;
        client.post("/responses", &json!({"model": "local/demo", "input": "hi", "stream": true})).await;
    }
    let mut tokens: Vec<String> =
        keys.keys.iter().filter(|(kind, _)| *kind != "unknown").map(|(_, token)| token.clone()).collect();
    tokens.push(keys.host.key.clone());
    let listed = keys.host.command(&["key", "list"]).to_string();
    let mut host = keys.host;
    host.signal("TERM");
    host.wait();
    let log = host.log();
    for token in tokens {
        // The first part identifies the key and may be shown; the middle part is the secret.
        let secret = token.split('_').nth(2).unwrap().to_owned();
        assert!(secret.len() >= 40, "{token}");
        assert!(!listed.contains(&secret) && !log.contains(&secret));
        assert_absent(&host.data(), secret.as_bytes());
    }
}

/// Checks that no file below the folder contains these bytes.
fn assert_absent(folder: &Path, bytes: &[u8]) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_absent(&path, bytes);
        } else {
            let found = std::fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes);
            assert!(!found, "{} holds a key", path.display());
        }
    }
}
