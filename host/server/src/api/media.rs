//! The content type of a request body.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentType {
    /// There is no `Content-Type` header.
    Absent,
    /// JSON in UTF-8.
    Json,
    /// Another type, or more than one header.
    Other,
}

/// Reads the `Content-Type` header.
pub(crate) fn content_type(headers: &HeaderMap) -> ContentType {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (None, _) => ContentType::Absent,
        (Some(written), None) if written.to_str().is_ok_and(is_json) => ContentType::Json,
        _ => ContentType::Other,
    }
}

fn is_json(written: &str) -> bool {
    let mut parts = written.split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    is_json
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim_end().eq_ignore_ascii_case("charset") => {
                value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}
