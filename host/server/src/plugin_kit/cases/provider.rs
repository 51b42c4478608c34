//! Cases of providers: a request, and what the provider's server answers to it.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use cofferdam_runtime::wire::Target;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::imports::{ScriptedReply, WrittenReply};
use super::written::Common;
use super::{CaseInput, CaseMistake, CheckedCase, WrittenCase};
use crate::plugin_kit::project::read_text;

/// A call of a provider.
#[derive(Debug)]
pub(in super::super) struct ProviderInput {
    pub(in super::super) request: ProviderRequest,
    pub(in super::super) target: Target,
    /// Without an answer, only the request is prepared.
    pub(in super::super) answer: Option<UpstreamAnswer>,
}

#[derive(Debug)]
pub(in super::super) enum ProviderRequest {
    Responses(Value),
    Embeddings(Value),
}

/// What the provider's server answers.
#[derive(Debug)]
pub(in super::super) enum UpstreamAnswer {
    /// The bytes of a stream.
    Stream(Vec<u8>),
    Whole(ScriptedReply),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProviderCase {
    name: Spanned<String>,
    now: Option<Spanned<String>>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default)]
    expect: BTreeMap<Spanned<String>, Value>,
    request: Option<Map<String, Value>>,
    embeddings: Option<Map<String, Value>>,
    #[serde(default)]
    target: WrittenTarget,
    upstream: Option<Spanned<String>>,
    answer: Option<Spanned<WrittenReply>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenTarget {
    model: String,
    max_output: u32,
    supports: Vec<String>,
    tier: String,
    options: Map<String, Value>,
}

impl Default for WrittenTarget {
    fn default() -> Self {
        Self {
            model: "sample-model".to_owned(),
            max_output: 0,
            supports: Vec::new(),
            tier: "default".to_owned(),
            options: Map::new(),
        }
    }
}

impl WrittenCase for ProviderCase {
    const ANSWERS: &[&str] = &[
        "path",
        "headers",
        "body",
        "streamed",
        "items",
        "text",
        "usage",
        "finish",
        "failure",
        "vectors",
        "unsupported_input",
    ];

    fn checked(self, folder: &Path) -> Result<CheckedCase, CaseMistake> {
        let Self { name, now, seed, config, expect, request, embeddings, target, upstream, answer } = self;
        let at = |message: &str| CaseMistake::at(&name, message);
        let request = match (request, embeddings) {
            (Some(request), None) => ProviderRequest::Responses(Value::Object(request)),
            (None, Some(request)) => ProviderRequest::Embeddings(Value::Object(request)),
            _ => return Err(at("the case of a provider has one of `request` and `embeddings`")),
        };
        let answer = match (upstream, answer) {
            (Some(_), Some(_)) => return Err(at("a case has `upstream` or `answer`, not both")),
            (Some(file), None) => Some(UpstreamAnswer::Stream(stream(&file, folder)?)),
            (None, Some(reply)) => Some(UpstreamAnswer::Whole(ScriptedReply::checked(reply)?)),
            (None, None) => None,
        };
        let WrittenTarget { model, max_output, supports, tier, options } = target;
        let options = Value::Object(options).to_string().into_bytes();
        let target = Target { model, max_output, supports, tier, options };
        let input = CaseInput::Provider(ProviderInput { request, target, answer });
        let name = name.into_inner();
        Ok(CheckedCase { common: Common { name, now, seed, config, expect }, input })
    }
}

/// The bytes of a recorded stream beside the case file.
fn stream(file: &Spanned<String>, folder: &Path) -> Result<Vec<u8>, CaseMistake> {
    let path = Path::new(file.get_ref());
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(CaseMistake::at(file, "`upstream` takes the path of a file in the folder of the cases"));
    }
    let text = read_text(&folder.join(path));
    Ok(text.map_err(|failure| CaseMistake::at(file, failure.to_string()))?.into_bytes())
}
