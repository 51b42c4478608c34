//! Permits for instances: what happens when they run out, when they are given back, and what a
//! dropped call leaves behind.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cofferdam_runtime::{CallErrorKind, Services};

use crate::kit::{
    Never, Panics, candidates, context, frame, head, hook, provider, router, router_with_deadline, runtime,
    summary, target,
};

#[tokio::test]
async fn a_full_pool_refuses_calls_until_instances_are_dropped() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let room = runtime.gauges().instances_max;
    assert_eq!(room, 4 + 64);
    let mut attempts = Vec::new();
    for _ in 0..room {
        let mut attempt = provider.open_provider(&context()).await.unwrap();
        attempt.prepare(b"{}", &target("m")).await.unwrap().unwrap();
        attempts.push(attempt);
    }
    let refused = provider.open_provider(&context()).await.err().unwrap();
    assert!(refused.is_saturated(), "{refused}");
    let refused = router(&runtime).route(&context(), &summary(""), &candidates(1), 0).await.unwrap_err();
    assert!(refused.is_saturated());
    assert_eq!(runtime.gauges().saturated, 2);
    attempts.pop();
    assert!(provider.open_provider(&context()).await.is_ok());
    drop(attempts);
    assert_eq!(runtime.gauges().instances, 0);
}

/// Polls once, until the guest yields or waits.
async fn started<F: Future>(call: std::pin::Pin<&mut F>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(call.poll(&mut context), Poll::Pending), "the call goes on");
}

#[tokio::test]
async fn dropping_a_running_call_drops_its_instance() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    attempt.open_decoder(&head()).await.unwrap();
    {
        let frames = [frame("loop", "")];
        let mut call = pin!(attempt.feed(&frames));
        started(call.as_mut()).await;
        assert_eq!(runtime.gauges().instances, 1);
    }
    assert_eq!(runtime.gauges().instances, 0);
    assert_eq!(attempt.finish().await.unwrap_err().kind, CallErrorKind::Dead);
}

#[tokio::test]
async fn dropping_a_call_that_waits_for_a_model_drops_its_instance() {
    let runtime = runtime();
    let hook = hook(&runtime);
    hook.compile().await.unwrap();
    {
        let services = Services { ask: Some(Arc::new(Never)), ..Services::default() };
        let context = context();
        let mut call = pin!(hook.on_request(&context, services, b"{}", b"ask"));
        started(call.as_mut()).await;
        assert_eq!(runtime.gauges().instances, 1);
    }
    assert_eq!(runtime.gauges().instances, 0);
}

#[tokio::test]
async fn dropping_a_router_call_drops_its_instance() {
    let runtime = runtime();
    let router = router(&runtime);
    router.compile().await.unwrap();
    {
        let (context, summary, candidates) = (context(), summary("loop"), candidates(1));
        let mut call = pin!(router.route(&context, &summary, &candidates, 0));
        started(call.as_mut()).await;
        assert_eq!(runtime.gauges().instances, 1);
    }
    assert_eq!(runtime.gauges().instances, 0);
}

#[tokio::test]
async fn slots_are_released_after_every_outcome() {
    let runtime = runtime();
    let router = router_with_deadline(&runtime, 20);
    for deed in ["", "trap", "loop", "fail", "twice"].into_iter().cycle().take(100) {
        drop(router.route(&context(), &summary(deed), &candidates(1), 0).await);
    }
    assert_eq!(runtime.gauges().instances, 0);
    assert_eq!(runtime.gauges().saturated, 0);
}

#[tokio::test]
async fn a_panic_of_the_host_leaves_no_instance() {
    let runtime = runtime();
    let hook = hook(&runtime);
    let services = Services { ask: Some(Arc::new(Panics)), ..Services::default() };
    let asking = Arc::clone(&hook);
    let call = async move { drop(asking.on_request(&context(), services, b"{}", b"ask").await) };
    assert!(tokio::spawn(call).await.unwrap_err().is_panic());
    assert_eq!(runtime.gauges().instances, 0);
    assert!(hook.on_request(&context(), Services::default(), b"{}", b"").await.is_ok());
}

#[test]
fn futures_of_calls_can_move_between_threads() {
    fn movable<T: Send>(_: &T) {}
    let runtime = runtime();
    let (router, provider, hook) = (router(&runtime), provider(&runtime), hook(&runtime));
    let (context, summary, candidates) = (context(), summary(""), candidates(1));
    movable(&router.route(&context, &summary, &candidates, 0));
    movable(&hook.on_request(&context, Services::default(), b"", b""));
    let attempt = async {
        let mut attempt = provider.open_provider(&context).await.unwrap();
        attempt.prepare(b"", &target("")).await.unwrap().unwrap();
        attempt.open_decoder(&head()).await.unwrap();
        attempt.feed(&[]).await.unwrap().unwrap();
        attempt.finish().await.unwrap().unwrap();
        attempt.map_error(&head(), b"").await.unwrap();
    };
    movable(&attempt);
}
