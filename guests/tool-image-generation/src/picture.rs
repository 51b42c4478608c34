//! The picture in a model's answer.

use serde::Deserialize;

/// The longest picture, in bytes of base64. It stands in an item up to three times, and a tool's whole answer may
/// have 32 MiB.
pub(crate) const BASE64_BYTES_MAX: usize = 8 << 20;

/// A picture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Its bytes, in base64.
    pub(crate) base64: String,
    /// What they are.
    pub(crate) media_type: &'static str,
    /// What the model made of the prompt, if it says.
    pub(crate) revised_prompt: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: String,
    result: Option<String>,
    revised_prompt: Option<String>,
}

/// The first picture of an answer's output items.
///
/// # Errors
///
/// There is none, or it is none.
pub(crate) fn find(output: &[u8]) -> Result<Picture, &'static str> {
    let items: Vec<Item> = serde_json::from_slice(output).unwrap_or_default();
    let mut pictures = items.into_iter().filter(|item| item.kind == "image_generation_call");
    let (base64, revised_prompt) = pictures
        .find_map(|item| Some((item.result.filter(|result| !result.is_empty())?, item.revised_prompt)))
        .ok_or("The model that was asked made no image.")?;
    if base64.len() > BASE64_BYTES_MAX {
        return Err("The image is too large: ask for a smaller one.");
    }
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    if !base64.bytes().all(is_base64) {
        return Err("The model that was asked made something else than an image.");
    }
    // Clients show what they are given, and a drawing with scripts in it is no picture.
    let media_type =
        media_type(&base64).ok_or("The model that was asked made something else than an image.")?;
    Ok(Picture { media_type, base64, revised_prompt })
}

/// What bytes that begin like this are, in base64: none for what is no picture of pixels.
fn media_type(base64: &str) -> Option<&'static str> {
    const KNOWN: [(usize, &str, &str); 5] = [
        (0, "iVBORw0KGgo", "image/png"),
        (0, "/9j/", "image/jpeg"),
        (0, "UklGR", "image/webp"),
        (0, "R0lGOD", "image/gif"),
        // Behind the length of its first box.
        (5, "GZ0eXBhdmlm", "image/avif"),
    ];
    let begins =
        |(at, begin, _): &&(usize, &str, &str)| base64.get(*at..).is_some_and(|rest| rest.starts_with(begin));
    KNOWN.iter().find(begins).map(|(_, _, kind)| *kind)
}
