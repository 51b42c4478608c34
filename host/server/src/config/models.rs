//! `[[models]]`: the catalog as written by the operator. Prices are converted to whole pico-dollars
//! per token here, so that no later code calculates with fractions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::document::Table;
use super::timeouts::LONGEST_MS;
use super::{ConfigSpan, ProviderConfig};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfiguredModelKind {
    Responses,
    Embeddings,
}

/// Whether a provider collects the data it receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DataCollection {
    #[default]
    Allow,
    Deny,
}

#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// The model id in requests, `vendor/name`.
    pub id: String,
    pub kind: ConfiguredModelKind,
    /// The maximum of input and output tokens together.
    pub context_length: Option<u32>,
    /// In order of preference.
    pub endpoints: Vec<EndpointConfig>,
    pub place: ConfigSpan,
}

/// A provider's offer of a model. Prices are in pico-dollars per token unless noted.
#[derive(Debug, Clone, Default)]
pub struct EndpointConfig {
    /// The name of a configured provider.
    pub provider: String,
    /// The provider's name for the model.
    pub model: String,
    pub input: u64,
    pub output: u64,
    /// The price of input tokens read from the provider's cache; `None` means the price of input.
    pub cached_input: Option<u64>,
    /// The price of input tokens written to the provider's cache; `None` means the price of input.
    pub cache_write: Option<u64>,
    /// The price of reasoning tokens; `None` means the price of output.
    pub reasoning: Option<u64>,
    /// Pico-dollars per generated image.
    pub image: Option<u64>,
    /// The maximum of output tokens.
    pub max_output: Option<u32>,
    /// How long the first event may take, or the head of a response that is not streamed.
    pub first_event: Option<Duration>,
    /// Request fields and abilities that the endpoint supports; empty if not stated.
    pub supports: Vec<String>,
    /// Hosted tools that clients may use on the operator's key, with pico-dollars per call.
    pub hosted_tools: BTreeMap<String, u64>,
    /// Ids of objects stored at the provider that clients may name.
    pub hosted_tool_ids: BTreeSet<String>,
    /// The service tier, if it is not the default one.
    pub tier: Option<String>,
    /// Such as `fp8`.
    pub quantization: Option<String>,
    /// Zero data retention: the provider keeps nothing.
    pub zdr: bool,
    pub data_collection: DataCollection,
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
        models.push(ModelConfig {
            id: id.value,
            kind: kind(table),
            context_length: tokens(table, "context_length"),
            endpoints: endpoints.iter().map(|endpoint| self::endpoint(endpoint, providers)).collect(),
            place: table.value("", ()).place(),
        });
    }
    models
}

/// The built-in demo, which a host without a configuration serves.
#[must_use]
pub fn demo() -> (Vec<ProviderConfig>, Vec<ModelConfig>) {
    let place = ConfigSpan { file: PathBuf::new(), line: 0, column: 0, key: String::new() };
    let provider = ProviderConfig {
        name: "demo".to_owned(),
        adapter: "demo".to_owned(),
        origin: None,
        key: None,
        byok: None,
        options: Vec::new(),
        betas: Vec::new(),
        place: place.clone(),
    };
    let model = |id: &str, kind, upstream: &str| ModelConfig {
        id: id.to_owned(),
        kind,
        context_length: None,
        endpoints: vec![EndpointConfig {
            provider: "demo".to_owned(),
            model: upstream.to_owned(),
            ..EndpointConfig::default()
        }],
        place: place.clone(),
    };
    let models = vec![
        model("local/demo", ConfiguredModelKind::Responses, "demo"),
        model("local/embed", ConfiguredModelKind::Embeddings, "embed"),
    ];
    (vec![provider], models)
}

fn kind(table: &Table<'_>) -> ConfiguredModelKind {
    let written = table.required_text("kind");
    match written.value.as_str() {
        "embeddings" => ConfiguredModelKind::Embeddings,
        "responses" => ConfiguredModelKind::Responses,
        _ => {
            written.reject("expected `responses` or `embeddings`");
            ConfiguredModelKind::Responses
        }
    }
}

fn endpoint(table: &Table<'_>, providers: &[ProviderConfig]) -> EndpointConfig {
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
    EndpointConfig {
        provider: provider.value,
        model: table.required_text("model").value,
        input: per_token(table, "input").unwrap_or(0),
        output: per_token(table, "output").unwrap_or(0),
        cached_input: per_token(table, "cached_input"),
        cache_write: per_token(table, "cache_write"),
        reasoning: per_token(table, "reasoning"),
        image: dollars(table, "image", 1e12),
        max_output: tokens(table, "max_output"),
        first_event: table.integer("first_event_ms", 1..=LONGEST_MS).map(Duration::from_millis),
        supports: table.texts("supports").into_iter().map(|ability| ability.value).collect(),
        hosted_tools: hosted_tools(table),
        hosted_tool_ids: table.texts("hosted_tool_ids").into_iter().map(|id| id.value).collect(),
        tier: tier(table),
        quantization: quantization.map(|text| text.value),
        zdr: table.flag("zdr"),
        data_collection: data_collection(table),
    }
}

fn hosted_tools(table: &Table<'_>) -> BTreeMap<String, u64> {
    let listed = table.texts("hosted_tools");
    let mut tools: BTreeMap<String, u64> = listed.into_iter().map(|tool| (tool.value, 0)).collect();
    let prices = table.table("hosted_tool_prices");
    for name in prices.names() {
        let price = dollars(&prices, &name.value, 1e12);
        match tools.get_mut(&name.value) {
            Some(known) => *known = price.unwrap_or(0),
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

fn data_collection(table: &Table<'_>) -> DataCollection {
    let written = table.required_text("data_collection");
    match written.value.as_str() {
        "deny" => DataCollection::Deny,
        "allow" => DataCollection::Allow,
        _ => {
            written.reject("expected `allow` or `deny`");
            DataCollection::Allow
        }
    }
}

/// Reads dollars per million tokens as pico-dollars per token.
fn per_token(table: &Table<'_>, key: &str) -> Option<u64> {
    dollars(table, key, 1e6)
}

/// Reads an amount and multiplies it by `factor`. More than a million dollars is refused, because
/// it is most likely a wrong unit.
fn dollars(table: &Table<'_>, key: &str, factor: f64) -> Option<u64> {
    let written = table.amount(key)?;
    if written.value > 1e6 {
        written.reject("more than a million dollars");
        return None;
    }
    // The product is between 0 and 1e18, so the cast neither wraps nor loses much precision.
    Some((written.value * factor).round() as u64)
}

fn is_id(id: &str) -> bool {
    let parts = id.split_once('/');
    parts.is_some_and(|(vendor, name)| !vendor.is_empty() && !name.is_empty())
        && id.len() <= 256
        && id.bytes().all(|byte| byte.is_ascii_graphic())
}
