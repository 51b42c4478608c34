//! Images and documents. Anthropic accepts images, PDF and plain text, inline or by URL. File ids
//! are refused, because they belong to the storage of another provider. The message of a refusal
//! begins with the member of the part that is the cause.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_guest_kit::DataUrl;
use cofferdam_guest_kit::bindings::types::Failure;

use crate::blocks::{Block, Source, Text};
use crate::cache::CacheControl;
use crate::error::refuse;

/// The base64 form of `%PDF-`, with which every PDF begins.
const PDF_START: &str = "JVBERi";

/// The block for an `input_image`.
pub fn image<'a>(url: Option<&'a str>, cache_control: Option<CacheControl>) -> Result<Block<'a>, Failure> {
    let Some(url) = url else {
        return Err(refuse("file_id: this provider takes pictures as URL or data URL only"));
    };
    let source = match DataUrl::parse(url) {
        Some(data) if data.base64 => picture(data.media_type, data.data),
        Some(_) => return Err(refuse("image_url: a data URL must be base64")),
        None => Source::Url { url: Text::Borrowed(url) },
    };
    Ok(Block::Image { source, cache_control })
}

/// An `input_file`.
#[derive(Debug, Default)]
pub struct File<'a> {
    pub filename: Option<&'a str>,
    pub data: Option<&'a str>,
    pub url: Option<&'a str>,
}

/// The block for an `input_file`: a document, or an image that was sent as a file.
pub fn file<'a>(file: &File<'a>, cache_control: Option<CacheControl>) -> Result<Block<'a>, Failure> {
    let title = file.filename.filter(|name| !name.is_empty()).map(Text::Borrowed);
    let source = match (file.data, file.url) {
        (Some(data), _) => match DataUrl::parse(data) {
            Some(data) if data.media_type.starts_with("image/") && data.base64 => {
                return Ok(Block::Image { source: picture(data.media_type, data.data), cache_control });
            }
            Some(data) => inline(&data)?,
            None => bare(data, file.filename)?,
        },
        (None, Some(url)) => Source::Url { url: Text::Borrowed(url) },
        (None, None) => {
            return Err(refuse("file_id: this provider takes files as file_data or file_url only"));
        }
    };
    Ok(Block::Document { source, title, cache_control })
}

fn picture<'a>(media_type: &'a str, data: &'a str) -> Source<'a> {
    // `image/jpg` is not a registered media type, but many clients send it.
    let media_type = if media_type.eq_ignore_ascii_case("image/jpg") { "image/jpeg" } else { media_type };
    Source::Base64 { media_type: Text::Borrowed(media_type), data: Text::Borrowed(data) }
}

fn inline<'a>(data: &DataUrl<'a>) -> Result<Source<'a>, Failure> {
    match (data.media_type, data.base64) {
        ("application/pdf", true) => Ok(pdf(data.data)),
        (kind, true) if is_text(kind) => decoded(data.data),
        (kind, false) if is_text(kind) => Ok(plain_text(percent_decoded(data.data)?)),
        // Browsers use this type for every file whose type they cannot find out.
        ("application/octet-stream", true) => bare(data.data, None),
        _ => Err(unreadable()),
    }
}

/// Base64 without a media type: the file name or the first bytes decide.
fn bare<'a>(data: &'a str, filename: Option<&str>) -> Result<Source<'a>, Failure> {
    let pdf_name = filename.is_some_and(|name| name.to_ascii_lowercase().ends_with(".pdf"));
    if pdf_name || data.starts_with(PDF_START) { Ok(pdf(data)) } else { decoded(data) }
}

fn pdf(data: &str) -> Source<'_> {
    Source::Base64 { media_type: Text::Borrowed("application/pdf"), data: Text::Borrowed(data) }
}

fn decoded<'a>(data: &str) -> Result<Source<'a>, Failure> {
    let bytes = STANDARD.decode(data.trim()).map_err(|_| refuse("file_data: not valid base64"))?;
    String::from_utf8(bytes).map(plain_text).map_err(|_| unreadable())
}

fn plain_text<'a>(text: String) -> Source<'a> {
    Source::Text { media_type: "text/plain", data: Cow::Owned(text) }
}

fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/")
        || matches!(
            media_type,
            "application/json"
                | "application/xml"
                | "application/yaml"
                | "application/x-yaml"
                | "application/toml"
                | "application/javascript"
                | "application/x-ndjson"
        )
}

fn percent_decoded(text: &str) -> Result<String, Failure> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(refuse("file_data: a broken data URL"));
        };
        bytes.extend(u8::try_from(high * 16 + low));
    }
    String::from_utf8(bytes).map_err(|_| unreadable())
}

fn unreadable() -> Failure {
    refuse("file_data: this provider reads PDF, text and pictures")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{File, file, image};

    fn document(data: &str, filename: Option<&str>) -> Result<Value, String> {
        let read = file(&File { filename, data: Some(data), url: None }, None);
        read.map(|block| serde_json::to_value(block).expect("a block is JSON")).map_err(|f| f.message)
    }

    #[test]
    fn kinds_of_files_are_recognized() {
        let pdf = json!({"type":"base64","media_type":"application/pdf","data":"JVBERi0="});
        let text = json!({"type":"text","media_type":"text/plain","data":"hi"});
        let cases = [
            ("data:application/pdf;base64,JVBERi0=", None, &pdf),
            ("JVBERi0=", None, &pdf),
            ("data:application/octet-stream;base64,JVBERi0=", None, &pdf),
            ("data:text/markdown;base64,aGk=", None, &text),
            ("data:,h%69", None, &text),
            ("aGk=", None, &text),
        ];
        for (data, name, source) in cases {
            assert_eq!(document(data, name), Ok(json!({"type":"document","source":source})), "{data}");
        }
        let named = document("AAAA", Some("Report.PDF")).expect("a PDF by its name");
        assert_eq!(named["title"], "Report.PDF");
        assert_eq!(named["source"]["media_type"], "application/pdf");
        let picture = document("data:image/png;base64,AAAA", None).expect("a picture");
        assert_eq!(picture["type"], "image");
    }

    #[test]
    fn unsupported_files_are_refused() {
        for data in ["data:application/zip;base64,UEsDBA==", "/////w==", "no base64!", "data:,%zz"] {
            assert!(document(data, None).is_err(), "{data}");
        }
        assert!(image(None, None).is_err());
        assert!(image(Some("data:image/svg+xml,<svg/>"), None).is_err());
        assert!(file(&File::default(), None).is_err());
    }
}
