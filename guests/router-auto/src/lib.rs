//! The model router: chooses models for requests that name a router (for example `auto`), and orders
//! endpoints by the rules of the default router.
//!
//! The rules are in `cofferdam-routing`; this crate connects them to the host.

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::config;
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use cofferdam_guest_kit::bindings::{model_choice, routing};
use cofferdam_routing::{Question, Router, choose};

use model_choice::{Choice, TextFacts};

struct RouterAuto;

cofferdam_guest_kit::export!(model_router: RouterAuto);

impl routing::Guest for RouterAuto {
    fn route(
        summary: routing::RequestSummary,
        candidates: Vec<routing::Candidate>,
        seed: u64,
    ) -> Result<routing::Decision, Failure> {
        cofferdam_routing::route(&summary, &candidates, seed)
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
        chosen(&slug, &summary, &facts, models, &settings, &config::settings(), seed)
    }
}

/// The choice in the form of the contract. `operator` is the guest's configuration.
fn chosen(
    slug: &str,
    request: &routing::RequestSummary,
    facts: &TextFacts,
    mut models: Vec<model_choice::Model>,
    settings: &[u8],
    operator: &[u8],
    seed: u64,
) -> Result<Choice, Failure> {
    let Some(router) = Router::named(slug) else {
        return Err(Failure::new(ErrorKind::NotFound, "No router of this name is here"));
    };
    let choice = choose(Question { router, request, facts, models: &models, settings, operator, seed })?;
    let name = |index: usize| models.get_mut(index).map(|model| std::mem::take(&mut model.id));
    Ok(Choice {
        models: choice.models.into_iter().filter_map(name).collect(),
        strategy: choice.strategy.to_owned(),
        reason: choice.reason,
    })
}
