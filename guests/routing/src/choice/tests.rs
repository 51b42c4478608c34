//! Tests of choices as tables: an expected order is a list of model names.

mod properties;
mod restrictions;
mod rules;

use cofferdam_guest_kit::bindings::routing::RequestSummary;
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};

use super::{Choice, Model, Question, Router, TextFacts, choose};
use crate::tests::{price as price_of, summary as plain_request};

/// Eleven models from free to expensive, `v/0` to `v/10`, at price ranks from 0 to 1.
fn catalog() -> Vec<Model> {
    (0..=10).map(|place| model(&format!("v/{place}"), f64::from(place))).collect()
}

/// A model that states only its price, from 0 to 10.
fn model(id: &str, price: f64) -> Model {
    Model {
        id: id.into(),
        price: price_of(price, price * 3.0),
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        price_rank: price / 10.0,
    }
}

fn with(id: &str, price: f64, change: fn(&mut Model)) -> Model {
    let mut model = model(id, price);
    change(&mut model);
    model
}

fn request() -> RequestSummary {
    RequestSummary { requested: "service/auto".into(), models: Vec::new(), ..plain_request("{}") }
}

fn no_facts() -> TextFacts {
    TextFacts {
        last_user_chars: 0,
        all_chars: 0,
        turns: 0,
        code_blocks: 0,
        math_share: 0.0,
        questions: 0,
        last_model: None,
    }
}

/// A request with the highest estimated difficulty.
fn hard() -> (RequestSummary, TextFacts) {
    let mut request = request();
    request.needs = ["tools", "structured_output", "reasoning"].map(str::to_owned).into();
    let facts = TextFacts {
        last_user_chars: 10_000,
        all_chars: 100_000,
        turns: 50,
        code_blocks: 9,
        math_share: 0.5,
        questions: 9,
        last_model: None,
    };
    (request, facts)
}

/// A question that a test can change.
struct Asked {
    router: Router,
    request: RequestSummary,
    facts: TextFacts,
    models: Vec<Model>,
    settings: String,
    operator: String,
    seed: u64,
}

fn asked(slug: &str, settings: &str) -> Asked {
    Asked {
        router: Router::named(slug).unwrap(),
        request: request(),
        facts: no_facts(),
        models: catalog(),
        settings: settings.into(),
        operator: "{}".into(),
        seed: 7,
    }
}

impl Asked {
    fn choose(&self) -> Result<Choice, Failure> {
        choose(Question {
            router: self.router,
            request: &self.request,
            facts: &self.facts,
            models: &self.models,
            settings: self.settings.as_bytes(),
            operator: self.operator.as_bytes(),
            seed: self.seed,
        })
    }

    /// The names of the chosen models, without the vendor.
    fn names(&self) -> String {
        let choice = self.choose().expect("a choice");
        let name = |index: &usize| self.models[*index].id.trim_start_matches("v/");
        choice.models.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    fn first(&self) -> String {
        self.names().split(' ').next().unwrap().to_owned()
    }

    fn malformed(&self) -> String {
        match self.choose() {
            Err(failure) if failure.kind == ErrorKind::InvalidRequest => failure.message,
            other => panic!("{other:?}"),
        }
    }
}

/// Whether no model is left.
fn is_empty(choice: &Result<Choice, Failure>) -> bool {
    choice.as_ref().is_err_and(|failure| failure.kind == ErrorKind::NotFound)
}

#[test]
fn slugs_lead_to_their_routers() {
    for slug in Router::slugs() {
        assert!(Router::named(slug).is_some(), "{slug}");
    }
    assert_eq!(Router::named("auto"), Some(Router::Auto));
    assert_eq!(Router::named("pareto-code"), Some(Router::Pareto));
    assert_eq!(Router::named("service/auto"), None);
    assert_eq!(Router::named(""), None);
}

#[test]
fn a_choice_says_how_and_why() {
    let choice = asked("auto", "{}").choose().unwrap();
    assert_eq!(choice.strategy, "auto");
    assert_eq!(
        choice.reason,
        "auto-router chose v/0 out of 11 models: difficulty 0.00 in the price band from 0 to 30 %"
    );
    let choice = asked("pareto-code", "{}").choose().unwrap();
    assert_eq!(choice.strategy, "pareto");
    assert!(choice.reason.starts_with("pareto-router chose v/7 "), "{}", choice.reason);
}
