//! A runtime with test plugins, and simple implementations of the capabilities.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_runtime::services::{Ask, HttpAccess, HttpExchange, Opening, Question, ToolAccess, ToolCall};
use cofferdam_runtime::wire::{
    Answer, Candidate, Failure, Frame, HttpError, HttpRequest, HttpResponse, Percentiles, Price, Purpose,
    RequestSummary, ResponseHead, Statistics, Target, ToolCallError, Usage,
};
use cofferdam_runtime::{
    CallContext, Grant, LoadError, OperatorGrant, Plugin, PluginSource, Plugins, Runtime, RuntimeConfig,
};

// The deadlines are much longer than a call takes on a slow machine, so that a call ends for the reason that a test
// is about.
pub(crate) const ROUTER: &str =
    "name = \"router\"\nkind = \"router\"\nversion = \"1\"\nlimits.deadline_ms = 500\n";
pub(crate) const PROVIDER: &str =
    "name = \"provider\"\nkind = \"provider\"\nversion = \"1\"\nlimits.deadline_ms = 500\n";
pub(crate) const HOOK: &str = "name = \"hook\"\nkind = \"hook\"\nversion = \"1\"\nlimits.deadline_ms = 500\n\
    imports = [\"http\", \"model\", \"tool-call\"]\nhosts = [\"api.test\"]\n\
    [hook]\nid = \"test\"\nphases = [\"on-request\", \"on-response\"]\n";
pub(crate) const TOOL: &str = "name = \"tool\"\nkind = \"tool\"\nversion = \"1\"\n\
    imports = [\"clock\", \"random\", \"http\", \"model\", \"catalog\", \"scratch\", \"request\"]\n\
    hosts = [\"api.test\", \"other.test\"]\n[tool]\ntype = \"test\"\n";

/// A component of `tests/fixtures`.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    std::fs::read(format!("{folder}/{name}.wasm")).unwrap()
}

/// The directory of the compile cache, shared by all tests so that fixtures are compiled once.
fn cache_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled")
}

pub(crate) fn runtime() -> Runtime {
    runtime_in(&cache_dir())
}

pub(crate) fn runtime_in(cache_dir: &Path) -> Runtime {
    runtime_at(cache_dir, &cache_dir.join("recordings"))
}

/// A runtime with a directory of recordings of its own.
pub(crate) fn recording_runtime(recordings: &Path) -> Runtime {
    runtime_at(&cache_dir(), recordings)
}

fn runtime_at(cache_dir: &Path, recordings: &Path) -> Runtime {
    let config = RuntimeConfig {
        streams: 4,
        cache_dir: cache_dir.to_owned(),
        recordings_dir: recordings.to_owned(),
        tick: Duration::from_millis(2),
    };
    Runtime::start(config).unwrap()
}

pub(crate) fn source(name: &str, manifest: &str, component: Vec<u8>) -> PluginSource {
    PluginSource {
        name: name.into(),
        manifest: manifest.into(),
        component: component.into(),
        digest: None,
        origin: format!("{name}.toml"),
        is_built_in: false,
    }
}

pub(crate) fn load(
    runtime: &Runtime,
    name: &str,
    manifest: &str,
    component: Vec<u8>,
    grant: OperatorGrant,
) -> Result<Plugins, LoadError> {
    let grants = BTreeMap::from([(name.to_owned(), grant)]);
    runtime.load(vec![source(name, manifest, component)], &grants)
}

pub(crate) fn plugin(
    runtime: &Runtime,
    name: &str,
    manifest: &str,
    component: Vec<u8>,
    grant: OperatorGrant,
) -> Arc<Plugin> {
    Arc::clone(load(runtime, name, manifest, component, grant).unwrap().get(name).unwrap())
}

pub(crate) fn router(runtime: &Runtime) -> Arc<Plugin> {
    plugin(runtime, "router", ROUTER, fixture("router"), OperatorGrant::default())
}

/// A router whose calls may take this much processor time, in milliseconds.
pub(crate) fn router_with_deadline(runtime: &Runtime, deadline_ms: u32) -> Arc<Plugin> {
    let grant = OperatorGrant { deadline_ms: Some(deadline_ms), ..OperatorGrant::default() };
    plugin(runtime, "router", ROUTER, fixture("router"), grant)
}

pub(crate) fn provider(runtime: &Runtime) -> Arc<Plugin> {
    plugin(runtime, "provider", PROVIDER, fixture("provider"), OperatorGrant::default())
}

pub(crate) fn hook(runtime: &Runtime) -> Arc<Plugin> {
    plugin(runtime, "hook", HOOK, fixture("hook"), everything())
}

pub(crate) fn tool(runtime: &Runtime) -> Arc<Plugin> {
    plugin(runtime, "tool", TOOL, fixture("tool"), everything())
}

/// Grants everything that the fixtures request, except the host `other.test`.
pub(crate) fn everything() -> OperatorGrant {
    OperatorGrant {
        hosts: ["api.test".parse().unwrap()].into(),
        imports: ["model", "tool-call", "request"].map(str::to_owned).to_vec(),
        ..OperatorGrant::default()
    }
}

pub(crate) fn context() -> CallContext {
    CallContext {
        request_id: "resp_test".into(),
        workspace: "workspace-1".into(),
        owner: None,
        now_ms: 1_700_000_000_123,
        inputs: None,
    }
}

pub(crate) fn summary(requested: &str) -> RequestSummary {
    RequestSummary {
        purpose: Purpose::Responses,
        requested: requested.into(),
        models: vec!["a/b".into()],
        suffix: None,
        preferences: b"{}".to_vec(),
        route: None,
        service_tier: "auto".into(),
        parameters: vec![],
        needs: vec![],
        input_tokens: 10,
        max_output_tokens: None,
        streamed: true,
        sticky: None,
    }
}

pub(crate) fn price() -> Price {
    Price { input: 1.0, output: 2.0, cached_input: 0.0, cache_write: 0.0, reasoning: 0.0, image: 0.0 }
}

pub(crate) fn candidates(count: u32) -> Vec<Candidate> {
    let none = Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 };
    let candidate = |number| Candidate {
        model: "a/b".into(),
        model_rank: 0,
        provider: format!("provider-{number}"),
        tier: "default".into(),
        price: price(),
        context_length: 0,
        max_output: 0,
        supports: vec![],
        quantization: "unknown".into(),
        zdr: false,
        data_collection: false,
        byok: false,
        statistics: Statistics {
            latency_ms: none,
            throughput: none,
            requests: 0,
            failures: 0,
            outage: false,
            ejected: false,
        },
    };
    (0..count).map(candidate).collect()
}

pub(crate) fn target(model: &str) -> Target {
    Target {
        model: model.into(),
        max_output: 0,
        supports: vec![],
        tier: "default".into(),
        options: b"{}".to_vec(),
    }
}

pub(crate) fn head() -> ResponseHead {
    ResponseHead { status: 200, headers: vec![], streamed: true }
}

pub(crate) fn frame(name: &str, data: &str) -> Frame {
    Frame { name: name.into(), data: data.into() }
}

pub(crate) fn usage() -> Usage {
    Usage {
        input_tokens: 1,
        cached_tokens: 0,
        cache_write_tokens: 0,
        output_tokens: 1,
        reasoning_tokens: 0,
        images: 0,
        provider_tool_requests: 0,
        cost_dollars: None,
    }
}

/// Answers every question with its nesting depth.
pub(crate) struct Oracle;

impl Ask for Oracle {
    fn ask(&self, question: Question) -> Opening<'_, Result<Answer, Failure>> {
        let text = format!("depth {}", question.depth);
        let answer =
            Answer { model: "a/b".into(), text, output: b"[]".to_vec(), usage: usage(), cost_pico: 1 };
        Box::pin(async { Ok(answer) })
    }
}

/// Never answers: the guest waits until the call is dropped.
pub(crate) struct Never;

impl Ask for Never {
    fn ask(&self, _: Question) -> Opening<'_, Result<Answer, Failure>> {
        Box::pin(std::future::pending())
    }
}

/// Panics, like a host with a bug.
pub(crate) struct Panics;

impl Ask for Panics {
    fn ask(&self, _: Question) -> Opening<'_, Result<Answer, Failure>> {
        Box::pin(async { panic!("a bug of the host") })
    }
}

/// An HTTP capability that reaches the granted hosts only.
pub(crate) struct Net;

impl HttpAccess for Net {
    fn send<'a>(
        &'a self,
        _: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpResponse, HttpError>> {
        let granted = grant.hosts.iter().any(|host| request.url.contains(host));
        Box::pin(async move {
            if !granted {
                return Err(HttpError::Denied);
            }
            Ok(HttpResponse {
                status: 204,
                url: request.url,
                headers: vec![],
                body: b"{\"fetched\":1}".to_vec(),
            })
        })
    }

    fn open<'a>(
        self: Arc<Self>,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpExchange, HttpError>> {
        Box::pin(async move { Ok(self.send(plugin, grant, request).await?.into()) })
    }
}

/// A capability to call tools, with one tool.
pub(crate) struct Shop;

impl ToolAccess for Shop {
    fn call<'a>(&'a self, call: ToolCall<'a>) -> Opening<'a, Result<Vec<u8>, ToolCallError>> {
        let told = (call.tool == "datetime").then(|| format!("{{\"depth\":{}}}", call.depth).into_bytes());
        Box::pin(async { told.ok_or(ToolCallError::Unavailable) })
    }
}
