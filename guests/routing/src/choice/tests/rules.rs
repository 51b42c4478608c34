//! Tests of the rule of each router.

use super::{asked, hard, model};

#[test]
fn cost_tiers_are_bands_and_difficulty_points_into_them() {
    // Price ranks are tenths: each band of a fifth holds two models, the last one three.
    let cases = [
        ("{}", "0", "2"),
        (r#"{"cost_tier":"low"}"#, "0", "1"),
        (r#"{"cost_tier":"medium"}"#, "2", "3"),
        (r#"{"cost_tier":"high"}"#, "4", "5"),
        (r#"{"cost_tier":"xhigh"}"#, "6", "7"),
        (r#"{"cost_tier":"max"}"#, "8", "10"),
        (r#"{"cost_quality_tradeoff":0}"#, "8", "10"),
        (r#"{"cost_quality_tradeoff":10}"#, "0", "1"),
    ];
    for (settings, easy, demanding) in cases {
        let mut asked = asked("auto", settings);
        assert_eq!(asked.first(), easy, "{settings}");
        (asked.request, asked.facts) = hard();
        assert_eq!(asked.first(), demanding, "{settings}");
    }
}

#[test]
fn an_empty_band_is_served_from_next_to_it() {
    let mut asked = asked("auto", r#"{"cost_tier":"high","excluded_models":["v/4","v/5"]}"#);
    assert_eq!(asked.first(), "6");
    asked.settings = r#"{"cost_tier":"low","allowed_models":["v/9","v/7"]}"#.into();
    assert_eq!(asked.names(), "7 9");
    let reason = asked.choose().unwrap().reason;
    assert!(reason.ends_with("difficulty 0.00 nearest to the price band from 0 to 20 %"), "{reason}");
}

#[test]
fn a_pinned_or_remembered_model_is_kept_while_it_may_be() {
    let mut asked = asked("auto", r#"{"pin_model":true}"#);
    asked.facts.last_model = Some("v/9".into());
    assert_eq!(asked.names(), "9 0 1 2 3");
    assert!(asked.choose().unwrap().reason.ends_with("the conversation stays with its model"));
    asked.settings = r#"{"pin_model":true,"excluded_models":["v/9"]}"#.into();
    assert_eq!(asked.first(), "0");
    // Only on request, and only for a router with this setting.
    asked.settings = "{}".into();
    assert_eq!(asked.first(), "0");
    asked.router = super::Router::AutoBeta;
    asked.settings = r#"{"pin_model":true}"#.into();
    assert_eq!(asked.first(), "0");
    asked.request.sticky = Some(4);
    assert_eq!(asked.first(), "4");
    asked.settings = r#"{"excluded_models":["v/4"]}"#.into();
    assert_eq!(asked.first(), "0");
    asked.request.sticky = Some(99);
    assert_eq!(asked.first(), "0");
}

#[test]
fn jev_spans_the_models_the_client_lists() {
    let settings = r#"{"models":["v/2"],"allowed_models":["v/5","v/8"],"excluded_models":["v/7"]}"#;
    let mut asked = asked("jev", settings);
    assert_eq!(asked.names(), "2 5 8");
    asked.facts.last_user_chars = 2000;
    asked.facts.code_blocks = 3;
    assert_eq!(asked.first(), "5");
    (asked.request, asked.facts) = hard();
    assert_eq!(asked.names(), "8 5 2");
}

#[test]
fn pareto_takes_the_cheapest_of_a_class() {
    let cases = [
        ("{}", "{}", "7 8 9 10 4"),
        (r#"{"min_coding_score":0.8}"#, "{}", "7 8 9 10 4"),
        (r#"{"min_coding_score":0.5}"#, "{}", "4 5 6 7 8"),
        (r#"{"min_coding_score":0}"#, "{}", "0 1 2 3 4"),
        // Output costs three times as much as input here, and the weighted average one and a half times.
        (r#"{"max_price":"5"}"#, "{}", "0 1 2 3"),
        (r#"{"max_price":5,"price_source":"prompt"}"#, "{}", "4 5 0 1 2"),
        (r#"{"max_price":0}"#, "{}", "0"),
        ("{}", r#"{"coding_scores":{"v/1":0.9,"v/*":0.1}}"#, "1 0 2 3 4"),
        (r#"{"min_coding_score":0.5}"#, r#"{"coding_scores":{"v/9":0.9,"v/3":0.4,"v/5":0.1}}"#, "3 9 5 0 1"),
    ];
    for (settings, operator, expected) in cases {
        let mut asked = asked("pareto-code", settings);
        asked.operator = operator.into();
        assert_eq!(asked.names(), expected, "{settings} {operator}");
    }
    let mut asked = asked("pareto", "{}");
    asked.operator = r#"{"coding_scores":{"v/*":7}}"#.into();
    assert_eq!(
        asked.malformed(),
        "plugins.router-auto.config.coding_scores.v/* must be a number from 0 to 1"
    );
    asked.operator = "{}".into();
    asked.settings = r#"{"max_price":0.5}"#.into();
    asked.models = vec![model("v/dear", 1.0)];
    assert!(super::is_empty(&asked.choose()));
}

#[test]
fn switchyard_algorithms_choose_between_efficient_and_capable() {
    let three = || {
        let mut asked = asked("switchyard", "{}");
        asked.models = vec![model("v/mid", 5.0), model("v/dear", 9.0), model("v/cheap", 1.0)];
        asked
    };
    for algorithm in ["capability", "stage", "auto"] {
        let mut asked = three();
        asked.settings = format!(r#"{{"algorithm":"{algorithm}"}}"#);
        assert_eq!(asked.names(), "cheap mid dear", "{algorithm}");
        (asked.request, asked.facts) = hard();
        assert_eq!(asked.names(), "dear cheap mid", "{algorithm}");
    }
    let mut asked = three();
    assert_eq!(asked.names(), "cheap mid dear");
    asked.settings = r#"{"algorithm":"passthrough"}"#.into();
    assert_eq!(asked.names(), "mid dear cheap");
    asked.settings = r#"{"algorithm":"composite"}"#.into();
    assert_eq!(asked.first(), "cheap");
    asked.facts.last_model = Some("v/dear".into());
    assert_eq!(asked.first(), "dear");
    asked.facts.last_model = Some("v/gone".into());
    assert_eq!(asked.first(), "cheap");
    asked.settings = r#"{"algorithm":"random"}"#.into();
    let mut drawn = [0; 3];
    for seed in 0..3000 {
        asked.seed = seed;
        drawn[asked.choose().unwrap().models[0]] += 1;
    }
    assert!(drawn.iter().all(|count| (880..1120).contains(count)), "{drawn:?}");
}

#[test]
fn switchyard_chooses_among_the_models_named_beside_it() {
    let mut asked = asked("switchyard", "{}");
    let named: Vec<String> = ["v/9", "v/none", "v/3"].map(str::to_owned).into();
    asked.request.models.clone_from(&named);
    assert_eq!(asked.names(), "3 9", "the efficient one for what is easy");
    (asked.request, asked.facts) = hard();
    asked.request.models = named;
    assert_eq!(asked.names(), "9 3");
    asked.settings = r#"{"algorithm":"passthrough"}"#.into();
    assert_eq!(asked.names(), "9 3", "the client's order");
    asked.request.models = vec!["v/none".into()];
    assert!(super::is_empty(&asked.choose()));
    // For the other routers they are fallbacks.
    let mut auto = self::asked("auto", "{}");
    auto.request.models = vec!["v/9".into()];
    assert_eq!(auto.first(), "0");
}

#[test]
fn positions_by_price_are_among_permitted_models() {
    let of = |slug: &str, settings: &str, prices: &[f64]| {
        let mut asked = asked(slug, settings);
        asked.request.preferences = br#"{"max_price":{"prompt":6}}"#.to_vec();
        asked.models = prices.iter().map(|price| model(&format!("v/{price}"), *price)).collect();
        asked
    };
    let mut capable = of("switchyard", "{}", &[5.0, 9.0, 1.0]);
    capable.facts = hard().1;
    assert_eq!(capable.names(), "5 1 9");
    let mut random = of("switchyard", r#"{"algorithm":"random"}"#, &[5.0, 9.0, 1.0]);
    let mut drawn = [0; 3];
    for seed in 0..2000 {
        random.seed = seed;
        drawn[random.choose().unwrap().models[0]] += 1;
    }
    assert_eq!(drawn[1], 0);
    assert!((880..1120).contains(&drawn[0]), "{drawn:?}");
    let mut middle = of("jev", "{}", &[2.0, 5.0, 8.0]);
    (middle.facts.last_user_chars, middle.facts.code_blocks) = (2000, 3);
    assert_eq!(middle.names(), "2 5 8");
}
