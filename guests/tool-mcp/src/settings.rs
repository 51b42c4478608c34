//! The client's tool entry: `server_label`, `server_url` and the other members, as in OpenAI's API.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::fnv_1a;
use cofferdam_guest_kit::server_tool::Fields;
use serde_json::Value;
use url::Url;

use crate::tool::Tool;

/// The longest label, in characters.
const LABEL_CHARS_MAX: usize = 256;
/// The longest URL, in bytes.
const URL_BYTES_MAX: usize = 4_096;
/// The longest value of a header, in bytes.
const VALUE_BYTES_MAX: usize = 8_192;
/// The largest number of headers that a client may set.
const HEADERS_MAX: usize = 32;
/// The largest number of names in one list of tools.
const NAMES_MAX: usize = 512;
/// Headers that belong to HTTP or to the protocol.
const RESERVED: [&str; 8] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
];

/// A validated entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) label: String,
    pub(crate) url: Url,
    /// The headers that the client sets, with lower-case names. Values may contain `{{secret:NAME}}`.
    pub(crate) headers: Vec<(String, String)>,
    allowed: Option<Filter>,
    approval: Approval,
}

/// A selection of a server's tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Filter {
    names: Option<Vec<String>>,
    /// Only tools that claim to be read-only, or only the other tools.
    read_only: Option<bool>,
}

/// Which calls the client must approve.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Approval {
    Always,
    Never,
    /// All except those that `never` selects and `always` does not.
    Some {
        always: Filter,
        never: Filter,
    },
}

/// The error for a wrong field of the entry.
pub(crate) fn wrong(field: &str, problem: &str) -> ToolError {
    ToolError::InvalidSettings(format!("parameters.{field} {problem}"))
}

impl Settings {
    /// Reads the entry.
    ///
    /// # Errors
    ///
    /// When a field is missing, wrong or not available here; the message names it.
    pub(crate) fn read(json: &[u8]) -> Result<Self, ToolError> {
        let fields = Fields::settings(json)?;
        if fields.value("connector_id").is_some() {
            return Err(fields.wrong("connector_id", "is not available on this host; use server_url"));
        }
        let label = fields.required_text("server_label")?;
        if label.chars().count() > LABEL_CHARS_MAX {
            return Err(fields.wrong("server_label", "must have at most 256 characters"));
        }
        Ok(Self {
            label: label.to_owned(),
            url: url(&fields)?,
            headers: headers(&fields)?,
            allowed: fields
                .value("allowed_tools")
                .map(|value| filter(&fields, "allowed_tools", value))
                .transpose()?,
            approval: approval(&fields)?,
        })
    }

    /// The key under which the server's list of tools is stored.
    pub(crate) fn key(&self) -> String {
        // A label may be longer than a key, so it is hashed. A collision harms only the request
        // that contains both labels.
        format!("server {:016x}", fnv_1a(self.label.bytes()))
    }

    /// Whether the model may be offered a tool of this name.
    pub(crate) fn allows_name(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|filter| filter.has_name(name))
    }

    /// Whether the model may be offered this tool.
    pub(crate) fn allows(&self, tool: &Tool) -> bool {
        self.allowed.as_ref().is_none_or(|filter| filter.has(tool))
    }

    /// Whether the client must approve calls of this tool.
    pub(crate) fn asks_for(&self, tool: &Tool) -> bool {
        match &self.approval {
            Approval::Always => true,
            Approval::Never => false,
            Approval::Some { always, never } => always.names_something(tool) || !never.names_something(tool),
        }
    }
}

impl Filter {
    fn has(&self, tool: &Tool) -> bool {
        self.has_name(&tool.name) && self.read_only.is_none_or(|wanted| wanted == tool.is_read_only())
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|known| known == name))
    }

    /// Like [`Self::has`], but an empty filter selects no tool.
    fn names_something(&self, tool: &Tool) -> bool {
        *self != Self::default() && self.has(tool)
    }
}

/// Reads a URL that the host can check. The host decides whether plain `http` is allowed.
fn url(fields: &Fields) -> Result<Url, ToolError> {
    let text = fields.required_text("server_url")?;
    let is_clean = text.len() <= URL_BYTES_MAX && !text.chars().any(|char| char.is_control() || char == '\\');
    let parsed = Url::parse(text).ok().filter(|_| is_clean);
    let is_plain = |url: &Url| {
        matches!(url.scheme(), "https" | "http")
            && url.host_str().is_some_and(|host| !host.is_empty())
            && url.username().is_empty()
            && url.password().is_none()
    };
    let mut url = parsed.filter(is_plain).ok_or_else(|| {
        fields.wrong("server_url", "must be an absolute https URL without user name and password")
    })?;
    url.set_fragment(None);
    Ok(url)
}

fn headers(fields: &Fields) -> Result<Vec<(String, String)>, ToolError> {
    let mut headers = Vec::new();
    let is_value = |value: &str| {
        value.len() <= VALUE_BYTES_MAX && value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
    };
    for (name, value) in fields.object("headers")?.into_iter().flatten() {
        let lower = name.to_ascii_lowercase();
        let is_name = !lower.is_empty()
            && lower.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_name || RESERVED.contains(&lower.as_str()) {
            return Err(fields.wrong("headers", "has a name that no client may set"));
        }
        let Some(value) = value.as_str().filter(|value| is_value(value)) else {
            return Err(fields.wrong("headers", "has a value that is not one line of ASCII text"));
        };
        if headers.len() >= HEADERS_MAX || headers.iter().any(|(known, _)| *known == lower) {
            return Err(fields.wrong("headers", "has a header twice, or more than 32"));
        }
        headers.push((lower, value.to_owned()));
    }
    if let Some(token) = fields.text("authorization")? {
        if token.is_empty() || !is_value(token) {
            return Err(fields.wrong("authorization", "must be one line of ASCII text"));
        }
        if headers.iter().any(|(name, _)| name == "authorization") {
            return Err(fields.wrong("authorization", "is given in headers too"));
        }
        headers.push(("authorization".to_owned(), format!("Bearer {token}")));
    }
    Ok(headers)
}

fn approval(fields: &Fields) -> Result<Approval, ToolError> {
    match fields.value("require_approval") {
        // As in OpenAI's API: without a setting, the client approves every call.
        None => Ok(Approval::Always),
        Some(Value::String(word)) if word == "always" => Ok(Approval::Always),
        Some(Value::String(word)) if word == "never" => Ok(Approval::Never),
        Some(Value::Object(lists)) => {
            let list = |name: &str| match lists.get(name).filter(|list| !list.is_null()) {
                None => Ok(Filter::default()),
                Some(list) => filter(fields, &format!("require_approval.{name}"), list),
            };
            Ok(Approval::Some { always: list("always")?, never: list("never")? })
        }
        Some(_) => {
            Err(fields.wrong("require_approval", "takes always, never or an object with lists of both"))
        }
    }
}

/// Reads a filter: a list of names, or an object with `tool_names` and `read_only`.
fn filter(fields: &Fields, path: &str, value: &Value) -> Result<Filter, ToolError> {
    let names = |value: &Value| {
        let list = value.as_array().filter(|list| list.len() <= NAMES_MAX);
        let names: Option<Vec<String>> = list?.iter().map(|name| name.as_str().map(str::to_owned)).collect();
        names
    };
    let wrong = || fields.wrong(path, "takes a list of names, or an object with tool_names and read_only");
    let Value::Object(members) = value else {
        return Ok(Filter { names: Some(names(value).ok_or_else(wrong)?), read_only: None });
    };
    let given = |name: &str| members.get(name).filter(|value| !value.is_null());
    let read_only = given("read_only").map(|value| value.as_bool().ok_or_else(wrong)).transpose()?;
    let names = given("tool_names").map(|value| names(value).ok_or_else(wrong)).transpose()?;
    Ok(Filter { names, read_only })
}
