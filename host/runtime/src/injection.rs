//! Where a secret stands in a request: one line of `injections`, in a plugin's
//! manifest or in the operator's configuration. Both are read by the same rules,
//! so that what one may write the other may.

use cofferdam_egress::{CredentialError, Placement};
use cofferdam_store::{HostName, SecretName};
use serde::{Deserialize, Serialize};

/// Longest name of a query parameter, and longest JSON pointer, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// A secret, the one host it goes to, and its place in requests to there (R1, R3).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenInjection")]
pub struct InjectionRule {
    /// The secret's name.
    pub secret: SecretName,
    /// The host.
    pub host: HostName,
    /// The place.
    pub slot: Slot,
}

/// The place of a secret in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// A header in lower case, and its value around `{}`.
    Header(String, String),
    /// The value of this query parameter.
    Query(String),
    /// The absent leaf of a JSON body that this pointer names (RFC 6901).
    Json(String),
}

/// An injection as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenInjection {
    /// The secret's name.
    pub secret: String,
    /// The host's name.
    pub host: String,
    /// A header, with `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The header's value around `{}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// A query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// A JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
}

/// What is wrong with an injection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {message}")]
pub struct InjectionError {
    /// Which of its keys.
    pub key: &'static str,
    /// What that key takes.
    pub message: &'static str,
}

impl TryFrom<WrittenInjection> for InjectionRule {
    type Error = InjectionError;

    fn try_from(written: WrittenInjection) -> Result<Self, InjectionError> {
        let wrong = |key, message| InjectionError { key, message };
        Ok(Self {
            secret: written.secret.parse().map_err(|_| wrong("secret", "takes the name of a secret"))?,
            host: written.host.parse().map_err(|_| wrong("host", "takes one exact host name"))?,
            slot: Slot::read(&written)?,
        })
    }
}

impl From<&InjectionRule> for WrittenInjection {
    fn from(rule: &InjectionRule) -> Self {
        let written =
            Self { secret: rule.secret.to_string(), host: rule.host.to_string(), ..Self::default() };
        match rule.slot.clone() {
            Slot::Header(header, format) => Self { header: Some(header), format: Some(format), ..written },
            Slot::Query(query) => Self { query: Some(query), ..written },
            Slot::Json(json) => Self { json: Some(json), ..written },
        }
    }
}

impl InjectionRule {
    /// Whether both put something into the same place of the same request.
    #[must_use]
    pub fn collides(&self, other: &Self) -> bool {
        self.host == other.host && self.slot.is_same_place(&other.slot)
    }
}

impl Slot {
    /// Whether both are the same header, parameter or leaf, whatever stands around the value.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header(one, _), Self::Header(other, _)) => one == other,
            (one, other) => one == other,
        }
    }

    /// The one place that is written.
    fn read(written: &WrittenInjection) -> Result<Self, InjectionError> {
        let WrittenInjection { header, format, query, json, .. } = written;
        let wrong = |key, message| Err(InjectionError { key, message });
        match (header, format, query, json) {
            (Some(header), Some(format), None, None) => Self::header(header, format),
            (Some(_), None, None, None) => wrong("header", "needs a `format` such as \"Bearer {}\""),
            (None, Some(_), ..) => wrong("format", "needs a `header`"),
            (None, None, Some(query), None) if is_plain(query) => Ok(Self::Query(query.clone())),
            (None, None, Some(_), None) => wrong("query", "takes the name of a query parameter"),
            (None, None, None, Some(json)) if is_pointer(json) => Ok(Self::Json(json.clone())),
            (None, None, None, Some(_)) => wrong("json", "takes a JSON pointer such as \"/auth/token\""),
            (None, None, None, None) => wrong("secret", "needs a place: header and format, query, or json"),
            _ => wrong("secret", "goes to one place only: header and format, query, or json"),
        }
    }

    /// A header and a format with exactly one `{}`.
    ///
    /// # Errors
    ///
    /// Not an injectable header (R15), or not such a format.
    pub fn header(header: &str, format: &str) -> Result<Self, InjectionError> {
        match Placement::parse(header, format) {
            Ok(_) => Ok(Self::Header(header.to_ascii_lowercase(), format.to_owned())),
            Err(CredentialError::Header) => {
                Err(InjectionError { key: "header", message: "takes a header that may carry a secret" })
            }
            Err(_) => {
                Err(InjectionError { key: "format", message: "takes printable text with exactly one {}" })
            }
        }
    }
}

/// Whether a secret may stand in the value of this header, given in lower case (R15).
#[must_use]
pub fn is_injectable_header(name: &str) -> bool {
    name.bytes().all(|byte| !byte.is_ascii_uppercase()) && Placement::parse(name, "{}").is_ok()
}

fn is_plain(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~[]".contains(&byte))
}

/// A pointer below the whole document: every `~` is followed by `0` or `1`.
fn is_pointer(pointer: &str) -> bool {
    (2..=NAME_BYTES_MAX).contains(&pointer.len())
        && pointer.starts_with('/')
        && !pointer.chars().any(char::is_control)
        && pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Result<InjectionRule, String> {
        let both = format!("secret = \"key\"\nhost = \"API.test.\"\n{text}");
        toml::from_str(&both).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn an_injection_has_exactly_one_place() {
        let header = written("header = \"X-Key\"\nformat = \"{}\"").unwrap();
        assert_eq!(header.host.as_str(), "api.test");
        assert_eq!(header.slot, Slot::header("x-key", "{}").unwrap());
        assert_eq!(written("query = \"api_key\"").unwrap().slot, Slot::Query("api_key".into()));
        assert_eq!(written("json = \"/a/b~1c\"").unwrap().slot, Slot::Json("/a/b~1c".into()));
        for (text, says) in [
            ("", "`secret` needs a place"),
            ("header = \"x-key\"", "`header` needs a `format`"),
            ("format = \"{}\"", "`format` needs a `header`"),
            ("query = \"a\"\njson = \"/b\"", "`secret` goes to one place only"),
            ("header = \"x-key\"\nformat = \"{}\"\nquery = \"a\"", "`secret` goes to one place only"),
            ("header = \"host\"\nformat = \"{}\"", "`header` takes a header that may carry"),
            ("header = \"x-key\"\nformat = \"{}{}\"", "`format` takes printable text"),
            ("header = \"x-key\"\nformat = \"Bearer\"", "`format` takes printable text"),
            ("query = \"\"", "`query` takes"),
            ("query = \"a=b\"", "`query` takes"),
            ("json = \"\"", "`json` takes"),
            ("json = \"a\"", "`json` takes"),
            ("json = \"/a~2\"", "`json` takes"),
            ("json = \"/a~\"", "`json` takes"),
            ("path = \"/a\"", "unknown field `path`"),
        ] {
            let message = written(text).unwrap_err();
            assert!(message.starts_with(says), "{text}: {message}");
        }
    }

    #[test]
    fn names_of_secrets_and_hosts_are_checked() {
        for (secret, host, says) in [
            ("Key", "a.test", "`secret` takes"),
            ("key", "*.a.test", "`host` takes"),
            ("key", "*", "`host` takes"),
            ("key", "127.0.0.1", "`host` takes"),
        ] {
            let text = format!("secret = \"{secret}\"\nhost = \"{host}\"\nquery = \"k\"");
            let error = toml::from_str::<InjectionRule>(&text).unwrap_err();
            assert!(error.message().starts_with(says), "{text}: {}", error.message());
        }
    }

    #[test]
    fn headers_that_steer_a_request_carry_no_secret() {
        for name in ["host", "content-length", "user-agent", "x-request-id", "X-Key", "a b", ""] {
            assert!(!is_injectable_header(name), "{name}");
        }
        assert!(is_injectable_header("x-api-key"));
    }
}
