//! The routes of the client API: a path becomes a [`Route`], and a route lists its methods. Paths
//! match exactly: no trailing slash, no empty or dot segments, lower case only. An encoded
//! character in an id means what it encodes, but an encoded path never matches another route.

use http::Method;

use crate::fault::Fault;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/v1/responses`
    Responses,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/models`
    Models,
    /// `/v1/models/{id}`. The id is decoded and may contain slashes.
    Model(String),
    /// `/v1/key`
    Key,
    /// `/v1/keys`
    Keys,
    /// `/v1/keys/{id}`
    OneKey(String),
    /// `/v1/credits`
    Credits,
    /// `/v1/vault/...`
    Vault(VaultRoute),
    /// `/openapi.json`, the description of these routes. It needs no key.
    Description,
}

/// The routes of the vault. Names and ids are kept as written, not decoded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VaultRoute {
    /// `/v1/vault/secrets`
    Secrets,
    /// `/v1/vault/secrets/{name}`
    Secret(String),
    /// `/v1/vault/interns/{id}/secrets`
    InternSecrets(String),
    /// `/v1/vault/interns/{id}/secrets/{name}`
    InternSecret(String, String),
    /// `/v1/vault/interns/{id}/secrets/copy`: `POST` copies, the other methods act on the secret
    /// named `copy`.
    Copy(String),
    /// `/v1/vault/interns/{id}/effective-secrets`
    EffectiveSecrets(String),
}

impl Route {
    /// Finds the route of a path without its query.
    pub(crate) fn find(path: &str) -> Result<Self, Fault> {
        if path == "/openapi.json" {
            return Ok(Self::Description);
        }
        let malformed = || Fault::Malformed("The path is not percent-encoded correctly");
        let rest = path.strip_prefix("/v1/").ok_or(Fault::NotFound)?;
        let parts: Vec<&str> = rest.split('/').collect();
        if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(Fault::NotFound);
        }
        Ok(match parts.as_slice() {
            ["responses"] => Self::Responses,
            ["embeddings"] => Self::Embeddings,
            ["models"] => Self::Models,
            ["models", id @ ..] => Self::Model(decode(&id.join("/")).ok_or_else(malformed)?),
            ["key"] => Self::Key,
            ["keys"] => Self::Keys,
            ["keys", id] => Self::OneKey(decode(id).ok_or_else(malformed)?),
            ["credits"] => Self::Credits,
            ["vault", rest @ ..] => Self::Vault(VaultRoute::find(rest).ok_or(Fault::NotFound)?),
            parts => return Err(elsewhere(parts)),
        })
    }

    #[must_use]
    pub(crate) fn methods(&self) -> &'static [Method] {
        match self {
            Self::Responses | Self::Embeddings => &[Method::POST],
            Self::Models | Self::Model(_) | Self::Key | Self::Credits | Self::Description => {
                &[Method::GET, Method::HEAD]
            }
            Self::Keys => &[Method::GET, Method::HEAD, Method::POST],
            Self::OneKey(_) => &[Method::GET, Method::HEAD, Method::PATCH, Method::DELETE],
            Self::Vault(route) => route.methods(),
        }
    }

    /// The label for logs and metrics.
    #[must_use]
    pub(crate) fn label(&self) -> Label {
        match self {
            Self::Responses => Label::Responses,
            Self::Embeddings => Label::Embeddings,
            Self::Models | Self::Model(_) => Label::Models,
            Self::Key => Label::Key,
            Self::Keys | Self::OneKey(_) => Label::Keys,
            Self::Credits => Label::Credits,
            Self::Vault(_) => Label::Vault,
            Self::Description => Label::Description,
        }
    }
}

/// For an unknown path: clients of other APIs get a message that says what this host serves.
fn elsewhere(parts: &[&str]) -> Fault {
    match parts {
        ["chat", "completions", ..] | ["completions"] => Fault::NotServed(
            "Not found: this host does not serve Chat Completions; it serves POST /v1/responses, \
             POST /v1/embeddings and GET /v1/models",
        ),
        ["messages", ..] => Fault::NotServed(
            "Not found: this host does not serve the Messages API; it serves POST /v1/responses, \
             POST /v1/embeddings and GET /v1/models",
        ),
        ["responses", "compact"] => Fault::NotServed(
            "Not found: to compact a conversation, send it to POST /v1/responses with an item of type \
             compaction_trigger at its end",
        ),
        ["responses", ..] => Fault::NotServed(
            "Not found: this host stores no responses; it serves POST /v1/responses, which takes the whole \
             conversation in input",
        ),
        _ => Fault::NotFound,
    }
}

impl VaultRoute {
    #[must_use]
    pub(crate) fn methods(&self) -> &'static [Method] {
        match self {
            Self::Secrets | Self::InternSecrets(_) | Self::EffectiveSecrets(_) => {
                &[Method::GET, Method::HEAD]
            }
            Self::Secret(_) | Self::InternSecret(..) => &[Method::PUT, Method::DELETE],
            Self::Copy(_) => &[Method::POST, Method::PUT, Method::DELETE],
        }
    }

    fn find(parts: &[&str]) -> Option<Self> {
        Some(match *parts {
            ["secrets"] => Self::Secrets,
            ["secrets", name] => Self::Secret(name.to_owned()),
            ["interns", id, "secrets"] => Self::InternSecrets(id.to_owned()),
            ["interns", id, "secrets", "copy"] => Self::Copy(id.to_owned()),
            ["interns", id, "secrets", name] => Self::InternSecret(id.to_owned(), name.to_owned()),
            ["interns", id, "effective-secrets"] => Self::EffectiveSecrets(id.to_owned()),
            _ => return None,
        })
    }
}

/// Route labels in logs and metrics. They contain no ids, so the number of metric series is
/// bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Responses,
    Embeddings,
    /// The catalog and single models.
    Models,
    /// The caller's own key.
    Key,
    /// Management of keys.
    Keys,
    /// The credit balance.
    Credits,
    /// All routes of the vault.
    Vault,
    /// The description of the API.
    Description,
    /// The playground of the console, which is on the admin listener.
    Playground,
    /// No route matched.
    None,
}

impl Label {
    /// All labels; each is at the index that equals its number.
    pub(crate) const ALL: [Self; 10] = [
        Self::Responses,
        Self::Embeddings,
        Self::Models,
        Self::Key,
        Self::Keys,
        Self::Credits,
        Self::Vault,
        Self::Description,
        Self::Playground,
        Self::None,
    ];

    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Models => "models",
            Self::Key => "key",
            Self::Keys => "keys",
            Self::Credits => "credits",
            Self::Vault => "vault",
            Self::Description => "openapi",
            Self::Playground => "playground",
            Self::None => "none",
        }
    }
}

/// Percent-decodes a part of a path or query. Every `%` must be followed by two hexadecimal digits,
/// and the result must be UTF-8 without control characters.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(bytes).ok().filter(|decoded| !decoded.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::{Route, VaultRoute};
    use crate::fault::Fault;

    fn intern(id: &str) -> String {
        id.to_owned()
    }

    #[test]
    fn every_path_of_the_interface_is_a_route() {
        let cases = [
            ("/v1/responses", Route::Responses),
            ("/v1/embeddings", Route::Embeddings),
            ("/v1/models", Route::Models),
            ("/v1/models/local/demo", Route::Model("local/demo".to_owned())),
            ("/v1/models/local%2Fdemo", Route::Model("local/demo".to_owned())),
            ("/v1/models/a/b:free", Route::Model("a/b:free".to_owned())),
            ("/v1/key", Route::Key),
            ("/v1/keys", Route::Keys),
            ("/v1/keys/k1", Route::OneKey("k1".to_owned())),
            ("/v1/credits", Route::Credits),
            ("/openapi.json", Route::Description),
            ("/v1/vault/secrets", Route::Vault(VaultRoute::Secrets)),
            ("/v1/vault/secrets/%61", Route::Vault(VaultRoute::Secret("%61".to_owned()))),
            ("/v1/vault/interns/i/secrets", Route::Vault(VaultRoute::InternSecrets(intern("i")))),
            (
                "/v1/vault/interns/i/secrets/n",
                Route::Vault(VaultRoute::InternSecret(intern("i"), intern("n"))),
            ),
            ("/v1/vault/interns/i/secrets/copy", Route::Vault(VaultRoute::Copy(intern("i")))),
            (
                "/v1/vault/interns/i/effective-secrets",
                Route::Vault(VaultRoute::EffectiveSecrets(intern("i"))),
            ),
        ];
        for (path, route) in cases {
            assert_eq!(Route::find(path).unwrap(), route, "{path}");
        }
    }

    #[test]
    fn near_misses_are_unknown() {
        for path in [
            "/",
            "",
            "*",
            "/v1",
            "/v1/",
            "/v2/responses",
            "/responses",
            "/v1/responses/",
            "/v1//responses",
            "/V1/responses",
            "/v1/Responses",
            "/v1/models/",
            "/v1/models//x",
            "/v1/%6bey",
            "/v1/./key",
            "/v1/x/../key",
            "/v1/vault",
            "/v1/vault/",
            "/v1/vault/secrets/",
            "/v1/vault//secrets",
            "/v1/vault/secrets/a/b",
            "/v1/vault/interns/i",
            "/v1/vault/interns/i/secrets/copy/x",
            "/v1/models/..",
            "/v1/openapi.json",
            "/openapi.json/",
        ] {
            assert!(matches!(Route::find(path), Err(Fault::NotFound)), "{path}");
        }
    }

    #[test]
    fn invalid_percent_encoding_is_malformed() {
        for path in [
            "/v1/models/%",
            "/v1/models/%4",
            "/v1/models/%zz",
            "/v1/models/%ff",
            "/v1/models/a%00",
            "/v1/keys/%0a",
        ] {
            assert!(matches!(Route::find(path), Err(Fault::Malformed(_))), "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_path_panics(path in ".{0,64}") {
            drop(Route::find(&path));
            drop(Route::find(&format!("/v1/{path}")));
        }

        #[test]
        fn model_ids_come_back_however_they_are_encoded(id in "[a-z0-9~:@ /é.-]{1,24}", encode: [bool; 48]) {
            let encoded: String = id
                .bytes()
                .zip(encode)
                .map(|(byte, encode)| {
                    let plain = byte.is_ascii() && (byte == b'/' || !encode);
                    if plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
                })
                .collect();
            let found = Route::find(&format!("/v1/models/{encoded}"));
            if id.split('/').any(|part| matches!(part, "" | "." | "..")) {
                let is_refused = found.is_err();
                proptest::prop_assert!(is_refused || found.ok() == Some(Route::Model(id)));
            } else {
                proptest::prop_assert_eq!(found.ok(), Some(Route::Model(id)));
            }
        }
    }

    #[test]
    fn labels_are_at_the_index_of_their_number() {
        for (index, label) in super::Label::ALL.iter().enumerate() {
            assert_eq!(*label as usize, index);
        }
    }
}
