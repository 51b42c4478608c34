//! Runs the cases of a plugin: calls it with what a case says, in the sandbox of a serving host,
//! and compares the answer.

mod answer;
mod guest_lines;
mod provider;
mod served;

use std::sync::Arc;

use cofferdam_egress::{Egress, EgressConfig};
use cofferdam_engine::assembler::check_finished;
use cofferdam_engine::request::{Prompts, RequestBounds, ResponsesRequest};
use cofferdam_runtime::wire::{Action, Failure, Function, Output, ToolError};
use cofferdam_runtime::{CallContext, CallError, ChoiceQuestion, FixedInputs, Plugin};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::canaries::Canaries;
use super::cases::{Case, CaseInput, HookInput, RouterInput, Scripts, ToolInput, cut};
use super::project::wrong;
use super::scripted::ScriptedImports;
use crate::failure::Failure as CommandFailure;

pub(super) use answer::{assembled, events_of_stream};
pub(super) use guest_lines::GuestLines;
pub(super) use served::as_served;
use served::{as_judged, entry_of, finished};

/// Number and length of the problems and of the notes of one case, in characters.
const PROBLEMS_MAX: usize = 8;
const PROBLEM_CHARS_MAX: usize = 2_000;
const CASE_NOTES_MAX: usize = 16;
const NOTE_CHARS_MAX: usize = 400;

/// How a case ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CaseResult {
    pub(super) case: String,
    /// The file and the line of the case.
    pub(super) at: String,
    /// What is wrong; nothing where the answer is as expected.
    pub(super) problems: Vec<String>,
    /// What else happened: requests that were refused, lines of the log.
    pub(super) notes: Vec<String>,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    Call(CallError),
    Rule(String),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// What all cases of a plugin share.
pub(super) struct Bench {
    pub(super) plugin: Arc<Plugin>,
    pub(super) canaries: Arc<Canaries>,
    pub(super) egress: Arc<Egress>,
}

impl Bench {
    /// `ports` are open to requests of the plugin.
    ///
    /// # Errors
    ///
    /// The rules for requests cannot be read.
    pub(super) fn new(
        plugin: &Arc<Plugin>,
        canaries: Canaries,
        ports: Vec<u16>,
    ) -> Result<Self, CommandFailure> {
        let rules = EgressConfig { ports, ..EgressConfig::default() };
        let egress = Egress::new(rules).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { plugin: Arc::clone(plugin), canaries: Arc::new(canaries), egress: Arc::new(egress) })
    }

    pub(super) fn imports(&self, scripts: &Arc<Scripts>) -> ScriptedImports {
        ScriptedImports::new(scripts, &self.canaries, &self.egress)
    }

    /// The plugin with the settings of a case.
    pub(super) fn plugin_for(&self, case: &Case) -> Arc<Plugin> {
        if case.config.is_empty() {
            return Arc::clone(&self.plugin);
        }
        Arc::new(self.plugin.with_settings(&case.config))
    }

    /// Runs a case. The second value is the error of a call that broke.
    pub(super) async fn run(&self, case: &Case) -> (CaseResult, Option<CallError>) {
        let imports = Arc::new(self.imports(&case.input.scripts().cloned().unwrap_or_default()));
        let lines = GuestLines::default();
        let answered = {
            let _watch = lines.watch();
            call(&self.plugin_for(case), case, &imports).await
        };
        let (mut problems, mut broke) = (Vec::new(), None);
        let used = imports.end();
        match answered {
            Ok(mut answer) => {
                let is_scripted = case.input.scripts().is_some_and(|scripts| scripts.deferred.is_some());
                if is_scripted || !used.loaded.is_empty() {
                    answer.insert("loaded".to_owned(), json!(used.loaded));
                }
                let answer = Value::Object(answer);
                problems.extend(case.expect.problem(&answer));
                for name in self.canaries.found_in(answer.to_string().as_bytes()) {
                    problems.push(format!("the answer has the value of the secret {name}"));
                }
            }
            Err(Trouble::Rule(rule)) => problems.push(rule),
            Err(Trouble::Call(error)) => {
                problems.push(error.to_string());
                broke = Some(error);
            }
        }
        problems.extend(used.problems);
        let lines = lines.taken();
        for name in self.canaries.found_in(lines.join("\n").as_bytes()) {
            problems.push(format!("the log has the value of the secret {name}"));
        }
        let problems = bounded(problems, PROBLEMS_MAX, PROBLEM_CHARS_MAX);
        let notes = bounded_notes(used.notes.into_iter().chain(lines).collect());
        let result = CaseResult { case: case.name.clone(), at: case.at.clone(), problems, notes };
        (result, broke)
    }
}

/// The context of a call: the time and the random bytes of the case, and no earlier instance.
pub(super) fn context(now_ms: u64, seed: u64) -> CallContext {
    CallContext {
        request_id: "resp_check".into(),
        workspace: "check".to_owned(),
        owner: None,
        now_ms,
        inputs: Some(Arc::new(FixedInputs::new(now_ms, seed))),
    }
}

/// Calls the plugin as the case says. The answer has the members that `expect` may name.
pub(super) async fn call(
    plugin: &Arc<Plugin>,
    case: &Case,
    imports: &Arc<ScriptedImports>,
) -> Result<Map<String, Value>, Trouble> {
    let context = context(case.now_ms, case.seed);
    match &case.input {
        CaseInput::Tool(tool) => tool_answer(plugin, &context, tool, imports).await,
        CaseInput::Hook(hook) => hook_answer(plugin, &context, hook, imports).await,
        CaseInput::Provider(input) => provider::answer(plugin, &context, input).await,
        CaseInput::Router(router) => router_answer(plugin, &context, router, case.seed).await,
    }
}

async fn tool_answer(
    plugin: &Arc<Plugin>,
    context: &CallContext,
    tool: &ToolInput,
    imports: &Arc<ScriptedImports>,
) -> Result<Map<String, Value>, Trouble> {
    let settings = tool.settings.to_string();
    let services = imports.services();
    let functions = plugin.functions(context, services.clone(), settings.as_bytes()).await?;
    let functions = match functions {
        Ok(functions) => functions,
        Err(error) => return Ok(tool_error(&error)),
    };
    let Some(call) = &tool.call else {
        let functions: Vec<Value> = functions.iter().map(function_json).collect();
        return Ok(members(json!({"functions": functions})));
    };
    if functions.iter().all(|known| known.name != call.function) {
        let offered: Vec<&str> = functions.iter().map(|known| known.name.as_str()).collect();
        return Err(Trouble::Rule(format!(
            "the tool does not offer {}, it offers {}",
            call.function,
            offered.join(", ")
        )));
    }
    let arguments = call.arguments.to_string();
    let called = plugin.invoke(context, services, &call.function, arguments.as_bytes(), settings.as_bytes());
    Ok(match called.await? {
        Ok(Output { for_model, item, annotations, cost_pico }) => {
            let annotations: Vec<Value> = annotations.iter().map(|annotation| read(annotation)).collect();
            let item = read(&item);
            members(
                json!({"item": item, "for_model": for_model, "annotations": annotations, "cost_pico": cost_pico}),
            )
        }
        Err(error) => tool_error(&error),
    })
}

fn function_json(function: &Function) -> Value {
    let Function { name, description, parameters } = function;
    json!({"name": name, "description": description, "parameters": read(parameters)})
}

fn tool_error(error: &ToolError) -> Map<String, Value> {
    members(match error {
        ToolError::InvalidSettings(message) => json!({"invalid_settings": message}),
        ToolError::InvalidArguments(message) => json!({"invalid_arguments": message}),
        ToolError::Failed(message) => json!({"failed": message}),
    })
}

async fn hook_answer(
    plugin: &Arc<Plugin>,
    context: &CallContext,
    hook: &HookInput,
    imports: &Arc<ScriptedImports>,
) -> Result<Map<String, Value>, Trouble> {
    let (id, judges) =
        plugin.manifest().hook.as_ref().map_or(("", false), |table| (&*table.id, table.judges));
    // The request beside a response is that of every hook.
    let is_judged = judges && hook.response.is_none();
    let request = if is_judged { as_judged(&hook.request) } else { as_served(&hook.request) }.to_string();
    let settings = entry_of(&hook.settings, id).to_string();
    let (request, settings, services) = (request.as_bytes(), settings.as_bytes(), imports.services());
    let action = match &hook.response {
        None => plugin.on_request(context, services, request, settings).await?,
        Some(response) => {
            let response = finished(response).to_string();
            plugin.on_response(context, services, request, response.as_bytes(), settings).await?
        }
    };
    if let Ok(Action::Replace(json)) = &action {
        check_replacement(json, hook.response.is_some()).map_err(Trouble::Rule)?;
    }
    Ok(members(match action {
        Ok(Action::Pass) => json!({"action": "pass"}),
        Ok(Action::Replace(json)) => json!({"action": "replace", "replace": read(&json)}),
        Ok(Action::Reject(failure)) => json!({"action": "reject", "reject": failure_json(&failure)}),
        Err(failure) => json!({"failure": failure_json(&failure)}),
    }))
}

/// Checks what a hook puts in place as a serving host does, with its limits of a configuration that says nothing.
fn check_replacement(json: &[u8], is_response: bool) -> Result<(), String> {
    if is_response {
        let rule = "the response that the hook made is refused: it has to be an object with a final `status`, and with \
                    `output`, a list of items that have a `type`";
        return check_finished(json).map_err(|_| rule.to_owned());
    }
    let bounds = RequestBounds::default().of_hook();
    ResponsesRequest::parse_with(json, &[], &Prompts::default(), bounds)
        .map(drop)
        .map_err(|error| format!("the request that the hook made is refused: {error}"))
}

async fn router_answer(
    plugin: &Arc<Plugin>,
    context: &CallContext,
    router: &RouterInput,
    seed: u64,
) -> Result<Map<String, Value>, Trouble> {
    let RouterInput { summary, candidates, choice } = router;
    let answer = match choice {
        None => plugin.route(context, summary, candidates, seed).await?.map(|decision| {
            json!({"order": decision.order, "strategy": decision.strategy, "reason": decision.reason})
        }),
        Some(choice) => {
            let settings = choice.settings.to_string();
            let (slug, facts, models) = (choice.slug.as_str(), &choice.facts, choice.models.as_slice());
            let question = ChoiceQuestion { slug, summary, facts, models, settings: settings.as_bytes(), seed };
            plugin.choose_model(context, question).await?.map(|choice| {
                json!({"models": choice.models, "strategy": choice.strategy, "reason": choice.reason})
            })
        }
    };
    Ok(members(answer.unwrap_or_else(|failure| json!({"failure": failure_json(&failure)}))))
}

/// The notes of one call that are shown.
pub(super) fn bounded_notes(notes: Vec<String>) -> Vec<String> {
    bounded(notes, CASE_NOTES_MAX, NOTE_CHARS_MAX)
}

/// The first of these texts, each cut where it is long.
fn bounded(texts: Vec<String>, count_max: usize, chars_max: usize) -> Vec<String> {
    let more = texts.len().saturating_sub(count_max);
    let mut texts: Vec<String> = texts.iter().take(count_max).map(|text| cut(text, chars_max)).collect();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts
}

/// A failure by the names of the API.
fn failure_json(failure: &Failure) -> Value {
    let Failure { kind, message, code, retry_after_ms } = failure;
    json!({"kind": kind.as_str(), "message": message, "code": code, "retry_after_ms": retry_after_ms})
}

/// JSON of a guest. What is not JSON is shown as text.
fn read(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(json).into_owned()))
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
