//! The default router: decides in which order endpoints are tried.
//!
//! A pipeline of small rules over the candidates' indexes: constraints remove
//! ([`constraint`]), ranks put classes before classes ([`rank`]), and within a
//! class either the client's own order, a sort or a weighted draw decides
//! ([`order`]). A new rule is a new file and one line in one of the three.

#[allow(unsafe_code, clippy::all, reason = "generated")]
mod bindings {
    use super::Router;

    wit_bindgen::generate!({ path: "../../wit", world: "router" });
    export!(Router);
}
mod balance;
mod constraint;
mod order;
mod preferences;
mod rank;
mod slug;
mod sort;
mod tier;

#[cfg(test)]
mod tests;

use bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use bindings::exports::cofferdam::plugin::routing::{Candidate, Decision, Guest, RequestSummary};

use constraint::Removed;
use preferences::Preferences;

struct Router;

impl Guest for Router {
    fn route(summary: RequestSummary, candidates: Vec<Candidate>, seed: u64) -> Result<Decision, Failure> {
        let preferences = Preferences::parse(&summary.preferences)
            .map_err(|field| failure(ErrorKind::InvalidRequest, format!("{field} is malformed")))?;
        let (allowed, removed) = constraint::apply(&summary, &preferences, &candidates);
        let mut order = order::decide(&summary, &preferences, &candidates, &allowed, seed);
        if order.is_empty() {
            return Err(failure(ErrorKind::NotFound, nothing_left(candidates.len(), &removed)));
        }
        let reason = format!(
            "{} of {} endpoints allowed, {}",
            order.len(),
            candidates.len(),
            order::describe(&summary, &preferences)
        );
        if !preferences.allow_fallbacks {
            order.truncate(1);
        }
        let order = order.into_iter().filter_map(|index| u32::try_from(index).ok()).collect();
        Ok(Decision { order, strategy: strategy(&summary).to_owned(), reason })
    }
}

/// The word for `service_metadata.strategy`.
fn strategy(summary: &RequestSummary) -> &'static str {
    if summary.suffix.as_deref() == Some("free") {
        "free"
    } else if summary.models.len() > 1 {
        "fallback"
    } else {
        "direct"
    }
}

/// Tells the client which of its own constraints left nothing.
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

fn failure(kind: ErrorKind, message: String) -> Failure {
    Failure { kind, message, code: None, retry_after_ms: None }
}
