//! A stranger's model router: `service/picky` is the model that its settings name, `{"id": "picky-router", "pick":
//! "vendor/name"}`, else the first that the client names beside it, else the last there is.

use bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use bindings::exports::cofferdam::plugin::model_choice::{self, Choice, Model, TextFacts};
use bindings::exports::cofferdam::plugin::routing::{self, Candidate, Decision, RequestSummary};
use serde_json::Value;

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "model-router" });
    use super::Router;
    export!(Router);
}

struct Router;

impl routing::Guest for Router {
    fn route(_: RequestSummary, candidates: Vec<Candidate>, _: u64) -> Result<Decision, Failure> {
        let order = (0_u32..).zip(&candidates).map(|(index, _)| index).collect();
        Ok(Decision { order, strategy: "picky".to_owned(), reason: "as they came".to_owned() })
    }
}

impl model_choice::Guest for Router {
    fn slugs() -> Vec<String> {
        vec!["picky".to_owned()]
    }

    fn choose(
        _: String,
        summary: RequestSummary,
        _: TextFacts,
        models: Vec<Model>,
        settings: Vec<u8>,
        _: u64,
    ) -> Result<Choice, Failure> {
        let settings: Value = serde_json::from_slice(&settings).unwrap_or_default();
        let settled = settings.get("pick").and_then(Value::as_str).map(str::to_owned);
        let beside = || summary.models.first().cloned();
        let picked = settled.or_else(beside).or_else(|| models.last().map(|model| model.id.clone()));
        let known = picked.filter(|id| models.iter().any(|model| model.id == *id));
        let chosen = known.ok_or_else(|| Failure {
            kind: ErrorKind::NotFound,
            message: "There is no such model".to_owned(),
            code: None,
            retry_after_ms: None,
        })?;
        Ok(Choice { models: vec![chosen], strategy: "picky".to_owned(), reason: "it was picked".to_owned() })
    }
}
