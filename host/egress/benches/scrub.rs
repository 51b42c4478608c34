//! What the search of answers for secrets costs. The text is a model's event stream, searched for 1 and for 16 values.

use bytes::Bytes;
use cofferdam_egress::ScrubSet;
use divan::counter::BytesCount;
use divan::{Bencher, black_box};

/// One event of a model's stream.
const EVENT: &str = r#"data: {"id":"chatcmpl-7f3a","object":"chat.completion.chunk","created":1763740000,"model":"meta/llama-3.2","choices":[{"index":0,"delta":{"content":" secrets, \"keys\" and\nskills"},"finish_reason":null}]}

"#;
const PIECE_BYTES: usize = 200;
const TEXT_BYTES: usize = 64 * 1024;
const COUNTS: [u64; 2] = [1, 16];

fn main() {
    divan::main();
}

#[divan::bench(args = COUNTS)]
fn prepare(bencher: Bencher<'_, '_>, values: u64) {
    bencher.bench(|| set(values));
}

#[divan::bench(args = COUNTS)]
fn one_piece(bencher: Bencher<'_, '_>, values: u64) {
    let (set, text) = (set(values), text());
    bencher.counter(BytesCount::new(text.len())).bench(|| set.scrubber().push(black_box(text.clone())));
}

#[divan::bench(args = COUNTS)]
fn pieces_of_200_bytes(bencher: Bencher<'_, '_>, values: u64) {
    let (set, text) = (set(values), text());
    bencher.counter(BytesCount::new(text.len())).bench(|| {
        let (mut scrubber, mut rest) = (set.scrubber(), text.clone());
        while rest.len() >= PIECE_BYTES {
            drop(black_box(scrubber.push(rest.split_to(PIECE_BYTES))));
        }
    });
}

fn text() -> Bytes {
    Bytes::from(EVENT.repeat(TEXT_BYTES / EVENT.len()))
}

fn set(count: u64) -> ScrubSet {
    ScrubSet::new((0..count).map(|number| ("name", Bytes::from(value(number)))))
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
