//! The place of a secret in a request: one entry of `injections`, in a plugin's manifest or in the
//! operator's configuration. Both are parsed by the same rules, so an operator can write every
//! injection that a manifest can.

use cofferdam_egress::{Placement, PlacementError};
use cofferdam_store::{HostName, SecretName};
use serde::{Deserialize, Serialize};

/// A secret, the host it is sent to, and its place in requests to that host
/// (egress rules R1 and R3).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenInjection")]
pub struct InjectionRule {
    /// The secret's name.
    pub secret: SecretName,
    /// The exact name of the host.
    pub host: HostName,
    /// The place in requests to the host.
    pub placement: Placement,
}

/// An injection as it is written in TOML, before it is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenInjection {
    /// The secret's name.
    pub secret: String,
    /// The host's name.
    pub host: String,
    /// The name of a header. Needs `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The header's value, with `{}` in place of the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The name of a query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// A JSON pointer to a new member of the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
}

/// A mistake in an injection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {message}")]
pub struct InjectionError {
    /// The key with the mistake.
    pub key: &'static str,
    /// What the key accepts.
    pub message: &'static str,
}

impl TryFrom<WrittenInjection> for InjectionRule {
    type Error = InjectionError;

    fn try_from(written: WrittenInjection) -> Result<Self, InjectionError> {
        let wrong = |key, message| InjectionError { key, message };
        Ok(Self {
            secret: written.secret.parse().map_err(|_| wrong("secret", "takes the name of a secret"))?,
            host: written.host.parse().map_err(|_| wrong("host", "takes one exact host name"))?,
            placement: placement(&written)?,
        })
    }
}

impl From<&InjectionRule> for WrittenInjection {
    fn from(rule: &InjectionRule) -> Self {
        let written =
            Self { secret: rule.secret.to_string(), host: rule.host.to_string(), ..Self::default() };
        match &rule.placement {
            Placement::Header { name, before, after, .. } => {
                let format = format!("{before}{{}}{after}");
                Self { header: Some(name.to_string()), format: Some(format), ..written }
            }
            Placement::Query { name, .. } => Self { query: Some(name.clone()), ..written },
            Placement::Json { members, .. } => Self { json: Some(pointer(members)), ..written },
            // A rule has one of the places above.
            Placement::Placeholder { .. } => written,
        }
    }
}

/// The JSON pointer to a member (RFC 6901).
fn pointer(members: &[String]) -> String {
    members.iter().map(|member| format!("/{}", member.replace('~', "~0").replace('/', "~1"))).collect()
}

impl InjectionRule {
    /// Whether both put a secret into the same place of the same request.
    #[must_use]
    pub fn collides(&self, other: &Self) -> bool {
        self.host == other.host && self.placement.is_same_place(&other.placement)
    }
}

/// The place that is written, which must be exactly one.
fn placement(written: &WrittenInjection) -> Result<Placement, InjectionError> {
    let WrittenInjection { header, format, query, json, .. } = written;
    let wrong = |key, message| Err(InjectionError { key, message });
    let placement = match (header, format, query, json) {
        (Some(header), Some(format), None, None) => Placement::header(header, format),
        (Some(_), None, None, None) => return wrong("header", "needs a `format` such as \"Bearer {}\""),
        (None, Some(_), ..) => return wrong("format", "needs a `header`"),
        (None, None, Some(query), None) => Placement::query(query),
        (None, None, None, Some(json)) => Placement::json(json),
        (None, None, None, None) => {
            return wrong("secret", "needs a place: header and format, query, or json");
        }
        _ => return wrong("secret", "goes to one place only: header and format, query, or json"),
    };
    placement.or_else(|error| match error {
        PlacementError::Header => wrong("header", "takes a header that may carry a secret"),
        PlacementError::Query => wrong("query", "takes the name of a query parameter"),
        PlacementError::Pointer => wrong("json", "takes a JSON pointer such as \"/auth/token\""),
        PlacementError::Format | PlacementError::Placeholder => {
            wrong("format", "takes printable text with exactly one {}")
        }
    })
}

/// Whether the value of this header may contain a secret (egress rule R15). False for a name that
/// is not in lower case.
#[must_use]
pub fn is_injectable_header(name: &str) -> bool {
    name.bytes().all(|byte| !byte.is_ascii_uppercase()) && Placement::credential_header(name, "{}").is_ok()
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
        assert_eq!(header.placement, Placement::header("x-key", "{}").unwrap());
        assert_eq!(written("query = \"api_key\"").unwrap().placement, Placement::query("api_key").unwrap());
        let json = written("json = \"/a/b~1c~0\"").unwrap();
        assert_eq!(json.placement, Placement::json("/a/b~1c~0").unwrap());
        assert_eq!(WrittenInjection::from(&json).json.as_deref(), Some("/a/b~1c~0"));
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
            ("query = \"a[]\"", "`query` takes"),
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
    fn headers_that_steer_a_request_are_not_injectable() {
        for name in ["host", "content-length", "user-agent", "x-request-id", "X-Key", "a b", ""] {
            assert!(!is_injectable_header(name), "{name}");
        }
        assert!(is_injectable_header("x-api-key"));
    }
}
