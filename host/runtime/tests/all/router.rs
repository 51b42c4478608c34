//! Routers, with and without a choice of models.

use cofferdam_runtime::wire::{ErrorKind, Model, TextFacts};
use cofferdam_runtime::{CallErrorKind, ChoiceQuestion, OperatorGrant};

use crate::kit::{ROUTER, candidates, context, fixture, plugin, price, router, runtime, summary};
use crate::rogue::Rogue;

fn facts() -> TextFacts {
    TextFacts {
        last_user_chars: 1,
        all_chars: 42,
        turns: 1,
        code_blocks: 0,
        math_share: 0.0,
        questions: 0,
        last_model: None,
    }
}

fn models() -> Vec<Model> {
    let model = |id: &str| Model {
        id: id.into(),
        price: price(),
        context_length: 0,
        max_output: 0,
        supports: vec![],
        price_rank: 0.0,
    };
    vec![model("a/b"), model("c/d")]
}

#[tokio::test]
async fn a_router_gets_its_seed_and_settings() {
    let runtime = runtime();
    let grant = OperatorGrant { config: serde_json::json!({"weight": 2}), ..OperatorGrant::default() };
    let router = plugin(&runtime, "router", ROUTER, fixture("router"), grant);
    let decision = router.route(&context(), &summary("reverse"), &candidates(3), 7).await.unwrap().unwrap();
    assert_eq!(decision.order, [2, 1, 0]);
    assert_eq!(decision.reason, "calls=1 seed=7 settings={\"weight\":2}");
}

#[tokio::test]
async fn a_reported_failure_is_an_answer() {
    let runtime = runtime();
    let failure = router(&runtime).route(&context(), &summary("fail"), &candidates(1), 0).await.unwrap();
    assert_eq!(failure.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn orders_that_break_a_rule_are_errors() {
    let runtime = runtime();
    let router = router(&runtime);
    for deed in ["out of range", "twice", "empty"] {
        let error = router.route(&context(), &summary(deed), &candidates(2), 0).await.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::InvalidAnswer(_)), "{deed}: {error}");
    }
    assert_eq!(router.counters().values().errors["invalid_answer"], 3);
}

#[tokio::test]
async fn calls_without_an_owner_share_no_state() {
    let runtime = runtime();
    let router = router(&runtime);
    for _ in 0..20 {
        let decision = router.route(&context(), &summary("x"), &candidates(1), 0).await.unwrap().unwrap();
        assert!(decision.reason.starts_with("calls=1 "), "{}", decision.reason);
    }
}

#[tokio::test]
async fn a_model_router_chooses_among_the_offered_models() {
    let runtime = runtime();
    let router = router(&runtime);
    assert!(router.exports_model_choice());
    assert_eq!(router.model_slugs(&context()).await.unwrap(), ["auto"]);
    let (summary, facts, models) = (summary("service/auto"), facts(), models());
    let question = |slug| ChoiceQuestion {
        slug,
        summary: &summary,
        facts: &facts,
        models: &models,
        settings: b"{}",
        seed: 1,
    };
    let choice = router.choose_model(&context(), question("auto")).await.unwrap().unwrap();
    assert_eq!(choice.models, ["a/b", "c/d"]);
    assert_eq!(choice.reason, "42 chars, 2 bytes of settings");
    let error = router.choose_model(&context(), question("unknown model")).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::InvalidAnswer(_)));
}

#[tokio::test]
async fn a_router_without_model_choice_reports_the_missing_interface() {
    let runtime = runtime();
    let plain = plugin(&runtime, "router", ROUTER, Rogue::of("router").build(), OperatorGrant::default());
    assert!(!plain.exports_model_choice());
    let error = plain.model_slugs(&context()).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::NotExported("model-choice"));
    assert_eq!(error.to_string(), "plugin router does not export model-choice");
}

#[tokio::test]
async fn calls_are_counted_with_the_time_they_took() {
    let runtime = runtime();
    let router = router(&runtime);
    router.route(&context(), &summary("x"), &candidates(1), 0).await.unwrap().unwrap();
    let values = router.counters().values();
    assert_eq!(values.calls, 2, "the instantiation and the call");
    assert!(values.busy_ns > 0);
    assert!(values.errors.is_empty());
}
