//! Measures what the search of answers for secrets costs: `cargo run --release -p cofferdam-egress
//! --example scrub`.
//!
//! The text is a model's event stream in chunks of 200 bytes, searched for 1 and for 16 values.

use std::{
    hint::black_box,
    io::{Result, Write},
    time::{Duration, Instant},
};

use bytes::Bytes;
use cofferdam_egress::ScrubSet;

/// One event of a model's stream.
const EVENT: &str = r#"data: {"id":"chatcmpl-7f3a","object":"chat.completion.chunk","created":1763740000,"model":"meta/llama-3.2","choices":[{"index":0,"delta":{"content":" secrets, \"keys\" and\nskills"},"finish_reason":null}]}

"#;
const PIECE_BYTES: usize = 200;
const TEXT_BYTES: usize = 64 * 1024;
const ROUNDS: u32 = 1000;

fn main() -> Result<()> {
    let mut out = std::io::stdout().lock();
    let text = Bytes::from(EVENT.repeat(TEXT_BYTES / EVENT.len()));
    for count in [1, 16] {
        let values: Vec<String> = (0..count).map(value).collect();
        let new =
            || ScrubSet::new(values.iter().map(|value| ("name", Bytes::copy_from_slice(value.as_bytes()))));
        let prepared = best(ROUNDS, || drop(black_box(new())));
        let set = new();
        let whole = best(ROUNDS, || {
            let mut scrubber = set.scrubber();
            drop(black_box(scrubber.push(text.clone())));
        });
        let pieces = best(ROUNDS, || {
            let mut scrubber = set.scrubber();
            let mut rest = text.clone();
            while rest.len() >= PIECE_BYTES {
                drop(black_box(scrubber.push(rest.split_to(PIECE_BYTES))));
            }
        });
        let pieces_count = text.len() / PIECE_BYTES;
        writeln!(
            out,
            "{count:2} values: {:6.0} MB/s in one piece, {:4.0} ns per {PIECE_BYTES}-byte piece, {:5.1} us to prepare",
            text.len() as f64 / whole.as_secs_f64() / 1e6,
            pieces.as_secs_f64() * 1e9 / pieces_count as f64,
            prepared.as_secs_f64() * 1e6,
        )?;
    }
    Ok(())
}

/// A value like a provider's key: a common prefix, then random characters.
fn value(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let noise = (0..40).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from_digit((state >> 33) as u32 % 36, 36).unwrap_or_default()
    });
    format!("sk-proj-{}", noise.collect::<String>())
}

fn best(rounds: u32, mut work: impl FnMut()) -> Duration {
    let times = (0..rounds).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}
