//! Request plugins: hook guests that a request names in its `plugins`, called in that order,
//! account defaults first; hooks that judge come after the others, the one that shortens
//! conversations last. A hook that fails ends the request, because it may be there to enforce a
//! rule.

mod fitting;
mod judged;

pub(crate) use fitting::are_small;
mod rejection;

use crate::Engine;
use crate::assembler::check_finished;
use crate::catalog::model_routers::ROUTER_ENTRY_IDS;
use crate::failure::exceeded;
use crate::offload::aside;
use crate::plugins::tools::{self, HookOutcome, HookTools, PluginScope, RequestCapabilities};
use crate::refusal::Refusal;
use crate::refusal::printable;
use crate::request::{Prompts, RequestBounds, RequestPlugin, ResponsesRequest, tool_of_plugin};
use crate::timeline::{FactName, StepMark, StepType, Timeline, call_outcome};
use bytes::Bytes;
use cofferdam_runtime::manifest::{HookPhase, OnStream};
use cofferdam_runtime::services::Spent;
use cofferdam_runtime::wire::{Action, ErrorKind, Failure};
use cofferdam_runtime::{CallError, CallErrorKind, HookAction, Plugin, Plugins, Services};
use std::sync::Arc;

/// The longest answer that is held back for hooks, in bytes of text, arguments and pictures.
pub(crate) const HELD_BYTES_MAX: usize = 16 << 20;

/// Whether entries with this id are handled by the host itself: settings of its model routers, and
/// server tools. A hook with such an id would never be called.
#[must_use]
pub fn is_own_entry(id: &str) -> bool {
    ROUTER_ENTRY_IDS.contains(&id) || tool_of_plugin(id).is_some()
}

/// A hook of this request, with its settings.
pub(crate) struct Hook {
    plugin: Arc<Plugin>,
    id: String,
    settings: Bytes,
    /// The path of the entry for messages, such as `plugins[2]`.
    path: String,
}

/// The hook with this id. A hook that lacks a grant is not available to clients.
fn find<'a>(plugins: &'a Plugins, id: &str) -> Option<&'a Arc<Plugin>> {
    with_id(plugins, id).filter(|plugin| plugin.is_usable())
}

/// The hook with this id, whether or not it has the grants it needs.
fn with_id<'a>(plugins: &'a Plugins, id: &str) -> Option<&'a Arc<Plugin>> {
    plugins.iter().find(|plugin| plugin.manifest().hook.as_ref().is_some_and(|hook| hook.id == id))
}

/// Whether an entry with this id in a request or in the account defaults has an effect on this
/// host.
#[must_use]
pub fn is_request_plugin(plugins: &Plugins, id: &str) -> bool {
    match tool_of_plugin(id) {
        Some(tool) => tools::installed(plugins, tool).is_some(),
        None => is_router_entry(plugins, id) || find(plugins, id).is_some(),
    }
}

/// Whether an entry with this id contains settings for a model router.
fn is_router_entry(plugins: &Plugins, id: &str) -> bool {
    let is_of = |plugin: &Arc<Plugin>| {
        let table = plugin.manifest().router.as_ref();
        table.is_some_and(|table| table.id == id) && plugin.exports_model_choice() && plugin.is_usable()
    };
    ROUTER_ENTRY_IDS.contains(&id) || plugins.iter().any(is_of)
}

impl Engine {
    /// The hooks of a request: those that it names, those it has by default, and the one that
    /// shortens conversations for models with a small context.
    ///
    /// # Errors
    /// 400 naming an id that no installed plugin has.
    pub(crate) fn hooks(&self, request: &ResponsesRequest) -> Result<Vec<Hook>, Refusal> {
        let is_hook =
            |entry: &&RequestPlugin| !is_router_entry(&self.parts.plugins, &entry.id) && !entry.is_tool();
        let wanted = request.plugins.iter().filter(|entry| entry.enabled).filter(is_hook);
        let hooks: Result<Vec<Hook>, Refusal> = wanted
            .map(|entry| {
                let plugin = find(&self.parts.plugins, &entry.id).ok_or_else(|| self.no_hook(entry))?;
                Ok(self.hook(plugin, &entry.id, entry.path(), &entry.json, &request.models))
            })
            .collect();
        let mut hooks = hooks?;
        hooks.sort_by_key(Hook::judges);
        // If the request is short and no other hook can make it longer, the hook need not be
        // called.
        let fitting = self.fitting(request);
        hooks.extend(
            fitting.filter(|hook| !hooks.is_empty() || fitting::may_be_too_long(request, &hook.settings)),
        );
        Ok(hooks)
    }

    /// The refusal for a hook that is not installed or lacks a grant. A missing grant is logged for
    /// the operator.
    fn no_hook(&self, entry: &RequestPlugin) -> Refusal {
        if let Some(plugin) = with_id(&self.parts.plugins, &entry.id) {
            self.log_lacking(plugin);
        }
        let id = printable(&entry.id);
        Refusal::invalid(format!("{}.id \"{id}\" is not available on this host", entry.path()))
    }

    /// The hook that small models and `truncation: auto` have without being named. It is the last,
    /// so that it sees the request as the other hooks left it.
    fn fitting(&self, request: &ResponsesRequest) -> Option<Hook> {
        let is_named = request.plugins.iter().any(|entry| entry.id == fitting::ID);
        if is_named || !self.must_fit(request) {
            return None;
        }
        let plugin = find(&self.parts.plugins, fitting::ID)?;
        let entry = format!("{{\"id\":\"{}\"}}", fitting::ID);
        Some(self.hook(plugin, fitting::ID, fitting::ID.to_owned(), entry.as_bytes(), &request.models))
    }

    /// A hook with its entry. `context_length`, the tokens that fit the smallest of the models
    /// named, is put before the entry's own members, unless the client has set it.
    fn hook(&self, plugin: &Arc<Plugin>, id: &str, path: String, entry: &[u8], models: &[String]) -> Hook {
        let smallest = fitting::smallest(self.catalog(), models).filter(|_| !fitting::is_set(entry));
        let settings = match (smallest, entry.strip_prefix(b"{")) {
            // An entry has an id, so a member follows the comma.
            (Some(smallest), Some(rest)) => {
                [format!("{{\"context_length\":{smallest},").as_bytes(), rest].concat()
            }
            _ => entry.to_vec(),
        };
        Hook { plugin: Arc::clone(plugin), id: id.to_owned(), settings: Bytes::from(settings), path }
    }
}

/// The capabilities of a hook; `None` for a hook without grants.
fn tools(hook: &Hook, scope: PluginScope<'_>, request: &ResponsesRequest) -> Option<Arc<HookTools>> {
    if hook.plugin.grant().imports.is_empty() {
        return None;
    }
    Some(HookTools::new(scope.engine, scope.context, RequestCapabilities::new(scope, request)))
}

/// Notes the end of a call into a hook.
fn end(timeline: &Timeline, step: StepMark, verdict: &HookOutcome, spent: &Spent) {
    let action = match verdict {
        Ok(Ok(Action::Pass)) => FactName::Action.word("pass"),
        Ok(Ok(Action::Replace(_))) => FactName::Action.word("change"),
        Ok(Ok(Action::Reject(_))) => FactName::Action.word("block"),
        Ok(Err(_)) | Err(_) => None,
    };
    let outcome = match verdict {
        Ok(Ok(Action::Reject(failure))) => failure.kind.as_str(),
        verdict => call_outcome(verdict),
    };
    timeline.end_call(step, outcome, spent.time(), &[action]);
}

/// Calls each hook with the request. What a hook returns instead is parsed like a client's body.
pub(crate) async fn on_request(
    hooks: &[Hook],
    scope: PluginScope<'_>,
    request: &mut ResponsesRequest,
) -> Result<(), Refusal> {
    for hook in hooks.iter().filter(|hook| hook.has(HookPhase::OnRequest)) {
        if hook.id == fitting::ID && !fitting::may_be_too_long(request, &hook.settings) {
            continue;
        }
        let step = hook.begin(scope.timeline, "on-request");
        let below = scope.timeline.under(step);
        let tools = tools(hook, PluginScope { timeline: &below, ..scope }, request);
        let services = tools.as_ref().map_or_else(Services::default, |tools| tools.services(&hook.plugin));
        let spent = Spent::default();
        let services = Services { spent: Some(spent.clone()), ..services };
        let shown = match hook.judges() {
            true => judged::shown(scope.engine.catalog(), request),
            false => request.guest_json.clone(),
        };
        let verdict = hook.plugin.on_request(scope.context, services, &shown, &hook.settings).await;
        end(scope.timeline, step, &verdict, &spent);
        let verdict = clean(verdict, hook, tools.as_deref());
        let Some(replaced) = hook.judge(verdict, &shown, request)? else { continue };
        let length = replaced.len();
        let bounds = RequestBounds::of_client(scope.engine.parts.items_max).of_hook();
        let read = move || ResponsesRequest::parse_with(&replaced, &[], &Prompts::default(), bounds);
        let new = aside(length, read).await?.map_err(|error| {
            tracing::error!(plugin = %hook.plugin.name(), path = %error.path, "a hook made an invalid request");
            Refusal::internal()
        })?;
        request.adopt(new);
    }
    Ok(())
}

/// Whether a hook has to see the whole answer before a streaming client gets any of it.
pub(crate) fn hold_streams(hooks: &[Hook]) -> bool {
    hooks.iter().any(|hook| hook.sees_answer(true))
}

/// Calls each hook with the finished response. The cost of tools that hooks call is recorded only
/// in the ledger, because the sums in the response are final by now.
pub(crate) async fn on_response(
    hooks: &[Hook],
    scope: PluginScope<'_>,
    request: &ResponsesRequest,
    mut response: Vec<u8>,
) -> Result<Vec<u8>, Refusal> {
    for hook in hooks.iter().filter(|hook| hook.sees_answer(request.stream)) {
        let step = hook.begin(scope.timeline, "on-response");
        let below = scope.timeline.under(step);
        let tools = tools(hook, PluginScope { timeline: &below, ..scope }, request);
        let services = tools.as_ref().map_or_else(Services::default, |tools| tools.services(&hook.plugin));
        let spent = Spent::default();
        let services = Services { spent: Some(spent.clone()), ..services };
        let (context, asked) = (scope.context, &request.guest_json);
        let verdict = hook.plugin.on_response(context, services, asked, &response, &hook.settings).await;
        end(scope.timeline, step, &verdict, &spent);
        let verdict = clean(verdict, hook, tools.as_deref());
        let Some(replaced) = hook.judge(verdict, &response, request)? else { continue };
        if let Err(malformed) = check_finished(&replaced) {
            let plugin = hook.plugin.name();
            tracing::error!(%plugin, %malformed, "a hook made a response that is not a finished one");
            return Err(Refusal::internal());
        }
        response = replaced;
    }
    Ok(response)
}

/// Removes the values of secrets that were sent for the hook from its decision.
fn clean(verdict: HookOutcome, hook: &Hook, tools: Option<&HookTools>) -> HookOutcome {
    match tools {
        Some(tools) => tools.clean(&hook.plugin, verdict),
        None => verdict,
    }
}

impl Hook {
    pub(crate) fn name(&self) -> &str {
        self.plugin.name()
    }

    fn begin(&self, timeline: &Timeline, phase: &'static str) -> StepMark {
        let name = self.name();
        timeline.begin(StepType::Hook, &[name, phase], &[FactName::Plugin.name(name)])
    }

    fn judges(&self) -> bool {
        self.plugin.manifest().hook.as_ref().is_some_and(|hook| hook.judges)
    }

    fn has(&self, phase: HookPhase) -> bool {
        self.plugin.manifest().hook.as_ref().is_some_and(|hook| hook.phases.contains(&phase))
    }

    /// Whether it sees the answer to a request that is `streamed` or not.
    fn sees_answer(&self, streamed: bool) -> bool {
        let passes =
            self.plugin.manifest().hook.as_ref().is_some_and(|hook| hook.on_stream == OnStream::Pass);
        self.has(HookPhase::OnResponse) && !(streamed && passes)
    }

    /// The replacement for what was `shown`, if the hook made one.
    fn judge(
        &self,
        verdict: HookOutcome,
        shown: &[u8],
        request: &ResponsesRequest,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        self.plugin.counters().hook_decided(match &verdict {
            Ok(Ok(Action::Pass)) => HookAction::Pass,
            Ok(Ok(Action::Replace(_))) => HookAction::Replace,
            Ok(Ok(Action::Reject(_))) => HookAction::Reject,
            Ok(Err(_)) | Err(_) => HookAction::Failed,
        });
        match verdict {
            Ok(Ok(Action::Pass)) => Ok(None),
            Ok(Ok(Action::Replace(json))) => Ok(Some(json)),
            Ok(Ok(Action::Reject(failure))) if failure.kind == ErrorKind::ContentPolicyViolation => {
                let model = request.models.first().map_or("", String::as_str);
                Err(rejection::refusal(&failure, self.plugin.name(), shown, model))
            }
            Ok(Ok(Action::Reject(failure)) | Err(failure)) => Err(self.refusal(&failure)),
            Err(error) if error.is_saturated() => Err(Refusal::saturated()),
            Err(error) => {
                tracing::error!(plugin = %error.plugin, %error, "a hook failed");
                Err(self.too_large(&error, shown.len()).unwrap_or_else(Refusal::internal))
            }
        }
    }

    /// 413 if the hook ran out of memory or time over a long request. A hook with imports may have
    /// run out of time while it waited, so that is not blamed on the length.
    fn too_large(&self, error: &CallError, shown: usize) -> Option<Refusal> {
        if error.kind == CallErrorKind::OutOfTime && !self.plugin.grant().imports.is_empty() {
            return None;
        }
        let limit = exceeded(error, shown)?;
        let message = format!("The request is too large for the plugin {}: {limit} is the limit", self.id);
        Some(Refusal::new(413, ErrorKind::PayloadTooLarge, message))
    }

    /// A hook does not see the index of its entry: `ID.field` in its message becomes
    /// `plugins[i].field`.
    fn refusal(&self, failure: &Failure) -> Refusal {
        let refusal = Refusal::from_failure(failure);
        match failure.message.strip_prefix(&self.id) {
            Some(rest) if rest.starts_with(['.', ' ']) => {
                Refusal { message: format!("{}{rest}", self.path), ..refusal }
            }
            _ => refusal,
        }
    }
}
