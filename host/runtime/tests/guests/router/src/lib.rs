//! A router and model router. `requested` or the slug selects what it does.

mod bindings {
    wit_bindgen::generate!({ path: "../../../../../wit", world: "model-router" });
    use super::Guest;
    export!(Guest);
}

use bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use bindings::cofferdam::plugin::{config, log};
use bindings::exports::cofferdam::plugin::{model_choice, routing};

struct Guest;

fn write(line: &str) {
    log::write(log::Level::Info, line);
}

fn failure(message: &str) -> Failure {
    Failure { kind: ErrorKind::NotFound, message: message.into(), code: None, retry_after_ms: None }
}

impl routing::Guest for Guest {
    fn route(
        summary: routing::RequestSummary,
        candidates: Vec<routing::Candidate>,
        seed: u64,
    ) -> Result<routing::Decision, Failure> {
        deeds::commit(&summary.requested, write);
        let all: Vec<u32> = (0..candidates.len() as u32).collect();
        let order = match summary.requested.as_str() {
            "fail" => return Err(failure("as told")),
            "burn" => {
                deeds::burn(seed as u32);
                all
            }
            "out of range" => vec![candidates.len() as u32],
            "twice" => vec![0, 0],
            "empty" => vec![],
            "reverse" => all.into_iter().rev().collect(),
            _ => all,
        };
        let settings = String::from_utf8(config::settings()).unwrap();
        let reason = format!("calls={} seed={seed} settings={settings}", deeds::calls());
        Ok(routing::Decision { order, strategy: "direct".into(), reason })
    }
}

impl model_choice::Guest for Guest {
    fn slugs() -> Vec<String> {
        vec!["auto".into()]
    }

    fn choose(
        slug: String,
        _summary: model_choice::RequestSummary,
        facts: model_choice::TextFacts,
        models: Vec<model_choice::Model>,
        settings: Vec<u8>,
        _seed: u64,
    ) -> Result<model_choice::Choice, Failure> {
        deeds::commit(&slug, write);
        let models = match slug.as_str() {
            "unknown model" => vec!["nobody/knows".into()],
            _ => models.into_iter().map(|model| model.id).collect(),
        };
        let reason = format!("{} chars, {} bytes of settings", facts.all_chars, settings.len());
        Ok(model_choice::Choice { models, strategy: "auto".into(), reason })
    }
}
