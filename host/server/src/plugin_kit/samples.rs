//! The calls that `plugin check` makes: for each kind of plugin the least that a host would send.

use std::sync::Arc;

use cofferdam_runtime::manifest::{HookPhase, PluginKind};
use cofferdam_runtime::wire::{
    Candidate, Output, Percentiles, Price, Purpose, RequestSummary, ResponseHead, Statistics, Target,
    ToolError,
};
use cofferdam_runtime::{CallContext, CallError, Plugin, Services};
use serde_json::{Value, json};

use super::cases::Case;

const REQUEST: &[u8] = br#"{"model":"sample/model","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}]}"#;
const RESPONSE: &[u8] = br#"{"id":"resp_sample","object":"response","status":"completed","model":"sample/model","output":[{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello","annotations":[]}]}]}"#;
const NOTHING: &[u8] = b"{}";

/// What is wrong with a plugin that was called.
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

/// What a tool answered to a case, by the case's name.
pub(super) type Answers = Vec<(String, Value)>;

/// Calls a plugin as a host would. Answers to cases are added to `answers`.
pub(super) async fn call(plugin: &Arc<Plugin>, cases: &[Case], answers: &mut Answers) -> Result<(), Trouble> {
    match plugin.kind() {
        PluginKind::Tool => call_tool(plugin, cases, answers).await,
        PluginKind::Hook => call_hook(plugin).await,
        PluginKind::Router => call_router(plugin).await,
        PluginKind::Provider => call_provider(plugin).await,
    }
}

fn context() -> CallContext {
    CallContext {
        request_id: "resp_check".into(),
        workspace: "check".to_owned(),
        owner: None,
        now_ms: 1_700_000_000_000,
        inputs: None,
    }
}

async fn call_tool(plugin: &Arc<Plugin>, cases: &[Case], answers: &mut Answers) -> Result<(), Trouble> {
    let context = context();
    let first = plugin.functions(&context, Services::default(), NOTHING).await?;
    let second = plugin.functions(&context, Services::default(), NOTHING).await?;
    let (functions, again) = match (first, second) {
        (Ok(functions), Ok(again)) => (functions, again),
        // Settings that are required are not an error of the plugin.
        (Err(ToolError::InvalidSettings(_)), Err(ToolError::InvalidSettings(_))) => (Vec::new(), Vec::new()),
        (Err(error), _) | (_, Err(error)) => {
            return Err(Trouble::Rule(format!("`functions` for the settings {{}} gives {error:?}")));
        }
    };
    let same = functions.len() == again.len()
        && functions.iter().zip(&again).all(|(one, other)| {
            (&one.name, &one.description, &one.parameters)
                == (&other.name, &other.description, &other.parameters)
        });
    if !same {
        return Err(Trouble::Rule("`functions` gives other bytes when it is called again".to_owned()));
    }
    if let Some(function) = functions.first().filter(|_| cases.is_empty()) {
        // Missing arguments are the model's fault: the tool says so, whatever it needs.
        let answer = plugin.invoke(&context, Services::default(), &function.name, NOTHING, NOTHING).await?;
        drop(answer);
    }
    let mut first_trouble = None;
    for Case { name, call, settings, .. } in cases {
        if !functions.is_empty() && functions.iter().all(|known| known.name != call.function) {
            let function = &call.function;
            let problem = format!("the case `{name}` calls {function}, which the tool does not offer");
            return Err(Trouble::Rule(problem));
        }
        let (arguments, settings) = (call.arguments.to_string(), settings.to_string());
        let (arguments, settings) = (arguments.as_bytes(), settings.as_bytes());
        let called = plugin.invoke(&context, Services::default(), &call.function, arguments, settings).await;
        answers.push((name.clone(), shown(&called)));
        first_trouble = first_trouble.or_else(|| called.err());
    }
    first_trouble.map_or(Ok(()), |error| Err(Trouble::Call(error)))
}

/// An answer as JSON: an item and the text for the model, or one error.
fn shown(called: &Result<Result<Output, ToolError>, CallError>) -> Value {
    match called {
        Ok(Ok(output)) => {
            let item: Value = serde_json::from_slice(&output.item).unwrap_or_default();
            json!({"item": item, "for_model": output.for_model})
        }
        Ok(Err(ToolError::InvalidSettings(message))) => json!({"invalid_settings": message}),
        Ok(Err(ToolError::InvalidArguments(message))) => json!({"invalid_arguments": message}),
        Ok(Err(ToolError::Failed(message))) => json!({"failed": message}),
        Err(error) => json!({"broke": error.to_string()}),
    }
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
    let summary = summary();
    let mut orders = Vec::new();
    for _ in 0..2 {
        if let Ok(decision) = plugin.route(&context, &summary, &candidates, 7).await? {
            orders.push(decision.order);
        }
    }
    if let [first, second] = orders.as_slice()
        && first != second
    {
        return Err(Trouble::Rule("`route` gives another order for the same input and seed".to_owned()));
    }
    if plugin.exports_model_choice() {
        drop(plugin.model_slugs(&context).await?);
    }
    Ok(())
}

async fn call_provider(plugin: &Arc<Plugin>) -> Result<(), Trouble> {
    let target = Target {
        model: "sample-model".to_owned(),
        max_output: 0,
        supports: Vec::new(),
        tier: "default".to_owned(),
        options: NOTHING.to_vec(),
    };
    let mut instance = plugin.open_provider(&context()).await?;
    if plugin.exports_generation() {
        drop(instance.prepare(REQUEST, &target).await?);
    }
    if plugin.exports_embedding() {
        let request = br#"{"model":"sample/model","input":["Hello"]}"#;
        drop(instance.prepare_embeddings(request, &target).await?);
    }
    let head = ResponseHead { status: 500, headers: Vec::new(), streamed: false };
    drop(instance.map_error(&head, b"{}").await?);
    Ok(())
}

fn summary() -> RequestSummary {
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

fn candidate(provider: &str, price: f64) -> Candidate {
    let none = Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 };
    let statistics = Statistics {
        latency_ms: none,
        throughput: none,
        requests: 0,
        failures: 0,
        outage: false,
        ejected: false,
    };
    let price = Price {
        input: price,
        output: price,
        cached_input: 0.0,
        cache_write: 0.0,
        reasoning: 0.0,
        image: 0.0,
    };
    Candidate {
        model: "sample/model".to_owned(),
        model_rank: 0,
        provider: provider.to_owned(),
        tier: "default".to_owned(),
        price,
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
