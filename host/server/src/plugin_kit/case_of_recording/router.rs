//! A recorded call of a router: a summary of a request with candidates, or with models to choose from.

use cofferdam_runtime::Recording;
use cofferdam_runtime::wire::{Candidate, Model, RequestSummary, TextFacts};
use serde::Serialize;
use serde_json::Value;

use super::plain::{PlainValues, brief};
use super::provider::json;

/// The keys of a case that a call of a router gives.
#[derive(Serialize)]
pub(super) struct RecordedChoice {
    seed: toml::Value,
    request: toml::Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<toml::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    choose: Option<RecordedQuestion>,
}

#[derive(Serialize)]
struct RecordedQuestion {
    slug: String,
    models: Vec<toml::Value>,
    facts: toml::Value,
    settings: toml::Value,
}

impl RecordedChoice {
    /// The first call of a recording.
    ///
    /// # Errors
    ///
    /// A case cannot say it.
    pub(super) fn of(recording: &Recording, values: &mut PlainValues) -> Result<Self, String> {
        type Route = (RequestSummary, Vec<Candidate>, u64);
        type Choose = (String, RequestSummary, TextFacts, Vec<Model>, Vec<u8>, u64);
        let unread = || "the input of the router cannot be read".to_owned();
        let call = recording.calls().next().ok_or_else(unread)?;
        if call.function == "route" {
            let (summary, candidates, seed): Route = call.input().ok_or_else(unread)?;
            if candidates.is_empty() {
                return Err("the router was given no candidates, and a case has some".to_owned());
            }
            let candidates = candidates.iter().map(|it| values.plain(&brief(it, []), "the candidates"));
            let candidates = candidates.collect::<Result<_, _>>()?;
            let request = summary_of(&summary, values)?;
            return Ok(Self { seed: seed_of(seed), request, candidates, choose: None });
        }
        let (slug, summary, facts, models, settings, seed): Choose = call.input().ok_or_else(unread)?;
        let models = models.iter().map(|it| values.plain(&brief(it, []), "the models"));
        let choose = RecordedQuestion {
            slug,
            models: models.collect::<Result<_, _>>()?,
            facts: values.plain(&brief(&facts, []), "the facts")?,
            settings: json(&settings, values, "the entry of the router")?,
        };
        let request = summary_of(&summary, values)?;
        Ok(Self { seed: seed_of(seed), request, candidates: Vec::new(), choose: Some(choose) })
    }
}

fn summary_of(summary: &RequestSummary, values: &mut PlainValues) -> Result<toml::Value, String> {
    let preferences: Value = serde_json::from_slice(&summary.preferences).unwrap_or_default();
    let purpose = Value::from(summary.purpose.as_str());
    // A place of 0 is no absent one.
    let request = match summary.sticky {
        Some(sticky) => {
            brief(summary, [("preferences", preferences), ("purpose", purpose), ("sticky", sticky.into())])
        }
        None => brief(summary, [("preferences", preferences), ("purpose", purpose)]),
    };
    values.plain(&request, "the request")
}

/// TOML has no numbers above 2^63 - 1; a case takes them as text.
fn seed_of(seed: u64) -> toml::Value {
    i64::try_from(seed).map_or_else(|_| toml::Value::String(seed.to_string()), toml::Value::Integer)
}
