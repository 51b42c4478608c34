//! `[[broadcast]]`: request export, the destinations that receive a record of each finished
//! request. Like a provider's `base_url`, a `url` is the operator's grant of that one origin.

use cofferdam_egress::{EgressConfig, Origin, Placement, PlacementError, is_credential_header};
use cofferdam_engine::export::{DestinationKind, OtlpFormat, Spans};
use http::header::{HeaderName, HeaderValue};

use super::document::{ConfigValue, Table};
use super::providers::key_source;
use super::{ConfigSpan, KeySource};

/// The maximum number of destinations: each has a queue and a worker.
const DESTINATIONS_MAX: usize = 16;
/// The path below the base URL where OpenTelemetry collectors accept spans.
const SPANS_PATH: &str = "v1/traces";

#[derive(Debug, Clone)]
pub struct Broadcast {
    pub name: String,
    /// The protocol and encoding.
    pub kind: DestinationKind,
    /// What a collector gets of a request.
    pub spans: Spans,
    /// `None` only after a mistake in the file was reported.
    pub origin: Option<Origin>,
    /// Appended to the origin's path.
    pub path: String,
    /// The source of its credential, and the position in the file.
    pub key: Option<(KeySource, ConfigSpan)>,
    /// The header that carries the credential. `None` only after a mistake in the file was
    /// reported.
    pub placement: Option<Placement>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub place: ConfigSpan,
}

pub(super) fn read(tables: &[Table<'_>], egress: &EgressConfig) -> Vec<Broadcast> {
    let mut destinations: Vec<Broadcast> = Vec::new();
    for table in tables {
        let name = table.required_text("name");
        if destinations.iter().any(|destination| destination.name == name.value) {
            name.reject(format!("a destination named `{}` exists already", name.value));
        }
        if destinations.len() == DESTINATIONS_MAX {
            name.reject(format!("there may be at most {DESTINATIONS_MAX} destinations"));
        }
        let kind = kind(table);
        let key = table.text("key").and_then(|written| Some((key_source(&written)?, written.place())));
        let (origin, path) = url(table, kind, key.as_ref().map(|(source, _)| source), egress);
        destinations.push(Broadcast {
            name: name.value,
            kind,
            spans: spans(table, kind),
            origin,
            path,
            key,
            placement: placement(table),
            headers: headers(table),
            place: table.value("", ()).place(),
        });
    }
    destinations
}

fn kind(table: &Table<'_>) -> DestinationKind {
    let kind = table.required_text("kind");
    let format = table.choice("format", [("json", OtlpFormat::Json), ("protobuf", OtlpFormat::Protobuf)]);
    match kind.value.as_str() {
        "otlp" => return DestinationKind::Otlp(format),
        "webhook" | "" if format != OtlpFormat::Json => {
            table.value("format", ()).reject("a webhook takes `json` only");
        }
        "webhook" | "" => {}
        _ => kind.reject("expected `webhook` or `otlp`"),
    }
    DestinationKind::Webhook
}

fn spans(table: &Table<'_>, kind: DestinationKind) -> Spans {
    let spans = table.choice("spans", [("request", Spans::Request), ("steps", Spans::Steps)]);
    if kind == DestinationKind::Webhook && spans != Spans::Request {
        table.value("spans", ()).reject("a webhook takes `request` only");
    }
    spans
}

/// The origin and path of a destination. A collector's base URL is the origin. A webhook's URL is
/// split before its last segment, so that joining the two gives exactly the URL that was written.
fn url(
    table: &Table<'_>,
    kind: DestinationKind,
    key: Option<&KeySource>,
    egress: &EgressConfig,
) -> (Option<Origin>, String) {
    let written = table.required_text("url");
    if written.value.is_empty() {
        return (None, String::new());
    }
    let (base, path) = match kind {
        DestinationKind::Otlp(_) => (written.value.as_str(), SPANS_PATH),
        DestinationKind::Webhook => match last_segment(&written.value) {
            Some(cut) => cut,
            None => {
                written.reject("expected the whole URL of the webhook, with a path");
                return (None, String::new());
            }
        },
    };
    // A secret must not be in the file; it belongs in the variable or vault secret that `key`
    // names.
    if written.value.contains('?') {
        written.reject("a query is not allowed in the URL");
        return (None, String::new());
    }
    let host_bound = matches!(key, Some(KeySource::Operator(_)));
    let origin = Origin::parse(base, key.is_some(), host_bound, egress);
    let origin = origin.map_err(|error| written.reject(error.to_string())).ok();
    if let Some(Err(error)) = origin.as_ref().map(|origin| origin.join(path)) {
        written.reject(error.to_string());
    }
    (origin, path.to_owned())
}

/// Splits a URL before its last segment, which includes a trailing slash.
fn last_segment(url: &str) -> Option<(&str, &str)> {
    let path_start = url.find("://")? + 3;
    let end = url.trim_end_matches('/').rfind('/').filter(|slash| *slash >= path_start)?;
    url.split_at_checked(end + 1).filter(|(_, last)| !last.is_empty())
}

fn placement(table: &Table<'_>) -> Option<Placement> {
    let (header, format) = (table.required_text("key_header"), table.required_text("key_format"));
    let wrong = |error: PlacementError| {
        let at = if error == PlacementError::Format { &format } else { &header };
        at.reject(error.to_string());
    };
    Placement::credential_header(&header.value, &format.value).map_err(wrong).ok()
}

fn headers(table: &Table<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let written: ConfigValue<'_, serde_json::Value> = table.value("headers", table.json("headers"));
    let Some(map) = written.value.as_object() else {
        written.reject("expected a table of texts");
        return Vec::new();
    };
    let read = |(name, value): (&String, &serde_json::Value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value.as_str()?).ok()?))
    };
    let headers: Option<Vec<_>> = map.iter().map(read).collect();
    match headers {
        None => written.reject("expected names and values of headers"),
        Some(headers) if headers.iter().any(|(name, _)| is_credential_header(name.as_str())) => {
            written.reject("a credential does not belong in this file: use `key` and `key_header`");
        }
        // The remaining headers that cannot carry a credential control the request itself, such as
        // `host`.
        Some(headers)
            if headers.iter().any(|(name, _)| Placement::credential_header(name.as_str(), "{}").is_err()) =>
        {
            written.reject("names a header that is not the operator's to set");
        }
        Some(headers) => return headers,
    }
    Vec::new()
}
