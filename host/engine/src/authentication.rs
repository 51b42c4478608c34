//! What authenticates requests to providers and to export destinations.

use cofferdam_egress::{Credential, Placement};
use cofferdam_store::BoundSecret;

/// How requests to a provider are authenticated.
#[derive(Debug)]
pub struct Authentication {
    /// The header in which the credential is sent.
    pub placement: Placement,
    /// The operator's credential.
    pub own: Option<OperatorKey>,
    /// The caller's own credential. It is used instead of `own` when the caller's vault has a
    /// secret of this name that is bound to the origin's host.
    pub byok: Option<BoundSecret>,
}

/// The operator's credential for a provider or an export destination.
#[derive(Debug)]
pub enum OperatorKey {
    /// Read once from the environment. It is sent only to the origin of the provider or of
    /// the export's destination that it is configured for.
    Fixed(Credential),
    /// A secret of the operator's vault.
    Vault(BoundSecret),
}

/// The credential of one attempt.
pub(crate) struct UsedCredential {
    pub(crate) credential: Credential,
    /// Whether it is the caller's own.
    pub(crate) is_byok: bool,
}
