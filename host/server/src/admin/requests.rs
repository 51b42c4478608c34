//! `GET /admin/v1/requests` and `/admin/v1/requests/ID`: what the recorder kept of the last requests.

use cofferdam_engine::timeline::{RequestFilter, RequestRecorder};
use serde_json::{Map, Value, json};

use super::fault::AdminFault;
use crate::refused::RefusedRequests;

/// The most requests of one answer.
const LIMIT_MAX: usize = 500;
const MEMBERS: &str = "`before`, `after`, `limit`, `failed`, `model`, `key`, `workspace`";

/// The running requests, a page of the finished ones, and those that were refused before they ran,
/// each with the last one first.
pub(super) fn list(
    recorder: &RequestRecorder,
    refused: &RefusedRequests,
    members: &Map<String, Value>,
) -> Result<Value, AdminFault> {
    let filter = filter(members)?;
    let limit = filter.limit;
    // One more than asked for tells whether there are more.
    let mut found = recorder.recent(&RequestFilter { limit: limit + 1, ..filter });
    let has_more = found.len() > limit;
    found.truncate(limit);
    Ok(json!({
        "keeps": recorder.keeps(),
        "running": recorder.running(),
        "data": found,
        "has_more": has_more,
        "refused": refused.list(),
    }))
}

/// One request with its steps.
pub(super) fn one(recorder: &RequestRecorder, id: &str) -> Result<Value, AdminFault> {
    recorder.one(id).map(|found| json!(found)).ok_or(AdminFault::NotFound)
}

fn filter(members: &Map<String, Value>) -> Result<RequestFilter, AdminFault> {
    let mut filter = RequestFilter::default();
    for (name, value) in members {
        let Value::String(value) = value else {
            return Err(AdminFault::malformed(format!("`{name}` must be given once")));
        };
        let number =
            || value.parse().map_err(|_| AdminFault::malformed(format!("`{name}` must be a whole number")));
        match name.as_str() {
            "before" => filter.before = Some(number()?),
            "after" => filter.after = Some(number()?),
            "limit" => filter.limit = limit(value)?,
            "failed" => filter.failed = flag(value)?,
            "model" => filter.model = Some(value.clone()),
            "key" => filter.key = Some(value.clone()),
            "workspace" => filter.workspace = Some(value.clone()),
            _ => {
                let name: String = name.chars().take(64).collect();
                return Err(AdminFault::malformed(format!("unknown member `{name}`; known: {MEMBERS}")));
            }
        }
    }
    Ok(filter)
}

fn limit(value: &str) -> Result<usize, AdminFault> {
    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit
        .ok_or_else(|| AdminFault::malformed(format!("`limit` must be a whole number from 1 to {LIMIT_MAX}")))
}

fn flag(value: &str) -> Result<bool, AdminFault> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(AdminFault::malformed("`failed` must be true or false")),
    }
}
