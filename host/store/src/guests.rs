//! What the audit log is told of guests' requests to other hosts, beside what is released for them.

use serde::{Deserialize, Serialize};

use crate::text;
use crate::vault::{FingerprintPrefix, HostName, Purpose, SecretName};

/// A request that was refused before anything was released for it. Neither path nor query nor content is told.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct RefusedRequest {
    /// Where to, when it was a name.
    #[serde(with = "text::option")]
    pub host: Option<HostName>,
    /// The secret it is about, if it is about one.
    #[serde(with = "text::option")]
    pub name: Option<SecretName>,
    /// Why.
    pub reason: RequestRefusal,
    /// Whose request it was.
    #[serde(flatten)]
    pub purpose: Purpose,
}

/// Why a guest's request was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestRefusal {
    /// The host is not granted.
    HostNotGranted,
    /// A secret would go to a host that is not granted by name.
    HostNotNamed,
    /// The secret is not granted.
    SecretNotGranted,
    /// The guest may not choose this place for a secret.
    PlaceNotGranted,
    /// More than one secret would go as the bearer's token.
    Ambiguous,
    /// The grant is suspended, because hosts sent the secret back too often.
    Suspended,
    /// The way is closed: scheme, port, address, method, header, or the place for a secret.
    Rule,
}

/// An answer in which a host sent a secret back.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Reflection {
    /// Which host.
    #[serde(with = "text")]
    pub host: HostName,
    /// Which secret.
    #[serde(with = "text")]
    pub name: SecretName,
    /// Which value, without telling it.
    #[serde(with = "text::option")]
    pub fingerprint: Option<FingerprintPrefix>,
    /// The guest got an error in place of the answer.
    pub blocked: bool,
    /// It was one too many: the grant is suspended.
    pub suspended: bool,
    /// Whose request it was.
    #[serde(flatten)]
    pub purpose: Purpose,
}
