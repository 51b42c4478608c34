//! Models for tools that ask models: four providers, each with one model and its own price.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, provider};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

/// A host whose model may ask others. A turn has ten tokens: it costs 10, 20, 30 and 40 millionths of a dollar.
pub struct Models {
    pub host: Host,
    /// Serves [`MODEL`], which the client asks.
    pub outer: Upstream,
    /// Serves `m/a`.
    pub a: Upstream,
    /// Serves `m/b`.
    pub b: Upstream,
    /// Serves `m/j`.
    pub j: Upstream,
    _guests: tempfile::TempDir,
}

impl Models {
    /// Grants the `model` import to every tool that needs it.
    pub async fn start() -> Self {
        let grant = |name: &str| format!("[plugins.tool-{name}]\nimports = [\"model\"]\n");
        Self::with(&["asker", "advisor", "subagent", "fusion"].map(grant).concat()).await
    }

    /// Starts with this configuration and no grants.
    pub async fn with(config: &str) -> Self {
        Self::priced(config, [1, 2, 3, 4]).await
    }

    /// The same at other prices, in dollars per million tokens.
    pub async fn priced(config: &str, prices: [u32; 4]) -> Self {
        let [outer, a, b, j] = [
            Upstream::start().await,
            Upstream::start().await,
            Upstream::start().await,
            Upstream::start().await,
        ];
        let mut served = String::new();
        let ids = [(MODEL, &outer), ("m/a", &a), ("m/b", &b), ("m/j", &j)];
        for (place, ((id, upstream), price)) in ids.iter().zip(prices).enumerate() {
            let name = format!("p{place}");
            let endpoint = format!(
                "{{ provider = \"{name}\", model = \"up-{place}\", input = {price}, output = {price} }}"
            );
            served += &provider(&name, "openai-chat", &upstream.base);
            served += &format!("[[models]]\nid = \"{id}\"\nendpoints = [{endpoint}]\n");
        }
        let guests = folder(&["hook-asker", "tool-asker"]);
        let host = Setup::new().config(config).config(&served).plugins(guests.path()).start();
        Self { host, outer, a, b, j, _guests: guests }
    }

    pub async fn ask(&self, request: &Value, streamed: bool) -> Value {
        Client::new(&self.host).ask(request, streamed).await
    }
}

pub fn with_tools(tools: &Value) -> Value {
    json!({"model": MODEL, "input": "Go.", "tools": tools})
}

/// A question for a model.
pub fn question(model: &str) -> Value {
    json!({"model": model, "input": "Why?"})
}
