//! `[[models]]`: the catalog, in the terms of the engine. Prices are converted to whole pico-dollars
//! per token here, so that no later code calculates with fractions.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use cofferdam_egress::EgressConfig;
use cofferdam_engine::catalog::{HostedTools, ModelKind};
use cofferdam_engine::cost::{Amount, Prices};
use cofferdam_engine::memory::health;
use cofferdam_runtime::wire::{Candidate, Price, Target};

use super::document::{ConfigDocument, Table};
use super::timeouts::LONGEST_MS;
use super::{ConfigSpan, ProviderConfig, providers};

/// What a host without a configuration serves.
const DEMO: &str = r#"
[[providers]]
name = "demo"
adapter = "demo"
[[models]]
id = "local/demo"
endpoints = [{ provider = "demo", model = "demo" }]
[[models]]
id = "local/embed"
kind = "embeddings"
endpoints = [{ provider = "demo", model = "embed" }]
"#;

#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// The model id in requests, `vendor/name`.
    pub id: String,
    pub kind: ModelKind,
    /// The maximum of input and output tokens together.
    pub context_length: Option<u32>,
    /// In order of preference.
    pub endpoints: Vec<EndpointConfig>,
    pub place: ConfigSpan,
}

/// A provider's offer of a model: an endpoint of the catalog without its provider and its health.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    pub prices: Prices,
    /// Hosted tools and stored objects that clients may use on the operator's key.
    pub hosted: HostedTools,
    /// The description for routers. It names the configured provider.
    pub candidate: Candidate,
    /// The description for the provider.
    pub target: Target,
    /// How long the first event may take, or the head of a response that is not streamed.
    pub first_event: Option<Duration>,
    /// The endpoint lists the ability to reason, or a price for it.
    pub reasons: bool,
}

/// The quantizations that clients can select.
const QUANTIZATIONS: [&str; 12] =
    ["int4", "int8", "fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16", "fp32", "unknown"];

pub(super) fn read(tables: &[Table<'_>], providers: &[ProviderConfig]) -> Vec<ModelConfig> {
    let mut models: Vec<ModelConfig> = Vec::new();
    for table in tables {
        let id = table.required_text("id");
        if models.iter().any(|model| model.id == id.value) {
            id.reject(format!("a model `{}` exists already", id.value));
        }
        if !is_id(&id.value) {
            id.reject("expected VENDOR/NAME without spaces");
        }
        let endpoints = table.tables("endpoints");
        if endpoints.is_empty() {
            table.value("endpoints", ()).reject("a model needs at least one endpoint");
        }
        let context_length = tokens(table, "context_length");
        let endpoints = endpoints.iter().map(|table| endpoint(table, providers, &id.value, context_length));
        models.push(ModelConfig {
            kind: table
                .choice("kind", [("responses", ModelKind::Responses), ("embeddings", ModelKind::Embeddings)]),
            context_length,
            endpoints: endpoints.collect(),
            id: id.value,
            place: table.value("", ()).place(),
        });
    }
    models
}

/// The providers and models of the built-in demo.
#[must_use]
#[expect(clippy::expect_used, reason = "the text is constant, and tests read it")]
pub fn demo() -> (Vec<ProviderConfig>, Vec<ModelConfig>) {
    let document = ConfigDocument::parse(DEMO, Path::new("")).expect("the demo is TOML");
    let root = document.root();
    let providers = providers::read(&root.tables("providers"), &EgressConfig::default());
    let models = read(&root.tables("models"), &providers);
    (providers, models)
}

fn endpoint(
    table: &Table<'_>,
    providers: &[ProviderConfig],
    model: &str,
    context_length: Option<u32>,
) -> EndpointConfig {
    let provider = table.required_text("provider");
    if !provider.value.is_empty() && !providers.iter().any(|known| known.name == provider.value) {
        let known: Vec<&str> = providers.iter().map(|known| known.name.as_str()).collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
        provider.reject(format!("no provider is named `{}`; known: {known}", provider.value));
    }
    let quantization = table.text("quantization");
    if let Some(written) = quantization.as_ref().filter(|text| !QUANTIZATIONS.contains(&text.value.as_str()))
    {
        written.reject(format!("expected one of {}", QUANTIZATIONS.join(", ")));
    }
    let tier = tier(table).unwrap_or_else(|| "default".to_owned());
    let max_output = tokens(table, "max_output").unwrap_or(0);
    let supports: Vec<String> = table.texts("supports").into_iter().map(|ability| ability.value).collect();
    let reasoning = per_token(table, "reasoning");
    let (input, output) =
        (per_token(table, "input").unwrap_or_default(), per_token(table, "output").unwrap_or_default());
    let prices = Prices {
        input,
        output,
        cached_input: per_token(table, "cached_input").unwrap_or(input),
        cache_write: per_token(table, "cache_write").unwrap_or(input),
        reasoning: reasoning.unwrap_or(output),
        image: dollars(table, "image", 1e12).unwrap_or_default(),
    };
    EndpointConfig {
        prices,
        hosted: HostedTools {
            tools: hosted_tools(table),
            stored: table.texts("hosted_tool_ids").into_iter().map(|id| id.value).collect(),
        },
        candidate: Candidate {
            model: model.to_owned(),
            model_rank: 0,
            provider: provider.value,
            tier: tier.clone(),
            price: Price {
                input: per_million(prices.input),
                output: per_million(prices.output),
                cached_input: per_million(prices.cached_input),
                cache_write: per_million(prices.cache_write),
                reasoning: per_million(prices.reasoning),
                image: prices.image.0 as f64 / 1e12,
            },
            context_length: context_length.unwrap_or(0),
            max_output,
            supports: supports.clone(),
            quantization: quantization.map_or_else(|| "unknown".to_owned(), |text| text.value),
            zdr: table.flag("zdr"),
            data_collection: table.choice("data_collection", [("allow", true), ("deny", false)]),
            byok: false,
            statistics: health::unmeasured(),
        },
        reasons: reasoning.is_some() || supports.iter().any(|ability| ability == "reasoning"),
        target: Target {
            model: table.required_text("model").value,
            max_output,
            supports,
            tier,
            options: b"{}".to_vec(),
        },
        first_event: table.integer("first_event_ms", 1..=LONGEST_MS).map(Duration::from_millis),
    }
}

/// Converts pico-dollars per token to dollars per million tokens.
fn per_million(price: Amount) -> f64 {
    price.0 as f64 / 1e6
}

fn hosted_tools(table: &Table<'_>) -> BTreeMap<String, Amount> {
    let listed = table.texts("hosted_tools");
    let mut tools: BTreeMap<String, Amount> =
        listed.into_iter().map(|tool| (tool.value, Amount::default())).collect();
    let prices = table.table("hosted_tool_prices");
    for name in prices.names() {
        let price = dollars(&prices, &name.value, 1e12);
        match tools.get_mut(&name.value) {
            Some(known) => *known = price.unwrap_or_default(),
            None => name.reject("hosted_tools does not list this type of tool"),
        }
    }
    tools
}

fn tokens(table: &Table<'_>, key: &str) -> Option<u32> {
    table.integer(key, 1..=u64::from(u32::MAX)).and_then(|tokens| u32::try_from(tokens).ok())
}

fn tier(table: &Table<'_>) -> Option<String> {
    let written = table.text("tier")?;
    if !["default", "flex", "priority", "scale", "ultrafast"].contains(&written.value.as_str()) {
        written.reject("expected one of default, flex, priority, scale, ultrafast");
    }
    Some(written.value)
}

/// Reads dollars per million tokens as pico-dollars per token.
fn per_token(table: &Table<'_>, key: &str) -> Option<Amount> {
    dollars(table, key, 1e6)
}

/// Reads an amount and multiplies it by `factor`. More than a million dollars is refused, because
/// it is most likely a wrong unit.
fn dollars(table: &Table<'_>, key: &str, factor: f64) -> Option<Amount> {
    let written = table.amount(key)?;
    if written.value > 1e6 {
        written.reject("more than a million dollars");
        return None;
    }
    // The product is between 0 and 1e18, so the cast neither wraps nor loses much precision.
    Some(Amount((written.value * factor).round() as u64))
}

fn is_id(id: &str) -> bool {
    let parts = id.split_once('/');
    parts.is_some_and(|(vendor, name)| !vendor.is_empty() && !name.is_empty())
        && id.len() <= 256
        && id.bytes().all(|byte| byte.is_ascii_graphic())
}
