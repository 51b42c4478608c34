//! Measures how long one decision takes natively: ordering 10, 100 and 1,000 candidates, and choosing
//! among as many models. Prints the median in microseconds.
//!
//!     cargo run --release --example measure

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::time::Instant;

use cofferdam_guest_kit::bindings::model_choice::{Model, TextFacts};
use cofferdam_guest_kit::bindings::routing::{
    Candidate, Percentiles, Price, Purpose, RequestSummary, Statistics,
};
use cofferdam_routing::{Question, Router, choose, route};

/// The largest number of rounds for one cell, and its time limit.
const ROUNDS: u64 = 501;
const CELL_MS: u128 = 500;

fn price(input: f64, output: f64) -> Price {
    Price { input, output, cached_input: 0.0, cache_write: 0.0, reasoning: 0.0, image: 0.0 }
}

fn candidate(place: usize) -> Candidate {
    let figure = (place % 97) as f64;
    let percentiles = Percentiles { p50: figure, p75: figure, p90: figure, p99: figure };
    Candidate {
        model: "m".to_owned(),
        model_rank: (place % 3) as u32,
        provider: format!("provider-{place}"),
        tier: ["default", "flex", "priority"].get(place % 7).copied().unwrap_or("default").to_owned(),
        price: price(figure / 10.0, figure / 5.0),
        context_length: 131_072,
        max_output: 8192,
        supports: ["tools", "images", "reasoning", "temperature", "structured_output"]
            .map(str::to_owned)
            .into(),
        quantization: "fp8".to_owned(),
        zdr: place.is_multiple_of(2),
        data_collection: place.is_multiple_of(5),
        byok: false,
        statistics: Statistics {
            latency_ms: percentiles,
            throughput: percentiles,
            requests: 100,
            failures: 1,
            outage: place.is_multiple_of(11),
            ejected: place.is_multiple_of(13),
        },
    }
}

fn request(preferences: &str) -> RequestSummary {
    RequestSummary {
        purpose: Purpose::Responses,
        requested: "m".to_owned(),
        models: ["m", "n", "o"].map(str::to_owned).into(),
        suffix: None,
        preferences: preferences.as_bytes().to_vec(),
        route: None,
        service_tier: "auto".to_owned(),
        parameters: vec!["tools".to_owned(), "temperature".to_owned()],
        needs: vec!["tools".to_owned()],
        input_tokens: 2000,
        max_output_tokens: Some(1000),
        streamed: false,
        sticky: Some(5),
    }
}

fn model(place: usize) -> Model {
    let figure = (place % 97) as f64;
    Model {
        id: format!("vendor-{}/model-{place}-instruct", place % 20),
        price: price(figure / 10.0, figure / 5.0),
        context_length: 131_072,
        max_output: 8192,
        supports: ["tools", "images", "reasoning"].map(str::to_owned).into(),
        price_rank: figure / 97.0,
    }
}

fn facts() -> TextFacts {
    TextFacts {
        last_user_chars: 700,
        all_chars: 9000,
        turns: 7,
        code_blocks: 1,
        math_share: 0.02,
        questions: 2,
        last_model: Some("vendor-3/model-3-instruct".to_owned()),
    }
}

/// Prints a row of medians for 10, 100 and 1,000.
fn row<T, A>(name: &str, make: fn(usize) -> T, decide: impl Fn(&[T], u64) -> A) {
    print!("{name:<32}");
    for count in [10, 100, 1000] {
        let things: Vec<T> = (0..count).map(make).collect();
        let begun = Instant::now();
        let mut times: Vec<f64> = (0..ROUNDS)
            .take_while(|_| begun.elapsed().as_millis() < CELL_MS)
            .map(|seed| {
                let start = Instant::now();
                std::hint::black_box(decide(&things, seed));
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        print!(" {:>10.2}", times.get(times.len() / 2).copied().unwrap_or(0.0));
    }
    println!();
}

fn main() {
    println!("{:<32} {:>10} {:>10} {:>10}  microseconds", "", 10, 100, 1000);
    let slugs: Vec<String> = (0..256).map(|place| format!("\"provider-{}\"", place * 4)).collect();
    let orders = [
        ("route: default", "{}".to_owned()),
        ("route: sort by price", r#"{"sort":"price"}"#.to_owned()),
        (
            "route: every field",
            r#"{"order":["provider-1","provider-2/flex"],"ignore":["x"],"require_parameters":true,
            "data_collection":"deny","quantizations":["fp8"],"sort":{"by":"latency","partition":"none"},
            "max_price":{"prompt":"50","completion":100},"preferred_max_latency":{"p90":3}}"#
                .to_owned(),
        ),
        ("route: order of 256 slugs", format!(r#"{{"order":[{}]}}"#, slugs.join(","))),
    ];
    for (name, preferences) in orders {
        let request = request(&preferences);
        row(name, candidate, |candidates, seed| route(&request, candidates, seed).is_ok());
    }
    // The worst case: 1,024 patterns of 64 characters, none of which matches.
    let patterns: Vec<String> = (0..1024).map(|place| format!("\"*-{place:a<62}*\"")).collect();
    let short: Vec<String> = (0..1024).map(|place| format!("\"*r-*/*{place}x*\"")).collect();
    let choices = [
        ("choose: auto", "auto", "{}".to_owned()),
        ("choose: auto, two patterns", "auto", r#"{"allowed_models":["vendor-1*","*/model-2*"]}"#.to_owned()),
        (
            "choose: auto, 1,024 long patterns",
            "auto",
            format!(r#"{{"excluded_models":[{}]}}"#, patterns.join(",")),
        ),
        (
            "choose: auto, 1,024 near misses",
            "auto",
            format!(r#"{{"excluded_models":[{}]}}"#, short.join(",")),
        ),
        ("choose: pareto", "pareto-code", "{}".to_owned()),
        ("choose: switchyard", "switchyard", "{}".to_owned()),
    ];
    let facts = facts();
    let request = RequestSummary { models: Vec::new(), ..request("{}") };
    for (name, slug, settings) in choices {
        let Some(router) = Router::named(slug) else { continue };
        row(name, model, |models, seed| {
            let (settings, operator) = (settings.as_bytes(), b"{}".as_slice());
            choose(Question { router, request: &request, facts: &facts, models, settings, operator, seed })
                .is_ok()
        });
    }
}
