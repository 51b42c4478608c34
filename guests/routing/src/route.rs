//! One decision: parses the preferences, removes and orders candidates, and explains the result.

use cofferdam_guest_kit::bindings::routing::{Candidate, Decision, RequestSummary};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};

use crate::constraint::{self, Removed};
use crate::order;
use crate::preferences::Preferences;

/// Orders `candidates`. The same `seed` gives the same order.
///
/// # Errors
/// When a field of the preferences is invalid, or no endpoint may be tried.
pub fn route(request: &RequestSummary, candidates: &[Candidate], seed: u64) -> Result<Decision, Failure> {
    let preferences = Preferences::parse(&request.preferences)?;
    let (allowed, removed) = constraint::apply(request, &preferences, candidates);
    let mut order = order::decide(request, &preferences, candidates, &allowed, seed);
    if order.is_empty() {
        return Err(Failure::new(ErrorKind::NotFound, nothing_left(candidates.len(), &removed)));
    }
    let how = order::describe(request, &preferences);
    let reason = match (order.len(), candidates.len()) {
        (allowed, all) if allowed == all => ["all endpoints allowed, ", how].concat(),
        (allowed, all) => format!("{allowed} of {all} endpoints allowed, {how}"),
    };
    if !preferences.allow_fallbacks {
        order.truncate(1);
    }
    let order = order.into_iter().filter_map(|index| u32::try_from(index).ok()).collect();
    Ok(Decision { order, strategy: strategy(request).to_owned(), reason })
}

fn strategy(request: &RequestSummary) -> &'static str {
    if request.suffix.as_deref() == Some("free") {
        "free"
    } else if request.models.len() > 1 {
        "fallback"
    } else {
        "direct"
    }
}

/// The message for the client: which of its own constraints removed the endpoints.
fn nothing_left(total: usize, removed: &Removed) -> String {
    let message = "No allowed providers are available for the selected model";
    let mut causes: Vec<String> = removed.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    let by_tier = total.saturating_sub(removed.iter().map(|(_, count)| count).sum());
    if by_tier > 0 {
        causes.push(format!("service_tier {by_tier}"));
    }
    match causes.as_slice() {
        [] => message.to_owned(),
        causes => format!("{message}: of {total} endpoints, {} excluded", causes.join(", ")),
    }
}
