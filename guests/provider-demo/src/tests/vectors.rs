//! Tests of the vectors of `local/embed`.

use cofferdam_guest_kit::bindings::embedding::{EmbeddingFailure, Guest, PreparedEmbeddings};
use serde_json::{Value, json};

use super::{Demo, context, target};

fn prepare(request: &Value) -> Result<(Vec<Vec<f32>>, u64), EmbeddingFailure> {
    let json = request.to_string().into_bytes();
    match <Demo as Guest>::prepare(json, target("embed"), context())? {
        PreparedEmbeddings::Answer(answer) => {
            let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
            let vectors = answer.vectors.iter().map(|bytes| bytes.chunks(4).map(number).collect()).collect();
            Ok((vectors, answer.prompt_tokens))
        }
        PreparedEmbeddings::Upstream(_) => panic!("there is no upstream"),
    }
}

fn vectors(input: Value) -> Vec<Vec<f32>> {
    prepare(&json!({ "model": "local/embed", "input": input })).unwrap().0
}

fn similarity(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[test]
fn vectors_have_length_one_whatever_the_text() {
    for vector in vectors(json!(["Hello", "", "!?", "日本語", "the of and", "a\u{0}b"])) {
        assert_eq!(vector.len(), 384);
        assert!((similarity(&vector, &vector) - 1.0).abs() < 1e-5);
    }
}

#[test]
fn similar_texts_are_near() {
    let texts = [
        "The cat sat on the mat.",
        "A cat was sitting on mats",
        "Stock prices fell sharply today",
        "today the prices of stocks have fallen",
    ];
    let vectors = vectors(json!(texts));
    let near = |left: usize, right: usize| similarity(&vectors[left], &vectors[right]);
    assert!(near(0, 1) > near(0, 2) + 0.2, "{} {}", near(0, 1), near(0, 2));
    assert!(near(2, 3) > near(1, 3) + 0.2, "{} {}", near(2, 3), near(1, 3));
}

#[test]
fn dimensions_truncate_and_keep_length_one() {
    let request =
        |dimensions: u32| json!({ "model": "m", "input": ["some text here"], "dimensions": dimensions });
    for dimensions in [1, 7, 256, 384] {
        let (vectors, _) = prepare(&request(dimensions)).unwrap();
        assert_eq!(vectors[0].len(), dimensions as usize);
        assert!((similarity(&vectors[0], &vectors[0]) - 1.0).abs() < 1e-5, "{dimensions}");
    }
    for dimensions in [0, 385, u32::MAX] {
        assert!(matches!(prepare(&request(dimensions)), Err(EmbeddingFailure::Failed(_))), "{dimensions}");
    }
}

#[test]
fn tokens_and_joint_content_are_texts() {
    let vectors = vectors(
        json!(["12 7", [12, 7], { "content": [{ "type": "text", "text": "12" }, { "type": "text", "text": "7" }] }]),
    );
    assert_eq!(vectors[0], vectors[1]);
    assert_eq!(vectors[0], vectors[2]);
}

#[test]
fn other_parts_are_unsupported_by_index() {
    let image = json!({ "content": [{ "type": "image_url", "image_url": { "url": "data:," } }] });
    let request = json!({ "model": "m", "input": ["a", image] });
    assert!(matches!(prepare(&request), Err(EmbeddingFailure::UnsupportedInput(1))));
}

#[test]
fn tokens_are_counted() {
    assert_eq!(prepare(&json!({ "model": "m", "input": ["one two!", "three"] })).unwrap().1, 4);
}
