//! Cases of providers: a request, and what the provider's server answers to it.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cofferdam_runtime::wire::{Frame, Target};
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::imports::{ScriptedReply, WrittenReply};
use super::written::{Common, seed};
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
    /// A stream whose frames are handed over in these calls.
    Fed(FedStream),
    Whole(ScriptedReply),
}

/// The frames of a stream, by the calls that hand them over.
#[derive(Debug)]
pub(in super::super) struct FedStream {
    pub(in super::super) status: u16,
    /// With names in lower case.
    pub(in super::super) headers: Vec<(String, String)>,
    pub(in super::super) feeds: Vec<Vec<Frame>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProviderCase {
    name: Spanned<String>,
    now: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "seed")]
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
    stream: Option<WrittenStream>,
    answer: Option<Spanned<WrittenReply>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStream {
    #[serde(default = "ok")]
    status: Spanned<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    feeds: Vec<Vec<Spanned<WrittenFrame>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFrame {
    #[serde(default)]
    name: String,
    text: Option<String>,
    base64: Option<String>,
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
        let Self { name, now, seed, config, expect, request, embeddings, target, .. } = self;
        let at = |message: &str| CaseMistake::at(&name, message);
        let request = match (request, embeddings) {
            (Some(request), None) => ProviderRequest::Responses(Value::Object(request)),
            (None, Some(request)) => ProviderRequest::Embeddings(Value::Object(request)),
            _ => return Err(at("the case of a provider has one of `request` and `embeddings`")),
        };
        let answer = match (self.upstream, self.stream, self.answer) {
            (Some(file), None, None) => Some(UpstreamAnswer::Stream(stream(&file, folder)?)),
            (None, Some(fed), None) => Some(UpstreamAnswer::Fed(fed.checked()?)),
            (None, None, Some(reply)) => Some(UpstreamAnswer::Whole(ScriptedReply::checked(reply)?)),
            (None, None, None) => None,
            _ => return Err(at("a case has one of `upstream`, `stream` and `answer`")),
        };
        let WrittenTarget { model, max_output, supports, tier, options } = target;
        let options = Value::Object(options).to_string().into_bytes();
        let target = Target { model, max_output, supports, tier, options };
        let input = CaseInput::Provider(ProviderInput { request, target, answer });
        let name = name.into_inner();
        Ok(CheckedCase { common: Common { name, now, seed, config, expect }, input })
    }
}

impl WrittenStream {
    fn checked(self) -> Result<FedStream, CaseMistake> {
        if !(200..300).contains(self.status.get_ref()) {
            return Err(CaseMistake::at(&self.status, "`status` of a stream takes a number from 200 to 299"));
        }
        let frame = |place: Spanned<WrittenFrame>| {
            let at = |message: &str| CaseMistake::at(&place, message);
            let WrittenFrame { name, text, base64 } = place.get_ref();
            let data = match (text, base64) {
                (Some(text), None) => text.clone().into_bytes(),
                (None, Some(base64)) => BASE64.decode(base64).map_err(|_| at("`base64` is not base64"))?,
                _ => return Err(at("a frame has one of `text` and `base64`")),
            };
            Ok(Frame { name: name.clone(), data })
        };
        let feeds = self.feeds.into_iter().map(|frames| frames.into_iter().map(frame).collect());
        Ok(FedStream {
            feeds: feeds.collect::<Result<_, CaseMistake>>()?,
            status: self.status.into_inner(),
            headers: self
                .headers
                .into_iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value))
                .collect(),
        })
    }
}

fn ok() -> Spanned<u16> {
    Spanned::new(0..0, 200)
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
