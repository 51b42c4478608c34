//! Turns the model's arguments into a request that the host can check and send.

use cofferdam_guest_kit::bindings::http::Request;
use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::{Fields, web_address};
use serde_json::Value;
use url::Url;

use crate::credentials;
use crate::headers;
use crate::settings::Settings;

/// The longest request body, in bytes.
const SENT_BYTES_MAX: usize = 1024 * 1024;
/// The longest response body that is accepted, in bytes.
const ACCEPTED_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// The longest time for a request, in milliseconds.
const TIMEOUT_MS: u32 = 30_000;
/// The largest number of query parameters.
const QUERY_MAX: usize = 100;

/// A request, and the form of its URL for the output item.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) request: Request,
    /// The URL without query and fragment, which may contain keys and personal data.
    pub(crate) shown_url: String,
}

impl Draft {
    /// Reads the arguments and applies the client's settings.
    ///
    /// # Errors
    ///
    /// When a field is wrong or not allowed; the message names it.
    pub(crate) fn read(arguments: &Fields, settings: &Settings) -> Result<Self, ToolError> {
        let method = method(arguments, settings)?;
        let url = url(arguments, settings)?;
        let (mut lines, mut injections) = headers::read(arguments)?;
        let body = body(arguments, method, &mut lines)?;
        if let Some(injection) = credentials::secret(arguments)? {
            injections.push(injection);
        }
        credentials::check(&injections)?;
        if !lines.iter().any(|(name, _)| name == "accept") {
            lines.push(("accept".to_owned(), "application/json, text/*;q=0.9, */*;q=0.5".to_owned()));
        }
        let mut shown_url = url.clone();
        shown_url.set_query(None);
        shown_url.set_fragment(None);
        let request =
            Request { injections, ..Request::new(method, url, lines, body, ACCEPTED_BYTES_MAX, TIMEOUT_MS) };
        Ok(Self { request, shown_url: shown_url.into() })
    }
}

fn method(arguments: &Fields, settings: &Settings) -> Result<&'static str, ToolError> {
    let asked = arguments.required_text("method")?;
    let found = settings.methods.iter().find(|method| method.eq_ignore_ascii_case(asked));
    found.copied().ok_or_else(|| arguments.wrong("method", &format!("takes {}", settings.methods.join(", "))))
}

fn url(arguments: &Fields, settings: &Settings) -> Result<Url, ToolError> {
    let text = arguments.required_text("url")?;
    let mut url = web_address(text).map_err(|problem| arguments.wrong("url", problem))?;
    if !settings.allows_host(url.host_str().unwrap_or_default()) {
        let hosts = settings.hosts.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(arguments.wrong("url", &format!("must be on one of these hosts: {hosts}")));
    }
    if let Some(fields) = arguments.object("query")? {
        if fields.len() > QUERY_MAX {
            return Err(arguments.wrong("query", &format!("must be at most {QUERY_MAX} parameters")));
        }
        let mut pairs = url.query_pairs_mut();
        for (name, value) in fields {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                Value::Null => continue,
                _ => return Err(arguments.wrong("query", "takes strings, numbers and booleans as values")),
            };
            if credentials::holds_placeholder(name) || credentials::holds_placeholder(&value) {
                return Err(misplaced("query"));
            }
            pairs.append_pair(name, &value);
        }
    }
    if credentials::holds_placeholder(text) {
        return Err(misplaced("url"));
    }
    url.set_fragment(None);
    Ok(url)
}

fn body(arguments: &Fields, method: &str, lines: &mut Vec<(String, String)>) -> Result<Vec<u8>, ToolError> {
    let (body, media) = match arguments.value("body") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Value::String(text)) if is_json(text) => (text.clone(), "application/json"),
        Some(Value::String(text)) => (text.clone(), "text/plain; charset=utf-8"),
        Some(value) => (value.to_string(), "application/json"),
    };
    if matches!(method, "GET" | "HEAD") {
        return Err(arguments.wrong("body", "cannot be sent with GET or HEAD"));
    }
    if body.len() > SENT_BYTES_MAX {
        return Err(arguments.wrong("body", "must be at most 1 MiB"));
    }
    if credentials::holds_placeholder(&body) {
        return Err(misplaced("body"));
    }
    if !lines.iter().any(|(name, _)| name == "content-type") {
        lines.push(("content-type".to_owned(), media.to_owned()));
    }
    Ok(body.into_bytes())
}

/// Whether a text is a JSON object or array. Models often write JSON into a string.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<Value>(text).is_ok()
}

fn misplaced(field: &str) -> ToolError {
    ToolError::InvalidArguments(format!(
        "{field} must not hold a secret's placeholder: it may stand in the value of a header, or use the argument secret"
    ))
}
