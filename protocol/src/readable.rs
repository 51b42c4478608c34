//! Which strings of a request are text that a model reads.

/// Members whose strings are names or media. Moderation does not read them, and the host leaves them out of a client's
/// call that it renders for a model.
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

/// Whether a model reads the string in a member of this name, at any depth of `input`.
#[must_use]
pub fn is_text_member(name: &str) -> bool {
    !NOT_TEXT.contains(&name)
}
