//! The kind of a body, from its content type and its first bytes.

/// The kinds of bodies that tools distinguish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Media {
    /// A web page.
    Html,
    /// A PDF document.
    Pdf,
    /// A JSON document, or lines of JSON.
    Json,
    /// Any other text: plain, XML, CSV, source code.
    Text,
    /// Anything else, with its media type.
    Binary(String),
}

/// How many bytes of the body are examined.
const SNIFFED_BYTES: usize = 1024;

impl Media {
    /// Finds out what a body is. The bytes count more than the header in two cases: `%PDF-` at the
    /// start is a PDF, and control bytes in a declared text make it binary. A body without a usable
    /// content type is judged by its bytes.
    #[must_use]
    pub fn of(content_type: Option<&str>, body: &[u8]) -> Self {
        let head = body.get(..SNIFFED_BYTES).unwrap_or(body);
        if head.trim_ascii_start().starts_with(b"%PDF-") {
            return Self::Pdf;
        }
        let essence = content_type.map(essence).filter(|essence| essence.contains('/'));
        match essence.as_deref() {
            Some("text/html" | "application/xhtml+xml") => Self::Html,
            Some("application/pdf" | "application/x-pdf") => Self::Pdf,
            Some(json) if json == "application/json" || json.ends_with("json") => Self::Json,
            Some(text) if is_text(text) && !has_binary_bytes(head) => Self::Text,
            None | Some("application/octet-stream" | "application/x-unknown") if !has_binary_bytes(head) => {
                if looks_like_html(head) {
                    Self::Html
                } else {
                    Self::Text
                }
            }
            Some(other) => Self::Binary(other.to_owned()),
            None => Self::Binary("application/octet-stream".to_owned()),
        }
    }
}

/// The media type without parameters, in lower case and cut to 100 characters.
fn essence(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.chars().filter(char::is_ascii_graphic).take(100).collect()
}

fn is_text(essence: &str) -> bool {
    const OTHERS: [&str; 12] = [
        "application/xml",
        "application/javascript",
        "application/ecmascript",
        "application/x-javascript",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/sql",
        "application/x-sh",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/rtf",
    ];
    essence.starts_with("text/")
        || essence.ends_with("+xml")
        || essence.ends_with("+yaml")
        || OTHERS.contains(&essence)
}

/// Whether the bytes contain control characters that text does not have. UTF-16 with a byte order
/// mark counts as text.
fn has_binary_bytes(head: &[u8]) -> bool {
    let utf_16 = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
    !utf_16 && head.iter().any(|byte| matches!(byte, 0..=8 | 14..=26 | 28..=31))
}

fn looks_like_html(head: &[u8]) -> bool {
    let head = head.trim_ascii_start().to_ascii_lowercase();
    [&b"<!doctype html"[..], b"<html", b"<head", b"<body"].iter().any(|start| head.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_first_bytes_give_the_kind() {
        let binary = |name: &str| Media::Binary(name.to_owned());
        let cases: [(Option<&str>, &[u8], Media); 16] = [
            (Some("text/html; charset=utf-8"), b"x", Media::Html),
            (Some("TEXT/HTML"), b"x", Media::Html),
            (Some("application/xhtml+xml"), b"x", Media::Html),
            (Some("application/pdf"), b"not one", Media::Pdf),
            (Some("text/html"), b"%PDF-1.7", Media::Pdf),
            (Some("application/vnd.api+json"), b"{}", Media::Json),
            (Some("application/rss+xml"), b"<rss/>", Media::Text),
            (Some("text/csv"), b"a,b", Media::Text),
            (Some("text/plain"), b"a\0b", binary("text/plain")),
            (Some("text/plain"), b"\xff\xfea\0", Media::Text),
            (Some("image/png"), b"\x89PNG", binary("image/png")),
            (Some("application/zip"), b"PK", binary("application/zip")),
            (None, b"<!DOCTYPE html><p>", Media::Html),
            (None, b"plain words", Media::Text),
            (None, b"\0\x01", binary("application/octet-stream")),
            (Some("nonsense"), b"words", Media::Text),
        ];
        for (content_type, body, expected) in cases {
            assert_eq!(Media::of(content_type, body), expected, "{content_type:?} {body:?}");
        }
    }
}
