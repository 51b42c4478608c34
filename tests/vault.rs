//! The vault over HTTP: access, request bodies, names, hosts, values, pages, limits and concurrent
//! clients.

mod access;
mod bodies;
mod concurrency;
mod copying;
mod framing;
mod hosts;
mod legacy;
mod limits;
mod listing;
mod model;
mod names;
mod quota;
mod secrets;
mod switches;
mod values;
mod waits;

use crate::kit::client::{Answer, Client, read};
use crate::kit::host::{Host, Setup};
use reqwest::Method;
use serde_json::{Value, json};

/// Turns the vault's rate limits off, for tests of other behaviour.
const UNHURRIED: &str = "[vault]\nrate_limit = { reads_per_minute = 0, writes_per_minute = 0 }";

/// The answer to every malformed vault request.
const INVALID: (u16, &str) = (400, "Invalid vault request");
const NOT_FOUND: (u16, &str) = (404, "Not found");
const BAD_KEY: (u16, &str) = (401, "Invalid or missing API key");

fn setup() -> Setup {
    Setup::new().config(UNHURRIED)
}

fn text(document: &Value, name: &str) -> String {
    document[name].as_str().unwrap_or_else(|| panic!("no {name} in {document}")).to_owned()
}

fn command(host: &Host, line: &str) -> Value {
    host.command(&line.split_whitespace().collect::<Vec<_>>())
}

/// A request body that stores a secret.
fn secret(hosts: &[&str], value: &str) -> Vec<u8> {
    json!({"hosts": hosts, "value": value}).to_string().into_bytes()
}

/// One vault, accessed with one key.
struct Vault {
    client: Client,
    path: String,
}

impl Vault {
    /// The workspace's vault, with the host's first key.
    fn of(host: &Host) -> Self {
        Self::with_key(host, &host.key)
    }

    /// The workspace's vault, with another key.
    fn with_key(host: &Host, key: &str) -> Self {
        Self { client: Client::with_key(host, key), path: "/vault".to_owned() }
    }

    /// An intern's vault.
    fn of_intern(host: &Host, key: &str, intern: &str) -> Self {
        Self { client: Client::with_key(host, key), path: format!("/vault/interns/{intern}") }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Answer {
        let mut request = self.client.request(method, &format!("{}{path}", self.path));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        read(request.send().await.unwrap()).await
    }

    async fn put(&self, name: &str, hosts: &[&str], value: &str) -> Answer {
        self.put_body(name, secret(hosts, value)).await
    }

    async fn put_body(&self, name: &str, body: impl Into<Vec<u8>>) -> Answer {
        self.ask(Method::PUT, &format!("/secrets/{name}"), Some(body.into())).await
    }

    /// Stores a secret, which must succeed; returns its metadata.
    async fn stored(&self, name: &str, hosts: &[&str], value: &str) -> Value {
        let answer = self.put(name, hosts, value).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        answer.body["data"].clone()
    }

    async fn delete(&self, name: &str) -> Answer {
        self.ask(Method::DELETE, &format!("/secrets/{name}"), None).await
    }

    async fn page(&self, query: &str) -> Answer {
        self.ask(Method::GET, &format!("/secrets{query}"), None).await
    }

    /// The first page: at most 100 secrets.
    async fn list(&self) -> Vec<Value> {
        let answer = self.page("").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["data"].as_array().unwrap().clone()
    }

    async fn names(&self) -> Vec<String> {
        self.list().await.iter().map(|entry| text(entry, "name")).collect()
    }

    /// Deletes the secrets of the first page.
    async fn clear(&self) {
        for name in self.names().await {
            assert_eq!(self.delete(&name).await.status, 204);
        }
    }

    /// The secrets an intern can use: its own and those of the workspace.
    async fn effective(&self, query: &str) -> Answer {
        self.ask(Method::GET, &format!("/effective-secrets{query}"), None).await
    }

    /// Copies secrets of the workspace to this intern.
    async fn copy(&self, names: &[&str]) -> Answer {
        self.copy_body(json!({"names": names}).to_string()).await
    }

    async fn copy_body(&self, body: impl Into<Vec<u8>>) -> Answer {
        self.ask(Method::POST, "/secrets/copy", Some(body.into())).await
    }
}

/// Checks an error: status, message, envelope and headers.
#[track_caller]
fn assert_refused(answer: &Answer, (status, message): (u16, &str), what: &str) {
    assert_eq!(answer.status, status, "{what}: {}", answer.text);
    assert_eq!(answer.message(), message, "{what}: {}", answer.text);
    assert_eq!(answer.body["error"]["code"], status, "{what}");
    assert_eq!(answer.headers["content-type"], "application/json", "{what}");
    assert_eq!(answer.headers["cache-control"], "no-store", "{what}");
}

/// A host with an intern created by the first key's member.
fn with_intern() -> (Host, String) {
    let host = setup().start();
    let intern = text(&command(&host, "intern create scout --workspace default"), "id");
    (host, intern)
}
