//! Tests that the work of the guests in `plugins/` is linear in the size of a request, not
//! quadratic: twice the input must take less than three times the fuel. The host's sandbox measures
//! no fuel, so these tests have an engine of their own.

use std::path::Path;

use cofferdam_runtime::wire::{
    Action, Choice, Decision, EmbeddingFailure, Failure, Model, Prepared, PreparedEmbeddings, Price,
    TextFacts,
};
use serde_json::{Map, Value, json};
use wasmtime::component::{
    Component, ComponentNamedList, ComponentType, InstancePre, Lift, Linker, Lower, ResourceTable, Val,
};
use wasmtime::{Config, Engine, OptLevel, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::kit::{candidates, price, summary, target};

/// The store's data: WASI for the guests.
#[derive(Default)]
struct World {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for World {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// The record `call-context` of the contract.
#[derive(Clone, ComponentType, Lower)]
#[component(record)]
struct Context {
    #[component(name = "request-id")]
    request_id: String,
    workspace: String,
    #[component(name = "now-ms")]
    now_ms: u64,
}

fn context() -> Context {
    Context { request_id: "resp_test".into(), workspace: "w".into(), now_ms: 1_700_000_000_000 }
}

/// A component of `plugins/`, compiled so that its fuel is counted.
struct Guest {
    name: &'static str,
    engine: Engine,
    component: Component,
    linked: InstancePre<World>,
}

impl Guest {
    /// `settings` are the operator's settings of the plugin.
    fn of(name: &'static str, settings: &Value) -> Self {
        let mut config = Config::new();
        config.consume_fuel(true).cranelift_opt_level(OptLevel::Speed);
        let engine = Engine::new(&config).unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../plugins/{name}.wasm"));
        let component = Component::from_file(&engine, file).unwrap();
        let mut linker = Linker::<World>::new(&engine);
        wasmtime_wasi::p2::add_to_linker_sync(&mut linker).unwrap();
        let settings = settings.to_string().into_bytes();
        let mut config = linker.instance("cofferdam:plugin/config@0.1.0").unwrap();
        config.func_wrap("settings", move |_, (): ()| Ok((settings.clone(),))).unwrap();
        let mut log = linker.instance("cofferdam:plugin/log@0.1.0").unwrap();
        log.func_new("write", |_, _, _: &[Val], _: &mut [Val]| Ok(())).unwrap();
        let mut http = linker.instance("cofferdam:plugin/http@0.1.0").unwrap();
        http.func_new("send", |_, _, _: &[Val], _: &mut [Val]| Err(wasmtime::Error::msg("no network")))
            .unwrap();
        let linked = linker.instantiate_pre(&component).unwrap();
        Self { name, engine, component, linked }
    }

    /// Calls a function of a new instance. Returns its answer and the fuel that it used.
    fn call<P, R>(&self, interface: &str, function: &str, arguments: P) -> (R, u64)
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift + 'static,
    {
        let mut store = Store::new(&self.engine, World::default());
        store.set_fuel(u64::MAX).unwrap();
        let instance = self.linked.instantiate(&mut store).unwrap();
        let interface = format!("cofferdam:plugin/{interface}@0.1.0");
        let (_, interface) = self.component.get_export(None, &interface).unwrap();
        let (_, function) = self.component.get_export(Some(&interface), function).unwrap();
        let function = instance.get_typed_func::<P, R>(&mut store, function).unwrap();
        let before = store.get_fuel().unwrap();
        let answer = function.call(&mut store, arguments).unwrap();
        (answer, before - store.get_fuel().unwrap())
    }

    /// Returns a message if the fuel for twice the elements is three times the fuel for `count`
    /// elements or more.
    fn not_linear(&self, shape: &str, count: usize, once: u64, twice: u64) -> Option<String> {
        let told = format!("{} {shape}: {once} for {count}, {twice} for twice that", self.name);
        println!("{told}");
        (once == 0 || twice >= 3 * once).then_some(told)
    }

    /// Runs `work` on each of `shapes`, with `count` elements and with twice as many. Returns
    /// messages about those that are not linear.
    fn not_linear_of(&self, shapes: Shapes, count: usize, work: impl Fn(&Value) -> u64) -> Vec<String> {
        let (once, twice) = (shapes(count), shapes(2 * count));
        let pairs = once.iter().zip(&twice);
        pairs
            .filter_map(|((shape, one), (_, two))| self.not_linear(shape, count, work(one), work(two)))
            .collect()
    }
}

/// Makes one document of each shape, with the given number of elements.
type Shapes = fn(usize) -> Vec<(&'static str, Value)>;

fn list(count: usize, element: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..count).map(element).collect()
}

/// A request with `count` groups of items.
fn items(count: usize, group: impl Fn(usize) -> Vec<Value>) -> Value {
    request((0..count).flat_map(group).collect())
}

fn request(input: Vec<Value>) -> Value {
    json!({"model": "a/b", "stream": false, "input": input})
}

fn user(content: Value) -> Value {
    json!({"type": "message", "role": "user", "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

fn said(words: &str) -> Value {
    let part = json!({"type": "output_text", "text": words, "annotations": []});
    json!({"type": "message", "role": "assistant", "id": "msg_1", "content": [part]})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{\"a\":1}"})
}

fn result(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "done"})
}

/// A unique id of characters that no provider accepts.
fn odd_id(mut number: usize) -> String {
    let mut id = String::from("c");
    while number > 0 {
        id.push(['.', ':', '/', '+'][number % 4]);
        number /= 4;
    }
    id
}

fn functions(count: usize) -> Vec<Value> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    list(
        count,
        |n| json!({"type": "function", "name": format!("f{n}"), "parameters": schema, "strict": n % 2 == 0}),
    )
}

fn offering(tools: Vec<Value>) -> Value {
    let mut request = request(vec![user(json!([text("x")]))]);
    request["tools"] = tools.into();
    request
}

/// An object schema with `count` members, all required, half of them by reference.
fn schema(count: usize) -> Value {
    let member = |n: usize| match n % 2 {
        0 => json!({"type": "string", "minLength": 1}),
        _ => json!({"$ref": format!("#/$defs/d{n}")}),
    };
    let properties: Map<_, _> = (0..count).map(|n| (format!("p{n}"), member(n))).collect();
    let definitions: Map<_, _> =
        (0..count).map(|n| (format!("d{n}"), json!({"type": ["string", "null"]}))).collect();
    json!({"type": "object", "properties": properties, "$defs": definitions, "additionalProperties": false,
        "required": list(count, |n| json!(format!("p{n}")))})
}

/// Conversations with `count` groups of items each.
fn histories(count: usize) -> Vec<(&'static str, Value)> {
    let id = |n: usize| format!("call_{n}");
    let formats = ["anthropic-claude-v1", "openai-responses-v1", "unknown"];
    let reasoning = |n: usize| {
        json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "e", "signature": "s",
            "format": formats[n % 3]})
    };
    let mut apart: Vec<Value> = list(count, |n| call(&id(n)));
    apart.extend(list(count, |n| result(&id(count - 1 - n))));
    vec![
        ("messages", items(count, |_| vec![user(json!([text("x")]))])),
        ("turns", items(count, |_| vec![user(json!([text("x")])), said("y")])),
        ("system messages", {
            let system = json!({"type": "message", "role": "system", "content": [text("x")]});
            items(count, |_| vec![user(json!([text("x")])), system.clone()])
        }),
        ("calls with results", items(count, |n| vec![call(&id(n)), result(&id(n))])),
        ("calls first, results last", request(apart)),
        ("calls with one id", items(count, |_| vec![call("c"), result("c")])),
        ("calls with odd ids", items(count, |n| vec![call(&odd_id(n)), result(&odd_id(n))])),
        ("calls without results", items(count, |n| vec![call(&id(n))])),
        ("results without calls", items(count, |n| vec![user(json!([text("x")])), result(&id(n))])),
        ("calls of custom tools", {
            let of =
                |n: usize| json!({"type": "custom_tool_call", "call_id": id(n), "name": "c", "input": "i"});
            let done = |n: usize| json!({"type": "custom_tool_call_output", "call_id": id(n), "output": "o"});
            items(count, |n| vec![of(n), done(n)])
        }),
        ("reasoning", items(count, |n| vec![user(json!([text("x")])), reasoning(n), said("y")])),
        ("reasoning before calls", items(count, |n| vec![reasoning(n), call(&id(n)), result(&id(n))])),
        ("parts", request(vec![user(json!(list(count, |_| text("x"))))])),
        ("pictures", {
            let picture =
                json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"});
            request(vec![user(json!(list(count, |_| picture.clone())))])
        }),
        ("parts of a result", {
            let output = list(count, |_| text("x"));
            let result = json!({"type": "function_call_output", "call_id": "c", "output": output});
            request(vec![user(json!([text("x")])), call("c"), result])
        }),
    ]
}

/// Requests with `count` tools, or with a schema of `count` members.
fn offers(count: usize) -> Vec<(&'static str, Value)> {
    let mut chosen = offering(functions(count));
    let names = list(count, |n| json!({"type": "function", "name": format!("f{}", count - 1 - n)}));
    chosen["tool_choice"] = json!({"type": "allowed_tools", "mode": "auto", "tools": names});
    let mut formatted = offering(functions(1));
    formatted["text"] =
        json!({"format": {"type": "json_schema", "name": "n", "strict": true, "schema": schema(count)}});
    let with_schema = json!({"type": "function", "name": "f", "strict": true, "parameters": schema(count)});
    let custom = |n: usize| json!({"type": "custom", "name": format!("c{n}")});
    vec![
        ("tools", offering(functions(count))),
        ("custom tools", offering(list(count, custom))),
        ("allowed_tools of tools", chosen),
        (
            "a namespace",
            offering(vec![
                json!({"type": "namespace", "name": "n", "description": "d", "tools": functions(count)}),
            ]),
        ),
        ("a tool's schema", offering(vec![with_schema])),
        ("an answer's schema", formatted),
    ]
}

/// The fuel that a provider's guest uses to prepare a request.
fn prepared(guest: &Guest, model: &str, request: &Value) -> u64 {
    let request = request.to_string().into_bytes();
    let arguments = (request, target(model), context());
    // Some dialects refuse some shapes. That work is measured too.
    guest.call::<_, (Result<Prepared, Failure>,)>("generation", "prepare", arguments).1
}

fn provider(name: &'static str, model: &str) {
    let guest = Guest::of(name, &json!({}));
    let mut slow = guest.not_linear_of(histories, 1_000, |request| prepared(&guest, model, request));
    slow.extend(guest.not_linear_of(offers, 512, |request| prepared(&guest, model, request)));
    assert!(slow.is_empty(), "{slow:#?}");
}

#[test]
fn requests_to_messages_are_linear_work() {
    provider("provider-anthropic", "claude-sonnet-4-5");
}

#[test]
fn requests_to_chat_completions_are_linear_work() {
    provider("provider-openai-chat", "m");
}

#[test]
fn requests_to_responses_are_linear_work() {
    provider("provider-openai-responses", "m");
}

#[test]
fn requests_to_the_demonstration_are_linear_work() {
    provider("provider-demo", "demo");
}

fn embeddings(count: usize) -> Vec<(&'static str, Value)> {
    let request = |input: Vec<Value>| json!({"model": "a/b", "input": input, "encoding_format": "float"});
    vec![
        ("texts", request(list(count, |_| json!("some words")))),
        ("tokens", request(vec![json!(list(count, |n| json!(n)))])),
    ]
}

#[test]
fn embeddings_are_linear_work() {
    for name in ["provider-openai-chat", "provider-openai-responses", "provider-demo"] {
        let guest = Guest::of(name, &json!({}));
        let work = |request: &Value| {
            let arguments = (request.to_string().into_bytes(), target("embed"), context());
            type Answer = (Result<PreparedEmbeddings, EmbeddingFailure>,);
            let (answer, fuel) = guest.call::<_, Answer>("embedding", "prepare", arguments);
            assert!(name == "provider-demo" || answer.0.is_ok(), "{name}: {:?}", answer.0.err());
            fuel
        };
        let slow = guest.not_linear_of(embeddings, 1_024, work);
        assert!(slow.is_empty(), "{slow:#?}");
    }
}

fn files(count: usize) -> Vec<(&'static str, Value)> {
    let file = json!({"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,AAAA"});
    let mut shapes = histories(count);
    shapes.push(("files", request(vec![user(json!(list(count, |_| file.clone())))])));
    shapes
}

#[test]
fn hooks_on_requests_are_linear_work() {
    let rules = json!({"rules": [{"pattern": "forbidden", "reason": "house rule"}]});
    for (name, settings, operator) in [
        ("hook-context-compression", json!({"context_length": 1_000}), json!({})),
        ("hook-file-parser", json!({}), json!({})),
        ("hook-moderation", json!({}), rules),
    ] {
        let guest = Guest::of(name, &operator);
        let work = |request: &Value| {
            let arguments = (request.to_string().into_bytes(), settings.to_string().into_bytes(), context());
            let (answer, fuel) =
                guest.call::<_, (Result<Action, Failure>,)>("on-request", "handle", arguments);
            assert!(answer.0.is_ok(), "{name}: {:?}", answer.0.err());
            fuel
        };
        let slow = guest.not_linear_of(files, 1_000, work);
        assert!(slow.is_empty(), "{slow:#?}");
    }
}

#[test]
fn hooks_on_responses_are_linear_work() {
    let guest = Guest::of("hook-response-healing", &json!({}));
    let request = json!({"text": {"format": {"type": "json_object"}}}).to_string();
    let work = |response: &Value| {
        let (request, response) = (request.clone().into_bytes(), response.to_string().into_bytes());
        let arguments = (request, response, b"{}".to_vec(), context());
        let (answer, fuel) = guest.call::<_, (Result<Action, Failure>,)>("on-response", "handle", arguments);
        assert!(matches!(answer.0, Ok(Action::Replace(_))));
        fuel
    };
    let shapes: Shapes = |count| {
        let broken = "{\"a\": 1,}";
        let members: String = (0..count).map(|n| format!("\"m{n}\": [{n},],")).collect();
        vec![
            (
                "messages",
                json!({"output": list(count, |_| said(broken)), "output_text": broken.repeat(count)}),
            ),
            ("members", json!({"output": [said(&format!("{{{members}}}"))]})),
        ]
    };
    let slow = guest.not_linear_of(shapes, 1_000, work);
    assert!(slow.is_empty(), "{slow:#?}");
}

/// Lists of a client that routers read: names of providers and of models.
fn preferences(count: usize) -> Vec<(&'static str, Value)> {
    let names = |from: usize| list(count, |n| json!(format!("provider-{}", n + from)));
    vec![
        ("order", json!({"order": names(4)})),
        ("only and ignore", json!({"only": names(0), "ignore": names(4)})),
        (
            "quantizations",
            json!({"quantizations": list(count, |n| json!(format!("q{n}"))), "order": names(0)}),
        ),
    ]
}

#[test]
fn orders_of_endpoints_are_linear_work() {
    for name in ["router", "router-auto"] {
        let guest = Guest::of(name, &json!({}));
        let route = |preferences: &Value, models: usize| {
            let mut summary = summary("a/b");
            summary.preferences = preferences.to_string().into_bytes();
            summary.models = (0..models).map(|n| format!("a/{n}")).collect();
            let arguments = (summary, candidates(8), 1_u64);
            guest.call::<_, (Result<Decision, Failure>,)>("routing", "route", arguments).1
        };
        let mut slow = guest.not_linear_of(preferences, 1_000, |preferences| route(preferences, 1));
        let [once, twice] = [1_000, 2_000].map(|count| route(&json!({}), count));
        slow.extend(guest.not_linear("models", 1_000, once, twice));
        assert!(slow.is_empty(), "{slow:#?}");
    }
}

#[test]
fn choices_of_models_are_linear_work() {
    let guest = Guest::of("router-auto", &json!({}));
    let model = |n: usize| Model {
        id: format!("vendor/model-{n}"),
        price: Price { input: 1.0, ..price() },
        context_length: 0,
        max_output: 0,
        supports: vec![],
        price_rank: 0.5,
    };
    let facts = || TextFacts {
        last_user_chars: 1,
        all_chars: 1,
        turns: 1,
        code_blocks: 0,
        math_share: 0.0,
        questions: 0,
        last_model: None,
    };
    let choose = |count: usize| {
        let patterns = list(count, |n| json!(format!("vendor/model-*{n}")));
        let settings = json!({"id": "auto-router", "allowed_models": patterns}).to_string().into_bytes();
        let models: Vec<_> = (0..20).map(model).collect();
        let arguments = ("auto".to_owned(), summary("service/auto"), facts(), models, settings, 1_u64);
        let (answer, fuel) = guest.call::<_, (Result<Choice, Failure>,)>("model-choice", "choose", arguments);
        assert!(answer.0.is_ok(), "{:?}", answer.0);
        fuel
    };
    assert_eq!(guest.not_linear("allowed models", 500, choose(500), choose(1_000)), None);
}
