//! The output of `serve` at its start: the addresses, a key if the store has none, and a `curl`
//! command that streams a response. Because of the key it goes only to standard output, never to
//! the log.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;

use cofferdam_engine::catalog::ModelKind;
use cofferdam_store::{Actor, KeyId, KeyOwner, NewKey, SpendLimits, Store, WorkspaceId};
use serde_json::json;
use zeroize::Zeroizing;

use crate::app::{Addresses, App};
use crate::command::CommandError;
use crate::command::quoted;
use crate::failure::Failure;
use crate::start::write_part;

/// The key that the first start of a store shows.
pub(crate) struct FirstKey {
    id: KeyId,
    pub(crate) token: Zeroizing<String>,
}

pub(crate) struct Greeting {
    key: Option<FirstKey>,
    curl: String,
    at: Addresses,
}

impl Greeting {
    /// Creates a key for the workspace `default` if the store has no key for clients. Not in a database,
    /// where `store create` makes the first key: several hosts may start at the same time.
    pub(crate) async fn new(app: &App, store: &Store) -> Result<Self, Failure> {
        let (live, at) = (app.live(), app.addresses());
        let key = match store.find_workspace("default").await {
            Ok(workspace)
                if store.database_hosts().is_none()
                    && !store.has_client_key().await.map_err(CommandError::from)? =>
            {
                Some(first_key(store, workspace.id)?)
            }
            _ => None,
        };
        let models = live.engine.catalog().models();
        let model = models.iter().find(|model| model.kind == ModelKind::Responses);
        let model = model.map_or("VENDOR/MODEL", |model| model.id.as_str());
        let curl = format!(
            "curl -N {}/v1/responses -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' -d '{}'",
            reach(app, Addresses::reachable(at.listen)),
            key.as_ref().map_or("YOUR_KEY", |key| &key.token),
            json!({"model": model, "input": "Hello!", "stream": true}),
        );
        Ok(Self { key, curl, at })
    }

    /// Writes the greeting to standard output. A new key that cannot be shown is revoked.
    pub(crate) fn show(&self, as_json: bool, store: &Store) -> Result<(), Failure> {
        let written = write_part(&self.text(as_json));
        if let Some(key) = &self.key
            && !matches!(written, Ok(ControlFlow::Continue(())))
        {
            store.revoke_key(Actor::Operator, key.id).map_err(CommandError::from)?;
            tracing::warn!(
                "the first key could not be written to standard output and is revoked; `cofferdam key create \
                 --workspace default` makes another"
            );
        }
        written.map(drop)
    }

    /// The text for people, or one line of JSON.
    fn text(&self, as_json: bool) -> String {
        let Self { key, curl, at } = self;
        let (Addresses { listen, admin, is_tls }, scheme) = (at, at.scheme());
        if as_json {
            let mut line = serde_json::Map::new();
            if let Some(key) = key {
                line.insert("key".to_owned(), key.token.as_str().into());
            }
            line.insert("curl".to_owned(), curl.as_str().into());
            line.insert("listen".to_owned(), listen.to_string().into());
            line.insert("admin".to_owned(), admin.to_string().into());
            line.insert("tls".to_owned(), (*is_tls).into());
            return format!("{}\n", serde_json::Value::Object(line));
        }
        let mut text = format!("Cofferdam listens on {scheme}://{listen}; {}.\n", at.admin_text());
        if at.has_console() {
            text.push_str("`cofferdam console` prints a link that signs in to the console.\n");
        }
        if let Some(key) = key {
            text.push_str(&format!(
                "\nA key for the workspace `default`, shown this once:\n\n  {}\n",
                *key.token
            ));
        }
        text.push_str(&format!("\nTry it:\n\n  {curl}\n\n"));
        text
    }
}

/// Creates the key that the first start of a store shows.
pub(crate) fn first_key(store: &Store, workspace: WorkspaceId) -> Result<FirstKey, CommandError> {
    let wanted = NewKey {
        owner: KeyOwner::Member { workspace, member: None },
        name: None,
        expires_at_ms: None,
        limits: SpendLimits::default(),
    };
    let issued = store.issue_key(Actor::Operator, wanted)?;
    let token = Zeroizing::new(String::from_utf8_lossy(issued.token.expose()).into_owned());
    Ok(FirstKey { id: issued.key.id, token })
}

/// The options and the begin of a URL with which `curl` on this machine reaches the listener of clients. With TLS the
/// URL has a name of the certificate, and a certificate that is its own root is trusted by its file.
fn reach(app: &App, address: SocketAddr) -> String {
    let Some(tls) = app.tls() else { return format!("http://{address}") };
    let pair = tls.current();
    let facts = pair.facts();
    let file = std::path::absolute(&pair.files().certificate.path).unwrap_or_default();
    let trust = if facts.ends_in_root {
        format!("--cacert {} ", quoted(&file.to_string_lossy()))
    } else {
        String::new()
    };
    let (ip, port) = (address.ip(), address.port());
    let name = facts.names.iter().find(|name| !name.contains('*') && name.parse::<IpAddr>().is_err());
    match name {
        Some(name) if !facts.names.contains(&ip.to_string()) => {
            format!("{trust}--resolve {name}:{port}:{ip} https://{name}:{port}")
        }
        _ => format!("{trust}https://{address}"),
    }
}
