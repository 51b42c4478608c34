//! One decision: parses the preferences, removes and orders candidates, and explains the result.

use crate::constraint::{self, Removed};
use crate::endpoint::{Candidate, Request};
use crate::order;
use crate::preferences::Preferences;
use crate::settings::Malformed;

/// The order in which candidates are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Indexes into the candidates, best first, each at most once.
    pub order: Vec<u32>,
    /// The value for `service_metadata.strategy`.
    pub strategy: &'static str,
    /// One sentence for the operator's log.
    pub reason: String,
}

/// Why there is no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A field of the `provider` object is invalid.
    Malformed(Malformed),
    /// The client's constraints leave no endpoint; the message says which ones.
    NothingLeft(String),
}

/// Orders `candidates`. The same `seed` gives the same order.
///
/// # Errors
/// When a field of the preferences is invalid, or no endpoint may be tried.
pub fn route(request: &Request, candidates: &[Candidate], seed: u64) -> Result<Decision, Refusal> {
    let preferences = Preferences::parse(&request.preferences).map_err(Refusal::Malformed)?;
    let (allowed, removed) = constraint::apply(request, &preferences, candidates);
    let mut order = order::decide(request, &preferences, candidates, &allowed, seed);
    if order.is_empty() {
        return Err(Refusal::NothingLeft(nothing_left(candidates.len(), &removed)));
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
    Ok(Decision { order, strategy: strategy(request), reason })
}

fn strategy(request: &Request) -> &'static str {
    if request.suffix.as_deref() == Some("free") {
        "free"
    } else if request.models > 1 {
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
