//! Calls into routers: ordering candidates and choosing models.

use std::sync::Arc;

use wasmtime::component::TypedFunc;

use crate::calls::answers::check_decision;
use crate::calls::{borrowing, cached};
use crate::context::CallContext;
use crate::error::{CallError, CallErrorKind};
use crate::guest::exports::{Route, RouteAnswer};
use crate::instance::Instance;
use crate::plugin::Plugin;
use crate::services::Services;
use crate::wire::{Candidate, Choice, Decision, Failure, Model, RequestSummary, TextFacts};

/// Output limit of a router in bytes: indexes and two short texts.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// The input of a choice of models.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceQuestion<'a> {
    /// The model name of the request, without the vendor prefix.
    pub slug: &'a str,
    /// A summary of the request without its content.
    pub summary: &'a RequestSummary,
    /// Facts about the request's text.
    pub facts: &'a TextFacts,
    /// The models to choose from.
    pub models: &'a [Model],
    /// The request's `plugins` entry for this router, as JSON.
    pub settings: &'a [u8],
    /// The seed of all randomness in the choice.
    pub seed: u64,
}

impl Plugin {
    /// Orders the candidates of a request.
    ///
    /// # Errors
    ///
    /// The guest trapped or its answer breaks a rule. The inner error is a failure that the guest
    /// reports.
    pub async fn route(
        self: &Arc<Self>,
        context: &CallContext,
        summary: &RequestSummary,
        candidates: &[Candidate],
        seed: u64,
    ) -> Result<Result<Decision, Failure>, CallError> {
        if self.compiled().await?.functions.route.is_none() {
            return Err(self.missing("routing"));
        }
        let mut instance = Instance::warm(self, context).await?;
        instance.allow_time(summary.preferences.len());
        let route = async |instance: &mut Instance| {
            let function: TypedFunc<Route<'_>, RouteAnswer> =
                cached(instance, |exports| &mut exports.route, |functions| functions.route)?;
            Ok(function.call_async(&mut instance.live.store, (summary, candidates, seed)).await?.0)
        };
        instance.note_call("route", &(summary, candidates, seed));
        let (instance, answer) = instance.run("route", OUTPUT_BYTES_MAX, route).await?;
        instance.note_answer(&answer);
        if let Ok(decision) = &answer {
            check_decision(decision, candidates.len())
                .map_err(|rule| instance.failed("route", CallErrorKind::InvalidAnswer(rule)))?;
            instance.keep();
        }
        Ok(answer)
    }

    /// The model names of a model router, without the vendor prefix.
    ///
    /// # Errors
    ///
    /// The plugin is not a model router, or the guest trapped.
    pub async fn model_slugs(self: &Arc<Self>, context: &CallContext) -> Result<Vec<String>, CallError> {
        if self.compiled().await?.functions.slugs.is_none() {
            return Err(self.missing("model-choice"));
        }
        let instance = Instance::open(self, context, Services::default()).await?;
        let slugs = async |instance: &mut Instance| {
            let function = borrowing::<(), (Vec<String>,)>(instance, |functions| functions.slugs)?;
            Ok(function.call_async(&mut instance.live.store, ()).await?.0)
        };
        instance.note_call("slugs", &());
        let (instance, answer) = instance.run("slugs", OUTPUT_BYTES_MAX, slugs).await?;
        instance.note_answer(&answer);
        Ok(answer)
    }

    /// Chooses models for a request that names this router.
    ///
    /// # Errors
    ///
    /// The plugin is not a model router, the guest trapped, or it chose a model that was not
    /// offered. The inner error is a failure that the guest reports.
    pub async fn choose_model(
        self: &Arc<Self>,
        context: &CallContext,
        question: ChoiceQuestion<'_>,
    ) -> Result<Result<Choice, Failure>, CallError> {
        if self.compiled().await?.functions.choose.is_none() {
            return Err(self.missing("model-choice"));
        }
        let mut instance = Instance::warm(self, context).await?;
        instance.allow_time(question.settings.len().saturating_add(question.summary.preferences.len()));
        let choose = async |instance: &mut Instance| {
            type Choose<'a> = (&'a str, &'a RequestSummary, &'a TextFacts, &'a [Model], &'a [u8], u64);
            type Answer = (Result<Choice, Failure>,);
            let function = borrowing::<Choose<'_>, Answer>(instance, |functions| functions.choose)?;
            let ChoiceQuestion { slug, summary, facts, models, settings, seed } = question;
            let parameters = (slug, summary, facts, models, settings, seed);
            Ok(function.call_async(&mut instance.live.store, parameters).await?.0)
        };
        let ChoiceQuestion { slug, summary, facts, models, settings, seed } = question;
        instance.note_call("choose", &(slug, summary, facts, models, settings, seed));
        let (instance, answer) = instance.run("choose", OUTPUT_BYTES_MAX, choose).await?;
        instance.note_answer(&answer);
        if let Ok(choice) = &answer {
            let offered = |id: &String| question.models.iter().any(|model| model.id == *id);
            if choice.models.is_empty() || !choice.models.iter().all(offered) {
                let rule = "a chosen model is not among those offered, or none is chosen";
                return Err(instance.failed("choose", CallErrorKind::InvalidAnswer(rule)));
            }
            instance.keep();
        }
        Ok(answer)
    }
}
