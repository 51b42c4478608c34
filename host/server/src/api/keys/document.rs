//! What is shown of keys, in OpenRouter's names and ours.

use cofferdam_store::{ApiKey, Store};
use serde::Serialize;

use crate::api::spending::{Spending, label};
use crate::timestamp::timestamp;

/// `{data}`
#[derive(Serialize)]
pub(super) struct Data<T> {
    pub(super) data: T,
}

/// `{data, has_more}`
#[derive(Serialize)]
pub(super) struct Listing {
    pub(super) data: Vec<Key>,
    pub(super) has_more: bool,
}

/// `{data, key}`: the only time that the token is shown.
#[derive(Serialize)]
pub(super) struct Created<'k> {
    pub(super) data: Key,
    pub(super) key: &'k str,
}

/// `{deleted: true}`
#[derive(Serialize)]
pub(super) struct Deleted {
    pub(super) deleted: bool,
}

/// One key. `hash` is what OpenRouter calls the id that paths have.
#[derive(Serialize)]
pub(super) struct Key {
    hash: String,
    id: String,
    label: String,
    /// Empty for a key that its operator gave none: OpenRouter's SDKs insist on a text.
    name: String,
    kind: &'static str,
    disabled: bool,
    workspace_id: Option<String>,
    creator_user_id: Option<String>,
    member_id: Option<String>,
    intern_id: Option<String>,
    created_at: String,
    /// When a key was changed is in the audit log only.
    updated_at: Option<String>,
    expires_at: Option<String>,
    /// Always null, as is the next: nothing here corresponds to them, but OpenRouter's SDKs refuse a key without.
    last_used_at: Option<String>,
    external_user: Option<String>,
    #[serde(flatten)]
    spending: Spending,
}

impl Key {
    /// Of a key as it stands at this moment.
    pub(super) fn of(store: &Store, key: &ApiKey) -> Self {
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
            spending: Spending::of(store, key),
        }
    }
}
