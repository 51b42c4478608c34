//! The turns of one response: asks the model, runs the calls of server tools, asks the model again.

use super::attempt::{ResponseAttempt, RestOfAnswer};
use super::outcome::{host_failed, refused};
use super::{Job, ResponseRun};
use crate::assembler::{Assembler, Outcome, Permits};
use crate::catalog::Endpoint;
use crate::money::credit::TurnTokens;
use crate::plugins::tools::Interrupted;
use crate::refusal::{Refusal, TIMED_OUT, is_length};
use crate::request::Weight;
use crate::routing::RoutingPlan;
use crate::routing::model_choice::ChosenModels;
use crate::run::{Answering, Turn};
use crate::trace::RoutingTrace;
use crate::upstream::reading::UpstreamReading;
use cofferdam_runtime::wire::{ErrorKind, FinishReason};
use std::sync::Arc;

/// What follows a turn.
pub(super) enum TurnStep {
    /// Nothing: the response ends with this outcome. The rest of the provider's answer may still
    /// have to be read.
    End(Outcome, Option<Box<UpstreamReading>>),
    /// Another turn, which has begun.
    Turn(Answering<RestOfAnswer>),
    /// The client has left.
    Gone,
}

impl Job {
    /// The next turn.
    fn turn(&self) -> Turn {
        let Self { request, tools, .. } = self;
        // The input of a later turn includes what was said and found since the first.
        let told = tools.as_ref().map_or(0, |tools| tools.turn_json().len());
        let more = told.saturating_sub(request.guest_json.len()) as u64;
        Turn {
            tokens: TurnTokens {
                input: request.weight.most().saturating_add(more),
                inputs: 1,
                output: request.max_output_tokens,
                reasoning: request.weight.most_reasoning(),
            },
            input_tokens: request
                .weight
                .about()
                .max(request.input_tokens.into())
                .saturating_add(Weight::tokens(more).about()),
            fetched_tokens: request.weight.elsewhere(),
            // After the result of a call the model may have nothing left to say.
            may_be_empty: request.ends_with_result || tools.as_ref().is_some_and(|tools| tools.has_run()),
        }
    }
}

impl ResponseRun {
    /// Routes the request, and tries endpoints in the router's order until one answers.
    pub(super) async fn choose(&mut self, plan: RoutingPlan) -> Result<Answering<RestOfAnswer>, Refusal> {
        let first = plan.candidates.first().map(|(_, endpoint)| Arc::clone(endpoint));
        let routed = self.run.route(plan).await;
        let (chosen, trace) = (self.job.chosen_models.as_ref(), &mut self.run.trace);
        trace.pipeline.extend(chosen.map(ChosenModels::stage));
        let by_router = trace.strategy.clone();
        // An error has the strategy of the model that was to be tried first.
        name_strategy(trace, chosen, first.as_deref(), &by_router);
        routed?;
        if self.job.tools.is_some() {
            self.run.reserve(self.job.turn().tokens).await?;
            // Approved calls make pledges of their own, so the turn's pledge is released meanwhile.
            self.run.entry.turn_over();
            self.run_approved().await?;
        }
        let answering = self.ask().await?;
        let (chosen, trace) = (self.job.chosen_models.as_ref(), &mut self.run.trace);
        name_strategy(trace, chosen, Some(&answering.endpoint), &by_router);
        Ok(answering)
    }

    /// Reserves the most that the turn may cost, and tries endpoints in their order until one
    /// answers.
    async fn ask(&mut self) -> Result<Answering<RestOfAnswer>, Refusal> {
        let Self { job, run, .. } = self;
        let turn = job.turn();
        run.reserve(turn.tokens).await?;
        let attempt = ResponseAttempt {
            scope: &job.scope,
            json: job.tools.as_ref().map_or(&job.request.guest_json, |tools| tools.turn_json()),
            request: &job.request,
            permits: Permits::of(&job.request),
            foreign_seals: &job.foreign_seals,
            echo: job.echo.as_ref(),
        };
        run.ask(&attempt, &turn).await
    }

    /// Runs what the model called in a turn that ended with `outcome`, and begins the next turn if
    /// there is one.
    ///
    /// # Errors
    /// A [`Refusal`] if nothing was sent to the client.
    pub(super) async fn after_turn(
        &mut self,
        outcome: Outcome,
        reading: Option<Box<UpstreamReading>>,
        assembler: &mut Assembler,
    ) -> Result<TurnStep, Refusal> {
        let Self { job, run, .. } = &mut *self;
        let Some(tools) = &mut job.tools else { return Ok(TurnStep::End(outcome, reading)) };
        // The arguments of an incomplete answer may be incomplete too.
        if !matches!(outcome, Outcome::Completed) {
            return Ok(TurnStep::End(outcome, reading));
        }
        let calls = match assembler.end_turn() {
            Ok(calls) => calls,
            Err(malformed) => return Ok(TurnStep::End(refused(malformed), reading)),
        };
        if calls.is_empty() {
            return Ok(TurnStep::End(outcome, reading));
        }
        // Frees the connection and the instance for the next turn.
        if let Some(mut reading) = reading {
            reading.drain().await;
            reading.close().await;
        }
        let (context, time) = (&job.scope.context, job.scope.parts().timeouts.total);
        match tools.run(&calls, context, assembler, &mut run.deadline, time).await {
            Ok(()) => {}
            Err(Interrupted::Gone) => return Ok(TurnStep::Gone),
            Err(Interrupted::Late) => return self.late(),
            Err(Interrupted::Malformed(malformed)) => return Ok(TurnStep::End(refused(malformed), None)),
        }
        // The client has to run its own functions before the model can continue.
        if tools.is_over() || assembler.has_client_calls() {
            return Ok(TurnStep::End(outcome, None));
        }
        let finish = assembler.ended().map_or(FinishReason::ToolCalls, |ended| ended.reason.clone());
        let usage = assembler.total_usage();
        let cost = job.questions.account().total().everywhere();
        tools.prepare_turn(&job.request, &calls, usage.as_ref(), cost, &finish);
        let asked = self.ask().await;
        self.job.echo(assembler);
        match asked {
            Ok(answering) => {
                let candidate = &answering.endpoint.candidate;
                assembler.next_turn(&candidate.model, &candidate.tier);
                Ok(TurnStep::Turn(answering))
            }
            // The answer is only read on for its usage. Dropping the entry records that the client has left.
            Err(_) if self.run.deadline.has_left() => Ok(TurnStep::Gone),
            Err(_) if self.run.deadline.is_over() => self.late(),
            // The results of the tools no longer fit into the context: the response ends as
            // incomplete.
            Err(refusal) if is_length(refusal.kind) => {
                Ok(TurnStep::End(Outcome::Incomplete("max_output_tokens"), None))
            }
            Err(refusal) if self.run.deadline.is_streamed() => {
                Ok(TurnStep::End(Outcome::Failed(refusal), None))
            }
            Err(refusal) => {
                self.run.trace.selected = None;
                Err(refusal)
            }
        }
    }

    /// Runs the calls that the client has approved.
    ///
    /// # Errors
    /// 504: the deadline of the whole request has passed.
    async fn run_approved(&mut self) -> Result<(), Refusal> {
        let Self { job, run, .. } = self;
        let Some(tools) = &mut job.tools else { return Ok(()) };
        let (context, time) = (&job.scope.context, job.scope.parts().timeouts.total);
        let ran = tools.run_approved(&job.request, context, &mut run.deadline, time).await;
        ran.map_err(|_| timed_out())
    }

    /// The deadline of the whole request has passed after an answer had begun.
    fn late(&mut self) -> Result<TurnStep, Refusal> {
        if self.run.deadline.is_streamed() {
            return Ok(TurnStep::End(host_failed(ErrorKind::Timeout, TIMED_OUT), None));
        }
        self.run.trace.selected = None;
        Err(Refusal::late_answer())
    }
}

/// Sets the strategy of a request by its endpoint: that of the model router, if it chose the model,
/// else that of the router of endpoints.
fn name_strategy(
    trace: &mut RoutingTrace,
    chosen: Option<&ChosenModels>,
    endpoint: Option<&Endpoint>,
    by_router: &str,
) {
    let is_chosen =
        |chosen: &&ChosenModels| endpoint.is_some_and(|endpoint| chosen.has(&endpoint.candidate.model));
    let strategy = chosen.filter(is_chosen).map_or(by_router, ChosenModels::strategy);
    strategy.clone_into(&mut trace.strategy);
}

/// The deadline of the whole request has passed before any answer had begun.
pub(super) fn timed_out() -> Refusal {
    Refusal::new(504, ErrorKind::Timeout, TIMED_OUT)
}
