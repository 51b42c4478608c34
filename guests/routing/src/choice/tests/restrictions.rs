//! Tests of the restrictions on models.

use super::{asked, is_empty, model, with};

#[test]
fn patterns_allow_and_exclude() {
    let cases = [
        (r#"{"allowed_models":["v/5"]}"#, Some("5")),
        (r#"{"allowed_models":["*/5","w/*"]}"#, Some("5")),
        (r#"{"allowed_models":["V/1*"]}"#, Some("1 10")),
        (r#"{"allowed_models":[]}"#, Some("0 1 2 3 4")),
        (r#"{"allowed_models":null,"excluded_models":["v/0","v/2"]}"#, Some("1 3 4 5 6")),
        // An exclusion wins over an exact allowance.
        (r#"{"allowed_models":["v/1","v/2"],"excluded_models":["*1"]}"#, Some("2")),
        (r#"{"allowed_models":["v/1"],"excluded_models":["V/*"]}"#, None),
        (r#"{"allowed_models":["w/*"]}"#, None),
        (r#"{"excluded_models":["*"]}"#, None),
    ];
    for (settings, expected) in cases {
        for slug in ["auto", "auto-beta"] {
            let asked = asked(slug, settings);
            match expected {
                Some(expected) => assert_eq!(asked.names(), expected, "{settings}"),
                None => assert!(is_empty(&asked.choose()), "{settings}"),
            }
        }
    }
}

#[test]
fn a_router_reads_its_own_entry_only() {
    let only_five = r#""allowed_models":["v/5"],"cost_tier":"max""#;
    let entry = |more: &str| format!("{{{only_five}{more}}}");
    assert_eq!(asked("auto", &entry("")).names(), "5");
    assert_eq!(asked("auto", &entry(r#","id":"auto-router""#)).names(), "5");
    assert_eq!(asked("auto-beta", &entry(r#","id":"auto-router""#)).first(), "0");
    assert_eq!(asked("auto", &entry(r#","id":"auto-router","enabled":false"#)).first(), "0");
    assert_eq!(asked("auto", &entry(r#","enabled":true"#)).names(), "5");
}

#[test]
fn limits_of_patterns_are_named() {
    let list = |count: usize, length: usize| {
        let patterns: Vec<String> = (0..count).map(|_| format!("\"{}\"", "ö".repeat(length))).collect();
        format!(r#"{{"allowed_models":["v/*"],"excluded_models":[{}]}}"#, patterns.join(","))
    };
    let cases = [
        (list(1024, 63), None),
        (list(63, 1024), None),
        (list(1025, 1), Some("auto-router.excluded_models must hold at most 1024 patterns")),
        (list(1, 1025), Some("auto-router.excluded_models[0] must have at most 1024 characters")),
        (
            list(64, 1024),
            Some(
                "auto-router.excluded_models[63] is beyond the 65536 characters that all patterns together may have",
            ),
        ),
    ];
    for (settings, refused) in cases {
        let asked = asked("auto", &settings);
        match refused {
            Some(message) => assert_eq!(asked.malformed(), message),
            None => assert_eq!(asked.first(), "0"),
        }
    }
}

#[test]
fn fields_that_do_not_fit_are_named() {
    let cases = [
        ("auto", r#"{"allowed_models":"v/*"}"#, "auto-router.allowed_models must be a list of strings"),
        ("auto-beta", r#"{"excluded_models":[1]}"#, "auto-beta-router.excluded_models[0] must be a string"),
        ("auto", r#"{"pin_model":1}"#, "auto-router.pin_model must be true or false"),
        ("auto", r#"{"enabled":"no"}"#, "auto-router.enabled must be true or false"),
        ("auto", "[]", "auto-router must be an object"),
        ("jev", r#"{"models":{}}"#, "jev-router.models must be a list of strings"),
        (
            "pareto",
            r#"{"min_coding_score":1.1}"#,
            "pareto-router.min_coding_score must be a number from 0 to 1",
        ),
        (
            "pareto",
            r#"{"max_price":-1}"#,
            "pareto-router.max_price must be a number or a decimal string, at least 0",
        ),
        (
            "pareto",
            r#"{"price_source":"all"}"#,
            "pareto-router.price_source must be one of prompt, weighted_avg",
        ),
        (
            "switchyard",
            r#"{"algorithm":"best"}"#,
            "switchyard-router.algorithm must be one of capability, stage, auto, random, composite, passthrough",
        ),
    ];
    for (slug, settings, message) in cases {
        assert_eq!(asked(slug, settings).malformed(), message, "{settings}");
    }
    let mut asked = asked("auto", "{}");
    asked.request.preferences = br#"{"max_price":7}"#.to_vec();
    assert_eq!(asked.malformed(), "provider.max_price must be an object");
}

#[test]
fn models_that_cannot_carry_the_request_are_left_out() {
    let mut asked = asked("auto", "{}");
    asked.models = vec![
        with("v/short", 0.0, |m| m.context_length = 1099),
        with("v/terse", 0.0, |m| m.max_output = 99),
        with("v/blind", 0.0, |m| m.supports = vec!["tools".into()]),
        model("v/silent", 0.0),
        with("v/able", 9.0, |m| {
            (m.supports, m.context_length, m.max_output) = (vec!["images".into()], 1100, 100);
        }),
    ];
    (asked.request.input_tokens, asked.request.max_output_tokens) = (1000, Some(100));
    asked.request.needs = vec!["images".into()];
    // A stated ability counts more than the price band.
    assert_eq!(asked.names(), "able silent");
    asked.request.needs.push("audio".into());
    assert_eq!(asked.names(), "silent");
    asked.models.truncate(3);
    assert!(is_empty(&asked.choose()));
    asked.models.clear();
    assert!(is_empty(&asked.choose()));
}

#[test]
fn the_free_suffix_leaves_free_models() {
    let mut asked = asked("auto", r#"{"cost_tier":"max"}"#);
    asked.request.suffix = Some("free".into());
    assert_eq!(asked.names(), "0");
    asked.settings = r#"{"excluded_models":["v/0"]}"#.into();
    assert!(is_empty(&asked.choose()));
}

#[test]
fn provider_preferences_restrict_models() {
    let mut asked = asked("auto", r#"{"cost_tier":"max"}"#);
    asked.request.preferences = br#"{"max_price":{"prompt":"4.5"}}"#.to_vec();
    assert_eq!(asked.names(), "4 3 2 1 0");
    asked.request.preferences = br#"{"allow_fallbacks":false}"#.to_vec();
    assert_eq!(asked.names(), "8");
}

#[test]
fn required_parameters_restrict_models() {
    let states = |id: &str, price: f64, supports: &[&str]| {
        let mut model = model(id, price);
        model.supports = supports.iter().map(|&name| name.to_owned()).collect();
        model
    };
    let mut asked = asked("auto", "{}");
    asked.models = vec![
        model("v/silent", 0.0),
        states("v/tools", 1.0, &["tools"]),
        states("v/able", 9.0, &["tools", "temperature"]),
    ];
    asked.request.parameters = ["input", "tool_choice", "temperature"].map(str::to_owned).into();
    assert_eq!(asked.names(), "silent tools able");
    asked.request.preferences = br#"{"require_parameters":true}"#.to_vec();
    // Endpoints without stated abilities are removed later, and those of a silent model may all be like this.
    assert_eq!(asked.names(), "able silent");
    asked.request.parameters = vec!["input".into()];
    assert_eq!(asked.names(), "silent tools able");
    asked.request.parameters.push("top_k".into());
    asked.models.remove(0);
    assert!(is_empty(&asked.choose()));
}

#[test]
fn a_conversation_keeps_no_model_that_preferences_seem_to_exclude() {
    let mut asked = asked("auto", r#"{"pin_model":true}"#);
    asked.request.preferences = br#"{"max_price":{"prompt":"4.5"},"allow_fallbacks":false}"#.to_vec();
    asked.facts.last_model = Some("v/9".into());
    assert_eq!(asked.names(), "0");
    asked.request.sticky = Some(8);
    assert_eq!(asked.names(), "0");
    asked.request.sticky = Some(4);
    assert_eq!(asked.names(), "4");
    // Where all seem to be excluded, none is better.
    asked.settings = r#"{"pin_model":true,"allowed_models":["v/7","v/9"]}"#.into();
    assert_eq!(asked.names(), "9");
    asked.request.preferences = br#"{"require_parameters":true,"allow_fallbacks":false}"#.to_vec();
    asked.request.parameters = vec!["temperature".into()];
    asked.models[7].supports = vec!["temperature".into()];
    assert_eq!(asked.names(), "7");
}
