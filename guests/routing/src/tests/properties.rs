//! Properties of orders that hold for every input.

use cofferdam_guest_kit::bindings::routing::{Candidate, RequestSummary};
use cofferdam_guest_kit::bindings::types::ErrorKind;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop, proptest};
use proptest::{prop_assert, prop_oneof};

use super::{candidate, summary};

use crate::route;

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..100.0, Just(0.0), any::<f64>()]
}

fn text(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn endpoint() -> impl Strategy<Value = Candidate> {
    let names = text(&["a", "b", "vertex/eu", "ö", ""]);
    let tiers = text(&["default", "flex", "priority", "ultrafast", "scale", "?"]);
    let supports = vec(text(&["tools", "images", "text"]), 0..3);
    (names, tiers, supports, number(), number(), any::<[bool; 5]>(), any::<[u32; 5]>()).prop_map(
        |(provider, tier, supports, price, measured, flags, counts)| {
            let mut endpoint = candidate(&provider, price);
            (endpoint.tier, endpoint.supports) = (tier, supports);
            let [zdr, data_collection, byok, outage, ejected] = flags;
            (endpoint.zdr, endpoint.data_collection, endpoint.byok) = (zdr, data_collection, byok);
            let statistics = &mut endpoint.statistics;
            (statistics.outage, statistics.ejected) = (outage, ejected);
            (statistics.latency_ms.p50, statistics.throughput.p90) = (measured, measured);
            let [rank, context, output, requests, failures] = counts;
            (statistics.requests, statistics.failures) = (requests, failures);
            (endpoint.model_rank, endpoint.context_length, endpoint.max_output) = (rank % 3, context, output);
            endpoint
        },
    )
}

/// Objects whose fields are often valid and sometimes arbitrary.
fn preferences() -> impl Strategy<Value = Vec<u8>> {
    let value = text(&[
        "true",
        "false",
        "null",
        "7",
        "-1",
        "\"0.5\"",
        "\"price\"",
        "\"deny\"",
        "[\"a\",\"b/flex\"]",
        "[1]",
        "{\"p90\":2}",
        "{\"by\":\"latency\",\"partition\":\"none\"}",
        "{\"prompt\":\"50\"}",
        "{}",
        "[]",
    ]);
    let field = text(&[
        "order",
        "only",
        "ignore",
        "allow_fallbacks",
        "require_parameters",
        "data_collection",
        "zdr",
        "enforce_distillable_text",
        "quantizations",
        "sort",
        "max_price",
        "preferred_min_throughput",
        "preferred_max_latency",
        "options",
        "other",
    ]);
    let object = vec((field, value), 0..4).prop_map(|members| {
        let members: Vec<String> =
            members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(",")).into_bytes()
    });
    prop_oneof![4 => object, 1 => vec(any::<u8>(), 0..64)]
}

fn request() -> impl Strategy<Value = RequestSummary> {
    let suffix = prop::option::of(text(&["nitro", "floor", "free", "online", "exacto", "new"]));
    let tier = text(&["auto", "default", "flex", "priority", "fast", "scale", "ultrafast", ""]);
    let route = prop::option::of(text(&["sort", "fallback", "?"]));
    let needs = vec(text(&["tools", "images", "temperature"]), 0..3);
    (preferences(), suffix, tier, route, needs, any::<(u32, Option<u32>, Option<u32>)>()).prop_map(
        |(preferences, suffix, service_tier, route, needs, (input_tokens, max_output_tokens, sticky))| {
            RequestSummary {
                preferences,
                suffix,
                service_tier,
                route,
                parameters: needs.clone(),
                needs,
                input_tokens,
                max_output_tokens,
                sticky: sticky.map(|index| index % 12),
                ..summary("{}")
            }
        },
    )
}

proptest! {
    #[test]
    fn an_order_names_candidates_once_and_depends_on_the_seed_alone(
        request in request(),
        candidates in vec(endpoint(), 0..10),
        seed in any::<u64>(),
    ) {
        let answer = route(&request, &candidates, seed);
        prop_assert!(answer == route(&request, &candidates, seed));
        match answer {
            Ok(decision) => {
                prop_assert!(!decision.order.is_empty());
                let mut seen = vec![false; candidates.len()];
                for index in decision.order {
                    prop_assert!(!std::mem::replace(&mut seen[index as usize], true));
                }
            }
            Err(failure) if failure.kind == ErrorKind::NotFound => {
                prop_assert!(failure.message.starts_with("No allowed providers"));
            }
            Err(malformed) => {
                prop_assert!(malformed.message.starts_with("provider"));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(preferences in vec(any::<u8>(), 0..256)) {
        let request = RequestSummary { preferences, ..summary("{}") };
        let read = route(&request, &[candidate("a", 1.0)], 1);
        prop_assert!(!matches!(read, Ok(decision) if decision.order != [0]));
    }

    #[test]
    fn a_healthy_endpoint_comes_before_an_ejected_one(
        request in request(),
        candidates in vec(endpoint(), 0..10),
        seed in any::<u64>(),
    ) {
        let Ok(decision) = route(&request, &candidates, seed) else { return Ok(()) };
        let ejected = |index: &u32| candidates[*index as usize].statistics.ejected;
        prop_assert!(decision.order.iter().map(ejected).is_sorted());
    }
}
