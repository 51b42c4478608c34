//! JSON documents about keys, with OpenRouter's field names and the service's own.

use cofferdam_store::{ApiKey, KeySpend};
use serde::Serialize;

use crate::api::spending::{SpendingMembers, label};
use crate::timestamp::timestamp;

/// `{data, key}`: the only response that contains the token.
#[derive(Serialize)]
pub(super) struct Created<'k> {
    pub(super) data: KeyDocument,
    pub(super) key: &'k str,
}

#[derive(Serialize)]
pub(super) struct Deleted {
    pub(super) deleted: bool,
}

/// One key. `hash` is OpenRouter's name for the id that is used in paths.
#[derive(Serialize)]
pub(super) struct KeyDocument {
    hash: String,
    id: String,
    label: String,
    /// Empty for a key without a name: OpenRouter's SDKs expect a text.
    name: String,
    kind: &'static str,
    disabled: bool,
    workspace_id: Option<String>,
    creator_user_id: Option<String>,
    member_id: Option<String>,
    intern_id: Option<String>,
    created_at: String,
    /// Always null: the time of a change is only in the audit log.
    updated_at: Option<String>,
    expires_at: Option<String>,
    /// Always null, like the next field. OpenRouter's SDKs reject a key without them.
    last_used_at: Option<String>,
    external_user: Option<String>,
    #[serde(flatten)]
    spending: SpendingMembers,
}

impl KeyDocument {
    pub(super) fn of(key: &ApiKey, spend: &KeySpend) -> Self {
        let member = key.member.map(|id| id.to_string());
        Self {
            hash: key.id.to_string(),
            id: key.id.to_string(),
            label: label(key),
            name: key.name.as_ref().map(ToString::to_string).unwrap_or_default(),
            kind: key.kind.as_str(),
            disabled: key.disabled,
            workspace_id: key.workspace.map(|id| id.to_string()),
            creator_user_id: member.clone(),
            member_id: member,
            intern_id: key.intern.map(|id| id.to_string()),
            created_at: timestamp(key.created_at_ms),
            updated_at: None,
            expires_at: key.expires_at_ms.map(timestamp),
            last_used_at: None,
            external_user: None,
            spending: SpendingMembers::of(key, spend),
        }
    }
}
