//! Malicious guests. Each ends with a typed error within its budget, and a well-behaved guest
//! answers right after.

use std::sync::Arc;

use cofferdam_runtime::wire::ResponseHead;
use cofferdam_runtime::{CallError, CallErrorKind, OperatorGrant, Plugin, Runtime, Services, TrapKind};

use crate::kit::{
    HOOK, PROVIDER, ROUTER, TOOL, candidates, context, everything, frame, head, hook, plugin, provider,
    router, runtime, summary, target, tool,
};
use crate::rogue::{LOOP, Rogue};

async fn route(router: &Arc<Plugin>, deed: &str) -> Result<(), CallError> {
    router.route(&context(), &summary(deed), &candidates(2), 1).await.map(|answer| assert!(answer.is_ok()))
}

/// Asserts that no instance is left and that a well-behaved guest answers.
async fn unharmed(runtime: &Runtime) {
    assert_eq!(runtime.gauges().instances, 0);
    route(&router(runtime), "").await.unwrap();
}

async fn rogue(runtime: &Runtime, component: &Rogue) -> Result<(), CallError> {
    let rogue = plugin(runtime, "router", ROUTER, component.build(), OperatorGrant::default());
    route(&rogue, "").await
}

#[tokio::test]
async fn misbehaving_routers_end_with_typed_errors() {
    let runtime = runtime();
    let router = router(&runtime);
    let cases = [
        ("loop", CallErrorKind::OutOfTime),
        ("copy", CallErrorKind::OutOfTime),
        ("trap", CallErrorKind::Trap(TrapKind::Unreachable)),
        ("divide", CallErrorKind::Trap(TrapKind::Unreachable)),
        ("bomb", CallErrorKind::OutOfMemory),
        ("big bomb", CallErrorKind::OutOfMemory),
        ("long line", CallErrorKind::OutOfMemory),
        ("exit", CallErrorKind::Trap(TrapKind::Unreachable)),
    ];
    for (deed, expected) in cases {
        let error = route(&router, deed).await.unwrap_err();
        assert_eq!(error.kind, expected, "{deed}");
        unharmed(&runtime).await;
    }
    assert_eq!(router.counters().values().errors["out_of_time"], 2);
}

#[tokio::test]
async fn endless_recursion_ends_in_a_trap() {
    let runtime = runtime();
    let error = route(&router(&runtime), "recurse").await.unwrap_err();
    // A Rust guest overflows its own stack in linear memory or the host's stack, whichever is
    // smaller.
    let expected = [TrapKind::StackOverflow, TrapKind::OutOfBounds].map(CallErrorKind::Trap);
    assert!(expected.contains(&error.kind), "{error}");
    let endless = Rogue::of("router").plus("(func $f (call $f))").doing("call $f unreachable");
    let error = rogue(&runtime, &endless).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Trap(TrapKind::StackOverflow));
    unharmed(&runtime).await;
}

#[tokio::test]
async fn a_flood_of_log_lines_ends_the_call() {
    let runtime = runtime();
    let router = router(&runtime);
    let error = route(&router, "log flood").await.unwrap_err();
    // The first budget that is spent: in an unoptimized host that can be the time.
    assert!([CallErrorKind::TooManyHostCalls, CallErrorKind::OutOfTime].contains(&error.kind), "{error}");
    assert_eq!(router.counters().values().log_lines, 64);
}

#[tokio::test]
async fn logs_are_cut_to_the_quota_and_counted() {
    let runtime = runtime();
    let router = router(&runtime);
    route(&router, "stdout flood").await.unwrap();
    let values = router.counters().values();
    assert_eq!(values.log_lines, 64);
    assert_eq!(values.log_lines_dropped, 10_000 - 64);
    route(&router, "forged line").await.unwrap();
    assert_eq!(router.counters().values().log_lines, 65, "the next call has its own quota");
}

#[tokio::test]
async fn wasi_gives_no_access() {
    let runtime = runtime();
    let router = router(&runtime);
    for deed in ["files", "environment", "network"] {
        route(&router, deed).await.unwrap();
    }
}

#[tokio::test]
async fn loops_in_every_export_are_ended() {
    let runtime = runtime();
    let load = |name, manifest: &str, world| {
        let component = Rogue::of(world).doing(LOOP).build();
        let grant =
            if name == "router" || name == "provider" { OperatorGrant::default() } else { everything() };
        plugin(&runtime, name, manifest, component, OperatorGrant { deadline_ms: Some(5), ..grant })
    };
    let mut errors = Vec::new();
    let router = load("router", ROUTER, "model-router");
    errors.push(route(&router, "").await.unwrap_err());
    errors.push(router.model_slugs(&context()).await.unwrap_err());

    let provider = load("provider", PROVIDER, "provider");
    let open = || async { provider.open_provider(&context()).await.unwrap() };
    errors.push(open().await.prepare(b"{}", &target("m")).await.unwrap_err());
    errors.push(open().await.open_decoder(&head()).await.unwrap_err());
    errors.push(open().await.map_error(&head(), b"").await.unwrap_err());
    errors.push(open().await.prepare_embeddings(b"{}", &target("m")).await.unwrap_err());
    errors.push(open().await.decode_embeddings(&head(), b"").await.unwrap_err());

    let hook = load("hook", HOOK, "hook");
    errors.push(hook.on_request(&context(), Services::default(), b"{}", b"{}").await.unwrap_err());
    errors.push(hook.on_response(&context(), Services::default(), b"{}", b"{}", b"{}").await.unwrap_err());
    let tool = load("tool", TOOL, "tool");
    errors.push(tool.functions(&context(), Services::default(), b"{}").await.unwrap_err());
    errors.push(tool.invoke(&context(), Services::default(), "f", b"{}", b"{}").await.unwrap_err());
    assert!(errors.iter().all(|error| error.kind == CallErrorKind::OutOfTime), "{errors:?}");
    unharmed(&runtime).await;
}

#[tokio::test]
async fn loops_in_feed_and_finish_are_ended() {
    let runtime = runtime();
    let rogue = Rogue::of("generation-provider")
        .importing(
            "(import \"[export]cofferdam:plugin/generation@0.1.0\" \"[resource-new]decoder\" \
             (func $new (param i32) (result i32)))",
        )
        .with_body("[constructor]decoder", "(call $new (i32.const 8))")
        .with_body("decoder.feed", LOOP)
        .with_body("decoder.finish", LOOP);
    let provider = plugin(&runtime, "provider", PROVIDER, rogue.build(), OperatorGrant::default());
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    attempt.open_decoder(&head()).await.unwrap();
    let error = attempt.feed(&[frame("", "x")]).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::OutOfTime);
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    attempt.open_decoder(&head()).await.unwrap();
    assert_eq!(attempt.finish().await.unwrap_err().kind, CallErrorKind::OutOfTime);
    drop(attempt);
    unharmed(&runtime).await;
}

/// A provider whose decoder's constructor has this body.
fn constructing(body: &str) -> Rogue {
    let decoder = |name: &str, types: &str| {
        format!(
            "(import \"[export]cofferdam:plugin/generation@0.1.0\" \"[resource-{name}]decoder\" (func ${name} {types}))"
        )
    };
    let imports = [
        decoder("new", "(param i32) (result i32)"),
        decoder("drop", "(param i32)"),
        decoder("rep", "(param i32) (result i32)"),
    ];
    Rogue::of("generation-provider").importing(&imports.concat()).with_body("[constructor]decoder", body)
}

#[tokio::test]
async fn false_and_endless_handles_end_with_typed_errors() {
    let runtime = runtime();
    let cases = [
        ("a handle that was never made", "i32.const 77"),
        ("no handle at all", "i32.const -1"),
        (
            "a handle that was dropped",
            "(local $h i32) (local.set $h (call $new (i32.const 8))) (call $drop (local.get $h)) (local.get $h)",
        ),
        (
            "a handle that is dropped twice",
            "(local $h i32) (local.set $h (call $new (i32.const 8))) (call $drop (local.get $h)) (call $drop (local.get $h)) (local.get $h)",
        ),
        ("the value behind a handle that was never made", "(call $rep (i32.const 77))"),
        ("handles without end", "(loop $again (drop (call $new (i32.const 8))) (br $again)) unreachable"),
    ];
    for (name, body) in cases {
        let component = constructing(body).build();
        let provider = plugin(&runtime, "provider", PROVIDER, component, OperatorGrant::default());
        let mut attempt = provider.open_provider(&context()).await.unwrap();
        let error = attempt.open_decoder(&head()).await.unwrap_err();
        println!("{name}: {error}");
        assert!(matches!(error.kind, CallErrorKind::Trap(_) | CallErrorKind::OutOfTime), "{name}: {error}");
        drop(attempt);
        unharmed(&runtime).await;
    }
}

#[tokio::test]
async fn loops_before_and_after_a_call_are_ended() {
    let runtime = runtime();
    let start = Rogue::of("router").plus("(func $s (loop $l (br $l))) (start $s)");
    let initialize = Rogue::of("router").plus("(func (export \"_initialize\") (loop $l (br $l)))");
    let realloc = Rogue::of("router").realloc(LOOP);
    let post_return = Rogue::of("router")
        .plus("(func (export \"cabi_post_cofferdam:plugin/routing@0.1.0#route\") (param i32) (loop $l (br $l)))")
        .doing("i32.const 1024");
    for (name, component) in
        [("start", start), ("initialize", initialize), ("realloc", realloc), ("post-return", post_return)]
    {
        assert_eq!(rogue(&runtime, &component).await.unwrap_err().kind, CallErrorKind::OutOfTime, "{name}");
        unharmed(&runtime).await;
    }
}

#[tokio::test]
async fn memory_is_limited_however_it_is_taken() {
    let runtime = runtime();
    let grow = |pages: u32| {
        format!("(loop $l (br_if $l (i32.ne (memory.grow (i32.const {pages})) (i32.const -1)))) unreachable")
    };
    let cases = [
        ("steps", Rogue::of("router").doing(&grow(1))),
        ("one step", Rogue::of("router").doing(&grow(65_535))),
        ("at once", Rogue::of("router").memory("(memory (export \"memory\") 3000)")),
        (
            "two memories",
            Rogue::of("router").memory("(memory (export \"memory\") 300) (memory 300)"),
        ),
        ("table", Rogue::of("router").plus("(table 1 funcref)").doing(
            "(loop $l (br_if $l (i32.ne (table.grow 0 (ref.null func) (i32.const 10000)) (i32.const -1)))) unreachable",
        )),
        ("huge table", Rogue::of("router").plus("(table 10000000 funcref)")),
    ];
    for (name, component) in cases {
        let error = rogue(&runtime, &component).await.unwrap_err();
        let refused =
            [CallErrorKind::OutOfMemory, CallErrorKind::Compile, CallErrorKind::Trap(TrapKind::Other)];
        assert!(refused.contains(&error.kind), "{name}: {error}");
        println!("{name}: {error}");
        unharmed(&runtime).await;
    }
}

/// A router that returns a result at address 1024: tag 0 (ok), at offset 8 the pointer and length
/// of the list of indexes, then two empty strings.
fn answering(pointer: u32, length: u32) -> Rogue {
    let bytes: String = [0u32, 0, pointer, length, 0, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .map(|byte| format!("\\{byte:02x}"))
        .collect();
    Rogue::of("router").plus(&format!("(data (i32.const 1024) \"{bytes}\")")).doing("i32.const 1024")
}

#[tokio::test]
async fn answers_with_a_false_size_end_with_typed_errors() {
    let runtime = runtime();
    let cases = [
        ("2^31 bytes", answering(8, 1 << 29)),
        ("2^32-1 entries", answering(8, u32::MAX)),
        ("beyond memory", answering(0x7fff_0000, 4)),
        ("misaligned", answering(9, 1)),
        ("no result at all", Rogue::of("router").doing("i32.const -4")),
        ("misaligned result", Rogue::of("router").doing("i32.const 1025")),
    ];
    for (name, component) in cases {
        let error = rogue(&runtime, &component).await.unwrap_err();
        println!("{name}: {error}");
        let expected = [CallErrorKind::Trap(TrapKind::InvalidValue), CallErrorKind::OutputTooLarge];
        assert!(expected.contains(&error.kind), "{name}: {error}");
        unharmed(&runtime).await;
    }
    // One MiB of valid indexes is more than the output limit of a router.
    let error = rogue(&runtime, &answering(2048, 1 << 18)).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::OutputTooLarge);
}

#[tokio::test]
async fn answers_with_invalid_values_end_with_typed_errors() {
    let runtime = runtime();
    let tag = Rogue::of("router").plus("(data (i32.const 1024) \"\\07\")").doing("i32.const 1024");
    assert!(matches!(rogue(&runtime, &tag).await.unwrap_err().kind, CallErrorKind::Trap(_)));
    let utf8 = Rogue::of("router")
        .plus("(data (i32.const 1032) \"\\08\\00\\00\\00\\00\\00\\00\\00\\00\\08\\00\\00\\02\\00\\00\\00\")")
        .plus("(data (i32.const 2048) \"\\ff\\ff\")")
        .doing("i32.const 1024");
    assert!(matches!(rogue(&runtime, &utf8).await.unwrap_err().kind, CallErrorKind::Trap(_)));
    unharmed(&runtime).await;
}

#[tokio::test]
async fn floods_of_output_end_with_typed_errors() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    let error = attempt.prepare(b"{}", &target("output flood")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::OutputTooLarge);
    for deed in ["event flood", "byte flood"] {
        let mut attempt = provider.open_provider(&context()).await.unwrap();
        attempt.open_decoder(&head()).await.unwrap();
        let error = attempt.feed(&[frame(deed, "")]).await.unwrap_err();
        let expected = [CallErrorKind::OutputTooLarge, CallErrorKind::OutOfMemory, CallErrorKind::OutOfTime];
        println!("{deed}: {error}");
        assert!(expected.contains(&error.kind), "{deed}: {error}");
        assert_eq!(attempt.finish().await.unwrap_err().kind, CallErrorKind::Dead);
    }
    unharmed(&runtime).await;
}

#[tokio::test]
async fn a_trap_in_a_stream_ends_only_its_attempt() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let mut broken = provider.open_provider(&context()).await.unwrap();
    let mut other = provider.open_provider(&context()).await.unwrap();
    for attempt in [&mut broken, &mut other] {
        attempt.open_decoder(&head()).await.unwrap();
        attempt.feed(&[frame("", "x")]).await.unwrap().unwrap();
    }
    let error = broken.feed(&[frame("trap", "")]).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Trap(TrapKind::Unreachable));
    assert_eq!(runtime.gauges().instances, 1);
    assert_eq!(broken.feed(&[frame("", "x")]).await.unwrap_err().kind, CallErrorKind::Dead);
    assert_eq!(broken.map_error(&head(), b"").await.unwrap_err().kind, CallErrorKind::Dead);
    other.feed(&[frame("", "y")]).await.unwrap().unwrap();
}

#[tokio::test]
async fn misbehaving_providers_hooks_and_tools_end_with_typed_errors() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    let armed = ResponseHead { status: 200, headers: vec![("x".into(), "loop".into())], streamed: true };
    assert_eq!(attempt.open_decoder(&armed).await.unwrap_err().kind, CallErrorKind::OutOfTime);
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    assert_eq!(attempt.map_error(&head(), b"bomb").await.unwrap_err().kind, CallErrorKind::OutOfMemory);
    drop(attempt);
    let hook = hook(&runtime);
    let error = hook.on_request(&context(), Services::default(), b"{}", b"loop").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::OutOfTime);
    let tool = tool(&runtime);
    let error = tool.functions(&context(), Services::default(), b"trap").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Trap(TrapKind::Unreachable));
    unharmed(&runtime).await;
}
