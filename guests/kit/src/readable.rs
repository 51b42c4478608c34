//! Which strings of a request a model reads as text.

/// Members whose strings are names and media.
const NOT_TEXT: [&str; 15] = [
    "audio_url",
    "call_id",
    "data",
    "encrypted_content",
    "file_data",
    "file_id",
    "file_url",
    "id",
    "image_url",
    "image_b64",
    "result",
    "role",
    "signature",
    "status",
    "type",
];

/// Whether a model reads the strings of this member, wherever it stands in `input`.
#[must_use]
pub fn is_text_member(name: &str) -> bool {
    !NOT_TEXT.contains(&name)
}
