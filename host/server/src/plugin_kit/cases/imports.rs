//! What the imports of a case answer: hosts, models, tools and the rest of the request.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cofferdam_egress::Target;
use cofferdam_runtime::wire::{Answer, ErrorKind, Failure, HttpError, ToolCallError, Usage};
use cofferdam_store::{HostName, SecretName};
use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::CaseMistake;

/// Number of answers of one kind in one case.
pub(in super::super) const ANSWERS_MAX: usize = 64;

/// The errors of `http` by their names in `wit/http.wit`.
pub(in super::super) const HTTP_ERRORS: [(HttpError, &str); 9] = [
    (HttpError::Denied, "denied"),
    (HttpError::Invalid, "invalid"),
    (HttpError::SecretUnavailable, "secret-unavailable"),
    (HttpError::Unreachable, "unreachable"),
    (HttpError::Untrusted, "untrusted"),
    (HttpError::Timeout, "timeout"),
    (HttpError::TooLarge, "too-large"),
    (HttpError::Broken, "broken"),
    (HttpError::Exhausted, "exhausted"),
];

/// The errors of `tool-call` by their names in `wit/tool-call.wit`.
pub(in super::super) const TOOL_ERRORS: [(ToolCallError, &str); 4] = [
    (ToolCallError::Unavailable, "unavailable"),
    (ToolCallError::InvalidArguments, "invalid-arguments"),
    (ToolCallError::Failed, "failed"),
    (ToolCallError::Exhausted, "exhausted"),
];

/// What the imports answer in one case.
#[derive(Debug, Default)]
pub(in super::super) struct Scripts {
    pub(in super::super) http: Vec<HttpScript>,
    pub(in super::super) model: Vec<ModelScript>,
    pub(in super::super) tools: Vec<ToolScript>,
    /// The hosts that a secret is bound to. A secret that is not listed is bound to all.
    pub(in super::super) secrets: BTreeMap<SecretName, BTreeSet<HostName>>,
    pub(in super::super) catalog: Option<Vec<Value>>,
    pub(in super::super) transcript: Option<Vec<Value>>,
    pub(in super::super) deferred: Option<Vec<Value>>,
}

/// A request that the plugin sends once, and its answer.
#[derive(Debug)]
pub(in super::super) struct HttpScript {
    pub(in super::super) method: String,
    pub(in super::super) url: String,
    /// Headers that the request has, perhaps among others, by their names in lower case.
    pub(in super::super) headers: BTreeMap<String, Value>,
    /// What the body is, as text.
    pub(in super::super) body: Option<Value>,
    /// What the body is, as JSON.
    pub(in super::super) json: Option<Value>,
    /// The secrets that the host adds, if the case says which.
    pub(in super::super) secrets: Option<BTreeSet<String>>,
    /// Whether the case passes without this request.
    pub(in super::super) optional: bool,
    pub(in super::super) answer: ScriptedAnswer,
}

#[derive(Debug, Clone)]
pub(in super::super) enum ScriptedAnswer {
    Reply(ScriptedReply),
    Error(HttpError),
}

/// The answer of a server.
#[derive(Debug, Clone)]
pub(in super::super) struct ScriptedReply {
    pub(in super::super) status: u16,
    pub(in super::super) headers: Vec<(String, String)>,
    pub(in super::super) body: Vec<u8>,
}

/// A question that the plugin asks a model once, and the answer.
#[derive(Debug)]
pub(in super::super) struct ModelScript {
    /// Members of the question.
    pub(in super::super) request: Option<Value>,
    /// A text that the question has somewhere.
    pub(in super::super) contains: Option<String>,
    pub(in super::super) optional: bool,
    pub(in super::super) answer: Result<Answer, Failure>,
}

/// A call of a server tool that the hook makes once, and its result.
#[derive(Debug)]
pub(in super::super) struct ToolScript {
    pub(in super::super) tool: String,
    pub(in super::super) function: Option<String>,
    pub(in super::super) arguments: Option<Value>,
    pub(in super::super) settings: Option<Value>,
    pub(in super::super) optional: bool,
    pub(in super::super) answer: Result<Vec<u8>, ToolCallError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenHttp {
    #[serde(default = "get")]
    method: String,
    url: Spanned<String>,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    body: Option<Value>,
    json: Option<Value>,
    secrets: Option<BTreeSet<String>>,
    #[serde(default)]
    optional: bool,
    answer: Spanned<WrittenReply>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenReply {
    status: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    text: Option<String>,
    json: Option<Value>,
    base64: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenModel {
    request: Option<Value>,
    contains: Option<String>,
    #[serde(default)]
    optional: bool,
    answer: Spanned<WrittenModelAnswer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenModelAnswer {
    text: Option<String>,
    output: Option<Vec<Value>>,
    #[serde(default = "sample_model")]
    model: String,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    cost_pico: u64,
    failure: Option<WrittenFailure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFailure {
    kind: String,
    #[serde(default)]
    message: String,
    code: Option<String>,
    retry_after_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenTool {
    tool: String,
    function: Option<String>,
    arguments: Option<Value>,
    settings: Option<Value>,
    #[serde(default)]
    optional: bool,
    answer: Spanned<WrittenToolAnswer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenToolAnswer {
    text: Option<String>,
    json: Option<Value>,
    error: Option<String>,
}

fn get() -> String {
    "GET".to_owned()
}

fn sample_model() -> String {
    "sample/model".to_owned()
}

impl Scripts {
    pub(super) fn checked(
        http: Vec<Spanned<WrittenHttp>>,
        model: Vec<Spanned<WrittenModel>>,
        tools: Vec<Spanned<WrittenTool>>,
        secrets: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    ) -> Result<Self, CaseMistake> {
        Ok(Self {
            http: all(http, HttpScript::checked)?,
            model: all(model, ModelScript::checked)?,
            tools: all(tools, ToolScript::checked)?,
            secrets: secrets.into_iter().map(bound).collect::<Result<_, CaseMistake>>()?,
            ..Self::default()
        })
    }
}

/// Checks each entry of a list.
fn all<T, S>(
    written: Vec<Spanned<T>>,
    check: impl Fn(Spanned<T>) -> Result<S, CaseMistake>,
) -> Result<Vec<S>, CaseMistake> {
    if let Some(first) = written.get(ANSWERS_MAX) {
        return Err(CaseMistake::at(first, format!("a case has at most {ANSWERS_MAX} answers of one kind")));
    }
    written.into_iter().map(check).collect()
}

/// A secret and the hosts that it is bound to.
fn bound(
    (name, hosts): (Spanned<String>, Vec<Spanned<String>>),
) -> Result<(SecretName, BTreeSet<HostName>), CaseMistake> {
    let host = |host: &Spanned<String>| {
        host.get_ref().parse().map_err(|_| CaseMistake::at(host, "`secrets` takes lists of exact host names"))
    };
    let secret = name.get_ref().parse();
    let secret = secret.map_err(|_| CaseMistake::at(&name, "`secrets` takes names of secrets as keys"))?;
    Ok((secret, hosts.iter().map(host).collect::<Result<_, CaseMistake>>()?))
}

impl HttpScript {
    fn checked(place: Spanned<WrittenHttp>) -> Result<Self, CaseMistake> {
        if place.get_ref().body.is_some() && place.get_ref().json.is_some() {
            return Err(CaseMistake::at(&place, "a request has `body` or `json`, not both"));
        }
        let WrittenHttp { method, url, headers, body, json, secrets, optional, answer } = place.into_inner();
        let target = Target::parse(url.get_ref());
        let target = target.map_err(|error| CaseMistake::at(&url, format!("`url`: {error}")))?;
        let url = target.as_str().to_owned();
        let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        Ok(Self {
            method,
            url,
            headers,
            body,
            json,
            secrets,
            optional,
            answer: ScriptedAnswer::checked(answer)?,
        })
    }
}

impl ScriptedAnswer {
    fn checked(place: Spanned<WrittenReply>) -> Result<Self, CaseMistake> {
        let Some(error) = &place.get_ref().error else {
            return Ok(Self::Reply(ScriptedReply::checked(place)?));
        };
        let has_more = {
            let WrittenReply { status, headers, text, json, base64, .. } = place.get_ref();
            status.is_some() || !headers.is_empty() || text.is_some() || json.is_some() || base64.is_some()
        };
        if has_more {
            return Err(CaseMistake::at(&place, "an answer with `error` has nothing else"));
        }
        named(&HTTP_ERRORS, error).map(Self::Error).map_err(|message| CaseMistake::at(&place, message))
    }
}

impl ScriptedReply {
    /// An answer with a head and a body.
    pub(super) fn checked(place: Spanned<WrittenReply>) -> Result<Self, CaseMistake> {
        let WrittenReply { status, headers, text, json, base64, error } = place.get_ref();
        if error.is_some() {
            return Err(CaseMistake::at(&place, "only an answer of `http` has an `error`"));
        }
        let status = status.unwrap_or(200);
        if !(200..600).contains(&status) {
            return Err(CaseMistake::at(&place, "`status` takes a number from 200 to 599"));
        }
        let lower = |(name, value): (&String, &String)| (name.to_ascii_lowercase(), value.clone());
        let mut headers: Vec<(String, String)> = headers.iter().map(lower).collect();
        let body = match (text, json, base64) {
            (Some(text), None, None) => text.clone().into_bytes(),
            (None, Some(json), None) => {
                if headers.iter().all(|(name, _)| name != "content-type") {
                    headers.push(("content-type".to_owned(), "application/json".to_owned()));
                }
                json.to_string().into_bytes()
            }
            (None, None, Some(base64)) => {
                BASE64.decode(base64).map_err(|_| CaseMistake::at(&place, "`base64` is not base64"))?
            }
            (None, None, None) => Vec::new(),
            _ => return Err(CaseMistake::at(&place, "an answer has one of `text`, `json` and `base64`")),
        };
        Ok(Self { status, headers, body })
    }
}

impl ModelScript {
    fn checked(place: Spanned<WrittenModel>) -> Result<Self, CaseMistake> {
        let WrittenModel { request, contains, optional, answer } = place.into_inner();
        let at = |message: &str| CaseMistake::at(&answer, message);
        let WrittenModelAnswer { text, output, model, input_tokens, output_tokens, cost_pico, failure } =
            answer.get_ref();
        let answer = match (text, output, failure) {
            (Some(text), None, None) => {
                let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
                let message = json!({"type": "message", "role": "assistant", "content": content});
                Ok((text.clone(), json!([message])))
            }
            (None, Some(output), None) => Ok((texts(output), json!(output))),
            (None, None, Some(failure)) => Err(failure.checked().map_err(|message| at(&message))?),
            _ => return Err(at("an answer of a model has one of `text`, `output` and `failure`")),
        };
        let usage = Usage {
            input_tokens: *input_tokens,
            cached_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: *output_tokens,
            reasoning_tokens: 0,
            images: 0,
            provider_tool_requests: 0,
            cost_dollars: None,
        };
        let (model, cost_pico) = (model.clone(), *cost_pico);
        let answer = answer.map(|(text, output)| Answer {
            model,
            text,
            output: output.to_string().into_bytes(),
            usage,
            cost_pico,
        });
        Ok(Self { request, contains, optional, answer })
    }
}

impl WrittenFailure {
    fn checked(&self) -> Result<Failure, String> {
        let Self { kind, message, code, retry_after_ms } = self;
        let kind: ErrorKind = kind
            .parse()
            .map_err(|_| format!("there is no failure {kind:?}; docs/reference/errors.md lists them"))?;
        Ok(Failure { kind, message: message.clone(), code: code.clone(), retry_after_ms: *retry_after_ms })
    }
}

/// The texts of all messages, joined, as the host gives them to a plugin.
pub(in super::super) fn texts(output: &[Value]) -> String {
    let messages = output.iter().filter(|item| item["type"] == "message");
    let parts = messages.filter_map(|message| message["content"].as_array()).flatten();
    parts.filter(|part| part["type"] == "output_text").filter_map(|part| part["text"].as_str()).collect()
}

impl ToolScript {
    fn checked(place: Spanned<WrittenTool>) -> Result<Self, CaseMistake> {
        let WrittenTool { tool, function, arguments, settings, optional, answer } = place.into_inner();
        let at = |message: &str| CaseMistake::at(&answer, message);
        let WrittenToolAnswer { text, json, error } = answer.get_ref();
        let answer = match (text, json, error) {
            (Some(text), None, None) => Ok(text.clone().into_bytes()),
            (None, Some(json), None) => Ok(json.to_string().into_bytes()),
            (None, None, Some(error)) => Err(named(&TOOL_ERRORS, error).map_err(|message| at(&message))?),
            _ => return Err(at("an answer of a tool has one of `text`, `json` and `error`")),
        };
        Ok(Self { tool, function, arguments, settings, optional, answer })
    }
}

/// The error of this name.
fn named<E: Copy>(errors: &[(E, &str)], name: &str) -> Result<E, String> {
    let known = || errors.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let found = errors.iter().find(|(_, known)| *known == name).map(|(error, _)| *error);
    found.ok_or_else(|| format!("there is no error {name:?}; there are {}", known()))
}
