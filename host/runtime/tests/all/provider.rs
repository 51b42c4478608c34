//! Providers: one instance serves from the request to the last event.

use std::time::Duration;

use cofferdam_runtime::wire::{ErrorKind, Event, Prepared, PreparedEmbeddings, RequestSummary, ResponseHead};
use cofferdam_runtime::{CallContext, CallErrorKind, OperatorGrant, Runtime};

use crate::kit::{
    PROVIDER, candidates, context, frame, head, plugin, provider, router, runtime, summary, target,
};
use crate::rogue::Rogue;

#[tokio::test]
async fn an_attempt_runs_from_the_request_to_the_last_event() {
    let runtime = runtime();
    let provider = provider(&runtime);
    assert!(provider.exports_generation() && provider.exports_embedding());
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    let prepared = attempt.prepare(b"{\"input\":[]}", &target("m")).await.unwrap().unwrap();
    let Prepared::Upstream(request) = prepared else { panic!("an upstream request") };
    assert_eq!(request.body, b"{\"input\":[]}");
    assert_eq!(request.headers[0].0, "x-workspace");
    assert!(!request.headers[0].1.contains("workspace-1"), "guests get a pseudonym");
    attempt.open_decoder(&head()).await.unwrap();
    assert_eq!(attempt.feed(&[]).await.unwrap().unwrap(), []);
    let events = attempt.feed(&[frame("", "one"), frame("", "two")]).await.unwrap().unwrap();
    assert!(
        matches!(&events[..], [Event::TextDelta(a), Event::TextDelta(b)] if a.text == "one" && b.text == "two")
    );
    let events = attempt.finish().await.unwrap().unwrap();
    assert!(matches!(&events[0], Event::TextDelta(delta) if delta.text == "frames=2"));
    assert!(matches!(events.last(), Some(Event::Finish(_))));
    assert_eq!(runtime.gauges().instances, 1);
    drop(attempt);
    assert_eq!(runtime.gauges().instances, 0);
}

#[tokio::test]
async fn a_whole_answer_is_decoded_like_a_stream_of_one_frame() {
    let runtime = runtime();
    let mut attempt = provider(&runtime).open_provider(&context()).await.unwrap();
    let events = attempt.decode(&head(), frame("", "one")).await.unwrap().unwrap();
    let [Event::TextDelta(text), Event::TextDelta(last), .., Event::Finish(_)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((text.text.as_str(), last.text.as_str()), ("one", "frames=1"));
    assert!(attempt.decode(&head(), frame("fail", "")).await.unwrap().is_err());
    // Each answer has a decoder of its own.
    let events = attempt.decode(&head(), frame("", "two")).await.unwrap().unwrap();
    assert!(matches!(&events[1], Event::TextDelta(last) if last.text == "frames=1"));
}

#[tokio::test]
async fn a_local_model_answers_at_once() {
    let runtime = runtime();
    let mut attempt = provider(&runtime).open_provider(&context()).await.unwrap();
    let prepared = attempt.prepare(b"{}", &target("answer")).await.unwrap().unwrap();
    assert!(matches!(prepared, Prepared::Answer(events) if events.len() == 3));
}

#[tokio::test]
async fn errors_of_the_provider_are_mapped_and_their_bodies_cut() {
    let runtime = runtime();
    let mut attempt = provider(&runtime).open_provider(&context()).await.unwrap();
    let head = ResponseHead { status: 503, headers: vec![], streamed: false };
    let failure = attempt.map_error(&head, &vec![b'x'; 100_000]).await.unwrap();
    assert_eq!(failure.message, "status 503, 65536 bytes");
    assert_eq!(failure.kind, ErrorKind::ProviderUnavailable);
    assert_eq!(failure.retry_after_ms, Some(1500));
}

#[tokio::test]
async fn reported_failures_leave_the_instance_alive() {
    let runtime = runtime();
    let mut attempt = provider(&runtime).open_provider(&context()).await.unwrap();
    assert!(attempt.prepare(b"{}", &target("fail")).await.unwrap().is_err());
    assert!(attempt.prepare(b"{}", &target("m")).await.unwrap().is_ok());
    attempt.open_decoder(&head()).await.unwrap();
    assert!(attempt.feed(&[frame("fail", "")]).await.unwrap().is_err());
    assert!(attempt.feed(&[frame("", "on")]).await.unwrap().is_ok());
}

#[tokio::test]
async fn answers_that_break_a_rule_end_the_instance() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    let error = attempt.prepare(b"{}", &target("bad header")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::InvalidAnswer("a header name is not a lower-case token"));
    assert_eq!(attempt.prepare(b"{}", &target("m")).await.unwrap_err().kind, CallErrorKind::Dead);

    let mut attempt = provider.open_provider(&context()).await.unwrap();
    attempt.open_decoder(&head()).await.unwrap();
    let error = attempt.feed(&[frame("bad item", "")]).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::InvalidAnswer("an opaque item is not a JSON object"));
    assert_eq!(runtime.gauges().instances, 0, "the broken instances are gone already");
}

#[tokio::test]
async fn embeddings_are_prepared_and_decoded() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    let prepared = attempt.prepare_embeddings(b"{}", &target("m")).await.unwrap().unwrap();
    assert!(matches!(prepared, PreparedEmbeddings::Upstream(_)));
    let embeddings = attempt.decode_embeddings(&head(), b"{}").await.unwrap().unwrap();
    assert_eq!(embeddings.vectors.len(), 2);
    assert!(attempt.prepare_embeddings(b"{}", &target("unsupported")).await.unwrap().is_err());
    let local = attempt.prepare_embeddings(b"{}", &target("local")).await.unwrap().unwrap();
    assert!(matches!(local, PreparedEmbeddings::Answer(_)));
    let error = attempt.decode_embeddings(&head(), b"ragged").await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::InvalidAnswer(_)));
}

#[tokio::test]
async fn providers_with_one_purpose_report_the_missing_interface() {
    let runtime = runtime();
    let load =
        |world| plugin(&runtime, "provider", PROVIDER, Rogue::of(world).build(), OperatorGrant::default());
    let generation = load("generation-provider");
    assert!(generation.exports_generation() && !generation.exports_embedding());
    let mut attempt = generation.open_provider(&context()).await.unwrap();
    let error = attempt.prepare_embeddings(b"{}", &target("m")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::NotExported("embedding"));
    let embedding = load("embedding-provider");
    let mut attempt = embedding.open_provider(&context()).await.unwrap();
    let error = attempt.prepare(b"{}", &target("m")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::NotExported("generation"));
}

#[tokio::test]
async fn feed_needs_an_open_decoder() {
    let runtime = runtime();
    let mut attempt = provider(&runtime).open_provider(&context()).await.unwrap();
    assert!(attempt.feed(&[frame("", "x")]).await.is_err());
    assert!(attempt.finish().await.is_err());
    attempt.open_decoder(&head()).await.unwrap();
    assert!(attempt.feed(&[frame("", "x")]).await.is_ok());
}

#[tokio::test]
async fn workspaces_have_different_pseudonyms() {
    let runtime = runtime();
    let provider = provider(&runtime);
    let mut seen = Vec::new();
    for workspace in ["a", "b", "a"] {
        let context = CallContext { workspace: workspace.into(), ..context() };
        let mut attempt = provider.open_provider(&context).await.unwrap();
        let prepared = attempt.prepare(b"{}", &target("m")).await.unwrap().unwrap();
        let Prepared::Upstream(request) = prepared else { panic!("an upstream request") };
        seen.push(request.headers[0].1.clone());
    }
    assert_eq!(seen[0], seen[2]);
    assert_ne!(seen[0], seen[1]);
}

/// The time of a call is that of its manifest, and 100 ms for each million bytes of input.
#[tokio::test]
async fn long_answers_and_preferences_get_more_processor_time() {
    let runtime = Runtime::start_metered(Duration::from_millis(2), None).unwrap();
    let long = "x".repeat(1_000_000);
    let mut attempt = provider(&runtime).open_provider(&context()).await.unwrap();
    attempt.open_decoder(&head()).await.unwrap();
    attempt.feed(&[frame("", &long)]).await.unwrap().unwrap();
    attempt.feed(&[frame("", "x")]).await.unwrap().unwrap();
    attempt.finish().await.unwrap().unwrap();
    attempt.decode(&head(), frame("", &long)).await.unwrap().unwrap();
    let summary = RequestSummary { preferences: long.into(), ..summary("") };
    router(&runtime).route(&context(), &summary, &candidates(1), 0).await.unwrap().unwrap();
    let limits: Vec<_> = runtime
        .take_calls()
        .into_iter()
        .filter(|call| ["decoder.feed", "decoder.finish", "route"].contains(&call.function))
        .map(|call| (call.function, call.busy_max.as_micros()))
        .collect();
    let expected = [
        ("decoder.feed", 600_000),
        ("decoder.feed", 500_000),
        ("decoder.finish", 600_000),
        ("decoder.feed", 600_000),
        ("route", 600_000),
    ];
    assert_eq!(limits, expected);
}
