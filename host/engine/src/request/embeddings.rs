//! The body of POST /v1/embeddings.

use super::bounds::PartCount;
use super::fields::BodyFields;
use super::input::saturated;
use super::json::{JsonDocument, JsonKind, JsonValue, separate};
use super::rule::{NAME, Shape, ValueRule, required};
use super::shapes::embeddings::{BODY, PARTS};
use super::weight::Weight;
use super::{Ability, InvalidRequest, ProviderPreferences, guest, weight};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The encoding of vectors in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncodingFormat {
    /// Arrays of numbers.
    #[default]
    Float,
    /// Base64 of little-endian 32-bit floats.
    Base64,
}

/// A checked embeddings request.
#[derive(Debug, Clone)]
pub struct EmbeddingsRequest {
    /// `model` as the client wrote it.
    pub model: String,
    /// How many vectors the answer must have, 1 to 2048.
    pub input_count: usize,
    /// The requested length of the vectors, at least 1.
    pub dimensions: Option<u32>,
    /// The encoding that the client asks for.
    pub encoding_format: EncodingFormat,
    /// `search_query`, `search_document` and the like.
    pub input_type: Option<String>,
    /// Routing preferences.
    pub provider: ProviderPreferences,
    /// The session, at most 256 characters; used only to group usage.
    pub session_id: Option<String>,
    /// The end user's id.
    pub user: Option<String>,
    /// `trace` as JSON.
    pub trace: Option<Bytes>,
    /// What an endpoint must be able to do, each with the index of the first input that needs it.
    pub needs: BTreeMap<Ability, usize>,
    /// Names of the parameters that the client set, for `require_parameters`.
    pub parameters: Vec<&'static str>,
    /// An estimate of the input tokens: a quarter of the characters, or the number of tokens that
    /// the client sent.
    pub input_tokens: u32,
    /// The upper bound of the input tokens.
    pub(crate) weight: Weight,
    /// The document for provider guests, written once.
    pub guest_json: Bytes,
}

impl EmbeddingsRequest {
    /// Parses and checks a body.
    ///
    /// # Errors
    /// The first violation, with its path.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidRequest> {
        let document = JsonDocument::parse(body)?;
        let fields = BodyFields::check(&BODY, document.root())?;
        let input = fields.get("input").map(Input::check).transpose()?.unwrap_or_default();
        let guest_json = write(&fields, body.len());
        let base64 = fields.get("encoding_format").is_some_and(|format| format.is("base64"));
        Ok(Self {
            model: fields.text("model").unwrap_or_default(),
            input_count: input.count,
            dimensions: fields.count("dimensions"),
            encoding_format: if base64 { EncodingFormat::Base64 } else { EncodingFormat::Float },
            input_type: fields.text("input_type"),
            provider: fields.get("provider").map(ProviderPreferences::of).unwrap_or_default(),
            session_id: fields.text("session_id").filter(|id| !id.is_empty()),
            user: fields.text("user"),
            trace: fields.get("trace").map(|trace| Bytes::from(trace.compact())),
            needs: input.needs,
            parameters: PARAMETERS.into_iter().filter(|name| fields.get(name).is_some()).collect(),
            input_tokens: saturated(input.chars.div_ceil(4) + input.tokens),
            weight: input.weight,
            guest_json,
        })
    }
}

/// Members that an endpoint may not support. `encoding_format` is not one: the host converts the
/// encoding if necessary.
const PARAMETERS: [&str; 2] = ["dimensions", "input_type"];

/// The most vectors of one answer.
pub(super) const INPUTS_MAX: usize = 2048;

pub(super) const TOKEN: ValueRule = ValueRule::Integer { min: 0, max: u32::MAX as i64 };

const CONTENT: ValueRule = ValueRule::List { of: &ValueRule::Tagged(&PARTS), min: 1, max: INPUTS_MAX };
/// An input of several parts.
const JOINT: ValueRule = ValueRule::Object(&Shape::of(&[required("content", CONTENT)]));

/// Facts about an input, collected while it is checked.
#[derive(Debug, Default)]
struct Input {
    count: usize,
    chars: u64,
    tokens: u64,
    weight: Weight,
    needs: BTreeMap<Ability, usize>,
    parts: PartCount,
}

impl Input {
    /// Checks an input: a text, one list of tokens, one object with content, or a list of inputs.
    fn check(input: JsonValue<'_>) -> Result<Self, InvalidRequest> {
        let mut counted = Self { count: 1, ..Self::default() };
        if matches!(input.kind(), JsonKind::String | JsonKind::Object) {
            counted.element(input, 0)?;
            return Ok(counted);
        }
        if input.kind() != JsonKind::Array {
            return Err(input.mistyped("a string, an array or an object with content"));
        }
        match input.items().next().map(JsonValue::kind) {
            None => return Err(input.invalid("must hold at least 1 element")),
            Some(JsonKind::Number) => counted.element(input, 0)?,
            Some(_) => {
                ValueRule::List { of: &ValueRule::Any, min: 1, max: INPUTS_MAX }.check(input)?;
                counted.count = input.items().count();
                let mut elements = input.items().enumerate();
                elements.try_for_each(|(index, element)| counted.element(element, index))?;
            }
        }
        Ok(counted)
    }

    /// Checks the input of one vector.
    fn element(&mut self, element: JsonValue<'_>, index: usize) -> Result<(), InvalidRequest> {
        match element.kind() {
            JsonKind::String => {
                NAME.check(element)?;
                self.chars += element.chars() as u64;
                self.weight = self.weight.plus(weight::of(element));
                Ok(())
            }
            JsonKind::Array => {
                ValueRule::List { of: &TOKEN, min: 1, max: usize::MAX }.check(element)?;
                let tokens = element.items().count() as u64;
                self.tokens += tokens;
                self.weight = self.weight.plus(Weight::tokens(tokens));
                Ok(())
            }
            JsonKind::Object => self.parts(element, index),
            _ => Err(element.mistyped("a string, an array of tokens or an object with content")),
        }
    }

    fn parts(&mut self, element: JsonValue<'_>, index: usize) -> Result<(), InvalidRequest> {
        let Some(content) = element.get("content") else {
            return Err(element.invalid_member("content", "is required"));
        };
        CONTENT.check(content)?;
        self.weight = self.weight.plus(weight::of(content));
        self.parts.take(content)?;
        for part in content.items() {
            let need = match part.get("type").map(JsonValue::text).as_deref() {
                Some("image_url") => Ability::Images,
                Some("input_audio") => Ability::Audio,
                Some("input_video") => Ability::Video,
                Some("input_file") => Ability::Files,
                _ => {
                    self.chars += part.get("text").map_or(0, JsonValue::chars) as u64;
                    continue;
                }
            };
            self.needs.entry(need).or_insert(index);
        }
        Ok(())
    }
}

/// Writes the input of one vector. Unknown members of its parts are left out: they may name something
/// that others have stored at a provider.
fn write_element(element: JsonValue<'_>, out: &mut Vec<u8>) {
    separate(out);
    let rule = if element.kind() == JsonKind::Object { JOINT } else { ValueRule::Any };
    rule.write(element, out);
}

/// Writes the request for provider guests: `input` is always an array, and absent members are
/// omitted.
fn write(fields: &BodyFields<'_>, size: usize) -> Bytes {
    let mut out = Vec::with_capacity(size + 64);
    out.extend_from_slice(br#"{"model":"#);
    if let Some(model) = fields.get("model") {
        model.write(&mut out);
    }
    if let Some(input) = fields.get("input") {
        out.extend_from_slice(br#","input":["#);
        // A single text, object or list of tokens becomes the only element.
        if input.items().next().is_some_and(|first| first.kind() != JsonKind::Number) {
            input.items().for_each(|element| write_element(element, &mut out));
        } else {
            write_element(input, &mut out);
        }
        out.push(b']');
    }
    for name in ["dimensions", "encoding_format", "input_type", "user"] {
        guest::write_member(name, fields.get(name), &mut out);
    }
    out.push(b'}');
    Bytes::from(out)
}
