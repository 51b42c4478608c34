//! What a request says its body is.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentType {
    /// Nothing is said.
    Absent,
    /// JSON in UTF-8.
    Json,
    /// Anything else, or more than one type.
    Other,
}

/// Reads `content-type`.
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
