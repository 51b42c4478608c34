//! Server tools: functions that the model calls and this host runs, in a loop inside one request.
//!
//! A request's tools offer functions ([`offer`]); the assembler shows each call as one item; the calls of a
//! turn are run side by side ([`run`]) with the request's capabilities ([`capabilities`]); their results are input of
//! the next turn, until the model answers or a rule ends the loop ([`stop`]). Hooks may call tools too
//! ([`hook`]).

mod before;
mod capabilities;
mod choice;
mod closing;
mod deferred;
mod function_index;
mod history;
mod hook;
mod hosted_substitute;
mod offer;
mod refused;
mod render_calls;
mod run;
mod server_tool;
mod shown;
mod stop;
mod wait;

use crate::Engine;
use crate::assembler::question_progress::Reporter;
use crate::assembler::{Assembler, Malformed, Served, ServerCall, ServerToolUse};
use crate::caller::Caller;
use crate::catalog::split_suffix;
use crate::cost::Amount;
use crate::lifecycle::deadline::{ClientGone, Deadline};
use crate::plugins::questions::QuestionScope;
use crate::refusal::Refusal;
use crate::request::{GuestTurn, HostItem, ResponsesRequest, ToolChoice};
use crate::timeline::Timeline;
use before::Done;
use bytes::Bytes;
use choice::Choice;
use closing::Closing;
use cofferdam_protocol::ToolClass;
use cofferdam_runtime::CallContext;
use cofferdam_runtime::wire::{FinishReason, Usage};
use futures_util::StreamExt;
use futures_util::stream;
use history::History;
use offer::Offer;
use run::FinishedCall;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stop::{Called, LoopProgress, StopRules};
use tokio::sync::mpsc::channel;
use wait::next_done;

pub(crate) use capabilities::{RequestCapabilities, SharedPluginState};
pub(crate) use hook::{HookOutcome, HookTools};
pub(crate) use hosted_substitute::substitute_hosted_tools;
pub(crate) use server_tool::installed;

/// Adds the server tools that a request asks for by plugin entries and by suffixes of model slugs.
///
/// # Errors
/// 400 naming what asks for a tool that this host does not have.
pub(crate) fn add_plugin_tools(engine: &Engine, request: &mut ResponsesRequest) -> Result<(), Refusal> {
    let is_there = |name: &str| {
        let is_there = engine.tool_plugin(name).is_some();
        if !is_there {
            engine.log_lacking_tool(name);
        }
        is_there
    };
    // A model's id may end like this itself.
    let is_online =
        |slug: &str| engine.catalog().get(slug).is_none() && split_suffix(slug).1 == Some("online");
    let added = request.add_plugin_tools(is_there, is_online);
    added.map_err(|error| Refusal::invalid(error.to_string()))
}

/// Renders earlier calls of server tools as text, for a request that has no server tools.
///
/// # Errors
/// 500 for an input that the parser cannot have written.
pub async fn render_calls_as_text(request: &mut ResponsesRequest) -> Result<(), Refusal> {
    if let Some(items) = render_calls::rendered_input(request, &Offer::default()).await? {
        request.replace_input(&render_calls::joined(&items));
    }
    Ok(())
}

/// The request on whose behalf plugins are called.
#[derive(Clone, Copy)]
pub(crate) struct PluginScope<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) caller: &'a Caller,
    pub(crate) context: &'a CallContext,
    /// What its plugins share, if it has hooks. Otherwise its tools alone share it.
    pub(crate) shared: &'a Option<SharedPluginState>,
    /// The scope of the questions that its plugins ask.
    pub(crate) questions: &'a QuestionScope,
    /// Where the calls of its plugins are noted.
    pub(crate) timeline: &'a Timeline,
}

/// The most calls of one turn that are run. The others get an error as their result.
const CALLS_PER_TURN_MAX: usize = 32;
/// The most calls that run at the same time.
const CALLS_AT_ONCE: usize = 8;
/// The most progress notes that wait to be shown. When there are as many, the calls wait.
const NOTES_WAITING_MAX: usize = 32;
/// The most bytes of all results that are given to the models of one request.
const RESULTS_BYTES_MAX: usize = 8 << 20;

/// The server tools of one request, and the state of their loop.
pub(crate) struct ServerTools {
    offer: Offer,
    choice: Choice,
    capabilities: RequestCapabilities,
    rules: StopRules,
    /// The calls in the input, until the approved ones are run.
    history: Option<History>,
    /// What was done before the first turn and is not shown yet.
    before: Vec<Done>,
    /// The items of the input as rendered for models, where they differ from the client's.
    input: Option<Bytes>,
    /// The request as the model of the current turn gets it.
    turn_json: Bytes,
    /// Deferred functions that were found: indexes of the offer's entries, in the order they were
    /// found.
    loaded: Vec<usize>,
    steps: u32,
    results_bytes: usize,
    counts: ServerToolUse,
    /// What plugins had spent before the tools were opened.
    spent_before: Amount,
    /// Whether the current turn has tools switched off: calls that the model makes nevertheless are
    /// not run.
    is_over: bool,
    /// Calls the tools' closing functions when it is dropped.
    _closing: Closing,
}

/// One running call.
type ToolWork<'a> = Pin<Box<dyn Future<Output = FinishedCall> + Send + 'a>>;

/// Why calls were not run to their end.
pub(crate) enum Interrupted {
    /// The client is gone.
    Gone,
    /// The deadline of the request has passed.
    Late,
    /// The output is larger than a response may be.
    Malformed(Malformed),
}

impl ServerTools {
    /// Whether a request has server tools.
    ///
    /// # Errors
    /// 400 for a request without server tools whose `tool_choice` names one.
    pub(crate) fn are_asked_for(request: &ResponsesRequest) -> Result<bool, Refusal> {
        if request.tools.iter().any(|tool| tool.kind.class() == ToolClass::Server) {
            return Ok(true);
        }
        if matches!(request.tool_choice, ToolChoice::Type(_) | ToolChoice::Allowed { .. }) {
            Choice::of(request, &Offer::default())?;
        }
        Ok(false)
    }

    /// Opens the server tools of a request that has any.
    ///
    /// # Errors
    /// 400 naming the entry that is wrong; 500 and 503 when a guest could not be asked.
    pub(crate) async fn open(
        scope: PluginScope<'_>,
        request: &ResponsesRequest,
    ) -> Result<Box<Self>, Refusal> {
        let PluginScope { engine, context, .. } = scope;
        offer::check_count(&request.tools)?;
        let capabilities = RequestCapabilities::new(scope, request);
        let closing = Closing::of(engine, request, context, &capabilities);
        let offer = Offer::of(engine, request, context, &capabilities).await?;
        let choice = Choice::of(request, &offer)?;
        let (mut input, mut history) = (None, None);
        if let Some(items) = render_calls::rendered_input(request, &offer).await? {
            let rendered = render_calls::joined(&items);
            capabilities.view().replace_input(&rendered);
            history = History::read(items, &offer, capabilities.approvals()).await?;
            input = Some(history.as_ref().map_or(rendered, |history| history.write(&[])));
        }
        let mut tools = Box::new(Self {
            rules: StopRules::of(request),
            offer,
            choice,
            capabilities,
            history,
            before: Vec::new(),
            input,
            turn_json: Bytes::new(),
            loaded: Vec::new(),
            steps: 0,
            results_bytes: 0,
            counts: ServerToolUse::default(),
            spent_before: scope.questions.account().plugins().here,
            is_over: request.tool_choice == ToolChoice::None,
            _closing: closing,
        });
        tools.turn_json = tools.first_turn(request);
        tools.open_items(context).await;
        Ok(tools)
    }

    /// The request as the model of the first turn gets it.
    fn first_turn(&self, request: &ResponsesRequest) -> Bytes {
        let tools = self.offer.write(&[]);
        request.guest_json_for(&GuestTurn {
            input: self.input.as_deref(),
            tools: Some(&tools),
            tool_choice: if tools.is_empty() { Some(b"") } else { self.choice.first.as_deref() },
            ..GuestTurn::default()
        })
    }

    /// The functions and items that the assembler needs to recognize calls.
    pub(crate) fn served(&self) -> Arc<Served> {
        Arc::new(self.offer.served())
    }

    /// Whether any call was run, in an earlier turn or before the first.
    pub(crate) fn has_run(&self) -> bool {
        self.steps > 0 || !self.before.is_empty()
    }

    /// The request as the model of the current turn gets it.
    pub(crate) fn turn_json(&self) -> &Bytes {
        &self.turn_json
    }

    /// The counts for `usage`.
    pub(crate) fn counts(&self) -> ServerToolUse {
        self.counts
    }

    /// The stage for the `pipeline` of the routing metadata.
    pub(crate) fn stage(&self) -> Value {
        let ServerToolUse { requested, executed, .. } = self.counts;
        let spent = self.capabilities.questions().account().plugins().here;
        json!({
            "type": "server_tools",
            "name": "server-tools",
            "summary": format!("steps={}, calls={executed}", self.steps),
            "data": { "steps": self.steps, "tool_calls_requested": requested, "tool_calls_executed": executed },
            "cost_usd": spent.minus(self.spent_before),
        })
    }

    /// Runs the calls of a turn side by side and shows their results in the order of the calls.
    ///
    /// # Errors
    /// [`Interrupted`]. Items whose results were not shown are still open.
    pub(crate) async fn run(
        &mut self,
        calls: &[ServerCall],
        context: &CallContext,
        assembler: &mut Assembler,
        deadline: &mut Deadline,
        time: Duration,
    ) -> Result<(), Interrupted> {
        self.capabilities.view().add(&assembler.turn_items());
        self.counts.requested = self.counts.requested.saturating_add(saturated(calls.len()));
        let (offer, capabilities, is_over) = (&self.offer, &self.capabilities, self.is_over);
        let (notes, mut reports) = channel(NOTES_WAITING_MAX);
        let is_shown = deadline.is_streamed();
        // Progress is reported only to a client that gets events while the calls run.
        let reporter = |item| {
            (is_shown && assembler.tells_questions(item)).then(|| Reporter { item, notes: notes.clone() })
        };
        let work = calls.iter().enumerate().map(|(index, call)| -> ToolWork<'_> {
            match offer.owner(&call.function) {
                _ if is_over => refused("No further tool calls are allowed."),
                _ if index >= CALLS_PER_TURN_MAX => refused("Too many tool calls at once."),
                Some(tool) => Box::pin(run::run(tool, call, context, capabilities, reporter(call.item))),
                None => refused("There is no such function."),
            }
        });
        let work: Vec<ToolWork<'_>> = work.collect();
        self.steps += u32::from(!is_over);
        // The client sees the calls before it waits for their results.
        deadline.send(assembler.take_events()).await.map_err(|ClientGone| Interrupted::Gone)?;
        // Some calls run at once, but their results come in the order of the calls.
        let mut work = stream::iter(work).buffered(CALLS_AT_ONCE);
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            let done = next_done(&mut work, &mut reports, assembler, deadline, time).await?;
            let Some(done) = done else { break };
            let tool = offer.owner(&call.function).map_or("", |tool| tool.name.as_str());
            self.counts.executed += u32::from(done.executed);
            self.counts.web_searches += u32::from(done.executed && tool == "web_search");
            let result = show(call, done, assembler)?;
            results.push(result_item(&call.call_id, result, &mut self.results_bytes));
            // The client sees this result before the next one is waited for.
            deadline.send(assembler.take_events()).await.map_err(|ClientGone| Interrupted::Gone)?;
        }
        capabilities.view().add(&results);
        Ok(())
    }

    /// Prepares the next turn after `calls` were run: its input gets the calls and their results,
    /// and tools are switched off if a rule ends the loop.
    pub(crate) fn prepare_turn(
        &mut self,
        request: &ResponsesRequest,
        calls: &[ServerCall],
        usage: Option<&Usage>,
        cost: Amount,
        finish: &FinishReason,
    ) {
        let called: Vec<Called<'_>> = calls
            .iter()
            .map(|call| Called {
                function: &call.function,
                tool: self.offer.owner(&call.function).map_or("", |tool| tool.name.as_str()),
            })
            .collect();
        let progress = LoopProgress {
            steps: self.steps,
            tokens: usage.map_or(0, |usage| usage.input_tokens.saturating_add(usage.output_tokens)),
            cost,
            called: &called,
            finish,
        };
        self.is_over = self.rules.fire(&progress);
        let view = self.capabilities.view();
        self.loaded.extend(self.offer.newly_loaded(&self.loaded, |name| view.is_loaded(name)));
        let tools = self.offer.write(&self.loaded);
        let choice = if self.is_over { Some(b"\"none\"".as_slice()) } else { self.choice.later.as_deref() };
        let turn = GuestTurn {
            input: self.input.as_deref(),
            items: &view.added(),
            tools: Some(&tools),
            tool_choice: choice,
        };
        self.turn_json = request.guest_json_for(&turn);
    }

    /// Whether the current turn is the last, made without tools.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

/// A call that is not run.
fn refused<'a>(message: &'static str) -> ToolWork<'a> {
    Box::pin(std::future::ready(FinishedCall::failed(message, false)))
}

/// Ends the item of a call. Returns the result for the model.
fn show(call: &ServerCall, done: FinishedCall, assembler: &mut Assembler) -> Result<String, Interrupted> {
    if assembler.finish_call(call.item, done.outcome, &done.members).is_ok() {
        assembler.annotate_next(done.annotations);
        return Ok(done.for_model);
    }
    let failed = FinishedCall::failed("The tool's result is too large.", true);
    let shown = assembler.finish_call(call.item, failed.outcome, &failed.members);
    shown.map_err(Interrupted::Malformed)?;
    Ok(failed.for_model)
}

/// The result as an item of the next turn's input.
fn result_item(call_id: &str, result: String, bytes: &mut usize) -> Bytes {
    HostItem::FunctionCallOutput { call_id, output: &counted(result, bytes) }.to_json()
}

/// A result for the model, whose length is added to `bytes`. Beyond the limit of all results it is
/// replaced by an error.
fn counted(result: String, bytes: &mut usize) -> String {
    if result.len() > RESULTS_BYTES_MAX - *bytes {
        return json!({ "error": "The results of this request are too large together." }).to_string();
    }
    *bytes += result.len();
    result
}

fn saturated(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
