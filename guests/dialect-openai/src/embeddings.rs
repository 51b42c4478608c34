//! OpenAI's `POST /embeddings`: inputs are texts or token lists, vectors come back as
//! numbers or as base64. Parts of other kinds are written as the host passes them, for endpoints that take them.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use cofferdam_guest_kit::bindings::dialect::{Target, UpstreamRequest};
use cofferdam_guest_kit::bindings::embedding::{EmbeddingFailure, Embeddings};
use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::{
    Count, EmbeddingInput, EmbeddingPart, EmbeddingRequest, MaybeText, add_options, if_readable, json,
    reported_error,
};
use cofferdam_protocol::ObjectWriter;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::error::map_reported;
use crate::failure::{malformed, unreadable_request};
use crate::json::dollars;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What the host reads of an answer at most, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The length of a decimal number with its comma, in bytes. In base64 a number takes 5.4.
const NUMBER_BYTES: usize = 22;
/// The numbers of a vector where the client does not say how many it wants: those of OpenAI's largest model.
const DIMENSIONS: usize = 3_072;

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Text(Cow<'a, str>),
    Tokens(&'a [u64]),
    Content { content: Vec<Part<'a>> },
}

/// A part of an input that is not text only.
#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Text { r#type: &'static str, text: &'a str },
    Image { r#type: &'static str, image_url: Url<'a> },
    Other(&'a RawValue),
}

#[derive(Serialize)]
struct Url<'a> {
    url: &'a str,
}

/// Translates a request. `input_type` is not a field of OpenAI's API: it is sent only to endpoints whose
/// `supports` lists it.
///
/// # Errors
///
/// When an input has parts that the endpoint does not state that it takes, or the request does not match the contract.
pub fn prepare_embeddings(request: &[u8], target: &Target) -> Result<UpstreamRequest, EmbeddingFailure> {
    let request =
        EmbeddingRequest::parse(request).map_err(|_| EmbeddingFailure::Failed(unreadable_request()))?;
    let input: Vec<_> = request
        .input
        .iter()
        .zip(0..)
        .map(|(input, index)| {
            translate(input, &target.supports).ok_or(EmbeddingFailure::UnsupportedInput(index))
        })
        .collect::<Result<_, _>>()?;
    let typed = target.supports.iter().any(|ability| ability == "input_type");
    // 2,048 vectors of 3,072 numbers fit into an answer as base64 only. The host writes the vectors in the form
    // that the client asked for.
    let dimensions = request.dimensions.map_or(DIMENSIONS, |dimensions| dimensions as usize);
    let decimal = input.len().saturating_mul(dimensions).saturating_mul(NUMBER_BYTES);
    let encoding_format = match decimal <= ANSWER_BYTES_MAX {
        true => request.encoding_format.as_deref(),
        false => Some("base64"),
    };
    let mut body = Vec::new();
    let mut object = ObjectWriter::new(&mut body);
    object.value("model", &target.model);
    object.value("input", &input);
    object.some("dimensions", request.dimensions);
    object.some("encoding_format", encoding_format);
    object.some("input_type", request.input_type.as_deref().filter(|_| typed));
    object.some("user", request.user.as_deref());
    object.end();
    Ok(UpstreamRequest::new("embeddings", add_options(body, &target.options), false))
}

fn translate<'a>(input: &'a EmbeddingInput<'_>, supports: &[String]) -> Option<Input<'a>> {
    match input {
        EmbeddingInput::Text(text) => Some(Input::Text(Cow::Borrowed(text))),
        EmbeddingInput::Tokens(tokens) => Some(Input::Tokens(tokens)),
        EmbeddingInput::Content(parts) => {
            let whole = || {
                let content: Option<Vec<_>> =
                    parts.iter().map(|part| translate_part(part, supports)).collect();
                content.filter(|content| !content.is_empty()).map(|content| Input::Content { content })
            };
            joined(parts).map(Input::Text).or_else(whole)
        }
    }
}

/// A part in the form of the API; `None` if the endpoint does not state that it takes its kind.
fn translate_part<'a>(part: &'a EmbeddingPart<'_>, supports: &[String]) -> Option<Part<'a>> {
    let (ability, part) = match part {
        EmbeddingPart::Text(text) => return Some(Part::Text { r#type: "text", text }),
        EmbeddingPart::Image { url } => {
            ("images", Part::Image { r#type: "image_url", image_url: Url { url } })
        }
        EmbeddingPart::Other { kind, raw } => {
            let ability = match &**kind {
                "input_audio" => "audio",
                "input_video" => "video",
                "input_file" => "files",
                _ => return None,
            };
            (ability, Part::Other(raw))
        }
    };
    supports.iter().any(|stated| stated == ability).then_some(part)
}

/// Joins the texts of an input whose parts are all text: such an input gives one vector.
fn joined<'a>(parts: &'a [EmbeddingPart<'_>]) -> Option<Cow<'a, str>> {
    let texts: Vec<&str> = parts
        .iter()
        .map(|part| match part {
            EmbeddingPart::Text(text) => Some(&**text),
            _ => None,
        })
        .collect::<Option<_>>()?;
    match texts.as_slice() {
        [] => None,
        [only] => Some(Cow::Borrowed(only)),
        many => Some(Cow::Owned(many.join("\n"))),
    }
}

#[derive(DeriveDeserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Reply<'a> {
    #[serde(default)]
    object: MaybeText<'a>,
    data: Option<Vec<Row<'a>>>,
    #[serde(default, deserialize_with = "if_readable")]
    usage: Option<Usage<'a>>,
    error: Option<&'a RawValue>,
}

#[derive(DeriveDeserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Row<'a> {
    index: Option<&'a RawValue>,
    embedding: Vector,
}

impl Row<'_> {
    /// The place of the vector in the answer. A row without an index has the place at which it came. Some servers
    /// write the number as `1.0` or as text.
    fn place(&self, position: usize) -> Option<usize> {
        let Some(index) = self.index else { return Some(position) };
        let number = index.get().trim_matches('"');
        let whole = |number: &f64| number.fract() == 0.0 && *number >= 0.0;
        number.parse().ok().or_else(|| Some(number.parse().ok().filter(whole)? as usize))
    }
}

#[derive(Default, DeriveDeserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Usage<'a> {
    prompt_tokens: Count,
    total_tokens: Count,
    cost: Option<&'a RawValue>,
    prompt_tokens_details: Option<&'a RawValue>,
}

/// Translates an answer. The host compares the number of its vectors with that of the inputs.
///
/// # Errors
///
/// When the answer reports an error, cannot be read, or does not hold vectors of the same length, one for each
/// index.
pub fn decode_embeddings(body: &[u8]) -> Result<Embeddings, Failure> {
    let reply: Reply<'_> = json::utf8(body).and_then(json::from_str).map_err(|_| malformed())?;
    if let Some(error) = reported_error(reply.error) {
        return Err(map_reported(error));
    }
    if reply.object.as_str() == "error" {
        return Err(map_reported(std::str::from_utf8(body).unwrap_or_default()));
    }
    let rows = reply.data.ok_or_else(malformed)?;
    let vectors = in_order(rows).ok_or_else(malformed)?;
    let usage = reply.usage.unwrap_or_default();
    let prompt_tokens = usage.prompt_tokens.0.or(usage.total_tokens.0).unwrap_or_default();
    Ok(Embeddings {
        vectors,
        prompt_tokens,
        total_tokens: usage.total_tokens.0.unwrap_or(prompt_tokens),
        cost_dollars: dollars(usage.cost),
        prompt_tokens_details: usage
            .prompt_tokens_details
            .and_then(|reported| details(reported, prompt_tokens))
            .unwrap_or_default(),
    })
}

/// The tokens of each kind of input, as JSON, if there are two or more kinds and none has more than `most`.
fn details(reported: &RawValue, most: u64) -> Option<Vec<u8>> {
    let kinds: BTreeMap<String, Count> = json::from_str(reported.get()).ok()?;
    let kinds: BTreeMap<String, u64> = kinds
        .into_iter()
        .filter(|(name, _)| name.ends_with("_tokens") && name != "cached_tokens")
        .filter_map(|(name, count)| Some((name, count.0.filter(|count| *count > 0)?)))
        .collect();
    let is_told = kinds.len() >= 2 && kinds.values().all(|count| *count <= most);
    if is_told { serde_json::to_vec(&kinds).ok() } else { None }
}

/// Sorts the vectors by their index. There must be exactly one for each index, all of the same
/// length. A row without an index keeps its position.
fn in_order(rows: Vec<Row<'_>>) -> Option<Vec<Vec<u8>>> {
    let length = rows.first()?.embedding.0.len();
    let mut slots: Vec<Option<Vec<u8>>> = vec![None; rows.len()];
    for (position, row) in rows.into_iter().enumerate() {
        let slot = slots.get_mut(row.place(position)?)?;
        if slot.is_some() || row.embedding.0.len() != length || length == 0 {
            return None;
        }
        *slot = Some(row.embedding.0);
    }
    slots.into_iter().collect()
}

/// A vector as little-endian binary32 numbers, converted while the JSON is read.
struct Vector(Vec<u8>);

impl<'de> Deserialize<'de> for Vector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VectorVisitor)
    }
}

struct VectorVisitor;

impl<'de> Visitor<'de> for VectorVisitor {
    type Value = Vector;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("numbers or base64")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vector, A::Error> {
        let mut bytes = Vec::new();
        while let Some(number) = sequence.next_element::<f32>()? {
            if !number.is_finite() {
                return Err(A::Error::custom("a number beyond binary32"));
            }
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        Ok(Vector(bytes))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vector, E> {
        let bytes = BASE64.decode(text).map_err(|_| E::custom("not base64"))?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() || !numbers.iter().all(|number| f32::from_le_bytes(*number).is_finite()) {
            return Err(E::custom("not binary32 numbers"));
        }
        Ok(Vector(bytes))
    }
}

#[cfg(test)]
mod tests;
