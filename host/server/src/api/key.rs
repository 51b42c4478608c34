//! `GET /v1/key`: the caller's own key, with OpenRouter's field names and the service's own.

use cofferdam_store::KeyKind;
use http::Response;
use serde::Serialize;

use super::spending::{SpendingMembers, label};
use crate::call::Call;
use crate::fault::Fault;
use crate::reply::answer::ResponseBody;
use crate::reply::{DataDocument, document};
use crate::timestamp::timestamp;

#[derive(Serialize)]
struct CurrentKey<'k> {
    id: &'k str,
    label: String,
    name: Option<&'k str>,
    kind: &'static str,
    workspace_id: Option<String>,
    member_id: Option<String>,
    creator_user_id: Option<String>,
    intern_id: Option<String>,
    created_at: String,
    expires_at: Option<String>,
    #[serde(flatten)]
    spending: SpendingMembers,
    is_free_tier: bool,
    is_provisioning_key: bool,
    is_management_key: bool,
    rate_limit: RateLimitDocument,
    #[serde(flatten)]
    absent: Absent,
}

/// Fields that have no counterpart here. OpenRouter's SDKs reject a key without them.
#[derive(Default, Serialize)]
struct Absent {
    organization_id: Option<String>,
    allowed_data_regions: [&'static str; 0],
    budgets: [&'static str; 0],
    effective_budget: Option<String>,
    free_model_daily_requests: FreeRequests,
}

/// Daily requests to free models. They are not counted separately.
#[derive(Default, Serialize)]
struct FreeRequests {
    limit: u32,
    remaining: u32,
    used: u32,
}

/// Requests per interval; -1 means no limit, as in OpenRouter's API.
#[derive(Serialize)]
struct RateLimitDocument {
    requests: i64,
    interval: &'static str,
    note: &'static str,
}

pub(crate) async fn read(call: &Call<'_>) -> Result<Response<ResponseBody>, Fault> {
    let key = call.principal.key();
    let requests = match call.app.live().config.limits.rates.requests_per_minute {
        0 => -1,
        requests => i64::try_from(requests).unwrap_or(i64::MAX),
    };
    let spend = call.app.store.spend_of(key).await.map_err(Fault::unread)?;
    let manages = key.kind == KeyKind::Provisioning;
    let member = key.member.map(|id| id.to_string());
    let data = CurrentKey {
        id: key.id.as_str(),
        label: label(key),
        name: key.name.as_ref().map(AsRef::as_ref),
        kind: key.kind.as_str(),
        workspace_id: key.workspace.map(|id| id.to_string()),
        creator_user_id: member.clone(),
        member_id: member,
        intern_id: key.intern.map(|id| id.to_string()),
        created_at: timestamp(key.created_at_ms),
        expires_at: key.expires_at_ms.map(timestamp),
        spending: SpendingMembers::of(key, &spend),
        is_free_tier: false,
        is_provisioning_key: manages,
        is_management_key: manages,
        rate_limit: RateLimitDocument {
            requests,
            interval: "1m",
            note: "X-RateLimit headers tell what is left",
        },
        absent: Absent::default(),
    };
    Ok(document(&DataDocument { data }))
}
