//! The calls that `plugin check` makes: for each kind of plugin the least that a host would send.

use std::sync::Arc;

use cofferdam_runtime::manifest::{HookPhase, PluginKind};
use cofferdam_runtime::wire::{
    Candidate, Model, Percentiles, Price, Purpose, RequestSummary, ResponseHead, Statistics, Target,
    ToolError,
};
use cofferdam_runtime::{CallContext, Plugin, Services};

use super::runs::{self, Trouble};

pub(super) const EMBEDDINGS: &[u8] = br#"{"model":"sample/model","input":["Hello"]}"#;
pub(super) const REQUEST: &[u8] = br#"{"model":"sample/model","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}]}"#;
pub(super) const RESPONSE: &[u8] = br#"{"id":"resp_sample","object":"response","status":"completed","model":"sample/model","output":[{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello","annotations":[]}]}]}"#;
pub(super) const NOTHING: &[u8] = b"{}";

/// Calls a plugin as a host would. `with_function`: also a function of a tool, without arguments.
pub(super) async fn call(plugin: &Arc<Plugin>, with_function: bool) -> Result<(), Trouble> {
    match plugin.kind() {
        PluginKind::Tool => call_tool(plugin, with_function).await,
        PluginKind::Hook => call_hook(plugin).await,
        PluginKind::Router => call_router(plugin).await,
        PluginKind::Provider => call_provider(plugin).await,
    }
}

fn context() -> CallContext {
    runs::context(1_700_000_000_000, 0)
}

async fn call_tool(plugin: &Arc<Plugin>, with_function: bool) -> Result<(), Trouble> {
    let context = context();
    let functions = match plugin.functions(&context, Services::default(), NOTHING).await? {
        Ok(functions) => functions,
        // Settings that are required are not an error of the plugin.
        Err(ToolError::InvalidSettings(_)) => Vec::new(),
        Err(error) => {
            return Err(Trouble::Rule(format!("`functions` for the settings {{}} gives {error:?}")));
        }
    };
    if let Some(function) = functions.first().filter(|_| with_function) {
        // Missing arguments are the model's fault: the tool says so, whatever it needs.
        drop(plugin.invoke(&context, Services::default(), &function.name, NOTHING, NOTHING).await?);
    }
    Ok(())
}

async fn call_hook(plugin: &Arc<Plugin>) -> Result<(), Trouble> {
    let context = context();
    let phases = plugin.manifest().hook.iter().flat_map(|hook| hook.phases.iter().copied());
    let phases: Vec<HookPhase> = phases.collect();
    if phases.contains(&HookPhase::OnRequest) {
        drop(plugin.on_request(&context, Services::default(), REQUEST, NOTHING).await?);
    }
    if phases.contains(&HookPhase::OnResponse) {
        drop(plugin.on_response(&context, Services::default(), REQUEST, RESPONSE, NOTHING).await?);
    }
    Ok(())
}

async fn call_router(plugin: &Arc<Plugin>) -> Result<(), Trouble> {
    let context = context();
    let candidates = [candidate("one", 2.0), candidate("two", 1.0)];
    drop(plugin.route(&context, &summary(), &candidates, 7).await?);
    if plugin.exports_model_choice() {
        drop(plugin.model_slugs(&context).await?);
    }
    Ok(())
}

async fn call_provider(plugin: &Arc<Plugin>) -> Result<(), Trouble> {
    let target = target();
    let mut instance = plugin.open_provider(&context()).await?;
    if plugin.exports_generation() {
        drop(instance.prepare(REQUEST, &target).await?);
    }
    if plugin.exports_embedding() {
        drop(instance.prepare_embeddings(EMBEDDINGS, &target).await?);
    }
    let head = ResponseHead { status: 500, headers: Vec::new(), streamed: false };
    drop(instance.map_error(&head, b"{}").await?);
    Ok(())
}

/// The endpoint of the sample request.
pub(super) fn target() -> Target {
    Target {
        model: "sample-model".to_owned(),
        max_output: 0,
        supports: Vec::new(),
        tier: "default".to_owned(),
        options: NOTHING.to_vec(),
    }
}

/// A model that a router may choose.
pub(super) fn model() -> Model {
    Model {
        id: "sample/model".to_owned(),
        price: price(1.0),
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        price_rank: 0.0,
    }
}

pub(super) fn summary() -> RequestSummary {
    RequestSummary {
        purpose: Purpose::Responses,
        requested: "sample/model".to_owned(),
        models: vec!["sample/model".to_owned()],
        suffix: None,
        preferences: NOTHING.to_vec(),
        route: None,
        service_tier: "auto".to_owned(),
        parameters: Vec::new(),
        needs: Vec::new(),
        input_tokens: 10,
        max_output_tokens: None,
        streamed: true,
        sticky: None,
    }
}

pub(super) fn candidate(provider: &str, dollars: f64) -> Candidate {
    let none = Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 };
    let statistics = Statistics {
        latency_ms: none,
        throughput: none,
        requests: 0,
        failures: 0,
        outage: false,
        ejected: false,
    };
    Candidate {
        model: "sample/model".to_owned(),
        model_rank: 0,
        provider: provider.to_owned(),
        tier: "default".to_owned(),
        price: price(dollars),
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        quantization: "unknown".to_owned(),
        zdr: false,
        data_collection: false,
        byok: false,
        statistics,
    }
}

/// The same price for input and output.
fn price(dollars: f64) -> Price {
    Price { input: dollars, output: dollars, cached_input: 0.0, cache_write: 0.0, reasoning: 0.0, image: 0.0 }
}
