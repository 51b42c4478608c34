//! Access control: every kind of key at every route with every method.

use super::{
    BAD_KEY, NOT_FOUND, UNHURRIED, Vault, assert_refused, command, secret, setup, text, with_intern,
};
use crate::kit::client::{Answer, Client, http, read};
use crate::kit::host::{Host, Setup};
use crate::kit::store::{now, prepare};
use cofferdam_store::{Actor, Clock, KeyChange, KeyOwner, NewKey, SpendLimits, Store};
use reqwest::Method;
use serde_json::json;
use std::net::Ipv4Addr;

const METHODS: [&str; 8] = ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "get"];

/// The expected outcome for a key at a route when the method is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meets {
    Yes,
    /// 401: the key is not accepted.
    Unknown,
    /// 403: the key has no workspace.
    NoScope,
    /// 404 for every method.
    Outside,
    /// 404 for this key.
    Hidden,
}
use Meets::{Hidden, NoScope, Outside, Unknown, Yes};

/// Whose secrets a path is about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Whose {
    Workspace,
    /// An intern that the plain member made; the intern's key is its own.
    Scout,
    /// Copying from the workspace to that intern.
    CopyToScout,
    /// An intern that the admin made.
    Second,
    CopyToSecond,
    /// An intern of another workspace, or none.
    Stranger,
}
use Whose::{CopyToScout, CopyToSecond, Scout, Second, Stranger, Workspace};

/// Rows are kinds of keys. The columns are in the order of `COLUMNS`.
const TABLE: [(&str, [Meets; 6]); 10] = [
    ("admin", [Yes, Yes, Yes, Yes, Yes, Hidden]),
    ("member", [Yes, Yes, Yes, Hidden, Hidden, Hidden]),
    ("intern", [Hidden, Yes, Hidden, Hidden, Hidden, Hidden]),
    ("unscoped", [NoScope; 6]),
    ("outside", [Outside; 6]),
    ("provisioning", [Unknown; 6]),
    ("revoked", [Unknown; 6]),
    ("expired", [Unknown; 6]),
    ("disabled", [Unknown; 6]),
    ("unknown", [Unknown; 6]),
];

const COLUMNS: [Whose; 6] = [Workspace, Scout, CopyToScout, Second, CopyToSecond, Stranger];

struct Keys {
    host: Host,
    scout: String,
    second: String,
    stranger: String,
    keys: Vec<(&'static str, String)>,
}

impl Keys {
    fn key(&self, kind: &str) -> &str {
        &self.keys.iter().find(|(known, _)| *known == kind).unwrap().1
    }

    /// Paths, whose secrets they are about, and their allowed methods.
    fn routes(&self) -> Vec<(String, Whose, &'static str)> {
        let mut routes = vec![
            ("/vault/secrets".to_owned(), Workspace, "GET, HEAD"),
            ("/vault/secrets/a".to_owned(), Workspace, "PUT, DELETE"),
        ];
        let nobody = "7b1c3a52-91d4-4c6e-8f01-2d3e4f5a6b7c".to_owned();
        for (id, own, copy) in [
            (&self.scout, Scout, CopyToScout),
            (&self.second, Second, CopyToSecond),
            (&self.stranger, Stranger, Stranger),
            (&nobody, Stranger, Stranger),
        ] {
            routes.extend([
                (format!("/vault/interns/{id}/secrets"), own, "GET, HEAD"),
                (format!("/vault/interns/{id}/secrets/a"), own, "PUT, DELETE"),
                (format!("/vault/interns/{id}/effective-secrets"), own, "GET, HEAD"),
                (format!("/vault/interns/{id}/secrets/copy"), copy, "POST, PUT, DELETE"),
            ]);
        }
        routes
    }
}

/// An expired and a disabled key. No command creates them in this state.
fn unusual_keys(store: &Store) -> (String, String) {
    let workspace = now(store.find_workspace("default")).unwrap().id;
    let issue = |expires_at_ms| {
        let owner = KeyOwner::Member { workspace, member: None };
        store
            .issue_key(
                Actor::Operator,
                NewKey { owner, name: None, expires_at_ms, limits: SpendLimits::default() },
            )
            .unwrap()
    };
    // Expired before any request can use it.
    let expired = issue(Some(Clock::system().now_ms() + 1000));
    let disabled = issue(None);
    let change = KeyChange { disabled: Some(true), ..KeyChange::default() };
    store.set_key(Actor::Operator, disabled.key.id, change).unwrap();
    while Clock::system().now_ms() <= expired.key.expires_at_ms.unwrap() {
        std::thread::yield_now();
    }
    let token =
        |issued: &cofferdam_store::IssuedKey| String::from_utf8(issued.token.expose().to_vec()).unwrap();
    (token(&expired), token(&disabled))
}

fn keys() -> Keys {
    let setup = Setup::new().config(UNHURRIED);
    let (expired, disabled) = prepare(&setup, unusual_keys);
    let host = setup.start();
    let made = |line: &str| text(&command(&host, line), "key");
    command(&host, "member create plain --workspace default --role member");
    let scout = text(&command(&host, "intern create scout --workspace default --member plain"), "id");
    let second = text(&command(&host, "intern create second --workspace default"), "id");
    command(&host, "workspace create outside --no-programme");
    let stranger = text(&command(&host, "intern create other --workspace outside"), "id");
    let revoked = command(&host, "key create --workspace default");
    command(&host, &format!("key revoke {}", text(&revoked, "id")));
    let admin = made("key create --workspace default");
    let keys = vec![
        ("admin", admin.clone()),
        ("member", made("key create --workspace default --member plain")),
        ("intern", made("key create --workspace default --intern scout")),
        ("unscoped", made("key create --no-scope")),
        ("outside", made("key create --workspace outside")),
        ("provisioning", made("key create --workspace default --provisioning")),
        ("revoked", text(&revoked, "key")),
        ("expired", expired),
        ("disabled", disabled),
        ("unknown", admin[..admin.len() - 30].to_owned() + &"0".repeat(30)),
    ];
    Keys { host, scout, second, stranger, keys }
}

/// The expected outcome. In `secrets/copy`, methods other than `POST` mean a secret named `copy`.
fn cell(row: &[Meets; 6], whose: Whose, method: &str) -> Meets {
    let whose = match whose {
        CopyToScout if method != "POST" => Scout,
        CopyToSecond if method != "POST" => Second,
        whose => whose,
    };
    row[COLUMNS.iter().position(|known| *known == whose).unwrap()]
}

async fn ask(client: &Client, method: &str, path: &str) -> Answer {
    let method: Method = method.parse().unwrap();
    let body = match method {
        Method::PUT => Some(secret(&["a.com"], "x")),
        Method::POST => Some(json!({"names": ["a"]}).to_string().into_bytes()),
        _ => None,
    };
    let mut request = client.request(method, path);
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body);
    }
    read(request.send().await.unwrap()).await
}

fn check(what: &str, answer: &Answer, meets: Meets, method: &str, allowed: &str) {
    let known = allowed.split(", ").any(|known| known == method);
    let refusal = match meets {
        Unknown => BAD_KEY,
        Outside => NOT_FOUND,
        _ if !known => (405, "Method not allowed"),
        NoScope => (403, "Vault scope is unavailable"),
        Hidden => NOT_FOUND,
        Yes => {
            let expected = if method == "DELETE" { 204 } else { 200 };
            assert_eq!(answer.status, expected, "{what}: {}", answer.text);
            return;
        }
    };
    if method == "HEAD" {
        assert_eq!((answer.status, answer.text.as_str()), (refusal.0, ""), "{what}");
    } else {
        assert_refused(answer, refusal, what);
    }
}

#[tokio::test]
async fn every_kind_of_key_meets_at_every_route_with_every_method_what_the_contract_says() {
    let keys = keys();
    let admin = Client::with_key(&keys.host, keys.key("admin"));
    for (row, (kind, cells)) in TABLE.into_iter().enumerate() {
        for (column, (path, whose, allowed)) in keys.routes().into_iter().enumerate() {
            // A separate address per cell, or the limit on failed attempts would be reached.
            let address =
                Ipv4Addr::new(127, 1, u8::try_from(row).unwrap(), u8::try_from(column + 1).unwrap());
            let client = Client::from_address(&keys.host, keys.key(kind), address);
            assert_eq!(ask(&admin, "PUT", "/vault/secrets/a").await.status, 200);
            walk(&client, kind, (&path, allowed), |method| cell(&cells, whose, method)).await;
        }
    }
}

/// Every method at one route.
async fn walk(client: &Client, kind: &str, (path, allowed): (&str, &str), meets: impl Fn(&str) -> Meets) {
    for method in METHODS {
        let meets = meets(method);
        if method == "DELETE" && meets == Yes && allowed.contains("PUT") {
            let there = ask(client, "PUT", path).await;
            assert_eq!(there.status, 200, "{kind} {path}: {}", there.text);
        }
        let answer = ask(client, method, path).await;
        check(&format!("{kind} {method} {path}"), &answer, meets, method, allowed);
    }
}

/// Equal except for the request id and the date.
#[tokio::test]
async fn absent_and_forbidden_resources_have_byte_identical_answers() {
    let keys = keys();
    let host = &keys.host;
    let expected = seen(&Client::with_key(host, keys.key("admin")).get("/nothing").await);
    assert_eq!(expected.0, 404);
    for kind in ["admin", "member", "intern", "outside"] {
        let client = Client::with_key(host, keys.key(kind));
        assert_eq!(seen(&client.get("/nothing").await), expected, "{kind}");
        for (method, path) in hidden(&keys, kind) {
            assert_eq!(seen(&ask(&client, method, &path).await), expected, "{kind} {method} {path}");
        }
    }
    for kind in ["admin", "member"] {
        let client = Client::with_key(host, keys.key(kind));
        assert_eq!(seen(&ask(&client, "DELETE", "/vault/secrets/absent").await), expected, "{kind}");
    }
}

fn seen(answer: &Answer) -> (u16, String, String) {
    let mut headers = answer.headers.clone();
    headers.remove("x-request-id");
    headers.remove("date");
    (answer.status, format!("{headers:?}"), answer.text.clone())
}

/// Every method and path that is hidden from a kind of key.
fn hidden(keys: &Keys, kind: &str) -> Vec<(&'static str, String)> {
    let (_, cells) = TABLE.into_iter().find(|(known, _)| *known == kind).unwrap();
    let mut hidden = Vec::new();
    for (path, whose, allowed) in keys.routes() {
        let is_hidden = |method: &&str| match cell(&cells, whose, method) {
            Outside => true,
            Hidden => allowed.split(", ").any(|known| known == *method),
            _ => false,
        };
        let methods = METHODS.into_iter().filter(|method| *method != "HEAD").filter(is_hidden);
        hidden.extend(methods.map(|method| (method, path.clone())));
    }
    hidden
}

#[tokio::test]
async fn only_one_bearer_token_of_a_working_key_lets_in() {
    let host = setup().start();
    let http = http().build().unwrap();
    let good = format!("Bearer {}", host.key);
    let wrong = format!("Bearer {}", &host.key[..host.key.len() - 1]);
    let lists: [(&[&str], u16); 12] = [
        (&[], 401),
        (&["Basic x"], 401),
        (&["Bearer"], 401),
        (&["Bearer  "], 401),
        (&["Bearer x"], 401),
        (&[&wrong], 401),
        (&[&good, &good], 401),
        (&[&good, "Bearer x"], 401),
        (&[&host.key], 401),
        (&[&good.replace("Bearer", "bearer")], 200),
        (&[&good.replace("Bearer", "BEARER")], 200),
        (&[&good], 200),
    ];
    let mut refusals = Vec::new();
    for (headers, status) in lists {
        let request = http.get(format!("{}/vault/secrets", host.base));
        let request = headers.iter().fold(request, |request, value| request.header("authorization", *value));
        let answer = read(request.send().await.unwrap()).await;
        assert_eq!(answer.status, status, "{headers:?}");
        if status == 401 {
            assert_refused(&answer, BAD_KEY, &format!("{headers:?}"));
            refusals.push(answer.text);
        }
    }
    let query = http.get(format!("{}/vault/secrets?api_key={}&key={}", host.base, host.key, host.key));
    let answer = read(query.send().await.unwrap()).await;
    assert_refused(&answer, BAD_KEY, "in the query");
    refusals.push(answer.text);
    refusals.dedup();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
}

#[tokio::test]
async fn refused_tokens_are_in_the_audit_log_once_for_their_address_and_without_themselves() {
    let mut host = setup().start();
    let issued = command(&host, "key create --workspace default");
    command(&host, &format!("key revoke {}", text(&issued, "id")));
    let revoked = text(&issued, "key");
    for key in ["nonsense", &revoked, &revoked] {
        assert_refused(&Vault::with_key(&host, key).page("").await, BAD_KEY, key);
    }
    host.end();
    let whole = command(&host, "vault audit").to_string();
    assert!(!whole.contains("nonsense") && !whole.contains(&revoked), "{whole}");
    let records = command(&host, "vault audit");
    let entries = records.as_array().unwrap().iter().flat_map(|record| record["entries"].as_array().unwrap());
    let refused: Vec<_> = entries.filter(|entry| entry["action"] == "tokens_refused").collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    let expected = json!({
        "actor": "system", "action": "tokens_refused", "address": "127.0.0.1", "tokens": 3, "keys": [issued["id"]],
    });
    assert_eq!(*refused[0], expected);
}

#[tokio::test]
async fn regional_host_names_are_refused_after_the_key_and_before_everything_else() {
    let host = setup().config("[server]\nregional_hosts = [\"eu.api.example.com\"]").start();
    command(&host, "workspace create outside --no-programme");
    let outside = text(&command(&host, "key create --workspace outside"), "key");
    let unscoped = text(&command(&host, "key create --no-scope"), "key");
    let regional = |key: &str, method: Method, path: &str| {
        let client = Client::with_key(&host, key);
        client.request(method, path).header("host", "EU.api.example.com:443").send()
    };
    let message = "The Intern API does not support regional data residency yet; use the global endpoint";
    for (method, path) in [
        (Method::GET, "/vault/secrets"),
        (Method::PUT, "/vault/secrets/A"),
        (Method::PATCH, "/vault/secrets"),
        (Method::POST, "/vault/interns/x/secrets/copy"),
    ] {
        for key in [&host.key, &outside, &unscoped] {
            let answer = read(regional(key, method.clone(), path).await.unwrap()).await;
            assert_refused(&answer, (403, message), path);
        }
        let answer = read(regional("nonsense", method, path).await.unwrap()).await;
        assert_refused(&answer, BAD_KEY, path);
    }
}

#[tokio::test]
async fn roles_and_switches_count_from_the_next_request_on() {
    let (host, intern) = with_intern();
    command(&host, "member create plain --workspace default --role member");
    let key = text(&command(&host, "key create --workspace default --member plain"), "key");
    let vault = Vault::of_intern(&host, &key, &intern);
    assert_refused(&vault.page("").await, NOT_FOUND, "plain");
    command(&host, "member set plain --role admin");
    assert_eq!(vault.page("").await.status, 200);
    command(&host, "member set plain --role member");
    assert_refused(&vault.page("").await, NOT_FOUND, "plain");
    let first = Vault::of_intern(&host, &host.key, &intern);
    first.stored("a", &["a.com"], "x").await;
    command(&host, "workspace set default --programme off");
    assert_refused(&first.page("").await, NOT_FOUND, "programme");
    command(&host, "workspace set default --programme on");
    command(&host, "intern delete scout");
    assert_refused(&first.page("").await, NOT_FOUND, "deleted");
    assert_refused(&first.put("a", &["a.com"], "x").await, NOT_FOUND, "deleted");
}
