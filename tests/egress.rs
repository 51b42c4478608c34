//! Requests of plugins to other hosts, and secrets in them: the egress rules
//! (docs/egress-rules.md), each attacked through the built program. A probe guest sends the
//! requests that the test gives it, as if a model had called it, and returns what it received.

mod canaries;
mod first_party;
mod hosts;
mod logs;
mod placeholders;
mod plans;
mod recordings;
mod redirects;
mod reflections;
mod scopes;
mod traces;

use crate::kit::client::Client;
use crate::kit::config::{MODEL, model, provider};
use crate::kit::guests::{built, folder};
use crate::kit::host::{Host, Setup, program};
use crate::kit::names::Names;
use crate::kit::script::{chat, chat_message};
use crate::kit::site::{Authority, Site};
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const API: &str = "api.test";
/// Another host that the plugin may reach.
const OTHER: &str = "other.test";
/// A value that is long enough to be removed from responses (egress rule R19).
const VALUE: &str = "sk-7Qw1-Zx9c-Lm4v-probe";

const GRANT: &str = "[plugins.tool-probe]\nhosts = [\"api.test\", \"other.test\"]\nsecrets = [\"api_key\"]\n";

/// A host with the probe, a model that calls it, and the servers that it may reach.
struct Bench {
    host: Host,
    model: Upstream,
    /// All host names resolve to this server.
    site: Site,
    names: Names,
    _guests: tempfile::TempDir,
}

impl Bench {
    async fn start(grants: &str) -> Self {
        Self::with(Setup::new(), "", grants).await
    }

    /// Starts with further keys of `[egress]`.
    async fn with(setup: Setup, egress: &str, grants: &str) -> Self {
        let authority = Authority::new();
        let site = Site::start(&authority, &[API, OTHER, "flip.test"]).await;
        Self::at(setup, &authority, site, egress, grants).await
    }

    /// Starts with a given site, which may be one that the host does not trust.
    async fn at(setup: Setup, authority: &Authority, site: Site, egress: &str, grants: &str) -> Self {
        let (model_server, names) = (Upstream::start().await, Names::start().await);
        std::fs::write(setup.directory().join("ca.pem"), authority.pem()).unwrap();
        let setup = setup
            .config(&format!(
                "[egress]\nports = [{}]\nroots = [\"ca.pem\"]\nallow_private = [\"127.0.0.0/8\"]\n\
                 nameservers = [\"{}\"]\n{egress}\n\
                 resolve = {{ \"{API}\" = [\"127.0.0.1\"], \"{OTHER}\" = [\"127.0.0.1\"] }}",
                site.port, names.address
            ))
            .config(&provider("m", "openai-chat", &model_server.base))
            .config(&model(MODEL, "responses", &["m"]))
            .config(grants);
        let guests = folder(&["tool-probe", "tool-asker", "hook-caller", "hook-teller"]);
        // The same component under a second name, with a grant of its own.
        let manifest = std::fs::read_to_string(built("tool-probe.toml")).unwrap();
        let manifest =
            manifest.replace("tool-probe", "tool-second").replace("type = \"probe\"", "type = \"second\"");
        std::fs::write(guests.path().join("tool-second.toml"), manifest).unwrap();
        std::fs::copy(built("tool-probe.wasm"), guests.path().join("tool-second.wasm")).unwrap();
        let host = setup.plugins(guests.path()).start();
        Self { host, model: model_server, site, names, _guests: guests }
    }

    fn url(&self, name: &str, path: &str) -> String {
        format!("https://{name}:{}{path}", self.site.port)
    }

    fn secret(&self, name: &str, value: &str, bound_to: &str) {
        self.put(name, value, bound_to, &["--workspace", "default"]);
    }

    fn put(&self, name: &str, value: &str, bound_to: &str, scope: &[&str]) {
        let mut command = program();
        command.arg("--data").arg(self.host.data()).args(["secret", "put", name, "--host", bound_to]);
        let mut child = command.args(scope).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Creates another workspace with a secret; returns a key of it.
    fn workspace(&self, workspace: &str, secret: &str, value: &str, bound_to: &str) -> String {
        self.host.command(&["workspace", "create", workspace]);
        self.put(secret, value, bound_to, &["--workspace", workspace]);
        let made = self.host.command(&["key", "create", "--workspace", workspace]);
        made["key"].as_str().unwrap().to_owned()
    }

    /// Makes the probe send one request; returns the response or the error.
    async fn probe(&self, request: Value) -> Value {
        let shown = self.run("probe", &self.host.key, json!({"requests": [request]})).await;
        shown["answers"][0].clone()
    }

    /// Makes the probe send a plain request to a URL.
    async fn get(&self, url: &str) -> Value {
        self.probe(json!({"url": url})).await
    }

    /// Makes the model call a tool with these arguments, with this key; returns the tool's result.
    async fn run(&self, tool: &str, key: &str, told: Value) -> Value {
        self.run_after(json!([]), tool, key, told).await
    }

    /// The same in a request with these request plugins.
    async fn run_after(&self, plugins: Value, tool: &str, key: &str, told: Value) -> Value {
        let call = json!([{"id": "call_1", "type": "function", "function": {"name": "probe", "arguments": told.to_string()}}]);
        let message = json!({"role": "assistant", "content": "", "tool_calls": call});
        self.model.reply(chat_message(&message, "tool_calls"));
        self.model.reply(chat("done"));
        let request = json!({"model": MODEL, "input": "Go.", "plugins": plugins,
            "tools": [{"type": format!("service:{tool}")}]});
        let answer = Client::with_key(&self.host, key).post("/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let asked = self.model.asked().pop().unwrap();
        let messages = asked.body["messages"].as_array().unwrap();
        let shown = messages.iter().rev().find(|message| message["role"] == "tool").unwrap();
        serde_json::from_str(shown["content"].as_str().unwrap()).unwrap()
    }

    /// Entries of the audit log with this action. Ends the host first, so that all entries are on
    /// disk.
    fn audit(&mut self, action: &str) -> Vec<Value> {
        self.host.end();
        let records = self.host.command(&["vault", "audit"]);
        let entries =
            records.as_array().unwrap().iter().flat_map(|record| record["entries"].as_array().unwrap());
        entries.filter(|entry| entry["action"] == action).cloned().collect()
    }
}

#[track_caller]
fn assert_error(answer: &Value, error: &str) {
    assert_eq!(answer["error"], error, "{answer}");
}

#[track_caller]
fn assert_ok(answer: &Value) {
    assert_eq!(answer["status"], 200, "{answer}");
}
