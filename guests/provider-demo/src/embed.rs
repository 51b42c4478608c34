//! Vectors of hashed words, word pairs and letter groups. Texts that share words or parts of words
//! get similar vectors.

use cofferdam_guest_kit::bindings::embedding::{EmbeddingFailure, Embeddings};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use cofferdam_guest_kit::{EmbeddingInput, EmbeddingPart, EmbeddingRequest, fnv_1a, vector_bytes};

use crate::words;

/// The number of dimensions of a full vector.
const WIDTH: usize = 384;
const WORD: f32 = 1.0;
const PAIR: f32 = 0.4;
const LETTERS: f32 = 0.25;
/// The weight of filler words, which say little about the subject of a text.
const FILLER: f32 = 0.15;

/// The vectors of all inputs.
pub(crate) fn answer(request: &EmbeddingRequest<'_>) -> Result<Embeddings, EmbeddingFailure> {
    let width = match request.dimensions {
        None => WIDTH,
        Some(wanted) => match usize::try_from(wanted) {
            Ok(wanted @ 1..=WIDTH) => wanted,
            _ => {
                let message = format!("dimensions: this model gives 1 to {WIDTH}");
                return Err(EmbeddingFailure::Failed(Failure::new(ErrorKind::InvalidRequest, message)));
            }
        },
    };
    let mut vectors = Vec::with_capacity(request.input.len());
    let mut tokens = 0;
    for (index, input) in (0..).zip(&request.input) {
        let text = text_of(input).ok_or(EmbeddingFailure::UnsupportedInput(index))?;
        tokens += words::count(&text);
        vectors.push(vector_bytes(&vector(&text, width)));
    }
    Ok(Embeddings {
        vectors,
        prompt_tokens: tokens,
        total_tokens: tokens,
        cost_dollars: None,
        prompt_tokens_details: Vec::new(),
    })
}

/// The input as text; `None` when it contains anything else.
fn text_of(input: &EmbeddingInput<'_>) -> Option<String> {
    Some(match input {
        EmbeddingInput::Text(text) => text.to_string(),
        EmbeddingInput::Tokens(tokens) => tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
        EmbeddingInput::Content(parts) => {
            let text = |part: &EmbeddingPart<'_>| match part {
                EmbeddingPart::Text(text) => Some(text.to_string()),
                _ => None,
            };
            parts.iter().map(text).collect::<Option<Vec<_>>>()?.join("\n")
        }
    })
}

/// The first `width` numbers of the vector of `text`, scaled to length 1.
fn vector(text: &str, width: usize) -> Vec<f32> {
    let mut vector = vec![0.0; WIDTH];
    let stems = words::stems(text);
    for stem in &stems {
        let weight = if words::is_filler(stem) { FILLER } else { WORD };
        add(&mut vector, b'w', stem, weight);
        let padded: Vec<char> = std::iter::once(' ').chain(stem.chars()).chain([' ']).collect();
        for letters in padded.windows(3) {
            add(&mut vector, b'l', &letters.iter().collect::<String>(), weight * LETTERS);
        }
    }
    for pair in stems.windows(2) {
        add(&mut vector, b'p', &pair.join(" "), PAIR);
    }
    // A text without words gets a vector of its characters.
    if stems.is_empty() {
        text.chars().for_each(|mark| add(&mut vector, b'm', mark.encode_utf8(&mut [0; 4]), WORD));
    }
    vector.truncate(width);
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number /= length);
    } else if let Some(first) = vector.first_mut() {
        *first = 1.0;
    }
    vector
}

/// Adds a feature with a sign at the two positions that its hash selects.
fn add(vector: &mut [f32], kind: u8, feature: &str, weight: f32) {
    let mut hash = fnv_1a(std::iter::once(kind).chain(feature.bytes()));
    // The low bits of FNV alone are not evenly distributed.
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
    for part in [hash >> 33, hash & 0x7fff_ffff] {
        let sign = if part & 1 == 0 { weight } else { -weight };
        let index = usize::try_from(part >> 1).unwrap_or_default() % WIDTH;
        if let Some(number) = vector.get_mut(index) {
            *number += sign;
        }
    }
}
