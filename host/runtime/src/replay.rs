//! Replays a recorded call: loads its component, calls the recorded functions with the recorded
//! input, and lets the tape answer the guest's questions and compare.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::calls::provider::ProviderInstance;
use crate::calls::router::ChoiceQuestion;
use crate::context::CallContext;
use crate::error::{CallError, LoadError};
use crate::grant::OperatorGrant;
use crate::instance::Instance;
use crate::manifest::PluginKind;
use crate::plugin::Plugin;
use crate::recording::{RecordedEnd, Recording, RecordingHead, json};
use crate::registry::{PluginSource, Runtime};
use crate::services::Services;
use crate::tape::{CallReplay, ReplayState, Tape};
use crate::wire::{Candidate, Frame, Model, RequestSummary, ResponseHead, Target, TextFacts};

/// Fuel that stands for a millisecond of processor time, where the recorded call ran out of time.
const FUEL_PER_MS: u64 = 2_000_000;
/// Processor time of a call that is replayed. Its fuel ends it before.
const DEADLINE_MS: u32 = 600_000;

/// The outcome of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// How the recorded call failed.
    pub recorded: RecordedEnd,
    /// Whether the replay was the same.
    pub verdict: ReplayedVerdict,
    /// How the replay failed, if it did.
    pub failed: Option<RecordedEnd>,
    /// Imports that the tape answered.
    pub imports: usize,
    /// The limit of fuel, where the recorded call ran out of time.
    pub fuel_max: Option<u64>,
    /// Lines of the guest, each with its level.
    pub log: Vec<(&'static str, String)>,
}

/// Whether a replay was the same as what was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayedVerdict {
    /// Every import, every output and the end.
    Same,
    /// The first difference.
    Different(String),
}

impl Runtime {
    /// Replays a recording with a component, which is the recorded one or another version of it. The
    /// sandbox must be one of [`Runtime::start_metered`], which replays nothing else afterwards.
    ///
    /// # Errors
    ///
    /// The component does not fit the recorded manifest, or does not compile.
    pub async fn replay(
        &self,
        recording: Recording,
        component: Cow<'static, [u8]>,
    ) -> Result<Result<Replayed, CallError>, LoadError> {
        let Recording { head, entries, end } = recording;
        let is_late = end.kind == "out_of_time";
        let fuel_max = is_late.then(|| head.grant.deadline_ms.saturating_mul(FUEL_PER_MS));
        if let (Some(meter), Some(fuel)) = (&self.host.meter, fuel_max) {
            meter.limit(fuel);
        }
        let tape = Arc::new(Tape::Replay(CallReplay::new(entries, end)));
        let source = PluginSource {
            manifest: head.manifest.clone(),
            component,
            name: head.plugin.clone(),
            digest: None,
            origin: "the recording".to_owned(),
            is_built_in: false,
        };
        let plugin = self.load_to_replay(source, &grant(&head), Arc::clone(&tape))?;
        if let Err(error) = plugin.compile().await {
            return Ok(Err(error));
        }
        let Tape::Replay(replay) = &*tape else { return Ok(Err(plugin.missing("a tape"))) };
        call_all(&plugin, &context(&head), replay).await;
        let state = replay.take();
        let (verdict, ReplayState { end, imports, failed, log, .. }) = verdict(state);
        Ok(Ok(Replayed { recorded: end, verdict, failed, imports, fuel_max, log }))
    }
}

/// The recorded grant, as an operator would write it.
fn grant(head: &RecordingHead) -> OperatorGrant {
    OperatorGrant {
        hosts: head.grant.hosts.iter().filter_map(|host| host.parse().ok()).collect(),
        any_host: head.grant.any_host,
        imports: head.grant.imports.clone(),
        memory_mib: head.grant.memory_mib,
        deadline_ms: Some(DEADLINE_MS),
        config: head.grant.settings.clone(),
        ..OperatorGrant::default()
    }
}

fn context(head: &RecordingHead) -> CallContext {
    CallContext {
        request_id: head.request_id.as_str().into(),
        workspace: head.workspace.clone(),
        owner: None,
        now_ms: head.now_ms,
        inputs: None,
    }
}

/// Whether the replay was the same, as far as it went and in how it ended.
fn verdict(mut state: ReplayState) -> (ReplayedVerdict, ReplayState) {
    let difference = state.difference.take().or_else(|| match &state.failed {
        _ if state.is_cut => None,
        Some(failed) if failed.kind == state.end.kind && failed.message == state.end.message => None,
        Some(failed) => Some(format!("recorded: the call {}; now: it {}", state.end.message, failed.message)),
        None => Some(format!("recorded: the call {}; now: it ends well", state.end.message)),
    });
    if state.is_cut {
        // The replay was ended where the recorded call was.
        let backtrace = state.failed.take().and_then(|failed| failed.backtrace);
        state.failed = Some(RecordedEnd { backtrace, ..state.end.clone() });
    }
    (difference.map_or(ReplayedVerdict::Same, ReplayedVerdict::Different), state)
}

/// Makes the recorded calls up to the one that fails. Errors of calls are on the tape.
async fn call_all(plugin: &Arc<Plugin>, context: &CallContext, replay: &CallReplay) {
    if plugin.kind() == PluginKind::Provider {
        let Ok(mut instance) = plugin.open_provider(context).await else { return };
        while let Some((function, input)) = replay.next_call() {
            if call_provider(&mut instance, &function, &input).await.is_none() {
                return;
            }
        }
        return;
    }
    let called = match replay.next_call() {
        Some((function, input)) => call(plugin, context, &function, &input).await,
        // The guest failed while it started.
        None => Instance::open(plugin, context, Services::default()).await.is_ok().then_some(()),
    };
    tracing::debug!(succeeded = called.is_some(), "the recorded call was made again");
}

/// Calls a function of a tool, hook or router. `None` if the call fails or is not one.
async fn call(plugin: &Arc<Plugin>, context: &CallContext, function: &str, input: &RawValue) -> Option<()> {
    let (input, services) = (input.get(), Services::default());
    match function {
        "functions" => {
            let (settings,): (Vec<u8>,) = json::read_text(input).ok()?;
            drop(plugin.functions(context, services, &settings).await.ok()?);
        }
        "invoke" => {
            type Input = (String, Vec<u8>, Vec<u8>);
            let (function, arguments, settings): Input = json::read_text(input).ok()?;
            drop(plugin.invoke(context, services, &function, &arguments, &settings).await.ok()?);
        }
        "on-request" => {
            let (request, settings): (Vec<u8>, Vec<u8>) = json::read_text(input).ok()?;
            drop(plugin.on_request(context, services, &request, &settings).await.ok()?);
        }
        "on-response" => {
            type Input = (Vec<u8>, Vec<u8>, Vec<u8>);
            let (request, response, settings): Input = json::read_text(input).ok()?;
            drop(plugin.on_response(context, services, &request, &response, &settings).await.ok()?);
        }
        "route" => {
            type Input = (RequestSummary, Vec<Candidate>, u64);
            let (summary, candidates, seed): Input = json::read_text(input).ok()?;
            drop(plugin.route(context, &summary, &candidates, seed).await.ok()?);
        }
        "slugs" => drop(plugin.model_slugs(context).await.ok()?),
        "choose" => {
            type Input = (String, RequestSummary, TextFacts, Vec<Model>, Vec<u8>, u64);
            let (slug, summary, facts, models, settings, seed): Input = json::read_text(input).ok()?;
            let (slug, settings) = (&slug, &settings);
            let question =
                ChoiceQuestion { slug, summary: &summary, facts: &facts, models: &models, settings, seed };
            drop(plugin.choose_model(context, question).await.ok()?);
        }
        _ => return None,
    }
    Some(())
}

/// Calls a function of a provider. `None` if the call fails or is not one.
async fn call_provider(instance: &mut ProviderInstance, function: &str, input: &RawValue) -> Option<()> {
    let input = input.get();
    match function {
        "generation.prepare" => {
            let (request, target): (Vec<u8>, Target) = json::read_text(input).ok()?;
            drop(instance.prepare(&request, &target).await.ok()?);
        }
        "decoder.new" => {
            let (head,): (ResponseHead,) = json::read_text(input).ok()?;
            instance.open_decoder(&head).await.ok()?;
        }
        "decoder.feed" => {
            let (frames,): (Vec<Frame>,) = json::read_text(input).ok()?;
            drop(instance.feed(&frames).await.ok()?);
        }
        "decoder.finish" => drop(instance.finish().await.ok()?),
        "decode" => {
            let (head, frames): (ResponseHead, Vec<Frame>) = json::read_text(input).ok()?;
            drop(instance.decode(&head, frames.into_iter().next()?).await.ok()?);
        }
        "dialect.map-error" => {
            let (head, body): (ResponseHead, Vec<u8>) = json::read_text(input).ok()?;
            drop(instance.map_error(&head, &body).await.ok()?);
        }
        "embedding.prepare" => {
            let (request, target): (Vec<u8>, Target) = json::read_text(input).ok()?;
            drop(instance.prepare_embeddings(&request, &target).await.ok()?);
        }
        "embedding.decode" => {
            let (head, body): (ResponseHead, Vec<u8>) = json::read_text(input).ok()?;
            drop(instance.decode_embeddings(&head, &body).await.ok()?);
        }
        _ => return None,
    }
    Some(())
}
