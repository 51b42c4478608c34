//! Cases of routers: a summary of a request with candidates, or with models to choose from.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_runtime::wire::{
    Candidate, Model, Percentiles, Price, Purpose, RequestSummary, Statistics, TextFacts,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::written::{Common, seed};
use super::{CaseInput, CaseMistake, CheckedCase, WrittenCase};

/// A call of a router.
#[derive(Debug)]
pub(in super::super) struct RouterInput {
    pub(in super::super) summary: RequestSummary,
    pub(in super::super) candidates: Vec<Candidate>,
    /// The router chooses a model, and orders no candidates.
    pub(in super::super) choice: Option<ChoiceInput>,
}

/// A choice of models.
#[derive(Debug)]
pub(in super::super) struct ChoiceInput {
    pub(in super::super) slug: String,
    pub(in super::super) models: Vec<Model>,
    pub(in super::super) facts: TextFacts,
    pub(in super::super) settings: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouterCase {
    name: Spanned<String>,
    now: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "seed")]
    seed: u64,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default)]
    expect: BTreeMap<Spanned<String>, Value>,
    #[serde(default)]
    request: WrittenSummary,
    #[serde(default)]
    candidates: Vec<WrittenCandidate>,
    choose: Option<WrittenChoice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenSummary {
    purpose: WrittenPurpose,
    requested: Option<String>,
    models: Vec<String>,
    suffix: Option<String>,
    preferences: Map<String, Value>,
    route: Option<String>,
    service_tier: Option<String>,
    parameters: Vec<String>,
    needs: Vec<String>,
    input_tokens: u32,
    max_output_tokens: Option<u32>,
    streamed: bool,
    sticky: Option<u32>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenPurpose {
    #[default]
    Responses,
    Embeddings,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCandidate {
    provider: String,
    #[serde(default = "sample_model")]
    model: String,
    #[serde(default)]
    model_rank: u32,
    tier: Option<String>,
    #[serde(default)]
    price: WrittenPrice,
    #[serde(default)]
    context_length: u32,
    #[serde(default)]
    max_output: u32,
    #[serde(default)]
    supports: Vec<String>,
    quantization: Option<String>,
    #[serde(default)]
    zdr: bool,
    #[serde(default)]
    data_collection: bool,
    #[serde(default)]
    byok: bool,
    #[serde(default)]
    statistics: WrittenStatistics,
}

/// Dollars per million tokens, and per image.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenPrice {
    input: f64,
    output: f64,
    cached_input: f64,
    cache_write: f64,
    reasoning: f64,
    image: f64,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenStatistics {
    latency_ms: WrittenPercentiles,
    throughput: WrittenPercentiles,
    requests: u32,
    failures: u32,
    outage: bool,
    ejected: bool,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenPercentiles {
    p50: f64,
    p75: f64,
    p90: f64,
    p99: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenChoice {
    slug: String,
    models: Vec<WrittenModelFacts>,
    #[serde(default)]
    facts: WrittenTextFacts,
    #[serde(default)]
    settings: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenModelFacts {
    id: String,
    #[serde(default)]
    price: WrittenPrice,
    #[serde(default)]
    context_length: u32,
    #[serde(default)]
    max_output: u32,
    #[serde(default)]
    supports: Vec<String>,
    #[serde(default)]
    price_rank: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenTextFacts {
    last_user_chars: u32,
    all_chars: u32,
    turns: u32,
    code_blocks: u32,
    math_share: f64,
    questions: u32,
    last_model: Option<String>,
}

impl WrittenCase for RouterCase {
    const ANSWERS: &[&str] = &["order", "models", "strategy", "reason", "failure"];

    fn checked(self, _folder: &Path) -> Result<CheckedCase, CaseMistake> {
        let Self { name, now, seed, config, expect, request, candidates, choose } = self;
        if candidates.is_empty() == choose.is_none() {
            let message = "the case of a router has one of `candidates` and `choose`";
            return Err(CaseMistake::at(&name, message));
        }
        let candidates: Vec<Candidate> = candidates.into_iter().map(Candidate::from).collect();
        let mut summary = RequestSummary::from(request);
        if summary.models.is_empty() {
            let models: Vec<&String> = candidates.iter().map(|candidate| &candidate.model).collect();
            let is_first =
                |(index, model): &(usize, &&String)| !models.iter().take(*index).any(|known| known == *model);
            summary.models =
                models.iter().enumerate().filter(is_first).map(|(_, model)| (*model).clone()).collect();
        }
        let input = RouterInput { summary, candidates, choice: choose.map(ChoiceInput::from) };
        let name = name.into_inner();
        Ok(CheckedCase {
            common: Common { name, now, seed, config, expect },
            input: CaseInput::Router(input),
        })
    }
}

fn sample_model() -> String {
    "sample/model".to_owned()
}

impl From<WrittenSummary> for RequestSummary {
    fn from(written: WrittenSummary) -> Self {
        Self {
            purpose: match written.purpose {
                WrittenPurpose::Responses => Purpose::Responses,
                WrittenPurpose::Embeddings => Purpose::Embeddings,
            },
            requested: written.requested.unwrap_or_else(sample_model),
            models: written.models,
            suffix: written.suffix,
            preferences: Value::Object(written.preferences).to_string().into_bytes(),
            route: written.route,
            service_tier: written.service_tier.unwrap_or_else(|| "auto".to_owned()),
            parameters: written.parameters,
            needs: written.needs,
            input_tokens: written.input_tokens,
            max_output_tokens: written.max_output_tokens,
            streamed: written.streamed,
            sticky: written.sticky,
        }
    }
}

impl From<WrittenCandidate> for Candidate {
    fn from(written: WrittenCandidate) -> Self {
        Self {
            model: written.model,
            model_rank: written.model_rank,
            provider: written.provider,
            tier: written.tier.unwrap_or_else(|| "default".to_owned()),
            price: written.price.into(),
            context_length: written.context_length,
            max_output: written.max_output,
            supports: written.supports,
            quantization: written.quantization.unwrap_or_else(|| "unknown".to_owned()),
            zdr: written.zdr,
            data_collection: written.data_collection,
            byok: written.byok,
            statistics: written.statistics.into(),
        }
    }
}

impl From<WrittenPrice> for Price {
    fn from(
        WrittenPrice { input, output, cached_input, cache_write, reasoning, image }: WrittenPrice,
    ) -> Self {
        Self { input, output, cached_input, cache_write, reasoning, image }
    }
}

impl From<WrittenStatistics> for Statistics {
    fn from(written: WrittenStatistics) -> Self {
        let WrittenStatistics { latency_ms, throughput, requests, failures, outage, ejected } = written;
        let (latency_ms, throughput) = (latency_ms.into(), throughput.into());
        Self { latency_ms, throughput, requests, failures, outage, ejected }
    }
}

impl From<WrittenPercentiles> for Percentiles {
    fn from(WrittenPercentiles { p50, p75, p90, p99 }: WrittenPercentiles) -> Self {
        Self { p50, p75, p90, p99 }
    }
}

impl From<WrittenChoice> for ChoiceInput {
    fn from(WrittenChoice { slug, models, facts, settings }: WrittenChoice) -> Self {
        let models = models.into_iter().map(Model::from).collect();
        let WrittenTextFacts {
            last_user_chars,
            all_chars,
            turns,
            code_blocks,
            math_share,
            questions,
            last_model,
        } = facts;
        let facts =
            TextFacts { last_user_chars, all_chars, turns, code_blocks, math_share, questions, last_model };
        Self { slug, models, facts, settings: Value::Object(settings) }
    }
}

impl From<WrittenModelFacts> for Model {
    fn from(written: WrittenModelFacts) -> Self {
        let WrittenModelFacts { id, price, context_length, max_output, supports, price_rank } = written;
        Self { id, price: price.into(), context_length, max_output, supports, price_rank }
    }
}
