//! Input that no client and no model should send: the plugin may refuse it, but not trap.

use std::sync::Arc;

use cofferdam_runtime::manifest::{HookPhase, PluginKind};
use cofferdam_runtime::wire::{
    Action, Failure, Frame, Function, Prepared, PreparedEmbeddings, ResponseHead, TextFacts,
};
use cofferdam_runtime::{CallContext, CallError, ChoiceQuestion};
use serde_json::Value;

use super::{Checked, NOW_MS, SEED};
use crate::plugin_kit::runs::{Bench, Trouble, context};
use crate::plugin_kit::samples::{EMBEDDINGS, NOTHING, REQUEST, RESPONSE, candidate, model, summary, target};

/// Number of functions of a tool that are called.
const FUNCTIONS_MAX: usize = 8;
/// Length of long input in bytes, and levels of deep input.
const LONG: usize = 1024 * 1024;
const LEVELS: usize = 10_000;

/// Input of one sort.
pub(super) struct OddInput {
    pub(super) name: &'static str,
    /// JSON, or what stands in its place. The value is that of the member with this name.
    write: fn(&str) -> Vec<u8>,
}

pub(super) const ODD_INPUTS: [OddInput; 4] = [
    OddInput { name: "empty input", write: |_| Vec::new() },
    OddInput {
        name: "1 MiB of input",
        write: |member| object(member, format!("\"{}\"", "a".repeat(LONG)).as_bytes()),
    },
    OddInput {
        name: "10,000 levels of input",
        write: |member| object(member, ["[".repeat(LEVELS), "]".repeat(LEVELS)].concat().as_bytes()),
    },
    OddInput { name: "input that is not UTF-8", write: |member| object(member, b"\"\xff\xfe\xc3\"") },
];

fn object(member: &str, value: &[u8]) -> Vec<u8> {
    [b"{", Value::from(member).to_string().as_bytes(), b":", value, b"}"].concat()
}

pub(super) async fn check(bench: &Bench, odd: &OddInput) -> Checked {
    let calls = Calls { bench, odd, context: context(NOW_MS, SEED) };
    let called = match bench.plugin.kind() {
        PluginKind::Tool => calls.tool().await,
        PluginKind::Hook => calls.hook().await,
        PluginKind::Router => calls.router().await,
        PluginKind::Provider => calls.provider().await,
    };
    called.map_err(String::from)
}

struct Calls<'a> {
    bench: &'a Bench,
    odd: &'a OddInput,
    context: CallContext,
}

impl Calls<'_> {
    async fn tool(&self) -> Result<(), Trouble> {
        let (plugin, context) = (&self.bench.plugin, &self.context);
        let services = || Arc::new(self.bench.imports(&Arc::default())).services();
        drop(plugin.functions(context, services(), &self.input("settings")).await?);
        let functions = plugin.functions(context, services(), NOTHING).await?.unwrap_or_default();
        for function in functions.iter().take(FUNCTIONS_MAX) {
            let arguments = self.input(&first_parameter(function));
            let settings = self.input("settings");
            for (arguments, settings) in [(&*arguments, NOTHING), (NOTHING, &*settings)] {
                let name = &function.name;
                let called = plugin.invoke(context, services(), name, arguments, settings).await;
                drop(called.map_err(|error| Trouble::Rule(format!("{name}: {error}")))?);
            }
        }
        Ok(())
    }

    async fn hook(&self) -> Result<(), Trouble> {
        let plugin = &self.bench.plugin;
        let services = || Arc::new(self.bench.imports(&Arc::default())).services();
        let phases = plugin.manifest().hook.iter().flat_map(|hook| hook.phases.iter().copied());
        let (input, output, settings) = (self.input("input"), self.input("output"), self.input("settings"));
        let odd =
            [(&*input, RESPONSE, NOTHING), (REQUEST, &*output, NOTHING), (REQUEST, RESPONSE, &*settings)];
        for phase in phases.collect::<Vec<_>>() {
            for (request, response, settings) in odd {
                let context = &self.context;
                drop(match phase {
                    HookPhase::OnRequest => plugin.on_request(context, services(), request, settings).await?,
                    HookPhase::OnResponse => self.on_response(request, response, settings).await?,
                });
            }
        }
        Ok(())
    }

    async fn on_response(
        &self,
        request: &[u8],
        response: &[u8],
        settings: &[u8],
    ) -> Result<Result<Action, Failure>, CallError> {
        let services = Arc::new(self.bench.imports(&Arc::default())).services();
        self.bench.plugin.on_response(&self.context, services, request, response, settings).await
    }

    async fn router(&self) -> Result<(), Trouble> {
        let (plugin, context) = (&self.bench.plugin, &self.context);
        let mut summary = summary();
        summary.preferences = self.input("order");
        drop(plugin.route(context, &summary, &[candidate("one", 1.0)], SEED).await?);
        if !plugin.exports_model_choice() {
            return Ok(());
        }
        let settings = self.input("settings");
        for slug in plugin.model_slugs(context).await? {
            let facts = TextFacts {
                last_user_chars: 5,
                all_chars: 5,
                turns: 1,
                code_blocks: 0,
                math_share: 0.0,
                questions: 0,
                last_model: None,
            };
            let (summary, models) = (&summary, &[model()]);
            let question = ChoiceQuestion {
                slug: &slug,
                summary,
                facts: &facts,
                models,
                settings: &settings,
                seed: SEED,
            };
            drop(plugin.choose_model(context, question).await?);
        }
        Ok(())
    }

    async fn provider(&self) -> Result<(), Trouble> {
        let (plugin, context, target) = (&self.bench.plugin, &self.context, target());
        if plugin.exports_generation() {
            let mut instance = plugin.open_provider(context).await?;
            drop(instance.prepare(&self.input("input"), &target).await?);
            for (status, streamed) in [(500, false), (200, false), (200, true)] {
                let head = ResponseHead { status, headers: Vec::new(), streamed };
                self.answer(&head).await?;
            }
        }
        if plugin.exports_embedding() {
            let mut instance = plugin.open_provider(context).await?;
            drop(instance.prepare_embeddings(&self.input("input"), &target).await?);
            let mut instance = plugin.open_provider(context).await?;
            let prepared = instance.prepare_embeddings(EMBEDDINGS, &target).await?;
            if matches!(prepared, Ok(PreparedEmbeddings::Upstream(_))) {
                let head = ResponseHead { status: 200, headers: Vec::new(), streamed: false };
                drop(instance.decode_embeddings(&head, &self.input("data")).await?);
            }
        }
        Ok(())
    }

    /// One attempt, as a host makes it: a good request, and this input in place of the answer.
    async fn answer(&self, head: &ResponseHead) -> Result<(), Trouble> {
        let mut instance = self.bench.plugin.open_provider(&self.context).await?;
        let prepared = instance.prepare(REQUEST, &target()).await?;
        if !matches!(prepared, Ok(Prepared::Upstream(_))) {
            return Ok(());
        }
        if head.status >= 400 {
            drop(instance.map_error(head, &self.input("error")).await?);
            return Ok(());
        }
        let frame = Frame { name: String::new(), data: self.input("output") };
        if !head.streamed {
            drop(instance.decode(head, frame).await?);
            return Ok(());
        }
        instance.open_decoder(head).await?;
        drop(instance.feed(&[frame]).await?);
        drop(instance.finish().await?);
        Ok(())
    }

    fn input(&self, member: &str) -> Vec<u8> {
        (self.odd.write)(member)
    }
}

/// The first parameter of a function, so that its value is looked at.
fn first_parameter(function: &Function) -> String {
    let schema: Value = serde_json::from_slice(&function.parameters).unwrap_or_default();
    let first =
        schema.get("properties").and_then(Value::as_object).and_then(|properties| properties.keys().next());
    first.cloned().unwrap_or_else(|| "text".to_owned())
}
