//! JSON documents about secrets.

use cofferdam_store::{EffectiveScope, EffectiveSecret, HostName, Page, SecretMetadata};
use serde::Serialize;

use crate::reply::PageDocument;
use crate::timestamp::timestamp;

/// One secret. `hosts` and `fingerprint` are null for a legacy secret, which was imported without
/// hosts.
#[derive(Serialize)]
pub(super) struct SecretDocument<'s> {
    name: &'s str,
    hosts: Option<Vec<&'s str>>,
    fingerprint: Option<String>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
}

impl<'s> From<&'s SecretMetadata> for SecretDocument<'s> {
    fn from(metadata: &'s SecretMetadata) -> Self {
        let hosts = metadata.hosts.as_ref().map(|hosts| hosts.as_slice().iter().map(HostName::as_str));
        Self {
            name: metadata.name.as_str(),
            hosts: hosts.map(Iterator::collect),
            fingerprint: metadata.fingerprint.as_ref().map(ToString::to_string),
            created_at: timestamp(metadata.created_at_ms),
            scope: None,
        }
    }
}

impl<'s> From<&'s EffectiveSecret> for SecretDocument<'s> {
    fn from(secret: &'s EffectiveSecret) -> Self {
        let scope = match secret.scope {
            EffectiveScope::Intern => "intern",
            EffectiveScope::Workspace => "workspace",
        };
        Self { scope: Some(scope), ..Self::from(&secret.metadata) }
    }
}

pub(super) fn listing<'s, T>(page: &'s Page<T>) -> PageDocument<SecretDocument<'s>>
where
    SecretDocument<'s>: From<&'s T>,
{
    PageDocument { data: page.entries.iter().map(SecretDocument::from).collect(), has_more: page.has_more }
}
