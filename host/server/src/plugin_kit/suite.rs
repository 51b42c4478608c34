//! The suite that needs no author: input that no plugin expects, and what every plugin of a kind
//! must do. Whatever the input, a plugin may answer with an error of the contract, but not trap.

mod http_errors;
mod odd_input;
mod streams;

use cofferdam_runtime::manifest::{Import, PluginKind};
use cofferdam_runtime::wire::Function;
use cofferdam_runtime::{CallContext, Plugin, Services};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::cases::Case;
use super::runs::{Bench, GuestLines, Trouble, context};
use super::samples::{candidate, summary};
use odd_input::ODD_INPUTS;

/// The time and the seed of the suite.
const NOW_MS: u64 = 1_700_000_000_000;
const SEED: u64 = 7;
const DAY_MS: u64 = 86_400_000;
/// Length limit of what is said about a check, in characters.
const PROBLEM_CHARS_MAX: usize = 2_000;

/// How one check of the suite ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SuiteResult {
    pub(super) check: String,
    pub(super) problem: Option<String>,
}

/// What every check answers: nothing, or what is wrong.
type Checked = Result<(), String>;

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Call(error) => error.to_string(),
            Trouble::Rule(rule) => rule,
        }
    }
}

/// Runs the checks for the kind of the plugin. The streams and requests of its cases are used again.
pub(super) async fn run(bench: &Bench, cases: &[Case]) -> Vec<SuiteResult> {
    let lines = GuestLines::default();
    let _watch = lines.watch();
    let mut results = Vec::new();
    let mut add = |check: &str, checked: Checked| {
        let problem = checked.err().map(|text| text.chars().take(PROBLEM_CHARS_MAX).collect());
        results.push(SuiteResult { check: check.to_owned(), problem });
    };
    for odd in &ODD_INPUTS {
        add(odd.name, odd_input::check(bench, odd).await);
    }
    let plugin = &bench.plugin;
    match plugin.kind() {
        PluginKind::Tool => add("the same functions twice", functions_twice(plugin).await),
        PluginKind::Router => add("the same order twice", order_twice(plugin).await),
        PluginKind::Provider => {
            let recorded: Vec<_> = streams::all(bench, cases).collect();
            if !recorded.is_empty() {
                add("answers cut anywhere", streams::check_cuts(&recorded).await);
            }
            if recorded.iter().any(|recorded| recorded.streamed) {
                add("answers split anywhere", streams::check_splits(&recorded).await);
            }
        }
        PluginKind::Hook => {}
    }
    if plugin.grant().imports.contains(&Import::Http) && http_errors::can_check(cases) {
        add("every error of http", http_errors::check(bench, cases).await);
    }
    results
}

/// Prompt caches of providers hold only as long as the functions have the same bytes.
async fn functions_twice(plugin: &Arc<Plugin>) -> Checked {
    let first = functions(plugin, b"{}", &context(NOW_MS, SEED)).await?;
    if first == functions(plugin, b"{}", &context(NOW_MS + DAY_MS, SEED + 1)).await? {
        return Ok(());
    }
    Err("`functions` gives other bytes when it is called again, a day later".to_owned())
}

/// Name, description and schema of each function, or why there is none.
async fn functions(
    plugin: &Arc<Plugin>,
    settings: &[u8],
    context: &CallContext,
) -> Result<Result<Vec<(String, String, Vec<u8>)>, String>, Trouble> {
    let parts = |Function { name, description, parameters }| (name, description, parameters);
    let answered = plugin.functions(context, Services::default(), settings).await?;
    Ok(answered
        .map(|functions| functions.into_iter().map(parts).collect())
        .map_err(|error| format!("{error:?}")))
}

async fn order_twice(plugin: &Arc<Plugin>) -> Checked {
    let candidates = [candidate("one", 2.0), candidate("two", 1.0), candidate("three", 1.0)];
    let mut orders = Vec::new();
    // The clock and the random bytes of WASI differ; the seed of the call is the only source of chance.
    for call in [context(NOW_MS, SEED), context(NOW_MS + DAY_MS, SEED + 1)] {
        let routed = plugin.route(&call, &summary(), &candidates, SEED).await;
        let decided = routed.map_err(Trouble::from)?;
        orders.push(decided.map(|decision| decision.order).map_err(|failure| failure.message));
    }
    match orders.as_slice() {
        [first, second] if first == second => Ok(()),
        _ => Err("`route` gives another order for the same input and seed".to_owned()),
    }
}
