//! What the audit log says about the release of a secret.

use serde::{Deserialize, Serialize};

/// What a value is released for. Both fields are recorded in the audit log.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Purpose {
    /// Name of the provider or tool.
    pub used_by: String,
    /// Id of the request it works for.
    pub request_id: String,
}

/// Why nothing was released, for the audit log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseRefusal {
    /// There is no secret of this name.
    Unknown,
    /// The secret has no hosts.
    Unbound,
    /// The secret is bound to other hosts.
    OtherHost,
    /// A row that is needed is damaged.
    Damaged,
}
