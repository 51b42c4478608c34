//! Finds the image in a model's answer.

use serde::Deserialize;

/// The longest image, in bytes of base64. An item contains it up to three times, and the whole answer
/// of a tool may have 32 MiB.
pub(crate) const BASE64_BYTES_MAX: usize = 8 << 20;

/// A generated image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Its bytes, in base64.
    pub(crate) base64: String,
    /// The media type of the bytes.
    pub(crate) media_type: &'static str,
    /// The prompt that the model really used, if it reports one.
    pub(crate) revised_prompt: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: String,
    result: Option<String>,
    revised_prompt: Option<String>,
}

/// The first image among the output items of an answer.
///
/// # Errors
///
/// When there is no image, or it is not a valid one.
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
    // Clients display the image. An SVG with scripts must not pass as one, so only known bitmap
    // formats are accepted.
    let media_type =
        media_type(&base64).ok_or("The model that was asked made something else than an image.")?;
    Ok(Picture { media_type, base64, revised_prompt })
}

/// The media type of base64 data, from its first bytes; `None` unless it is a known bitmap format.
fn media_type(base64: &str) -> Option<&'static str> {
    const KNOWN: [(usize, &str, &str); 5] = [
        (0, "iVBORw0KGgo", "image/png"),
        (0, "/9j/", "image/jpeg"),
        (0, "UklGR", "image/webp"),
        (0, "R0lGOD", "image/gif"),
        // The first box begins with its length, which is skipped here.
        (5, "GZ0eXBhdmlm", "image/avif"),
    ];
    let begins =
        |(at, begin, _): &&(usize, &str, &str)| base64.get(*at..).is_some_and(|rest| rest.starts_with(begin));
    KNOWN.iter().find(begins).map(|(_, _, kind)| *kind)
}
