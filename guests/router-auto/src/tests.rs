//! Tests of the conversion between the contract and the rules.

use cofferdam_guest_kit::bindings::model_choice::{Choice, Guest, Model, TextFacts};
use cofferdam_guest_kit::bindings::routing::{Price, Purpose, RequestSummary};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};

use super::{RouterAuto, chosen};

fn model(id: &str, price: f64) -> Model {
    let price_of = Price {
        input: price,
        output: price,
        cached_input: price,
        cache_write: price,
        reasoning: price,
        image: 0.0,
    };
    Model {
        id: id.into(),
        price: price_of,
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        price_rank: price / 10.0,
    }
}

fn summary() -> RequestSummary {
    RequestSummary {
        purpose: Purpose::Responses,
        requested: "service/auto".into(),
        models: Vec::new(),
        suffix: None,
        preferences: b"{}".to_vec(),
        route: None,
        service_tier: "auto".into(),
        parameters: Vec::new(),
        needs: vec!["tools".into()],
        input_tokens: 50,
        max_output_tokens: Some(50),
        streamed: false,
        sticky: None,
    }
}

fn facts() -> TextFacts {
    TextFacts {
        last_user_chars: 0,
        all_chars: 0,
        turns: 1,
        code_blocks: 0,
        math_share: 0.0,
        questions: 0,
        last_model: None,
    }
}

fn auto(
    summary: RequestSummary,
    facts: TextFacts,
    models: &[Model],
    settings: &str,
) -> Result<Choice, Failure> {
    chosen("auto", &summary, &facts, models.to_vec(), settings.as_bytes(), b"{}", 7)
}

#[test]
fn every_field_reaches_the_rules() {
    // A change of the cheap model, and whether it is still the first choice.
    type Row = (fn(&mut Model), bool);
    let rows: [Row; 8] = [
        (|_| {}, true),
        (|m| m.context_length = 99, false),
        (|m| m.context_length = 100, true),
        (|m| m.max_output = 49, false),
        (|m| m.supports = vec!["images".into()], false),
        (|m| m.price_rank = 0.9, false),
        (|m| m.price.input = 6.0, false),
        (|m| m.id = "v/excluded".into(), false),
    ];
    for (row, (change, first)) in rows.into_iter().enumerate() {
        let mut cheap = model("v/cheap", 1.0);
        change(&mut cheap);
        let mut summary = summary();
        summary.preferences = br#"{"max_price":{"prompt":5}}"#.to_vec();
        let settings = r#"{"excluded_models":["v/excluded"]}"#;
        let choice = auto(summary, facts(), &[cheap, model("v/dear", 5.0)], settings).unwrap();
        assert_eq!(choice.models[0] == "v/cheap", first, "row {row}");
    }
}

#[test]
fn every_fact_makes_a_request_harder() {
    let changes: [fn(&mut TextFacts); 6] = [
        |f| f.last_user_chars = 9000,
        |f| f.all_chars = 90_000,
        |f| f.turns = 99,
        |f| f.code_blocks = 9,
        |f| f.math_share = 1.0,
        |f| f.questions = 9,
    ];
    // A hundred models, so that a small difference is visible.
    let models: Vec<Model> =
        (0..=100).map(|place| model(&format!("v/{place}"), f64::from(place) / 10.0)).collect();
    let settings = r#"{"cost_tier":"max"}"#;
    let easy = auto(summary(), facts(), &models, settings).unwrap().models;
    for (row, change) in changes.into_iter().enumerate() {
        let mut facts = facts();
        change(&mut facts);
        assert_ne!(auto(summary(), facts, &models, settings).unwrap().models[0], easy[0], "row {row}");
    }
    let mut facts = facts();
    facts.last_model = Some("v/3".into());
    assert_eq!(auto(summary(), facts, &models, r#"{"pin_model":true}"#).unwrap().models[0], "v/3");
}

#[test]
fn a_choice_has_names_a_strategy_and_a_reason() {
    let choice = auto(summary(), facts(), &[model("v/b", 2.0), model("v/a", 1.0)], "{}").unwrap();
    assert_eq!(choice.models, ["v/a", "v/b"]);
    assert_eq!(choice.strategy, "auto");
    assert!(choice.reason.starts_with("auto-router chose v/a out of 2 models: "), "{}", choice.reason);
    let slugs = RouterAuto::slugs();
    assert!(["auto", "auto-beta", "pareto-code"].iter().all(|slug| slugs.iter().any(|known| known == slug)));
}

#[test]
fn refusals_are_failures_for_the_client() {
    let failure = auto(summary(), facts(), &[], "{}").unwrap_err();
    assert!(matches!(failure.kind, ErrorKind::NotFound));
    assert_eq!(failure.message, "No models match your request and model restrictions");
    let failure = auto(summary(), facts(), &[model("v/a", 1.0)], r#"{"pin_model":7}"#).unwrap_err();
    assert!(matches!(failure.kind, ErrorKind::InvalidRequest));
    assert_eq!(failure.message, "auto-router.pin_model must be true or false");
    let unknown = chosen("best", &summary(), &facts(), Vec::new(), b"{}", b"{}", 7).unwrap_err();
    assert!(matches!(unknown.kind, ErrorKind::NotFound));
}

#[test]
fn models_named_beside_a_router_reach_the_rules() {
    let models = [model("v/a", 1.0), model("v/b", 2.0), model("v/c", 3.0)];
    let mut summary = summary();
    summary.models = vec!["v/c".into(), "v/b".into()];
    let settings = br#"{"algorithm":"passthrough"}"#;
    let choice = chosen("switchyard", &summary, &facts(), models.to_vec(), settings, b"{}", 7).unwrap();
    assert_eq!(choice.models, ["v/c", "v/b"]);
}
