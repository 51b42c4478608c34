//! The embeddings request that a provider guest translates.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;

use crate::json::{self, JsonError};
use crate::lenient::{Text, maybe_text, text};

/// An embeddings request as the host hands it over.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct EmbeddingRequest<'a> {
    /// The catalog id of the model. The name to send upstream is in the target.
    #[serde(default, deserialize_with = "text")]
    pub model: Text<'a>,
    /// What to embed, in order.
    #[serde(default)]
    pub input: Vec<EmbeddingInput<'a>>,
    /// The length of a vector that the client asks for.
    pub dimensions: Option<u32>,
    /// `float` or `base64`, as the client asked. It does not change the form of the guest's answer.
    #[serde(default, deserialize_with = "maybe_text")]
    pub encoding_format: Option<Text<'a>>,
    /// What the vectors are for, in the words of the provider.
    #[serde(default, deserialize_with = "maybe_text")]
    pub input_type: Option<Text<'a>>,
    /// Stands for the person behind the request, for the provider.
    #[serde(default, deserialize_with = "maybe_text")]
    pub user: Option<Text<'a>>,
}

impl<'a> EmbeddingRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// When the bytes do not have the form described above, which would be an error of the host.
    pub fn parse(json: &'a [u8]) -> Result<Self, JsonError> {
        json::from_str(json::utf8(json)?)
    }
}

/// One input. Each input gives one vector.
#[derive(Debug)]
pub enum EmbeddingInput<'a> {
    /// A text.
    Text(Text<'a>),
    /// The ids of tokens.
    Tokens(Vec<u64>),
    /// Parts that together give one vector.
    Content(Vec<EmbeddingPart<'a>>),
}

/// One part of an input.
#[derive(Debug)]
pub enum EmbeddingPart<'a> {
    /// A text.
    Text(Text<'a>),
    /// `image_url`: a URL, often a data URL.
    Image { url: Text<'a> },
    /// Audio, video, files and unknown parts; `raw` is the part with its known members.
    Other { kind: Text<'a>, raw: &'a RawValue },
}

impl<'de: 'a, 'a> Deserialize<'de> for EmbeddingInput<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(bound(deserialize = "'de: 'a"))]
        struct Joint<'a> {
            content: Vec<EmbeddingPart<'a>>,
        }
        #[derive(Deserialize)]
        struct Whole<'a>(#[serde(borrow, deserialize_with = "text")] Text<'a>);

        let raw = <&'a RawValue>::deserialize(deserializer)?.get();
        let input = match raw.as_bytes().first() {
            Some(b'"') => json::from_str(raw).map(|Whole(text)| EmbeddingInput::Text(text)),
            Some(b'[') => json::from_str(raw).map(EmbeddingInput::Tokens),
            _ => json::from_str(raw).map(|joint: Joint<'a>| EmbeddingInput::Content(joint.content)),
        };
        input.map_err(D::Error::custom)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for EmbeddingPart<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(bound(deserialize = "'de: 'a"))]
        struct Fields<'a> {
            #[serde(rename = "type", deserialize_with = "text")]
            kind: Text<'a>,
            #[serde(default, deserialize_with = "maybe_text")]
            text: Option<Text<'a>>,
            image_url: Option<Url<'a>>,
        }
        #[derive(Deserialize)]
        #[serde(bound(deserialize = "'de: 'a"))]
        struct Url<'a> {
            #[serde(deserialize_with = "text")]
            url: Text<'a>,
        }

        let raw = <&'a RawValue>::deserialize(deserializer)?;
        let fields: Fields<'a> = json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(match (&*fields.kind, fields.text, fields.image_url) {
            ("text", Some(text), _) => EmbeddingPart::Text(text),
            ("image_url", _, Some(image)) => EmbeddingPart::Image { url: image.url },
            _ => EmbeddingPart::Other { kind: fields.kind, raw },
        })
    }
}

/// A vector in the form of the contract: consecutive little-endian binary32 numbers.
#[must_use]
pub fn vector_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}
