//! What tools do before the first turn: items that open a response, such as the list of a server's
//! tools, and calls that the client has approved.

use super::history::Approved;
use super::offer::Offer;
use super::run::{self, FinishedCall, Invocation, ToolFailure};
use super::server_tool::ServerTool;
use super::{CALLS_AT_ONCE, CALLS_PER_TURN_MAX, Interrupted, ServerTools, ToolWork, counted, refused, shown};
use crate::assembler::{Assembler, CallItem, ServerCall};
use crate::lifecycle::deadline::{Deadline, Late};
use crate::request::ResponsesRequest;
use cofferdam_runtime::CallContext;
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Something that was done and is shown first.
pub(super) struct Done {
    item: Arc<CallItem>,
    arguments: String,
    finished: FinishedCall,
}

impl ServerTools {
    /// Makes the items that open a response, except those that the client has already.
    pub(super) async fn open_items(&mut self, context: &CallContext) {
        let mut opened = Vec::new();
        for (tool, table) in self.offer.server_tools().flat_map(openings) {
            let label = tool.label.as_deref().unwrap_or_default();
            if self.history.as_ref().is_some_and(|history| history.has(&table.item_type, label)) {
                continue;
            }
            let Some(function) = &table.opening else { continue };
            let (arguments, settings) = (b"{}".as_slice(), tool.settings.as_ref());
            let invocation = Invocation { plugin: &tool.plugin, function, arguments, settings };
            let finished = match invocation
                .run(
                    context,
                    self.capabilities.services(&tool.plugin, self.capabilities.timeline()),
                    &self.capabilities,
                )
                .await
            {
                Ok(output) => FinishedCall::completed(output),
                Err(ToolFailure::Failed(message)) => FinishedCall::failed(&message, false),
                Err(_) => FinishedCall::failed("The tool failed.", false),
            };
            let mut item = shown::declared(table);
            item.members.insert("server_label".to_owned(), label.into());
            opened.push(Done { item: Arc::new(item), arguments: String::new(), finished });
        }
        self.before = opened;
    }

    /// Runs the calls that the client has approved, and puts their results into the first turn's
    /// input.
    ///
    /// # Errors
    /// The deadline of the request has passed.
    pub(crate) async fn run_approved(
        &mut self,
        request: &ResponsesRequest,
        context: &CallContext,
        deadline: &mut Deadline,
        time: Duration,
    ) -> Result<(), Interrupted> {
        // Without approved calls the history was rendered when the tools were opened.
        let Some(history) = self.history.take_if(|history| !history.approved.is_empty()) else {
            return Ok(());
        };
        let calls: Vec<ServerCall> = history.approved.iter().map(call_of).collect();
        let (offer, capabilities) = (&self.offer, &self.capabilities);
        let work = calls.iter().enumerate().map(|(index, call)| -> ToolWork<'_> {
            match offer.owner(&call.function) {
                _ if index >= CALLS_PER_TURN_MAX => refused("Too many tool calls at once."),
                Some(tool) => Box::pin(run::run(tool, call, context, capabilities, None)),
                None => refused("There is no such tool any more."),
            }
        });
        let work: Vec<ToolWork<'_>> = work.collect();
        // Some calls run at once, but their results come in the order of the calls.
        let mut work = stream::iter(work).buffered(CALLS_AT_ONCE);
        let mut results = Vec::with_capacity(calls.len());
        let mut done = Vec::with_capacity(calls.len());
        for approved in &history.approved {
            let finished = deadline.during(work.next(), time).await.map_err(|_: Late| Interrupted::Late)?;
            let Some(finished) = finished else { break };
            self.counts.requested = self.counts.requested.saturating_add(1);
            self.counts.executed += u32::from(finished.executed);
            results.push(counted(finished.for_model.clone(), &mut self.results_bytes));
            let item = Arc::new(item_of(approved, offer));
            done.push(Done { item, arguments: approved.arguments.clone(), finished });
        }
        drop(work);
        self.before.append(&mut done);
        self.input = Some(history.write(&results));
        self.turn_json = self.first_turn(request);
        Ok(())
    }

    /// Shows what was done before the first turn.
    pub(crate) fn show_before(&mut self, assembler: &mut Assembler) {
        for Done { item, arguments, finished } in std::mem::take(&mut self.before) {
            let shown = assembler.show_call(item, &arguments, finished.outcome, &finished.members);
            if shown.is_err() {
                tracing::warn!("an item of a tool is too large to be shown");
            }
        }
    }
}

fn openings(
    tool: &ServerTool,
) -> impl Iterator<Item = (&ServerTool, &cofferdam_runtime::manifest::ItemTable)> {
    let items = tool.plugin.manifest().tool.iter().flat_map(|table| &table.items);
    items.filter(|table| table.opening.is_some()).map(move |table| (tool, table))
}

fn call_of(approved: &Approved) -> ServerCall {
    ServerCall {
        item: 0,
        call_id: approved.id.clone(),
        function: approved.function.clone().unwrap_or_default(),
        arguments: approved.arguments.clone(),
    }
}

/// The item of an approved call: as its tool declares it, with the members of the approval request.
fn item_of(approved: &Approved, offer: &Offer) -> CallItem {
    let tables = offer.server_tools().filter_map(|tool| tool.plugin.manifest().tool.as_ref());
    let table = tables.into_iter().find_map(|table| table.item(&approved.item_type));
    let mut item = table.map(shown::declared).unwrap_or_default();
    let members: Map<String, Value> = approved.members.clone();
    item.members.extend(members);
    item
}
