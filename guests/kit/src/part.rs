//! The parts of a message or of a function result.

use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use crate::lenient::{Lenient, ListReader, MaybeText, Reader, Text};

/// The client's cache hints on a part.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks<'a> {
    /// `cache_control`.
    pub cache_control: Option<&'a RawValue>,
    /// `prompt_cache_breakpoint`.
    pub breakpoint: Option<&'a RawValue>,
}

/// One part of `content` or of a function's `output`.
#[derive(Debug)]
pub enum Part<'a> {
    /// `input_text`, `output_text`, and the text kinds of reasoning.
    Text { text: Text<'a>, marks: Marks<'a> },
    /// `refusal`.
    Refusal { text: Text<'a> },
    /// `input_image`: a URL (often a data URL) or the id of a file.
    Image { url: Option<Text<'a>>, file_id: Option<Text<'a>>, detail: Option<Text<'a>>, marks: Marks<'a> },
    /// `input_file`: a data URL or plain base64 in `data`, or a URL, or an id.
    File {
        filename: Option<Text<'a>>,
        data: Option<Text<'a>>,
        url: Option<Text<'a>>,
        file_id: Option<Text<'a>>,
        marks: Marks<'a>,
    },
    /// `input_audio`: base64 in `data`; `format` is `mp3` or `wav`.
    Audio { data: Text<'a>, format: Option<Text<'a>> },
    /// `input_video`.
    Video { url: Text<'a> },
    /// Any other part; `kind` is its `type`, empty when it has none.
    Other { kind: Text<'a> },
}

impl Part<'_> {
    /// The text of a text part or refusal.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Part::Text { text, .. } | Part::Refusal { text } => Some(text),
            _ => None,
        }
    }
}

/// The union of the fields of all parts. Reading it needs no second pass, at any position of
/// `type`.
#[derive(Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Fields<'a> {
    #[serde(rename = "type")]
    kind: MaybeText<'a>,
    text: MaybeText<'a>,
    refusal: MaybeText<'a>,
    image_url: MaybeText<'a>,
    file_id: MaybeText<'a>,
    detail: MaybeText<'a>,
    filename: MaybeText<'a>,
    file_data: MaybeText<'a>,
    file_url: MaybeText<'a>,
    input_audio: Option<Audio<'a>>,
    video_url: MaybeText<'a>,
    cache_control: Option<&'a RawValue>,
    prompt_cache_breakpoint: Option<&'a RawValue>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Audio<'a> {
    data: MaybeText<'a>,
    format: MaybeText<'a>,
}

impl<'a> From<Fields<'a>> for Part<'a> {
    fn from(fields: Fields<'a>) -> Self {
        let kind = fields.kind.0.unwrap_or_default();
        let marks = Marks { cache_control: fields.cache_control, breakpoint: fields.prompt_cache_breakpoint };
        match &*kind {
            "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
                Part::Text { text: fields.text.0.unwrap_or_default(), marks }
            }
            "refusal" => Part::Refusal { text: fields.refusal.0.unwrap_or_default() },
            "input_image" => Part::Image {
                url: fields.image_url.0,
                file_id: fields.file_id.0,
                detail: fields.detail.0,
                marks,
            },
            "input_file" => Part::File {
                filename: fields.filename.0,
                data: fields.file_data.0,
                url: fields.file_url.0,
                file_id: fields.file_id.0,
                marks,
            },
            "input_audio" => {
                let audio = fields.input_audio.unwrap_or_default();
                Part::Audio { data: audio.data.0.unwrap_or_default(), format: audio.format.0 }
            }
            "input_video" => Part::Video { url: fields.video_url.0.unwrap_or_default() },
            _ => Part::Other { kind },
        }
    }
}

impl Default for Part<'_> {
    fn default() -> Self {
        Part::Other { kind: Text::Borrowed("") }
    }
}

struct PartReader;

impl<'de> Reader<'de> for PartReader {
    type Output = Part<'de>;

    fn text(self, text: Text<'de>) -> Part<'de> {
        Part::Text { text, marks: Marks::default() }
    }

    fn object<A: MapAccess<'de>>(self, map: A) -> Result<Part<'de>, A::Error> {
        Deserialize::deserialize(MapAccessDeserializer::new(map)).map(|fields: Fields<'de>| fields.into())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Lenient(PartReader))
    }
}

/// The content of a message or of a function result.
#[derive(Debug, Default)]
pub enum Content<'a> {
    /// Nothing, or a value that is neither text nor parts.
    #[default]
    Empty,
    /// Plain text.
    Text(Text<'a>),
    /// Parts in order.
    Parts(Vec<Part<'a>>),
}

impl<'a> Content<'a> {
    /// The content as a list of parts; plain text becomes one part.
    #[must_use]
    pub fn into_parts(self) -> Vec<Part<'a>> {
        match self {
            Content::Empty => Vec::new(),
            Content::Text(text) => vec![Part::Text { text, marks: Marks::default() }],
            Content::Parts(parts) => parts,
        }
    }

    /// All text of the content. Text parts are joined without a separator, other parts are left out.
    #[must_use]
    pub fn to_text(&self) -> Text<'_> {
        match self {
            Content::Empty => Text::Borrowed(""),
            Content::Text(text) => Text::Borrowed(text),
            Content::Parts(parts) => match parts.as_slice() {
                [only] => Text::Borrowed(only.text().unwrap_or_default()),
                many => Text::Owned(many.iter().filter_map(Part::text).collect()),
            },
        }
    }
}

struct ContentReader;

impl<'de> Reader<'de> for ContentReader {
    type Output = Content<'de>;

    fn text(self, text: Text<'de>) -> Content<'de> {
        Content::Text(text)
    }

    fn list<A: SeqAccess<'de>>(self, sequence: A) -> Result<Content<'de>, A::Error> {
        ListReader(PhantomData).list(sequence).map(Content::Parts)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Lenient(ContentReader))
    }
}
