use cofferdam_guest_kit::ReasoningSettings;

use super::{Limits, Plan, Thinking};
use crate::models::Model;

const OLD: &str = "claude-sonnet-4-5";
const EITHER: &str = "claude-opus-4-6";
const NEW: &str = "claude-opus-4-7";
const ALWAYS: &str = "claude-fable-5";

fn plan(model: &str, reasoning: &str, asked: Option<u64>, endpoint: u64) -> Plan {
    let settings: ReasoningSettings<'_> = serde_json::from_str(reasoning).expect("settings");
    Plan::new(Some(&settings), Model::of(model, &[]), Limits { asked, endpoint })
}

fn enabled(budget_tokens: u64, max_tokens: u64) -> Plan {
    Plan { thinking: Some(Thinking::Enabled { budget_tokens }), effort: None, max_tokens }
}

fn adaptive(effort: Option<&'static str>, max_tokens: u64) -> Plan {
    Plan { thinking: Some(Thinking::Adaptive { display: "summarized" }), effort, max_tokens }
}

fn off(max_tokens: u64) -> Plan {
    Plan { thinking: None, effort: None, max_tokens }
}

#[test]
fn a_budget_is_a_share_of_the_limit() {
    let cases = [
        (r#"{"effort":"minimal"}"#, enabled(2000, 20_000)),
        (r#"{"effort":"low"}"#, enabled(4000, 20_000)),
        (r#"{"effort":"medium"}"#, enabled(10_000, 20_000)),
        (r#"{"enabled":true}"#, enabled(10_000, 20_000)),
        (r#"{"effort":"high"}"#, enabled(16_000, 20_000)),
        (r#"{"effort":"xhigh"}"#, enabled(19_000, 20_000)),
        (r#"{"effort":"max"}"#, enabled(19_000, 20_000)),
        (r#"{"max_tokens":5000,"effort":"high"}"#, enabled(5000, 20_000)),
        (r#"{"max_tokens":3}"#, enabled(1024, 20_000)),
        (r#"{"max_tokens":30000}"#, enabled(30_000, 50_000)),
    ];
    for (reasoning, expected) in cases {
        assert_eq!(plan(OLD, reasoning, Some(20_000), 0), expected, "{reasoning}");
    }
}

#[test]
fn an_effort_keeps_the_limit() {
    assert_eq!(plan(OLD, r#"{"effort":"low"}"#, Some(500), 0), off(500));
    assert_eq!(plan(OLD, r#"{"effort":"high"}"#, Some(1024), 0), off(1024));
    assert_eq!(plan(OLD, r#"{"effort":"low"}"#, Some(1025), 0), enabled(1024, 1025));
}

#[test]
fn the_limit_is_raised_when_the_budget_does_not_fit() {
    assert_eq!(plan(OLD, r#"{"max_tokens":8000}"#, None, 0), enabled(8000, 12_096));
    assert_eq!(plan(OLD, r#"{"max_tokens":8000}"#, Some(1000), 8192), enabled(8000, 8192));
    assert_eq!(plan(OLD, r#"{"max_tokens":9000}"#, Some(1000), 8192), enabled(7192, 8192));
    assert_eq!(plan(OLD, r#"{"effort":"high"}"#, Some(500), 1024), off(500));
}

#[test]
fn off_and_unstated_send_nothing_to_models_with_a_budget() {
    for reasoning in [r#"{"effort":"none"}"#, r#"{"enabled":false,"effort":"high"}"#, r#"{"max_tokens":0}"#] {
        assert_eq!(plan(OLD, reasoning, Some(100), 0), off(100), "{reasoning}");
    }
    assert_eq!(plan(OLD, r#"{"summary":"auto"}"#, None, 0), off(4096));
    assert_eq!(plan(OLD, "{}", None, 8192), off(8192));
    assert_eq!(plan(OLD, "{}", Some(9000), 8192), off(8192));
}

#[test]
fn models_that_think_by_themselves_get_the_effort() {
    assert_eq!(plan(NEW, r#"{"effort":"xhigh"}"#, Some(900), 0), adaptive(Some("xhigh"), 900));
    assert_eq!(plan(NEW, r#"{"effort":"minimal"}"#, None, 0), adaptive(Some("low"), 16_384));
    assert_eq!(plan(NEW, r#"{"max_tokens":2000}"#, None, 64_000), adaptive(None, 64_000));
    assert_eq!(plan(EITHER, r#"{"effort":"xhigh"}"#, Some(900), 0), adaptive(Some("high"), 900));
    assert_eq!(plan(EITHER, r#"{"max_tokens":2000}"#, Some(9000), 0), enabled(2000, 9000));
    let disabled = Plan { thinking: Some(Thinking::Disabled), effort: None, max_tokens: 900 };
    assert_eq!(plan(NEW, r#"{"effort":"none"}"#, Some(900), 0), disabled);
    assert_eq!(plan(ALWAYS, r#"{"effort":"none"}"#, Some(900), 0), off(900));
}
