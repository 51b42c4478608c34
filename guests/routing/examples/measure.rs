//! How long one decision takes at 10, 100 and 1,000 candidates, natively: the
//! median of many, in microseconds.
//!
//!     cargo run --release --example measure

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::time::Instant;

use cofferdam_routing::{Candidate, Percentiles, Price, Request, Statistics, route};

const ROUNDS: u64 = 501;

fn candidate(place: usize) -> Candidate {
    let figure = (place % 97) as f64;
    let percentiles = Percentiles { p50: figure, p75: figure, p90: figure, p99: figure };
    Candidate {
        model_rank: (place % 3) as u32,
        provider: format!("provider-{place}"),
        tier: ["default", "flex", "priority"].get(place % 7).copied().unwrap_or("default").to_owned(),
        price: Price { input: figure / 10.0, output: figure / 5.0, image: 0.0 },
        context_length: 131_072,
        max_output: 8192,
        supports: ["tools", "images", "reasoning", "temperature", "structured_output"]
            .map(str::to_owned)
            .into(),
        quantization: "fp8".to_owned(),
        zdr: place % 2 == 0,
        data_collection: place % 5 == 0,
        byok: false,
        statistics: Statistics {
            latency_ms: percentiles,
            throughput: percentiles,
            requests: 100,
            failures: 1,
            outage: place % 11 == 0,
            ejected: place % 13 == 0,
        },
    }
}

fn request(preferences: &str) -> Request {
    Request {
        models: 3,
        suffix: None,
        preferences: preferences.as_bytes().to_vec(),
        route: None,
        service_tier: "auto".to_owned(),
        parameters: vec!["tools".to_owned(), "temperature".to_owned()],
        needs: vec!["tools".to_owned()],
        input_tokens: 2000,
        max_output_tokens: Some(1000),
        sticky: Some(5),
    }
}

fn main() {
    let many: Vec<String> = (0..256).map(|place| format!("\"provider-{}\"", place * 4)).collect();
    let cases = [
        ("default", "{}".to_owned()),
        ("sort by price", r#"{"sort":"price"}"#.to_owned()),
        (
            "every field",
            r#"{"order":["provider-1","provider-2/flex"],"ignore":["x"],"require_parameters":true,
            "data_collection":"deny","quantizations":["fp8"],"sort":{"by":"latency","partition":"none"},
            "max_price":{"prompt":"50","completion":100},"preferred_max_latency":{"p90":3}}"#
                .to_owned(),
        ),
        ("order of 256 slugs", format!(r#"{{"order":[{}]}}"#, many.join(","))),
    ];
    println!("{:<20} {:>10} {:>10} {:>10}  microseconds", "candidates", 10, 100, 1000);
    for (name, preferences) in cases {
        let request = request(&preferences);
        let mut row = format!("{name:<20}");
        for count in [10, 100, 1000] {
            let candidates: Vec<Candidate> = (0..count).map(candidate).collect();
            let mut times: Vec<f64> = (0..ROUNDS)
                .map(|seed| {
                    let start = Instant::now();
                    let answer = route(&request, &candidates, seed);
                    let time = start.elapsed().as_secs_f64() * 1e6;
                    assert!(answer.is_ok());
                    time
                })
                .collect();
            times.sort_by(f64::total_cmp);
            row += &format!(" {:>10.2}", times.get(times.len() / 2).copied().unwrap_or(0.0));
        }
        println!("{row}");
    }
}
