//! Audit records of guests' outbound requests, other than the releases of secrets.

use serde::{Deserialize, Serialize};

use super::Purpose;
use crate::secret::{FingerprintPrefix, HostName, SecretName};
use crate::text;

/// An outbound request that was refused before any secret was released for it. Path, query and
/// content are not recorded.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct RefusedRequest {
    /// The host of the request, if it was a host name.
    #[serde(with = "text::option")]
    pub host: Option<HostName>,
    /// The secret the refusal is about, if any.
    #[serde(with = "text::option")]
    pub name: Option<SecretName>,
    /// Reason of the refusal.
    pub reason: RequestRefusal,
    /// The guest and the request it worked for.
    #[serde(flatten)]
    pub purpose: Purpose,
}

/// Why a guest's request was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestRefusal {
    /// The host is not in the guest's grant.
    HostNotGranted,
    /// A secret would go to a host that the grant covers by a pattern, not by name.
    HostNotNamed,
    /// The secret is not in the guest's grant.
    SecretNotGranted,
    /// The grant does not allow this place for a secret.
    PlaceNotGranted,
    /// More than one secret would be sent as the bearer token.
    Ambiguous,
    /// The grant is suspended because hosts sent the secret back too often.
    Suspended,
    /// An egress rule forbids the scheme, port, address, method, a header, or the place of a
    /// secret.
    Rule,
}

/// A response in which a host sent a secret back.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Reflection {
    /// The host that sent it.
    #[serde(with = "text")]
    pub host: HostName,
    /// Name of the secret.
    #[serde(with = "text")]
    pub name: SecretName,
    /// Identifies the value without revealing it.
    #[serde(with = "text::option")]
    pub fingerprint: Option<FingerprintPrefix>,
    /// Whether the guest got an error instead of the response.
    pub blocked: bool,
    /// Whether the grant was suspended because of this reflection.
    pub suspended: bool,
    /// The guest and the request it worked for.
    #[serde(flatten)]
    pub purpose: Purpose,
}
