//! The model router: chooses models for requests that name a router (for example `auto`), and orders
//! endpoints by the rules of the default router.
//!
//! The rules are in `cofferdam-routing`; this crate connects them to the host.

#[allow(unsafe_code, clippy::all, reason = "generated")]
mod bindings {
    use super::RouterAuto;

    wit_bindgen::generate!({ path: "../../wit", world: "model-router" });
    export!(RouterAuto);
}
#[path = "../../routing/wire.rs"]
mod wire;

#[cfg(test)]
mod tests;

use bindings::cofferdam::plugin::config;
use bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use bindings::exports::cofferdam::plugin::{model_choice, routing};

use cofferdam_routing::{Facts, Model, NOTHING_LEFT, NoChoice, Question, Router, choose};
use model_choice::{Choice, TextFacts};

struct RouterAuto;

impl routing::Guest for RouterAuto {
    fn route(
        summary: routing::RequestSummary,
        candidates: Vec<routing::Candidate>,
        seed: u64,
    ) -> Result<routing::Decision, Failure> {
        wire::route(summary, candidates, seed)
    }
}

impl model_choice::Guest for RouterAuto {
    fn slugs() -> Vec<String> {
        Router::slugs().map(str::to_owned).collect()
    }

    fn choose(
        slug: String,
        summary: routing::RequestSummary,
        facts: TextFacts,
        models: Vec<model_choice::Model>,
        settings: Vec<u8>,
        seed: u64,
    ) -> Result<Choice, Failure> {
        chosen(&slug, summary, facts, models, &settings, &config::settings(), seed)
    }
}

/// The choice in the form of the contract. `operator` is the guest's configuration.
fn chosen(
    slug: &str,
    summary: routing::RequestSummary,
    facts: TextFacts,
    models: Vec<model_choice::Model>,
    settings: &[u8],
    operator: &[u8],
    seed: u64,
) -> Result<Choice, Failure> {
    let Some(router) = Router::named(slug) else {
        return Err(wire::failure(ErrorKind::NotFound, "No router of this name is here".to_owned()));
    };
    let beside = summary.models.clone();
    let request = wire::request(summary);
    let facts = self::facts(facts);
    let mut models: Vec<Model> = models.into_iter().map(model).collect();
    let question = Question {
        router,
        request: &request,
        facts: &facts,
        models: &models,
        beside: &beside,
        settings,
        operator,
        seed,
    };
    let choice = choose(question).map_err(|no_choice| match no_choice {
        NoChoice::NothingLeft => wire::failure(ErrorKind::NotFound, NOTHING_LEFT.to_owned()),
        NoChoice::Malformed(malformed) => wire::failure(ErrorKind::InvalidRequest, malformed.to_string()),
    })?;
    let name = |index: usize| models.get_mut(index).map(|model| std::mem::take(&mut model.id));
    Ok(Choice {
        models: choice.models.into_iter().filter_map(name).collect(),
        strategy: choice.strategy.to_owned(),
        reason: choice.reason,
    })
}

fn model(model: model_choice::Model) -> Model {
    Model {
        id: model.id,
        price: wire::price(model.price),
        context_length: model.context_length,
        max_output: model.max_output,
        supports: model.supports,
        price_rank: model.price_rank,
    }
}

fn facts(facts: TextFacts) -> Facts {
    Facts {
        last_user_chars: facts.last_user_chars,
        all_chars: facts.all_chars,
        turns: facts.turns,
        code_blocks: facts.code_blocks,
        math_share: facts.math_share,
        questions: facts.questions,
        last_model: facts.last_model,
    }
}
