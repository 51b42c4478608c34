//! Properties of choices that hold for every input.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop, proptest};
use proptest::{prop_assert, prop_assume, prop_oneof};

use super::{asked, is_empty, model, request};
use crate::choice::difficulty::difficulty;
use crate::choice::{Model, Router, TextFacts};

fn facts() -> impl Strategy<Value = TextFacts> {
    (any::<[u32; 5]>(), any::<f64>(), prop::option::of(0..12)).prop_map(|(counts, math_share, last)| {
        let [last_user_chars, all_chars, turns, code_blocks, questions] = counts;
        let last_model = last.map(|place| format!("v/{place}"));
        TextFacts { last_user_chars, all_chars, turns, code_blocks, math_share, questions, last_model }
    })
}

fn models() -> impl Strategy<Value = Vec<Model>> {
    let one = (0..12, prop_oneof![0.0..10.0, any::<f64>()], any::<f64>(), any::<bool>()).prop_map(
        |(place, price, price_rank, states)| {
            let supports = if states { vec!["tools".to_owned()] } else { Vec::new() };
            Model { supports, price_rank, ..model(&format!("v/{place}"), price) }
        },
    );
    vec(one, 0..12)
}

fn settings() -> impl Strategy<Value = String> {
    let values = [
        "true",
        "false",
        "null",
        "0",
        "0.5",
        "-1",
        "\"low\"",
        "\"max\"",
        "\"random\"",
        "\"prompt\"",
        "[]",
        "[\"v/1*\",\"v/3\"]",
        "[\"*\"]",
        "[1]",
        "{}",
    ];
    let fields = [
        "id",
        "enabled",
        "allowed_models",
        "excluded_models",
        "models",
        "cost_tier",
        "cost_quality_tradeoff",
        "pin_model",
        "algorithm",
        "min_coding_score",
        "max_price",
        "price_source",
    ];
    vec((prop::sample::select(fields.to_vec()), prop::sample::select(values.to_vec())), 0..5).prop_map(
        |members| {
            let members: Vec<String> =
                members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            format!("{{{}}}", members.join(","))
        },
    )
}

fn router() -> impl Strategy<Value = &'static str> {
    prop::sample::select(Router::slugs().collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn a_choice_names_models_once_and_the_same_ones_again(
        slug in router(),
        settings in settings(),
        (facts, models) in (facts(), models()),
        sticky in prop::option::of(0..15_u32),
        seed in any::<u64>(),
    ) {
        let mut asked = asked(slug, &settings);
        (asked.facts, asked.models, asked.seed) = (facts, models, seed);
        asked.request.sticky = sticky;
        let answer = asked.choose();
        prop_assert!(answer == asked.choose());
        match answer {
            Ok(choice) => {
                prop_assert!((1..=5).contains(&choice.models.len()));
                let mut seen = vec![false; asked.models.len()];
                for index in choice.models {
                    prop_assert!(!std::mem::replace(&mut seen[index], true));
                }
            }
            Err(failure) => prop_assert!(is_empty(&Err(failure.clone())) || failure.message.contains("-router")),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(slug in router(), settings in vec(any::<u8>(), 0..256)) {
        let mut asked = asked(slug, "");
        asked.settings = String::from_utf8_lossy(&settings).into_owned();
        prop_assert!(!is_empty(&asked.choose()));
        asked.operator = std::mem::take(&mut asked.settings);
        prop_assert!(!is_empty(&asked.choose()));
    }

    #[test]
    fn an_excluded_model_is_never_chosen(
        facts in facts(),
        allowed in vec("[v/*0-9]{1,4}", 0..4),
        excluded in 0..11_usize,
        sticky in 0..11_u32,
    ) {
        let allowed: Vec<String> = allowed.iter().map(|pattern| format!("\"{pattern}\"")).collect();
        let settings = format!(
            r#"{{"allowed_models":[{}],"excluded_models":["V/{excluded}"],"pin_model":true}}"#,
            allowed.join(",")
        );
        let mut asked = asked("auto", &settings);
        asked.facts = facts;
        asked.request.sticky = Some(sticky);
        if let Ok(choice) = asked.choose() {
            prop_assert!(!choice.models.contains(&excluded));
        }
    }

    #[test]
    fn higher_counts_never_lower_the_difficulty(one in facts(), field in 0..6, more in any::<u32>()) {
        prop_assume!(!one.math_share.is_nan());
        let mut other = one.clone();
        match field {
            0 => other.last_user_chars = one.last_user_chars.saturating_add(more),
            1 => other.all_chars = one.all_chars.saturating_add(more),
            2 => other.turns = one.turns.saturating_add(more),
            3 => other.code_blocks = one.code_blocks.saturating_add(more),
            4 => other.questions = one.questions.saturating_add(more),
            _ => other.math_share = one.math_share + f64::from(more),
        }
        let (before, after) = (difficulty(&request(), &one), difficulty(&request(), &other));
        prop_assert!((0.0..=1.0).contains(&before) && before <= after, "{before} {after}");
    }
}
