//! Request plugins: hook guests that a request asks for by id, in the order of
//! its `plugins`. A hook that breaks ends the request; it may be there to
//! enforce something.

use crate::Engine;
use crate::cost::Amount;
use crate::ledger::{Entry, Spending};
use crate::refusal::Refusal;
use crate::request::{RequestPlugin, ResponsesRequest};
use crate::routing::printable;
use crate::tools::{Doors, HookTools, Occasion};
use bytes::Bytes;
use cofferdam_runtime::manifest::Phase;
use cofferdam_runtime::wire::{Action, Failure};
use cofferdam_runtime::{CallError, Plugin, Services};
use std::sync::Arc;

/// Ids whose entry is settings for a model router, not a hook.
pub(crate) const ROUTER_IDS: [&str; 5] =
    ["auto-router", "auto-beta-router", "jev-router", "switchyard-router", "pareto-router"];

/// A hook of this request with its settings.
pub(crate) struct Hook {
    plugin: Arc<Plugin>,
    settings: Bytes,
}

impl Engine {
    /// The hooks a request asks for.
    ///
    /// # Errors
    /// 400 naming an id that no installed plugin has.
    pub(crate) fn hooks(&self, request: &ResponsesRequest) -> Result<Vec<Hook>, Refusal> {
        let truncation = self.truncation(request);
        let is_hook = |entry: &&RequestPlugin| !ROUTER_IDS.contains(&entry.id.as_str()) && !entry.is_tool();
        let wanted = request.plugins.iter().filter(|entry| entry.enabled).filter(is_hook);
        wanted
            .chain(&truncation)
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
                Ok(Hook { plugin: Arc::clone(plugin), settings: self.settings(entry, &request.models) })
            })
            .collect()
    }

    /// A hook's entry, with what the hook cannot know: `context_length`, the tokens that fit the smallest of the
    /// models named. What the client says of it comes later and counts.
    fn settings(&self, entry: &RequestPlugin, models: &[String]) -> Bytes {
        let known = models.iter().filter_map(|slug| self.catalog().find(slug)?.context_length);
        let (Some(smallest), Some(rest)) = (known.min(), entry.json.strip_prefix(b"{")) else {
            return entry.json.clone();
        };
        // An entry has an id, so there is something after the comma.
        Bytes::from([format!("{{\"context_length\":{smallest},").as_bytes(), rest].concat())
    }
}

/// What a hook may reach; none for one that was granted nothing.
fn tools(hook: &Hook, occasion: Occasion<'_>, request: &ResponsesRequest) -> Option<Arc<HookTools>> {
    if hook.plugin.grant().imports.is_empty() {
        return None;
    }
    Some(HookTools::new(occasion.engine, occasion.context, Doors::new(occasion, request)))
}

/// Shows the request to each hook; what they replace is parsed like a client's body. Returns what the tools
/// cost that hooks called, which is noted in `entry` whatever becomes of the request.
pub(crate) async fn on_request(
    hooks: &[Hook],
    occasion: Occasion<'_>,
    request: &mut ResponsesRequest,
    entry: &mut Entry,
) -> Result<Amount, Refusal> {
    let mut cost = Amount::default();
    for hook in hooks.iter().filter(|hook| hook.has(Phase::OnRequest)) {
        let tools = tools(hook, occasion, request);
        let services = tools.as_ref().map_or_else(Services::default, |tools| tools.services(&hook.plugin));
        let spending = tools.as_ref().map(|tools| Spending::new(entry, tools.spent()));
        let verdict =
            hook.plugin.on_request(occasion.context, services, &request.guest_json, &hook.settings).await;
        drop(spending);
        cost = cost.plus(tools.map_or_else(Amount::default, |tools| tools.cost()));
        let Some(replaced) = hook.judge(verdict)? else { continue };
        let new = ResponsesRequest::parse(&replaced, &[]).map_err(|error| {
            tracing::error!(plugin = %hook.plugin.name(), path = %error.path, "a hook made an invalid request");
            Refusal::internal()
        })?;
        request.adopt(new);
    }
    Ok(cost)
}

/// Shows a finished response to each hook. What the tools cost that they call is noted in `entry`: the
/// response has its sums already.
pub(crate) async fn on_response(
    hooks: &[Hook],
    occasion: Occasion<'_>,
    request: &ResponsesRequest,
    mut response: Vec<u8>,
    entry: &mut Entry,
) -> Result<Vec<u8>, Refusal> {
    for hook in hooks.iter().filter(|hook| hook.has(Phase::OnResponse)) {
        let tools = tools(hook, occasion, request);
        let services = tools.as_ref().map_or_else(Services::default, |tools| tools.services(&hook.plugin));
        let (context, asked) = (occasion.context, &request.guest_json);
        let spending = tools.as_ref().map(|tools| Spending::new(entry, tools.spent()));
        let verdict = hook.plugin.on_response(context, services, asked, &response, &hook.settings).await;
        drop(spending);
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
    /// The plugin's name.
    pub(crate) fn name(&self) -> &str {
        self.plugin.name()
    }

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
