//! A host whose tools may reach a server controlled by the test.

use super::script::{Call, answer, calls};
use crate::kit::client::{Client, last_response};
use crate::kit::config::{HOSTED_TOOLS, MODEL, model, provider, with_keys};
use crate::kit::host::{Host, Setup, program};
use crate::kit::site::{Authority, Site};
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

/// The host that tools are granted.
pub const HOST: &str = "api.test";
/// A host that tools are not granted.
pub const OTHER: &str = "other.test";
/// A model of a provider that speaks the Responses dialect, with tools of its own.
pub const NATIVE: &str = "test/native";
/// A model that both providers have.
pub const BOTH: &str = "test/both";

/// A host, its models, and the server that its tools reach.
pub struct Reach {
    pub host: Host,
    /// [`MODEL`] and [`BOTH`]: the chat dialect, which has functions only.
    pub chat: Upstream,
    /// [`NATIVE`] and [`BOTH`].
    pub native: Upstream,
    pub site: Site,
}

impl Reach {
    /// Starts with grants that are written for the server's port.
    pub async fn start(grants: impl Fn(u16) -> String) -> Self {
        let authority = Authority::new();
        let site = Site::start(&authority, &[HOST, OTHER]).await;
        let (chat, native) = (Upstream::start().await, Upstream::start().await);
        let setup = Setup::new();
        std::fs::write(setup.directory().join("ca.pem"), authority.pem()).unwrap();
        let port = site.port;
        let models = model(NATIVE, "responses", &["n"]) + &model(BOTH, "responses", &["c", "n"]);
        let host = setup
            .config(&format!(
                "[egress]\nports = [{port}]\nroots = [\"ca.pem\"]\nallow_private = [\"127.0.0.0/8\"]\n\
                 resolve = {{ \"{HOST}\" = [\"127.0.0.1\"], \"{OTHER}\" = [\"127.0.0.1\"] }}"
            ))
            .config(&provider("c", "openai-chat", &chat.base))
            .config(&provider("n", "openai-responses", &native.base))
            .config(&model(MODEL, "responses", &["c"]))
            .config(&with_keys(&models, "n", HOSTED_TOOLS))
            .config(&grants(port))
            .start();
        Self { host, chat, native, site }
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{HOST}:{}{path}", self.site.port)
    }

    /// Stores a secret of the default workspace for [`HOST`].
    pub fn secret(&self, name: &str, value: &str) {
        let mut command = program();
        command.arg("--data").arg(self.host.data()).args(["secret", "put", name, "--host", HOST]);
        command.args(["--workspace", "default"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Sends a request, streamed or not; returns the finished response and the events, if any.
    pub async fn ask(&self, request: &Value, streamed: bool) -> (Value, Vec<Value>) {
        let client = Client::new(&self.host);
        if streamed {
            let events = client.stream(request).await;
            return (last_response(&events).clone(), events);
        }
        let answer = client.post("/responses", request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        (answer.body, Vec::new())
    }

    /// Lets the chat model make these calls and then say `text`.
    pub async fn run(
        &self,
        request: &Value,
        streamed: bool,
        made: &[Call<'_>],
        text: &str,
    ) -> (Value, Vec<Value>) {
        self.chat.reply(calls(streamed, "", made));
        self.chat.reply(answer(streamed, text));
        self.ask(request, streamed).await
    }

    /// The tool result that the chat model got last.
    pub fn told(&self) -> String {
        let asked = self.chat.asked().pop().unwrap();
        let messages = asked.body["messages"].as_array().unwrap();
        let told = messages.iter().rev().find(|message| message["role"] == "tool").unwrap();
        told["content"].as_str().unwrap().to_owned()
    }

    /// The names of the functions offered to the chat model last.
    pub fn offered(&self) -> Vec<Value> {
        let asked = self.chat.asked().pop().unwrap();
        let tools = asked.body["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| tool["function"]["name"].clone()).collect()
    }
}

pub fn with_tool(tool: Value) -> Value {
    json!({"model": MODEL, "input": "Go.", "tools": [tool]})
}

pub fn json_reply(body: Value) -> Reply {
    Reply::json(200, body)
}

/// The types of events that are about output items of this index, without `response.`.
pub fn events_of(events: &[Value], index: u64) -> Vec<String> {
    let about = |event: &&Value| event["output_index"] == index;
    let name = |event: &Value| event["type"].as_str().unwrap().trim_start_matches("response.").to_owned();
    events.iter().filter(about).map(name).collect()
}
