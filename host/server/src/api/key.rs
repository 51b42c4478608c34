//! `GET /v1/key`: what a key is told about itself.

use http::{Response, StatusCode};
use serde_json::json;

use crate::answer::Body;
use crate::handle::Call;
use crate::reply::{Fault, json_response};
use crate::timestamp::timestamp;

pub(crate) fn read(call: &Call<'_>) -> Result<Response<Body>, Fault> {
    let directory = call.app.store.directory();
    // A key that was deleted a moment ago is as unknown as any other.
    let key = directory.key(call.principal.key_id()).ok_or(Fault::InvalidKey)?;
    let body = json!({
        "data": {
            "id": key.id.to_string(),
            "name": key.name.as_ref().map(ToString::to_string),
            "kind": key.kind.as_str(),
            "workspace_id": key.workspace.map(|id| id.to_string()),
            "member_id": key.member.map(|id| id.to_string()),
            "intern_id": key.intern.map(|id| id.to_string()),
            "created_at": timestamp(key.created_at_ms),
            "expires_at": key.expires_at_ms.map(timestamp),
            "limit": null,
            "limit_remaining": null,
        }
    });
    Ok(json_response(StatusCode::OK, body.to_string().into()))
}
