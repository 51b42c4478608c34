//! Server tools: functions that the model calls and this host runs, in a loop inside one request.
//!
//! A request's tools offer functions ([`offer`]); the assembler shows each call as one item; the calls of a
//! turn are run side by side ([`run`]) with the doors of the request ([`capabilities`]); their results are told in
//! the next turn, until the model answers or a rule ends the loop ([`stop`]). Hooks may call tools too
//! ([`hook`]).

mod before;
mod capabilities;
mod choice;
mod closing;
mod history;
mod hook;
mod hosted_substitute;
mod offer;
mod refused;
mod retell;
mod run;
mod shown;
mod stop;
mod told;
mod wait;

use crate::Engine;
use crate::assembler::question_progress::Reporter;
use crate::assembler::{Assembler, Malformed, Served, ServerCall, ServerToolUse};
use crate::caller::Caller;
use crate::catalog::split_suffix;
use crate::cost::Amount;
use crate::lifecycle::deadline::{ClientGone, Pace};
use crate::money::ledger::{Entry, Spending, add_to};
use crate::offload::aside;
use crate::plugins::questions::Asking;
use crate::refusal::Refusal;
use crate::request::{GuestTurn, ResponsesRequest, ToolChoice, ToolClass, retold_items};
use before::Done;
use bytes::Bytes;
use choice::Choice;
use closing::Closing;
use cofferdam_runtime::CallContext;
use cofferdam_runtime::wire::{FinishReason, Usage};
use futures_util::StreamExt;
use futures_util::stream;
use history::History;
use offer::Offer;
use run::Finished;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stop::{Called, Progress as Advance, StopRules};
use tokio::sync::mpsc::channel;
use wait::next_done;

pub(crate) use capabilities::{Doors, Scratches};
pub(crate) use hook::{HookTools, Verdict};
pub(crate) use hosted_substitute::stand_in;
pub(crate) use offer::installed;

/// Adds the server tools that a request asks for by plugins and slugs.
///
/// # Errors
/// 400 naming what asks for a tool that this host has not.
pub(crate) fn add_plugin_tools(engine: &Engine, request: &mut ResponsesRequest) -> Result<(), Refusal> {
    let is_there = |name: &str| {
        let is_there = engine.tool_plugin(name).is_some();
        if !is_there {
            engine.tell_lacking_tool(name);
        }
        is_there
    };
    // The whole slug may be a model's id.
    let is_online =
        |slug: &str| engine.catalog().get(slug).is_none() && split_suffix(slug).1 == Some("online");
    let added = request.add_plugin_tools(is_there, is_online);
    added.map_err(|error| Refusal::invalid(error.to_string()))
}

/// Tells earlier calls of server tools as text, for a request that has none.
///
/// # Errors
/// 500 for an input that no parser writes.
pub async fn tell_calls_plainly(request: &mut ResponsesRequest) -> Result<(), Refusal> {
    let items = retell::retold(&request.input_items(), &Offer::default()).await?;
    request.replace_input(&items);
    Ok(())
}

/// On whose behalf plugins of one request are called.
#[derive(Clone, Copy)]
pub(crate) struct Occasion<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) caller: &'a Caller,
    pub(crate) context: &'a CallContext,
    /// What its plugins keep, if it has any but routers and providers.
    pub(crate) scratches: &'a Option<Scratches>,
    /// What its plugins ask models.
    pub(crate) asking: &'a Asking,
}

/// Calls of one turn that are run; the model is told that the others were too many.
const CALLS_PER_TURN_MAX: usize = 32;
/// Calls that run at the same time.
const CALLS_AT_ONCE: usize = 8;
/// What running calls may tell before it is shown; then they wait.
const NOTES_WAITING_MAX: usize = 32;
/// Bytes of all results that the models of one request are told.
const RESULTS_BYTES_MAX: usize = 8 << 20;

/// The server tools of one request, and how far their loop is.
pub(crate) struct ServerTools {
    offer: Offer,
    choice: Choice,
    doors: Doors,
    rules: StopRules,
    /// What the input says of earlier calls, until the calls in it are run.
    history: Option<History>,
    /// What was done before the first turn and is not shown yet.
    before: Vec<Done>,
    /// The items of the input as models are told them, where they differ from the client's.
    input: Option<Bytes>,
    /// The request as the model of the current turn is told it.
    turn_json: Bytes,
    /// Deferred functions that were found: places of the offer's entries, in the order they were found.
    loaded: Vec<usize>,
    steps: u32,
    results_bytes: usize,
    counts: ServerToolUse,
    /// What calls cost that are over, in pico-dollars.
    cost: AtomicU64,
    /// What questions had cost before there were tools.
    asked_before: Amount,
    /// The current turn is made with tools switched off: calls made all the same are not run.
    is_over: bool,
    /// What the tools do when all is over.
    _closing: Closing,
}

/// One call under way.
type Work<'a> = Pin<Box<dyn Future<Output = Finished> + Send + 'a>>;

/// Why calls were not run to their end.
pub(crate) enum Interrupted {
    /// The client is gone.
    Gone,
    /// The request's time is up.
    Late,
    /// The output is larger than a response may be.
    Malformed(Malformed),
}

impl ServerTools {
    /// Whether a request has server tools.
    ///
    /// # Errors
    /// 400 for one without whose `tool_choice` names a server tool all the same.
    pub(crate) fn are_asked_for(request: &ResponsesRequest) -> Result<bool, Refusal> {
        if request.tools.iter().any(|tool| tool.kind.class() == ToolClass::Server) {
            return Ok(true);
        }
        if matches!(request.tool_choice, ToolChoice::Type(_) | ToolChoice::Allowed { .. }) {
            Choice::of(request, &Offer::default())?;
        }
        Ok(false)
    }

    /// The server tools of a request that has any.
    ///
    /// # Errors
    /// 400 naming the entry that is wrong; 500 and 503 when a guest could not be asked.
    pub(crate) async fn open(
        occasion: Occasion<'_>,
        request: &ResponsesRequest,
    ) -> Result<Box<Self>, Refusal> {
        let Occasion { engine, context, .. } = occasion;
        offer::check_count(&request.tools)?;
        let doors = Doors::new(occasion, request);
        let closing = Closing::of(engine, request, context, &doors);
        let offer = Offer::of(engine, request, context, &doors).await?;
        let choice = Choice::of(request, &offer)?;
        // What a client has of stand-ins' calls is told as calls of functions; then what it says of others.
        let items = request.input_items();
        let kinds: Vec<String> = offer.stand_in_items().into_iter().map(str::to_owned).collect();
        let mut input = aside(items.len(), move || retold_items(&items, &kinds)).await?;
        if request.has_server_calls || input.is_some() {
            let items = input.unwrap_or_else(|| request.input_items());
            input = Some(retell::retold(&items, &offer).await?);
        }
        let items = input.clone().unwrap_or_else(|| request.input_items());
        doors.view().retell(&items);
        let history = History::read(&items, &offer, doors.approvals()).await?;
        let mut tools = Box::new(Self {
            rules: StopRules::of(request),
            offer,
            choice,
            doors,
            history: None,
            before: Vec::new(),
            input,
            turn_json: Bytes::new(),
            loaded: Vec::new(),
            steps: 0,
            results_bytes: 0,
            counts: ServerToolUse::default(),
            cost: AtomicU64::new(0),
            asked_before: occasion.asking.cost(),
            is_over: request.tool_choice == ToolChoice::None,
            _closing: closing,
        });
        match history {
            Some(history) => {
                tools.tell_history(request, &history, &[]);
                tools.history = Some(history);
            }
            None => tools.turn_json = tools.first_turn(request),
        }
        tools.open_items(context).await;
        Ok(tools)
    }

    /// The request as the model of the first turn is told it.
    fn first_turn(&self, request: &ResponsesRequest) -> Bytes {
        let tools = self.offer.write(&[]);
        request.guest_json_for(&GuestTurn {
            input: self.input.as_deref(),
            tools: Some(&tools),
            tool_choice: if tools.is_empty() { Some(b"") } else { self.choice.first.as_deref() },
            ..GuestTurn::default()
        })
    }

    /// What the assembler has to know.
    pub(crate) fn served(&self) -> Arc<Served> {
        Arc::new(self.offer.served())
    }

    /// Whether any call was run, in an earlier turn or before the first.
    pub(crate) fn has_run(&self) -> bool {
        self.steps > 0 || !self.before.is_empty()
    }

    /// The request as the model of the current turn is told it.
    pub(crate) fn turn_json(&self) -> &[u8] {
        &self.turn_json
    }

    /// Counts for `usage`.
    pub(crate) fn counts(&self) -> ServerToolUse {
        self.counts
    }

    /// What the tools cost so far, without the models they asked.
    pub(crate) fn cost(&self) -> Amount {
        Amount(self.cost.load(Ordering::Relaxed))
    }

    /// The stage of the routing metadata's pipeline.
    pub(crate) fn stage(&self) -> Value {
        let ServerToolUse { requested, executed, .. } = self.counts;
        let asked = self.doors.asking().cost().minus(self.asked_before);
        json!({
            "type": "server_tools",
            "name": "server-tools",
            "summary": format!("steps={}, calls={executed}", self.steps),
            "data": { "steps": self.steps, "tool_calls_requested": requested, "tool_calls_executed": executed },
            "cost_usd": self.cost().plus(asked),
        })
    }

    /// Runs the calls of a turn and shows what came of them, in their order, while they run.
    ///
    /// # Errors
    /// [`Interrupted`]; what was not shown is open still.
    pub(crate) async fn run(
        &mut self,
        calls: &[ServerCall],
        context: &CallContext,
        assembler: &mut Assembler,
        entry: &mut Entry,
        pace: &mut Pace,
        time: Duration,
    ) -> Result<(), Interrupted> {
        self.doors.view().add(&assembler.turn_items());
        self.counts.requested = self.counts.requested.saturating_add(saturated(calls.len()));
        let (offer, doors, is_over, cost) = (&self.offer, &self.doors, self.is_over, &self.cost);
        let (notes, mut told) = channel(NOTES_WAITING_MAX);
        let is_told = pace.is_streamed();
        let reporter = |item| {
            (is_told && assembler.tells_questions(item)).then(|| Reporter { item, notes: notes.clone() })
        };
        let work = calls.iter().enumerate().map(|(place, call)| -> Work<'_> {
            match offer.owner(&call.function) {
                _ if is_over => refused("No further tool calls are allowed."),
                _ if place >= CALLS_PER_TURN_MAX => refused("Too many tool calls at once."),
                Some(tool) => charged(run::run(tool, call, context, doors, reporter(call.item)), cost),
                None => refused("There is no such function."),
            }
        });
        let work: Vec<Work<'_>> = work.collect();
        self.steps += u32::from(!is_over);
        // The client sees what is called before it waits for what comes of it.
        pace.say(assembler.take_events()).await.map_err(|ClientGone| Interrupted::Gone)?;
        let mut spending = Spending::new(entry, cost);
        let mut work = stream::iter(work).buffered(CALLS_AT_ONCE);
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            let done = next_done(&mut work, &mut told, assembler, pace, time).await?;
            let Some(done) = done else { break };
            let tool = offer.owner(&call.function).map_or("", |tool| tool.name.as_str());
            self.counts.executed += u32::from(done.executed);
            self.counts.web_searches += u32::from(done.executed && tool == "web_search");
            spending.note();
            let result = show(call, done, assembler)?;
            results.push(result_item(&call.call_id, result, &mut self.results_bytes));
            pace.say(assembler.take_events()).await.map_err(|ClientGone| Interrupted::Gone)?;
        }
        doors.view().add(&results);
        Ok(())
    }

    /// Makes the next turn after `calls` were run: what was said and found since is told, and tools are
    /// switched off if a rule says so.
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
        let progress = Advance {
            steps: self.steps,
            tokens: usage.map_or(0, |usage| usage.input_tokens.saturating_add(usage.output_tokens)),
            cost,
            called: &called,
            finish,
        };
        self.is_over = self.rules.fire(&progress);
        let view = self.doors.view();
        self.loaded.extend(self.offer.newly_loaded(&self.loaded, |name| view.is_loaded(name)));
        let tools = self.offer.write(&self.loaded);
        let choice = if self.is_over { Some(b"\"none\"".as_slice()) } else { self.choice.later.as_deref() };
        let turn = GuestTurn {
            model: None,
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

/// A call that adds what it cost to `total` as soon as it is over: the calls before it may take longer than the
/// client waits.
fn charged<'a>(call: impl Future<Output = Finished> + Send + 'a, total: &'a AtomicU64) -> Work<'a> {
    Box::pin(async move {
        let done = call.await;
        add_to(total, done.cost);
        done
    })
}

/// A call that is not run.
fn refused<'a>(message: &'static str) -> Work<'a> {
    Box::pin(std::future::ready(Finished::failed(message, false)))
}

/// Ends the item of a call; what the model is told of it.
fn show(call: &ServerCall, done: Finished, assembler: &mut Assembler) -> Result<String, Interrupted> {
    if assembler.finish_call(call.item, done.outcome, &done.members).is_ok() {
        assembler.annotate_next(done.annotations);
        return Ok(done.for_model);
    }
    let failed = Finished::failed("The tool's result is too large.", true);
    let shown = assembler.finish_call(call.item, failed.outcome, &failed.members);
    shown.map_err(Interrupted::Malformed)?;
    Ok(failed.for_model)
}

/// The result as an item of the next turn's input.
fn result_item(call_id: &str, result: String, bytes: &mut usize) -> Bytes {
    let result = if result.len() <= RESULTS_BYTES_MAX - *bytes {
        *bytes += result.len();
        result
    } else {
        json!({ "error": "The results of this request are too large together." }).to_string()
    };
    Bytes::from(json!({ "type": "function_call_output", "call_id": call_id, "output": result }).to_string())
}

fn saturated(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
