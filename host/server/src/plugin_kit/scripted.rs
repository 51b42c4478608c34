//! The imports of a plugin that is tried: they answer what a case lists, and nothing else.

mod http;

use std::fmt::Display;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_egress::Egress;
use cofferdam_engine::check_question;
use cofferdam_runtime::Services;
use cofferdam_runtime::services::{
    Ask, DeferredTools, ModelListing, Opening, Question, RequestView, Scratch, ToolAccess, ToolCall,
};
use cofferdam_runtime::wire::{Answer, ErrorKind, Failure, HttpError, ToolCallError};
use serde_json::{Value, json};

use super::canaries::Canaries;
use super::cases::{Scripts, cut, difference};

/// Length limit of a text of the plugin that a message shows, in characters.
const SHOWN_MAX: usize = 300;
/// Number of notes and problems of one case.
const NOTES_MAX: usize = 32;

/// The imports of one case.
pub(super) struct ScriptedImports {
    scripts: Arc<Scripts>,
    canaries: Arc<Canaries>,
    /// Checks requests as a serving host does. It opens no connection.
    egress: Arc<Egress>,
    /// What every request over `http` is answered with, in place of what the case lists.
    every_request: Option<HttpError>,
    seen: Mutex<Seen>,
}

/// What the plugin did so far.
#[derive(Default)]
struct Seen {
    http: Vec<usize>,
    model: Vec<usize>,
    tools: Vec<usize>,
    loaded: Vec<String>,
    problems: Vec<String>,
    notes: Vec<String>,
}

/// What a plugin did with its imports in one case.
pub(super) struct ImportsUsed {
    /// What the case does not list, or lists and did not see.
    pub(super) problems: Vec<String>,
    /// Requests that were refused.
    pub(super) notes: Vec<String>,
    /// The deferred functions that were loaded.
    pub(super) loaded: Vec<String>,
}

impl ScriptedImports {
    pub(super) fn new(scripts: &Arc<Scripts>, canaries: &Arc<Canaries>, egress: &Arc<Egress>) -> Self {
        Self {
            scripts: Arc::clone(scripts),
            canaries: Arc::clone(canaries),
            egress: Arc::clone(egress),
            every_request: None,
            seen: Mutex::default(),
        }
    }

    /// The same imports, with one error for every request over `http`.
    pub(super) fn failing(self, error: HttpError) -> Self {
        Self { every_request: Some(error), ..self }
    }

    /// The capabilities for a call of the plugin. Calls with clones of them are one request.
    pub(super) fn services(self: &Arc<Self>) -> Services {
        Services {
            http: Some(Arc::<Self>::clone(self)),
            ask: Some(Arc::<Self>::clone(self)),
            tools: Some(Arc::<Self>::clone(self)),
            catalog: Some(Arc::<Self>::clone(self)),
            request: Some(Arc::<Self>::clone(self)),
            deferred: Some(Arc::<Self>::clone(self)),
            spent: None,
            scratch: Scratch::default(),
            depth: 0,
        }
    }

    /// What the plugin did, after its last call.
    pub(super) fn end(&self) -> ImportsUsed {
        let mut seen = std::mem::take(&mut *self.seen());
        let Scripts { http, model, tools, .. } = &*self.scripts;
        let unused = |used: &[usize], index: usize, optional: bool| !optional && !used.contains(&index);
        for (index, one) in
            http.iter().enumerate().filter(|(index, one)| unused(&seen.http, *index, one.optional))
        {
            seen.problems.push(format!(
                "the request {} of `http`, {} {}, was not sent; with `optional = true` it need not be",
                index + 1,
                one.method,
                one.url
            ));
        }
        for (index, _) in
            model.iter().enumerate().filter(|(index, one)| unused(&seen.model, *index, one.optional))
        {
            seen.problems.push(format!("the question {} of `model` was not asked", index + 1));
        }
        for (index, one) in
            tools.iter().enumerate().filter(|(index, one)| unused(&seen.tools, *index, one.optional))
        {
            seen.problems.push(format!("the call {} of `tools`, of {}, was not made", index + 1, one.tool));
        }
        ImportsUsed { problems: seen.problems, notes: seen.notes, loaded: seen.loaded }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is wrong with what the plugin does.
    fn problem(&self, problem: impl Display) {
        let mut seen = self.seen();
        if seen.problems.len() < NOTES_MAX {
            seen.problems.push(problem.to_string());
        }
    }

    fn note(&self, note: impl Display) {
        let mut seen = self.seen();
        if seen.notes.len() < NOTES_MAX {
            seen.notes.push(note.to_string());
        }
    }

    fn answer_question(&self, request: &[u8]) -> Result<Answer, Failure> {
        self.look_for_values("the question to a model", request);
        if let Err(failure) = check_question(request) {
            self.note(format_args!("a question was refused: {}", failure.message));
            return Err(failure);
        }
        let question: Value = serde_json::from_slice(request).unwrap_or_default();
        let text = String::from_utf8_lossy(request);
        let fits = |index: &usize| {
            self.scripts.model.get(*index).is_some_and(|script| {
                let has_members = script
                    .request
                    .as_ref()
                    .is_none_or(|wanted| difference("request", wanted, &question).is_none());
                has_members && script.contains.as_ref().is_none_or(|part| text.contains(part.as_str()))
            })
        };
        let mut seen = self.seen();
        let found = (0..self.scripts.model.len()).filter(|index| !seen.model.contains(index)).find(fits);
        seen.model.extend(found);
        drop(seen);
        let Some(script) = found.and_then(|index| self.scripts.model.get(index)) else {
            self.problem(format_args!("the question {} is not listed in `model`", cut(&text, SHOWN_MAX)));
            return Err(Failure::new(ErrorKind::NotFound, "The case has no answer to this question."));
        };
        script.answer.clone()
    }

    fn answer_call(&self, call: &ToolCall<'_>) -> Result<Vec<u8>, ToolCallError> {
        for bytes in [call.settings, call.arguments] {
            self.look_for_values("the call of a tool", bytes);
        }
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
        let (arguments, settings) = (json(call.arguments), json(call.settings));
        let has = |wanted: &Option<Value>, found: &Value| {
            wanted.as_ref().is_none_or(|wanted| difference("", wanted, found).is_none())
        };
        let fits = |index: &usize| {
            self.scripts.tools.get(*index).is_some_and(|script| {
                script.tool == call.tool
                    && script.function.as_deref().is_none_or(|function| function == call.function)
                    && has(&script.arguments, &arguments)
                    && has(&script.settings, &settings)
            })
        };
        let mut seen = self.seen();
        let found = (0..self.scripts.tools.len()).filter(|index| !seen.tools.contains(index)).find(fits);
        seen.tools.extend(found);
        drop(seen);
        let Some(script) = found.and_then(|index| self.scripts.tools.get(index)) else {
            let (tool, function) = (call.tool, call.function);
            let arguments = cut(&arguments.to_string(), SHOWN_MAX);
            self.problem(format_args!(
                "the call of {tool}, {function} {arguments}, is not listed in `tools`"
            ));
            return Err(ToolCallError::Unavailable);
        };
        script.answer.clone()
    }

    /// Notes each secret whose value is in what the plugin gives on.
    fn look_for_values(&self, place: &str, bytes: &[u8]) {
        for name in self.canaries.found_in(bytes) {
            self.problem(format_args!("{place} has the value of the secret {name}"));
        }
    }
}

impl Ask for ScriptedImports {
    fn ask(&self, question: Question) -> Opening<'_, Result<Answer, Failure>> {
        Box::pin(ready(self.answer_question(&question.request)))
    }
}

impl ToolAccess for ScriptedImports {
    fn call<'a>(&'a self, call: ToolCall<'a>) -> Opening<'a, Result<Vec<u8>, ToolCallError>> {
        Box::pin(ready(self.answer_call(&call)))
    }
}

impl ModelListing for ScriptedImports {
    fn models(&self) -> Vec<u8> {
        list(self.scripts.catalog.as_deref())
    }
}

impl DeferredTools for ScriptedImports {
    fn all(&self) -> Vec<u8> {
        list(self.scripts.deferred.as_deref())
    }

    fn load(&self, names: Vec<String>) {
        let is_known = |name: &String| {
            self.scripts.deferred.iter().flatten().any(|function| function["name"] == name.as_str())
        };
        let known = names.into_iter().filter(is_known);
        let mut seen = self.seen();
        for name in known {
            if !seen.loaded.contains(&name) {
                seen.loaded.push(name);
            }
        }
    }
}

impl RequestView for ScriptedImports {
    fn transcript(&self) -> Vec<u8> {
        list(self.scripts.transcript.as_deref())
    }
}

fn list(values: Option<&[Value]>) -> Vec<u8> {
    json!(values.unwrap_or_default()).to_string().into_bytes()
}
