//! Instances that serve more than one call: which owner gets them, what ends them, and that they
//! make room for other calls.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cofferdam_runtime::{CallContext, CallErrorKind, OperatorGrant, Owner, Plugin, Services};

use crate::kit::{
    PROVIDER, ROUTER, candidates, context, fixture, frame, head, hook, plugin, provider, router, runtime,
    summary, target, tool,
};
use crate::rogue::{LOOP, Rogue, TRAP, Wit};

/// A router's decision at address 1024: one index, 0, and two empty strings.
const ANSWER: &str = "(data (i32.const 1032) \"\\00\\08\\00\\00\\01\")";

fn owned(owner: &str) -> CallContext {
    CallContext { owner: Some(Owner::new(owner)), ..context() }
}

/// The number of calls that the instance of this call has served so far.
async fn calls(router: &Arc<Plugin>, context: &CallContext) -> u32 {
    let decision = router.route(context, &summary(""), &candidates(1), 0).await.unwrap().unwrap();
    let calls = decision.reason.strip_prefix("calls=").unwrap();
    calls.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_instance_serves_only_its_owner_again() {
    let runtime = runtime();
    let router = router(&runtime);
    // Two keys of one workspace are two owners.
    for round in 1..=3 {
        for key in ["key-1", "key-2"] {
            assert_eq!(calls(&router, &owned(key)).await, round, "{key}");
        }
    }
    assert_eq!(calls(&router, &owned("key-3")).await, 1);
    assert_eq!(calls(&router, &context()).await, 1, "nobody's instance is fresh");
    assert_eq!(calls(&router, &context()).await, 1, "and is not kept");
    let gauges = runtime.gauges();
    assert_eq!((gauges.instances, gauges.idle), (0, 3));
}

#[tokio::test]
async fn concurrent_calls_have_an_instance_each() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let owner = owned("key");
    let first = provider.open_provider(&owner).await.unwrap();
    let second = provider.open_provider(&owner).await.unwrap();
    assert_eq!(runtime.gauges().instances, 2);
    first.close().await;
    assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (1, 1));
    let third = provider.open_provider(&owner).await.unwrap();
    assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (2, 0));
    drop((second, third));
    assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, 0), "dropped is not closed");
}

#[tokio::test]
async fn an_instance_is_not_reused_after_a_failed_call() {
    let runtime = runtime();
    let router = router(&runtime);
    let key = owned("key");
    for deed in ["trap", "loop", "recurse", "divide", "exit", "bomb", "fail", "twice", "empty"] {
        assert_eq!(calls(&router, &key).await, 1, "before {deed}");
        assert_eq!(runtime.gauges().idle, 1, "{deed}");
        let answer = router.route(&key, &summary(deed), &candidates(1), 0).await;
        assert!(!matches!(answer, Ok(Ok(_))), "{deed}");
        assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, 0), "{deed}");
        assert_eq!(calls(&router, &key).await, 1, "after {deed}");
        drop(router.route(&key, &summary("trap"), &candidates(1), 0).await);
    }
}

#[tokio::test]
async fn a_dropped_call_drops_its_instance() {
    let runtime = runtime();
    let router = router(&runtime);
    let key = owned("key");
    assert_eq!(calls(&router, &key).await, 1);
    {
        let (summary, candidates) = (summary("loop"), candidates(1));
        let mut call = pin!(router.route(&key, &summary, &candidates, 0));
        assert!(matches!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    }
    assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, 0));
    assert_eq!(calls(&router, &key).await, 1);
}

#[tokio::test]
async fn every_attempt_of_a_kept_instance_starts_fresh() {
    let runtime = runtime();
    let provider = provider(&runtime);
    for round in 0..3 {
        let now_ms = 1_700_000_000_000 + round;
        let context = CallContext { request_id: format!("resp_{round}").into(), now_ms, ..owned("key") };
        let mut attempt = provider.open_provider(&context).await.unwrap();
        attempt.prepare(b"{}", &target("m")).await.unwrap().unwrap();
        assert_eq!(attempt.finish().await.unwrap_err().kind, CallErrorKind::NotExported("an open decoder"));
        attempt.open_decoder(&head()).await.unwrap();
        attempt.open_decoder(&head()).await.unwrap();
        attempt.feed(&[frame("", "x")]).await.unwrap().unwrap();
        let rest = attempt.finish().await.unwrap().unwrap();
        assert!(format!("{rest:?}").contains("frames=1"), "{rest:?}");
        attempt.close().await;
        assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, 1));
    }
}

#[tokio::test]
async fn a_guest_that_traps_during_an_attempt_is_not_kept() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let owner = owned("key");
    for deed in ["trap", "bad item"] {
        let mut attempt = provider.open_provider(&owner).await.unwrap();
        attempt.open_decoder(&head()).await.unwrap();
        attempt.feed(&[frame(deed, "")]).await.unwrap_err();
        attempt.close().await;
        assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, 0), "{deed}");
    }
}

#[tokio::test]
async fn a_trapping_destructor_only_ends_the_instance() {
    let runtime = runtime();
    for deed in [TRAP, LOOP] {
        let grant = OperatorGrant { deadline_ms: Some(100), ..OperatorGrant::default() };
        let rogue = Rogue::of("generation-provider")
            .importing(
                "(import \"[export]cofferdam:plugin/generation@0.1.0\" \"[resource-new]decoder\" \
                 (func $new (param i32) (result i32)))",
            )
            .with_body("[constructor]decoder", "(call $new (i32.const 8))")
            .plus(&format!(
                "(func (export \"cofferdam:plugin/generation@0.1.0#[dtor]decoder\") (param i32) {deed})"
            ));
        let rogue = plugin(&runtime, "provider", PROVIDER, rogue.build(), grant);
        let mut attempt = rogue.open_provider(&owned("key")).await.unwrap();
        attempt.open_decoder(&head()).await.unwrap();
        attempt.close().await;
        assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, 0), "{deed}");
        assert_eq!(rogue.counters().values().errors.values().sum::<u64>(), 1, "{deed}");
        // An instance without an owner is dropped without running the destructor.
        let mut attempt = rogue.open_provider(&context()).await.unwrap();
        attempt.open_decoder(&head()).await.unwrap();
        attempt.close().await;
        assert_eq!(rogue.counters().values().errors.values().sum::<u64>(), 1, "{deed}");
    }
}

#[tokio::test]
async fn an_instance_that_grew_is_not_kept() {
    let runtime = runtime();
    let provider = provider(&runtime);
    for (bytes, kept) in [(1 << 10, 1), (4 << 20, 0)] {
        let mut attempt = provider.open_provider(&owned("key")).await.unwrap();
        attempt.prepare(&vec![b' '; bytes], &target("m")).await.unwrap().unwrap();
        attempt.close().await;
        assert_eq!(runtime.gauges().idle, kept, "{bytes}");
    }
}

#[tokio::test]
async fn idle_instances_make_room_for_other_calls() {
    let runtime = runtime();
    let (router, provider) = (router(&runtime), provider(&runtime));
    let room = runtime.gauges().instances_max;
    for key in 0..room {
        assert_eq!(calls(&router, &owned(&format!("key-{key}"))).await, 1);
    }
    assert!((1..room / 2).contains(&runtime.gauges().idle), "{:?}", runtime.gauges());
    let mut attempts = Vec::new();
    for _ in 0..room {
        attempts.push(provider.open_provider(&context()).await.unwrap());
    }
    let gauges = runtime.gauges();
    assert_eq!((gauges.instances, gauges.idle, gauges.saturated), (room, 0, 0));
}

#[tokio::test]
async fn idle_instances_make_room_for_memories() {
    let runtime = runtime();
    let greedy = Rogue::of("router")
        .memory("(memory (export \"memory\") 32) (memory 1) (memory 1) (memory 1)")
        .plus(ANSWER)
        .doing("i32.const 1024");
    let greedy = plugin(&runtime, "router", ROUTER, greedy.build(), OperatorGrant::default());
    for key in 0..4 {
        let owner = owned(&format!("key-{key}"));
        greedy.route(&owner, &summary(""), &candidates(1), 0).await.unwrap().unwrap();
    }
    assert_eq!(runtime.gauges().idle, 4);
    // The pool has room for 68 instances, and memories for 65 that take four each.
    let many =
        Rogue::of("provider").memory("(memory (export \"memory\") 1) (memory 1) (memory 1) (memory 1)");
    let many = plugin(&runtime, "provider", PROVIDER, many.build(), OperatorGrant::default());
    let mut attempts = Vec::new();
    for _ in 0..64 {
        attempts.push(many.open_provider(&context()).await.unwrap());
    }
    assert_eq!(runtime.gauges().idle, 1, "{:?}", runtime.gauges());
}

#[tokio::test]
async fn idle_instances_end_with_their_plugin() {
    let runtime = runtime();
    let (old, kept) = (router(&runtime), provider(&runtime));
    kept.open_provider(&owned("key")).await.unwrap().close().await;
    assert_eq!(calls(&old, &owned("key")).await, 1);
    assert_eq!(runtime.gauges().idle, 2);
    let new = router(&runtime);
    assert_eq!(calls(&new, &owned("key")).await, 1, "another generation of the same plugin");
    drop(old);
    assert_eq!(runtime.gauges().idle, 2);
    assert_eq!(calls(&new, &owned("key")).await, 2);
}

#[tokio::test]
async fn a_stateless_provider_shares_its_instance_while_waiting() {
    let runtime = runtime();
    for (line, instances) in [("", 2), ("stateless = true", 1)] {
        let manifest = format!("{PROVIDER}[provider]\n{line}\n");
        let provider = plugin(&runtime, "provider", &manifest, fixture("provider"), OperatorGrant::default());
        let owner = owned("key");
        let mut first = provider.open_provider(&owner).await.unwrap();
        first.prepare(b"{}", &target("m")).await.unwrap().unwrap();
        first.pause();
        let mut second = provider.open_provider(&owner).await.unwrap();
        assert_eq!(runtime.gauges().instances, instances, "{line}");
        second.prepare(b"{}", &target("m")).await.unwrap().unwrap();
        second.pause();
        for attempt in [&mut first, &mut second] {
            attempt.resume(&owner).await.unwrap();
            attempt.open_decoder(&head()).await.unwrap();
            attempt.feed(&[frame("", "x")]).await.unwrap().unwrap();
            // The decoder exists in this instance only, so it must not be given away.
            attempt.pause();
            let rest = attempt.finish().await.unwrap().unwrap();
            assert!(format!("{rest:?}").contains("frames=1"), "{rest:?}");
        }
        assert_eq!(runtime.gauges().instances, 2, "{line}");
        first.close().await;
        second.close().await;
    }
}

#[tokio::test]
async fn a_paused_attempt_always_gets_an_instance_again() {
    let runtime = runtime();
    let manifest = format!("{PROVIDER}[provider]\nstateless = true\n");
    let provider = plugin(&runtime, "provider", &manifest, fixture("provider"), OperatorGrant::default());
    let owner = owned("key");
    let mut attempts = Vec::new();
    for _ in 0..runtime.gauges().instances_max {
        let mut attempt = provider.open_provider(&owner).await.unwrap();
        attempt.pause();
        attempts.push(attempt);
    }
    assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, 1), "one instance served them all");
    let refused = provider.open_provider(&owned("other")).await.err().unwrap();
    assert!(refused.is_saturated(), "{refused}");
    for attempt in &mut attempts {
        attempt.resume(&owner).await.unwrap();
    }
    assert_eq!(runtime.gauges().instances, attempts.len());
}

#[tokio::test]
async fn hooks_and_tools_get_a_new_instance_per_call() {
    let runtime = runtime();
    let (hook, tool) = (hook(&runtime), tool(&runtime));
    hook.on_request(&owned("key"), Services::default(), b"{}", b"").await.unwrap().unwrap();
    tool.functions(&owned("key"), Services::default(), b"{}").await.unwrap().unwrap();
    assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, 0));
}

/// The contract for a guest that also opens its standard output.
fn with_stdout() -> Wit {
    let wasi = "package wasi:io@0.2.6 { interface streams { resource output-stream; } }\n\
        package wasi:cli@0.2.6 { interface stdout {\n\
          use wasi:io/streams@0.2.6.{output-stream};\n\
          get-stdout: func() -> output-stream;\n\
        } }\n";
    Wit::own()
        .with("world base {\n", &format!("{wasi}world base {{\n"))
        .with("  import log;\n", "  import log;\n  import wasi:cli/stdout@0.2.6;\n")
}

#[tokio::test]
async fn an_instance_with_open_handles_is_not_kept() {
    let runtime = runtime();
    for (what, body, kept) in
        [("nothing", "i32.const 1024", 1), ("a stream", "(drop (call $get_stdout)) i32.const 1024", 0)]
    {
        let rogue = Rogue::of("router")
            .wit(with_stdout())
            .importing("(import \"wasi:cli/stdout@0.2.6\" \"get-stdout\" (func $get_stdout (result i32)))")
            .plus(ANSWER)
            .doing(body);
        let rogue = plugin(&runtime, "router", ROUTER, rogue.build(), OperatorGrant::default());
        rogue.route(&owned("key"), &summary(""), &candidates(1), 0).await.unwrap().unwrap();
        assert_eq!((runtime.gauges().instances, runtime.gauges().idle), (0, kept), "{what}");
    }
}
