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
        Media::Json | Media::Text => {
            let text = decode(content_type, &response.body);
            let clipped = clip(text.trim(), chars_max);
            Ok(Page { title: None, text: clipped.text.to_owned(), cut: clipped.cut })
        }
        Media::Binary(essence) => Err(format!(
            "There is no text to read: the answer is {} bytes of {essence}.",
            response.body.len()
        )),
    }
}
