//! An upper bound of the tokens of a client's input.
//!
//! Providers count with tokenizers that this host does not have, and each provider decides how it
//! counts pictures and files. So this is not an estimate but a bound: one token for each byte of
//! text, of a schema or of sealed reasoning, a fixed count for each picture, one token for two bytes
//! of any other file, and a fixed count for each item, message and part.

use super::json::{JsonKind, JsonValue};

/// Tokens of a picture of any size: providers scale down pictures that are too large.
const PICTURE_TOKENS: u64 = 6_000;
/// Bytes of a file, audio or video per token.
const BYTES_PER_TOKEN: u64 = 2;
/// The smallest reasoning budget that is accepted by models which require a number.
const REASONING_TOKENS_MIN: u64 = 1_024;
/// Tokens of the marks between which models receive an item, a message or a part. Providers count a
/// few for each.
const ITEM_TOKENS: u64 = 8;
/// The likely number of tokens is the upper bound divided by this.
const MOST_PER_TOKEN: u64 = 4;
/// The assumed size of a file that the provider fetches itself: the largest that providers commonly
/// accept.
const UNKNOWN_FILE_BYTES: u64 = 32 << 20;

/// Members that only structure items and parts, and that models do not receive as text.
const FRAME: [&str; 6] = ["type", "role", "status", "phase", "id", "call_id"];
/// Members with schemas or lists of tools. Models receive them whole, with names and punctuation.
const SCHEMAS: [&str; 5] = ["tools", "schema", "parameters", "input_schema", "output_schema"];
/// Members that may have the file of a part, and whether the value is the file itself.
const SOURCES: [(&str, bool); 6] = [
    ("file_data", true),
    ("data", true),
    ("file_url", false),
    ("video_url", false),
    ("url", false),
    ("file_id", false),
];
/// The members of [`SOURCES`]; their bytes are not text.
const FILES: [&str; 6] = ["file_data", "data", "file_url", "video_url", "url", "file_id"];

/// Upper bounds of tokens for a part of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// For content that is in the request itself.
    known: u64,
    /// For files that the provider fetches.
    elsewhere: u64,
    /// For reasoning that a dialect may allow the model in addition to `max_output_tokens`.
    reasoning: u64,
}

impl Weight {
    /// Content in the request itself, of this many tokens.
    pub(crate) fn tokens(known: u64) -> Self {
        Self { known, ..Self::default() }
    }

    /// Sets the reasoning budget to `tokens`, but at least to the smallest that models accept.
    pub(super) fn reasoning(self, tokens: u64) -> Self {
        Self { reasoning: tokens.max(REASONING_TOKENS_MIN), ..self }
    }

    /// The sum of both.
    pub(super) fn plus(self, more: Self) -> Self {
        Self {
            known: self.known.saturating_add(more.known),
            elsewhere: self.elsewhere.saturating_add(more.elsewhere),
            reasoning: self.reasoning.saturating_add(more.reasoning),
        }
    }

    /// The upper bound of tokens of files that the provider fetches.
    pub(crate) fn elsewhere(self) -> u64 {
        self.elsewhere
    }

    /// The upper bound of input tokens.
    pub(crate) fn most(self) -> u64 {
        self.known.saturating_add(self.elsewhere)
    }

    /// The upper bound of reasoning tokens beyond `max_output_tokens`.
    pub(crate) fn most_reasoning(self) -> u64 {
        self.reasoning
    }

    /// The likely number of tokens, without files that the provider fetches.
    pub(crate) fn about(self) -> u64 {
        self.known.div_ceil(MOST_PER_TOKEN)
    }
}

fn sum(weights: impl Iterator<Item = Weight>) -> Weight {
    weights.fold(Weight::default(), Weight::plus)
}

/// The weight of an input, or of any other value that models receive.
pub(super) fn of(value: JsonValue<'_>) -> Weight {
    match value.kind() {
        JsonKind::Null => Weight::default(),
        JsonKind::String => Weight::tokens(value.bytes() as u64),
        JsonKind::Number | JsonKind::True | JsonKind::False => Weight::tokens(value.raw().len() as u64),
        JsonKind::Array => sum(value.items().map(of)),
        JsonKind::Object => of_object(value),
    }
}

fn of_object(object: JsonValue<'_>) -> Weight {
    let picture = |source: &[&str]| Weight::tokens(PICTURE_TOKENS).plus(of_members(object, source));
    let tag = object.get("type").map(JsonValue::text).unwrap_or_default();
    match tag.as_ref() {
        "input_image" | "computer_screenshot" | "image_url" => picture(&["image_url", "file_id"]),
        "image" => picture(&["url"]),
        // Results of this host's own image tool have a type with a prefix, and models receive them
        // as text.
        "image_generation_call" => picture(&["result"]),
        word @ ("input_file" | "input_audio" | "input_video") => {
            // Some parts have their file in an object with the same name as the part's type.
            let part = object.get(word).unwrap_or(object);
            file(part).plus(of_members(part, &FILES)).plus(Weight::tokens(ITEM_TOKENS))
        }
        word => {
            let has_frame = !word.is_empty() || object.get("role").is_some();
            let frame = if has_frame { Weight::tokens(ITEM_TOKENS) } else { keys(object) };
            frame.plus(of_members(object, &[]))
        }
    }
}

/// The weight of the members, except those that only structure and those in `left_out`.
fn of_members(object: JsonValue<'_>, left_out: &[&str]) -> Weight {
    sum(object.members().map(|(key, value)| {
        let is_one_of = |names: &[&str]| names.iter().any(|name| key.is(name));
        match value.kind() {
            // An array or object under a name of `FRAME` does carry content.
            JsonKind::String if is_one_of(&FRAME) => Weight::default(),
            _ if is_one_of(left_out) => Weight::default(),
            _ if is_one_of(&SCHEMAS) => Weight::tokens(value.compact_bytes() as u64),
            _ => of(value),
        }
    }))
}

fn keys(object: JsonValue<'_>) -> Weight {
    sum(object.members().map(|(key, _)| Weight::tokens(key.bytes() as u64)))
}

/// The weight of all files of a part. A part may name several sources, and which of them the provider
/// uses is not known.
fn file(part: JsonValue<'_>) -> Weight {
    let sources = SOURCES.iter().filter_map(|(name, is_here)| Some((part.get(name)?, *is_here)));
    // Some sources are objects with a `url`.
    sum(sources.map(|(source, is_here)| of_source(source.get("url").unwrap_or(source), is_here)))
}

fn of_source(source: JsonValue<'_>, is_here: bool) -> Weight {
    let here = |bytes: u64| Weight::tokens(bytes.div_ceil(BYTES_PER_TOKEN));
    let written = source.text();
    match written.strip_prefix("data:").and_then(|url| url.split_once(',')) {
        Some((kind, data)) if kind.ends_with(";base64") => here(decoded(data.len())),
        Some((_, data)) => here(data.len() as u64),
        // Some providers fetch a URL that stands in the place of the data. Base64 has no colon.
        None if is_here && !written.contains(':') => here(decoded(written.len())),
        None => Weight { elsewhere: UNKNOWN_FILE_BYTES / BYTES_PER_TOKEN, ..Weight::default() },
    }
}

/// How many bytes `length` characters of base64 decode to, at most.
fn decoded(length: usize) -> u64 {
    (length as u64).div_ceil(4).saturating_mul(3)
}

#[cfg(test)]
mod tests {
    use super::super::json::JsonDocument;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn weight(input: &serde_json::Value) -> u64 {
        let text = input.to_string();
        of(JsonDocument::parse(text.as_bytes()).unwrap().root()).most()
    }

    fn part(part: serde_json::Value) -> serde_json::Value {
        json!([{"type": "message", "role": "user", "content": [part]}])
    }

    #[test]
    fn text_counts_by_bytes_and_structural_members_count_once_an_item() {
        assert_eq!(weight(&json!("x")), 1);
        assert_eq!(weight(&json!([{"role": "user", "content": "zwölf"}])), 8 + 6);
        assert_eq!(weight(&part(json!({"type": "input_text", "text": "a\nb\u{1F600}"}))), 2 * 8 + 7);
        let escaped = br#""\u00e9\ud83d\ude00\n\\""#;
        assert_eq!(of(JsonDocument::parse(escaped).unwrap().root()), Weight::tokens(2 + 4 + 1 + 1));
        let call =
            json!([{"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}]);
        assert_eq!(weight(&call), 8 + 3);
        let sealed = json!([{"type": "reasoning", "summary": [], "encrypted_content": "s".repeat(4_000)}]);
        assert_eq!(weight(&sealed), 8 + 4_000);
    }

    #[test]
    fn text_in_names_and_schemas_counts() {
        let long = "n".repeat(500);
        let action = json!([{"type": "web_search_call", "action": {long.clone(): ""}}]);
        assert_eq!(weight(&action), 8 + 500);
        let tools =
            json!([{"type": "mcp_list_tools", "server_label": "s", "tools": [{"type": "object", long: 1}]}]);
        assert!(weight(&tools) > 500);
    }

    #[test]
    fn pictures_and_files_count_by_their_kind() {
        let url = format!("data:image/png;base64,{}", "A".repeat(400_000));
        assert_eq!(weight(&part(json!({"type": "input_image", "image_url": url}))), 8 + 6_000);
        let shot = json!([{"type": "computer_call_output", "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": url}}]);
        assert_eq!(weight(&shot), 8 + 6_000);
        let drawn = json!([{"type": "image_generation_call", "id": "ig", "result": "A".repeat(400_000)}]);
        assert_eq!(weight(&drawn), 6_000);
        let data = "A".repeat(4_000);
        let file = json!({"type": "input_file", "filename": "ab", "file_data": format!("data:application/pdf;base64,{data}")});
        assert_eq!(weight(&part(file)), 2 * 8 + 1_502);
        let plain = json!({"type": "input_file", "file_data": data});
        assert_eq!(weight(&part(plain)), 2 * 8 + 1_500);
        let audio = json!({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}});
        assert_eq!(weight(&part(audio)), 2 * 8 + 1_503);
        let video = json!({"type": "input_video", "video_url": "https://example.com/v"});
        assert_eq!(weight(&part(video)), 2 * 8 + (16 << 20));
        let elsewhere = json!({"type": "input_file", "file_id": "file_1"});
        assert_eq!(weight(&part(elsewhere)), 2 * 8 + (16 << 20));
        let both =
            json!({"type": "input_file", "file_data": "QUFB", "file_url": "https://example.com/a.pdf"});
        assert_eq!(weight(&part(both)), 2 * 8 + 2 + (16 << 20));
        let url_as_data = json!({"type": "input_file", "file_data": "https://example.com/a.pdf"});
        assert_eq!(weight(&part(url_as_data)), 2 * 8 + (16 << 20));
    }

    #[test]
    fn each_item_and_each_part_counts_beside_its_text() {
        let message = json!({"role": "user", "content": [{"type": "input_text", "text": "x"}]});
        let input = serde_json::Value::Array(vec![message; 10_000]);
        // Providers count up to seven tokens for such a message.
        assert!(weight(&input) >= 70_000);
    }

    proptest! {
        /// Every text counts, in any place of the input and with any escapes.
        #[test]
        fn every_text_counts_at_least_once(text in "\\PC{0,60}", place in 0..5_usize) {
            let input = match place {
                0 => json!(text),
                1 => json!([{"role": "user", "content": text}]),
                2 => part(json!({"type": "input_text", "text": text})),
                3 => json!([{"type": "function_call_output", "call_id": "c", "output": text}]),
                _ => json!([{"type": "file_search_call", "queries": [], "results": [{"text": text}]}]),
            };
            prop_assert!(weight(&input) >= text.len() as u64);
        }
    }
}
