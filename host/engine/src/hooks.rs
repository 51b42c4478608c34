//! Request plugins: hook guests that a request asks for by id, in the order of
//! its `plugins`. A hook that breaks ends the request; it may be there to
//! enforce something.

use crate::Engine;
use crate::refusal::Refusal;
use crate::request::{RequestPlugin, ResponsesRequest};
use crate::routing::printable;
use cofferdam_runtime::manifest::Phase;
use cofferdam_runtime::wire::{Action, Failure};
use cofferdam_runtime::{CallContext, CallError, Plugin, Services};
use std::sync::Arc;

/// Ids whose entry is settings for a model router, not a hook.
const ROUTER_IDS: [&str; 5] =
    ["auto-router", "auto-beta-router", "jev-router", "switchyard-router", "pareto-router"];

/// A hook of this request with its settings.
pub(crate) struct Hook {
    plugin: Arc<Plugin>,
    settings: bytes::Bytes,
}

impl Engine {
    /// The hooks a request asks for.
    ///
    /// # Errors
    /// 400 naming an id that no installed plugin has.
    pub(crate) fn hooks(&self, entries: &[RequestPlugin]) -> Result<Vec<Hook>, Refusal> {
        let wanted = entries.iter().filter(|entry| entry.enabled && !ROUTER_IDS.contains(&entry.id.as_str()));
        wanted
            .map(|entry| {
                let has_id = |plugin: &&Arc<Plugin>| {
                    plugin.manifest().hook.as_ref().is_some_and(|hook| hook.id == entry.id)
                };
                let plugin = self.parts.plugins.iter().find(has_id).ok_or_else(|| {
                    Refusal::invalid(format!(
                        "plugins[{}].id \"{}\" is not available on this host",
                        entry.index,
                        printable(&entry.id)
                    ))
                })?;
                Ok(Hook { plugin: Arc::clone(plugin), settings: entry.json.clone() })
            })
            .collect()
    }
}

/// Shows the request to each hook; what they replace is parsed like a client's body.
pub(crate) async fn on_request(
    hooks: &[Hook],
    context: &CallContext,
    request: &mut ResponsesRequest,
) -> Result<(), Refusal> {
    for hook in hooks.iter().filter(|hook| hook.has(Phase::OnRequest)) {
        let verdict =
            hook.plugin.on_request(context, Services::default(), &request.guest_json, &hook.settings).await;
        let Some(replaced) = hook.judge(verdict)? else { continue };
        let new = ResponsesRequest::parse(&replaced, &[]).map_err(|error| {
            tracing::error!(plugin = %hook.plugin.name(), path = %error.path, "a hook made an invalid request");
            Refusal::internal()
        })?;
        request.adopt(new);
    }
    Ok(())
}

/// Shows a finished response to each hook.
pub(crate) async fn on_response(
    hooks: &[Hook],
    context: &CallContext,
    request: &[u8],
    mut response: Vec<u8>,
) -> Result<Vec<u8>, Refusal> {
    for hook in hooks.iter().filter(|hook| hook.has(Phase::OnResponse)) {
        let verdict =
            hook.plugin.on_response(context, Services::default(), request, &response, &hook.settings).await;
        let Some(replaced) = hook.judge(verdict)? else { continue };
        if serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&replaced).is_err() {
            tracing::error!(plugin = %hook.plugin.name(), "a hook made a response that is not an object");
            return Err(Refusal::internal());
        }
        response = replaced;
    }
    Ok(response)
}

impl Hook {
    fn has(&self, phase: Phase) -> bool {
        self.plugin.manifest().hook.as_ref().is_some_and(|hook| hook.phases.contains(&phase))
    }

    /// What to go on with instead, if anything.
    fn judge(&self, verdict: Result<Result<Action, Failure>, CallError>) -> Result<Option<Vec<u8>>, Refusal> {
        match verdict {
            Ok(Ok(Action::Pass)) => Ok(None),
            Ok(Ok(Action::Replace(json))) => Ok(Some(json)),
            Ok(Ok(Action::Reject(failure)) | Err(failure)) => Err(Refusal::from_failure(&failure)),
            Err(error) if error.is_saturated() => Err(Refusal::saturated()),
            Err(error) => {
                tracing::error!(plugin = %error.plugin, %error, "a hook failed");
                Err(Refusal::internal())
            }
        }
    }
}
