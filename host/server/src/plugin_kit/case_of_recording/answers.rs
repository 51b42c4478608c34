//! What the imports answered in a recorded call, as entries of a case.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cofferdam_egress::Target;
use cofferdam_runtime::wire::{
    Answer, ErrorKind, Failure, HttpError, HttpRequest, HttpResponse, ResponseHead, ToolCallError,
};
use cofferdam_runtime::{RecordedImport, Recording};
use serde::Serialize;
use serde_json::Value;

use super::plain::PlainValues;
use crate::plugin_kit::cases::{ANSWERS_MAX, HTTP_ERRORS, TOOL_ERRORS, texts};

/// Status and headers of a streamed answer, as a recording has them.
type StreamHead = (u16, Vec<(String, String)>);
/// Tool, settings, function and arguments of a call.
type CalledTool = (String, Vec<u8>, String, Vec<u8>);

/// The answers of imports, by the keys of a case.
#[derive(Default, Serialize)]
pub(super) struct ScriptedCall {
    /// The first time that the plugin read.
    #[serde(skip)]
    pub(super) wall_ms: Option<u64>,
    #[serde(skip)]
    streams: Streams,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<String, BTreeSet<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catalog: Option<toml::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transcript: Option<toml::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deferred: Option<toml::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    http: Vec<HttpEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model: Vec<ModelEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolCallEntry>,
}

/// Which entries of `http` are streams that are still read.
#[derive(Default)]
struct Streams {
    /// Opened and not read yet, the oldest first.
    unread: Vec<usize>,
    /// By the number under which the plugin reads them.
    read: BTreeMap<u32, usize>,
}

#[derive(Serialize)]
struct HttpEntry {
    #[serde(skip_serializing_if = "is_get")]
    method: String,
    url: String,
    #[serde(skip_serializing_if = "is_false")]
    optional: bool,
    answer: HttpAnswer,
}

#[derive(Default, Serialize)]
pub(super) struct HttpAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    /// The body, which becomes `text` or `base64` when all of it is known.
    #[serde(skip)]
    body: Vec<u8>,
}

#[derive(Serialize)]
struct ModelEntry {
    answer: ModelAnswer,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ModelAnswer {
    Said {
        model: String,
        input_tokens: u64,
        output_tokens: u64,
        cost_pico: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<toml::Value>,
    },
    Failed {
        failure: ModelFailure,
    },
}

#[derive(Serialize)]
struct ModelFailure {
    kind: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct ToolCallEntry {
    tool: String,
    function: String,
    answer: ToolAnswer,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ToolAnswer {
    Text(String),
    Error(&'static str),
}

fn is_get(method: &String) -> bool {
    method == "GET"
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// The name of an error in `wit/`.
fn name_of<E: PartialEq>(errors: &[(E, &'static str)], error: &E) -> &'static str {
    errors.iter().find(|(known, _)| known == error).map_or("", |(_, name)| name)
}

impl ScriptedCall {
    /// The answers of a recording.
    ///
    /// # Errors
    ///
    /// They cannot be written, or there are more than a case may have.
    pub(super) fn of(recording: &Recording, values: &mut PlainValues) -> Result<Self, String> {
        let mut call = Self::default();
        for import in recording.imports() {
            if import.waits() {
                values.note(format!(
                    "The call ended while it waited for {}; the case has a timeout in its place.",
                    import.name
                ));
            }
            call.add(&import, values)?;
        }
        call.http.iter_mut().for_each(|entry| entry.answer.settle());
        let most = call.http.len().max(call.model.len()).max(call.tools.len());
        match most {
            ..=ANSWERS_MAX => Ok(call),
            _ => Err(format!("it has {most} answers of one kind, and a case has at most {ANSWERS_MAX}")),
        }
    }

    fn add(&mut self, import: &RecordedImport<'_>, values: &mut PlainValues) -> Result<(), String> {
        let unread = || format!("what it has of {} cannot be read", import.name);
        match import.name {
            "http.send" => {
                let request: HttpRequest = import.sent().ok_or_else(unread)?;
                let answer = import.answer().unwrap_or(Err(HttpError::Timeout));
                self.add_http(&request, answer, values);
            }
            "http-stream.open" => {
                let request: HttpRequest = import.sent().ok_or_else(unread)?;
                let answer: Result<StreamHead, HttpError> =
                    import.answer().unwrap_or(Err(HttpError::Timeout));
                let url = request.url.clone();
                let whole = |(status, headers)| HttpResponse { status, url, headers, body: Vec::new() };
                let is_open = answer.is_ok();
                if self.add_http(&request, answer.map(whole), values) && is_open {
                    self.streams.unread.push(self.http.len() - 1);
                }
            }
            "http-stream.read" => self.add_piece(import, values),
            "model.ask" => {
                let answer = import.answer().unwrap_or_else(|| Err(out_of_time()));
                self.add_answer(answer, values)?;
            }
            "model-panel.ask-all" => {
                let asked: Vec<Vec<u8>> = import.sent().ok_or_else(unread)?;
                let timeouts = || asked.iter().map(|_| Err(out_of_time())).collect();
                let answers: Vec<Result<Answer, Failure>> = import.answer().unwrap_or_else(timeouts);
                for answer in answers {
                    self.add_answer(answer, values)?;
                }
            }
            "tool-call.call" => {
                let (tool, _, function, _): CalledTool = import.sent().ok_or_else(unread)?;
                let answer: Result<Vec<u8>, ToolCallError> =
                    import.answer().unwrap_or(Err(ToolCallError::Failed));
                let answer = match answer {
                    Ok(output) => ToolAnswer::Text(String::from_utf8_lossy(&output).into_owned()),
                    Err(error) => ToolAnswer::Error(name_of(&TOOL_ERRORS, &error)),
                };
                self.tools.push(ToolCallEntry { tool, function, answer });
            }
            "catalog.models" => self.catalog = list(import, values)?,
            "request.transcript" => self.transcript = list(import, values)?,
            "request.deferred-tools" | "deferred-tools.all" => self.deferred = list(import, values)?,
            "scratch.get" if import.answer::<Option<Vec<u8>>>().flatten().is_some() => {
                values.note(
                    "The call read a value of `scratch`, which a case has only if the same call keeps it.",
                );
            }
            "wall clock" => self.wall_ms = self.wall_ms.or_else(|| import.answer()),
            // The rest has no answer, or is the same in every case: `now` and `seed` set it.
            _ => {}
        }
        Ok(())
    }

    /// Adds a request and its answer. False if the case needs no entry for it: the URL is none, so
    /// the request is refused in the case too.
    fn add_http(
        &mut self,
        request: &HttpRequest,
        answer: Result<HttpResponse, HttpError>,
        values: &mut PlainValues,
    ) -> bool {
        let Ok(target) = Target::parse(&request.url) else { return false };
        let mut entry = HttpEntry {
            method: request.method.clone(),
            url: target.as_str().to_owned(),
            optional: false,
            answer: HttpAnswer::default(),
        };
        match answer {
            Ok(reply) => {
                self.add_secrets(request, &target);
                if reply.url != entry.url && Target::parse(&reply.url).is_ok() {
                    let next = entry.redirected_to(&reply.url);
                    self.http.push(std::mem::replace(&mut entry, next));
                }
                entry.answer.fill(reply, values);
            }
            Err(error) => {
                // A refused request may be refused in the case as well, before the case answers it.
                entry.optional = !matches!(
                    error,
                    HttpError::Timeout | HttpError::Unreachable | HttpError::Untrusted | HttpError::Broken
                );
                entry.answer.error = Some(name_of(&HTTP_ERRORS, &error));
            }
        }
        self.http.push(entry);
        true
    }

    /// Binds the secrets that a request names to its host.
    fn add_secrets(&mut self, request: &HttpRequest, target: &Target) {
        let Some(host) = target.host_name() else { return };
        for injection in &request.injections {
            let hosts = self.secrets.entry(injection.secret.clone()).or_default();
            hosts.insert(host.to_string());
        }
    }

    /// Adds a piece of a streamed answer.
    fn add_piece(&mut self, import: &RecordedImport<'_>, values: &mut PlainValues) {
        let Some(number) = import.sent::<u32>() else { return };
        let Streams { unread, read } = &mut self.streams;
        let index = match read.get(&number) {
            Some(index) => *index,
            None if unread.is_empty() => return,
            None => *read.entry(number).or_insert_with(|| unread.remove(0)),
        };
        let Some(entry) = self.http.get_mut(index) else { return };
        match import.answer::<Result<Vec<u8>, HttpError>>() {
            Some(Ok(piece)) if !piece.is_empty() => entry.answer.body.extend(piece),
            Some(Ok(_)) => drop(read.remove(&number)),
            Some(Err(_)) | None => values.note(format!(
                "The answer to {} {} broke off; in the case it ends there.",
                entry.method, entry.url
            )),
        }
    }

    fn add_answer(
        &mut self,
        answer: Result<Answer, Failure>,
        values: &mut PlainValues,
    ) -> Result<(), String> {
        let answer = match answer {
            Ok(Answer { model, text, output, usage, cost_pico }) => {
                let items: Vec<Value> = serde_json::from_slice(&output).unwrap_or_default();
                let has_text = texts(&items) == text;
                let output = has_text.then(|| values.plain(&Value::from(items), "the items of an answer"));
                ModelAnswer::Said {
                    model,
                    input_tokens: usage.input_tokens,
                    output_tokens: usage.output_tokens,
                    cost_pico,
                    text: (!has_text).then_some(text),
                    output: output.transpose()?,
                }
            }
            Err(Failure { kind, message, code, retry_after_ms }) => {
                let kind = kind.as_str();
                ModelAnswer::Failed { failure: ModelFailure { kind, message, code, retry_after_ms } }
            }
        };
        self.model.push(ModelEntry { answer });
        Ok(())
    }
}

impl HttpEntry {
    /// Makes a redirect to `url` the answer, which the host follows as it did. Returns the request that
    /// follows, without an answer.
    fn redirected_to(&mut self, url: &str) -> Self {
        // The host repeats only these methods after a 302.
        let status = if matches!(self.method.as_str(), "GET" | "HEAD") { 302 } else { 307 };
        self.answer.status = Some(status);
        self.answer.headers.insert("location".to_owned(), url.to_owned());
        Self {
            method: self.method.clone(),
            url: url.to_owned(),
            optional: false,
            answer: HttpAnswer::default(),
        }
    }
}

impl HttpAnswer {
    /// An answer in one body.
    pub(super) fn whole(head: ResponseHead, body: Vec<u8>, values: &mut PlainValues) -> Self {
        let ResponseHead { status, headers, .. } = head;
        let mut answer = Self::default();
        answer.fill(HttpResponse { status, url: String::new(), headers, body }, values);
        answer.settle();
        answer
    }

    fn fill(&mut self, reply: HttpResponse, values: &mut PlainValues) {
        self.status = Some(reply.status);
        self.body = reply.body;
        self.headers = headers(reply.headers, values);
    }

    /// Writes the body as text where it is UTF-8, else as base64.
    fn settle(&mut self) {
        if !self.body.is_empty() {
            (self.text, self.base64) = text_or_base64(std::mem::take(&mut self.body));
        }
    }
}

/// The headers of an answer by their names.
pub(super) fn headers(all: Vec<(String, String)>, values: &mut PlainValues) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    for (name, value) in all {
        if headers.insert(name.clone(), value).is_some() {
            values.note(format!("An answer had the header {name} several times; the case has the last."));
        }
    }
    headers
}

/// Bytes as text where they are UTF-8, else as base64: one of the two.
pub(super) fn text_or_base64(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64.encode(error.as_bytes()))),
    }
}

/// What stands for an answer that did not come before the call ended.
fn out_of_time() -> Failure {
    Failure::new(ErrorKind::Timeout, "The recorded call ended while it waited for this answer.")
}

/// A list of JSON values that an import gave as text.
fn list(import: &RecordedImport<'_>, values: &mut PlainValues) -> Result<Option<toml::Value>, String> {
    let list: Option<Value> =
        import.answer::<Vec<u8>>().and_then(|answer| serde_json::from_slice(&answer).ok());
    list.map(|list| values.plain(&list, &format!("the values of {}", import.name))).transpose()
}
