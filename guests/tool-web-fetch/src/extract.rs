//! Extracts the text of a response body.

use cofferdam_guest_kit::bindings::http::Response;
use cofferdam_guest_kit::server_tool::{Media, clip, decode, header};
use url::Url;

use crate::html;
use crate::page::Page;

/// Reads at most `chars_max` characters of a body.
///
/// # Errors
///
/// When the body cannot be read as text; the message is for the model.
pub(crate) fn read(response: &Response, url: &Url, chars_max: usize) -> Result<Page, String> {
    let content_type = header(response, "content-type");
    match Media::of(content_type, &response.body) {
        Media::Html => Ok(html::read(&decode(content_type, &response.body), url, chars_max)),
        Media::Pdf => {
            let document = cofferdam_pdf::read(&response.body, chars_max)?;
            Ok(Page { title: document.title, text: document.text, cut: document.cut })
        }
        // JSON is UTF-8 (RFC 8259). A header that says otherwise counts only for bytes that are not.
        Media::Json if is_utf8_json(&response.body) => {
            Ok(plain(&decode(Some("application/json; charset=utf-8"), &response.body), chars_max))
        }
        Media::Json | Media::Text => Ok(plain(&decode(content_type, &response.body), chars_max)),
        Media::Binary(essence) => Err(format!(
            "There is no text to read: the answer is {} bytes of {essence}.",
            response.body.len()
        )),
    }
}

/// Whether bytes of JSON are UTF-8. The bytes of UTF-16 and of ISO-2022-JP can be valid UTF-8 too; they have zeros or
/// escape characters, which JSON does not have.
fn is_utf8_json(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok() && !body.iter().any(|byte| matches!(byte, 0 | 0x1b))
}

/// A text that stays as it is.
fn plain(text: &str, chars_max: usize) -> Page {
    let clipped = clip(text.trim(), chars_max);
    Page { title: None, text: clipped.text.to_owned(), cut: clipped.cut }
}
