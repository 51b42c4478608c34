//! The output of `serve` at its start: the addresses, a key if the store has none, and a `curl`
//! command that streams a response. Because of the key it goes only to standard output, never to
//! the log.

use cofferdam_engine::catalog::ModelKind;
use cofferdam_store::{Actor, KeyOwner, NewKey, SpendLimits, Store};
use serde_json::json;

use crate::app::Addresses;
use crate::command::CommandError;
use crate::failure::Failure;
use crate::wiring::LiveConfig;

pub(crate) struct Greeting {
    key: Option<String>,
    curl: String,
    at: Addresses,
}

impl Greeting {
    /// Creates a key for the workspace `default` if the store has no key for clients.
    pub(crate) async fn new(live: &LiveConfig, store: &Store, at: Addresses) -> Result<Self, Failure> {
        let key = match store.find_workspace("default").await {
            Ok(workspace) if !store.has_client_key().await.map_err(CommandError::from)? => {
                let wanted = NewKey {
                    owner: KeyOwner::Member { workspace: workspace.id, member: None },
                    name: None,
                    expires_at_ms: None,
                    limits: SpendLimits::default(),
                };
                let issued = store.issue_key(Actor::Operator, wanted).map_err(CommandError::from)?;
                Some(String::from_utf8_lossy(issued.token.expose()).into_owned())
            }
            _ => None,
        };
        let models = live.engine.catalog().models();
        let model = models.iter().find(|model| model.kind == ModelKind::Responses);
        let model = model.map_or("VENDOR/MODEL", |model| model.id.as_str());
        let curl = format!(
            "curl -N http://{}/v1/responses -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' -d '{}'",
            Addresses::reachable(at.listen),
            key.as_deref().unwrap_or("YOUR_KEY"),
            json!({"model": model, "input": "Hello!", "stream": true}),
        );
        Ok(Self { key, curl, at })
    }

    /// The text for people, or one line of JSON.
    pub(crate) fn text(&self, as_json: bool) -> String {
        let Self { key, curl, at: Addresses { listen, admin } } = self;
        if as_json {
            let mut line = serde_json::Map::new();
            if let Some(key) = key {
                line.insert("key".to_owned(), key.as_str().into());
            }
            line.insert("curl".to_owned(), curl.as_str().into());
            line.insert("listen".to_owned(), listen.to_string().into());
            line.insert("admin".to_owned(), admin.to_string().into());
            return format!("{}\n", serde_json::Value::Object(line));
        }
        let mut text =
            format!("Cofferdam listens on http://{listen}; health and metrics on http://{admin}.\n");
        if let Some(key) = key {
            text.push_str(&format!("\nA key for the workspace `default`, shown this once:\n\n  {key}\n"));
        }
        text.push_str(&format!("\nTry it:\n\n  {curl}\n\n"));
        text
    }
}
