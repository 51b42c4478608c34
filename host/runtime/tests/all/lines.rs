//! Lines of the contract. The line 0.0 exists in these tests only: the output of its tools has no
//! cost. Its guests run beside those of the line of `wit/`.

use std::sync::{Arc, LazyLock};

use cofferdam_runtime::wire::Output;
use cofferdam_runtime::{
    CallError, CallErrorKind, ContractLine, Inspection, OperatorGrant, Plugin, Runtime, Services, TrapKind,
};
use wasmtime::component::{ComponentType, Lift};

use crate::kit::{
    HOOK, PROVIDER, ROUTER, TOOL, candidates, context, everything, fixture, head, load, plugin, runtime,
    summary, target, tool,
};
use crate::rogue::{Rogue, Wit};

/// `tools.output` of the line 0.0.
#[derive(ComponentType, Lift)]
#[component(record)]
struct OutputWithoutCost {
    #[component(name = "for-model")]
    for_model: String,
    item: Vec<u8>,
    annotations: Vec<Vec<u8>>,
}

impl From<OutputWithoutCost> for Output {
    fn from(output: OutputWithoutCost) -> Self {
        let OutputWithoutCost { for_model, item, annotations } = output;
        Self { for_model, item, annotations, cost_pico: 0 }
    }
}

fn wit_0_0() -> Wit {
    Wit::own()
        .with("plugin@0.1.0", "plugin@0.0.1")
        .with("annotations: list<json>,\n    cost-pico: u64,", "annotations: list<json>,")
}

static LINE_0_0: LazyLock<ContractLine> =
    LazyLock::new(|| ContractLine::new("0.0.1", wit_0_0().files()).with_output::<OutputWithoutCost>());
static BOTH: LazyLock<[&ContractLine; 2]> = LazyLock::new(|| [ContractLine::newest(), &LINE_0_0]);

fn runtime_of_both() -> Runtime {
    runtime().serving(&*BOTH)
}

/// A tool of the line 0.0. It offers the function `echo`. Its result is the name of the called
/// function, which it also logs, and the arguments.
fn tool_0_0() -> Vec<u8> {
    Rogue::of("tool")
        .wit(wit_0_0())
        .importing("(import \"cofferdam:plugin/log@0.0.1\" \"write\" (func $log (param i32 i32 i32)))")
        .plus("(global $free (mut i32) (i32.const 65536))")
        .plus("(data (i32.const 5000) \"echo\") (data (i32.const 5008) \"{}\")")
        .realloc(
            "global.get $free
             (global.set $free (i32.and (i32.const -8)
                (i32.add (global.get $free) (i32.add (local.get 3) (i32.const 7)))))",
        )
        .with_body(
            "functions",
            "(i32.store offset=4 (i32.const 2048) (i32.const 4096))
             (i32.store offset=8 (i32.const 2048) (i32.const 1))
             (i32.store offset=0 (i32.const 4096) (i32.const 5000))
             (i32.store offset=4 (i32.const 4096) (i32.const 4))
             (i32.store offset=16 (i32.const 4096) (i32.const 5008))
             (i32.store offset=20 (i32.const 4096) (i32.const 2))
             i32.const 2048",
        )
        .with_body(
            "invoke",
            "(call $log (i32.const 1) (local.get 0) (local.get 1))
             (i32.store offset=4 (i32.const 1024) (local.get 0))
             (i32.store offset=8 (i32.const 1024) (local.get 1))
             (i32.store offset=12 (i32.const 1024) (local.get 2))
             (i32.store offset=16 (i32.const 1024) (local.get 3))
             i32.const 1024",
        )
        .build()
}

async fn invoke(tool: &Arc<Plugin>, function: &str, arguments: &str) -> Output {
    let called = tool.invoke(&context(), Services::default(), function, arguments.as_bytes(), b"{}").await;
    called.unwrap().unwrap()
}

#[tokio::test]
async fn guests_of_two_lines_serve_side_by_side() {
    let runtime = runtime_of_both();
    let older = plugin(&runtime, "tool", TOOL, tool_0_0(), everything());
    let newest = tool(&runtime);
    assert_eq!((older.line().name(), newest.line().name()), ("0.0", "0.1"));
    let functions = older.functions(&context(), Services::default(), b"{}").await.unwrap().unwrap();
    assert_eq!(functions[0].name, "echo");
    let (echoed, told) = tokio::join!(invoke(&older, "echo", "{\"a\":1}"), invoke(&newest, "anything", "{}"));
    assert_eq!((echoed.for_model.as_str(), echoed.item.as_slice()), ("echo", b"{\"a\":1}".as_slice()));
    assert_eq!((echoed.cost_pico, told.cost_pico), (0, 7), "an output without a cost costs nothing");
    assert_eq!(older.counters().values().log_lines, 1, "the imports of the older line are linked");
}

#[tokio::test]
async fn rules_for_answers_hold_for_an_older_line_too() {
    let runtime = runtime_of_both();
    let older = plugin(&runtime, "tool", TOOL, tool_0_0(), everything());
    let error = older.invoke(&context(), Services::default(), "echo", b"[]", b"{}").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::InvalidAnswer("a tool's item is not a JSON object"));
}

#[tokio::test]
async fn every_function_of_an_older_line_can_be_called() {
    let runtime = runtime_of_both();
    let guest = |name, manifest, world| {
        let component = Rogue::of(world).wit(wit_0_0()).build();
        let grant = if name == "tool" || name == "hook" { everything() } else { OperatorGrant::default() };
        plugin(&runtime, name, manifest, component, grant)
    };
    let mut errors: Vec<CallError> = Vec::new();
    let router = guest("router", ROUTER, "model-router");
    errors.push(router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap_err());
    errors.push(router.model_slugs(&context()).await.unwrap_err());
    let provider = guest("provider", PROVIDER, "provider");
    let open = || async { provider.open_provider(&context()).await.unwrap() };
    errors.push(open().await.prepare(b"{}", &target("m")).await.unwrap_err());
    errors.push(open().await.open_decoder(&head()).await.unwrap_err());
    errors.push(open().await.map_error(&head(), b"").await.unwrap_err());
    errors.push(open().await.prepare_embeddings(b"{}", &target("m")).await.unwrap_err());
    errors.push(open().await.decode_embeddings(&head(), b"").await.unwrap_err());
    let hook = guest("hook", HOOK, "hook");
    errors.push(hook.on_request(&context(), Services::default(), b"{}", b"{}").await.unwrap_err());
    errors.push(hook.on_response(&context(), Services::default(), b"{}", b"{}", b"{}").await.unwrap_err());
    let trap = CallErrorKind::Trap(TrapKind::Unreachable);
    assert!(errors.iter().all(|error| error.kind == trap), "{errors:?}");
}

#[tokio::test]
async fn every_import_is_linked_under_the_names_of_each_line() {
    let runtime = runtime_of_both();
    let tool = TOOL.replace("\"request\"]", "\"request\", \"deferred-tools\"]");
    for wit in [Wit::own, wit_0_0] {
        for (name, manifest) in [("tool", tool.as_str()), ("hook", HOOK)] {
            let component = Rogue::of(name).wit(wit()).importing_all().build();
            let guest = plugin(&runtime, name, manifest, component, everything());
            guest.compile().await.unwrap_or_else(|error| panic!("{error}: {:?}", guest.state()));
        }
    }
}

fn refusal(runtime: &Runtime, name: &str, manifest: &str, component: Vec<u8>) -> String {
    let error = load(runtime, name, manifest, component, everything()).err().unwrap();
    println!("{error}");
    error.to_string()
}

#[test]
fn a_component_of_a_line_that_is_not_served_is_told_how_to_move() {
    let of = |version: &str| {
        let wit = Wit::own().with("plugin@0.1.0", &format!("plugin@{version}"));
        Rogue::of("router").wit(wit).build()
    };
    let mends = "cofferdam plugin wit --line 0.1 wit/deps/cofferdam-plugin, then build again";
    for (version, line) in [("0.3.0", "0.3"), ("0.3.5", "0.3"), ("1.2.0", "1"), ("0.1.0-rc.1", "0.1.0-rc.1")]
    {
        assert_eq!(
            refusal(&runtime(), "router", ROUTER, of(version)),
            format!(
                "router.toml (router.wasm): is built for line {line} of cofferdam:plugin, this host serves 0.1: \
                 {mends}"
            )
        );
    }
    let message = refusal(&runtime_of_both(), "router", ROUTER, of("0.3.0"));
    assert!(message.ends_with(&format!("this host serves 0.1 and 0.0: {mends}")), "{message}");
    let inspection = Inspection::of(&of("0.3.0"));
    assert!(inspection.verdict.unwrap_err().to_string().starts_with("is built for line 0.3 of"));
}

#[test]
fn a_line_that_is_no_longer_served_is_refused_although_it_was_checked_before() {
    let component = tool_0_0();
    load(&runtime_of_both(), "tool", TOOL, component.clone(), everything()).unwrap();
    let message = refusal(&runtime(), "tool", TOOL, component);
    assert!(
        message.contains("is built for line 0.0 of cofferdam:plugin, this host serves 0.1:"),
        "{message}"
    );
}

#[test]
fn a_component_of_two_lines_is_refused() {
    let mut component = fixture("router");
    let (from, to) = (b"routing@0.1.0", b"routing@0.0.1");
    for start in 0..component.len() - from.len() {
        if component[start..].starts_with(from) {
            component[start..start + to.len()].copy_from_slice(to);
        }
    }
    let message = refusal(&runtime_of_both(), "router", ROUTER, component);
    assert!(message.contains("is built for two lines of cofferdam:plugin: routing@0.0.1 and "), "{message}");
    assert!(message.ends_with("build it again with one copy of the contract"), "{message}");
}

#[tokio::test]
async fn a_component_of_another_patch_can_be_called() {
    let runtime = runtime();
    let wit = Wit::own().with("plugin@0.1.0", "plugin@0.1.7");
    let router =
        plugin(&runtime, "router", ROUTER, Rogue::of("router").wit(wit).build(), OperatorGrant::default());
    let error = router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Trap(TrapKind::Unreachable));
}

#[tokio::test]
async fn a_host_of_a_newer_patch_serves_the_components_of_the_older_ones() {
    static NEWER: LazyLock<[&ContractLine; 1]> = LazyLock::new(|| {
        let wit = Wit::own()
            .with("plugin@0.1.0", "plugin@0.1.4")
            .with("now-ms: func() -> u64;", "now-ms: func() -> u64;\n  zone: func() -> string;");
        [Box::leak(Box::new(ContractLine::new("0.1.4", wit.files())))]
    });
    let runtime = runtime().serving(&*NEWER);
    let told = invoke(&tool(&runtime), "now", "{}").await.for_model;
    assert!(told.ends_with("1700000000120"), "{told}");
}

#[test]
fn what_only_a_newer_patch_has_is_named() {
    let mends = "run a host that has 0.1.7, or do without it: cofferdam plugin wit --line 0.1 \
                 wit/deps/cofferdam-plugin, then build again";
    let newer = || Wit::own().with("plugin@0.1.0", "plugin@0.1.7");
    let function =
        newer().with("now-ms: func() -> u64;", "now-ms: func() -> u64;\n  zone: func() -> string;");
    let interface =
        newer().with("world tool {", "interface kv { get: func() -> u64; }\nworld tool {\n  import kv;");
    for (wit, lacks) in [
        (function, "interface clock: this host has no function zone"),
        (interface, "this host has no interface kv"),
    ] {
        let component = Rogue::of("tool").wit(wit).importing_all().build();
        let message = refusal(&runtime(), "tool", TOOL, component);
        let says = format!("cofferdam:plugin 0.1.7, this host supports 0.1.0): {lacks}; {mends}");
        assert!(message.ends_with(&says), "{message}");
    }
}
