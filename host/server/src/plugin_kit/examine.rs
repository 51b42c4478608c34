//! The process that compiles and calls a plugin for `plugin check` and `plugin test`. It limits itself before it
//! reads the component, so that one which is hard to compile cannot take the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_egress::{EgressConfig, Target};
use cofferdam_runtime::{
    Asked, CallErrorKind, Manifest, OperatorGrant, Plugin, PluginSource, PluginState, Runtime, RuntimeConfig,
    TrapKind,
};
use cofferdam_store::SecretName;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::canaries::Canaries;
use super::cases::{self, Case};
use super::project::{read_component, read_text, wrong};
use super::runs::{Bench, CaseResult, GuestLines, Trouble, bounded_notes};
use super::samples;
use super::suite::{self, SuiteResult};
use crate::command::{CommandOutcome, ExamineArguments};
use crate::failure::Failure;
use crate::start::block_on;

/// Memory that compiling and calling may take.
pub(super) const MEMORY_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Processor time that compiling and calling may take.
pub(super) const CPU_SECONDS_MAX: u64 = 600;

/// What the process found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Examination {
    pub(super) compile_ms: u64,
    /// Whether it was compiled before, and only loaded.
    pub(super) is_cached: bool,
    pub(super) code_bytes: usize,
    pub(super) calls: Vec<ExaminedCall>,
    /// How the checks that need no author ended, where they were asked for.
    pub(super) suite: Vec<SuiteResult>,
    /// How the cases ended.
    pub(super) cases: Vec<CaseResult>,
    /// Why it does not compile, or cannot be tried at all.
    pub(super) uncompiled: Option<String>,
    /// The calls that broke.
    pub(super) problems: Vec<Problem>,
}

/// What the calls of one function took at most.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ExaminedCall {
    pub(super) function: String,
    pub(super) calls: usize,
    /// Processor time of the call that had the least of its time left.
    pub(super) busy_us: u64,
    /// The most that this call may take.
    pub(super) busy_max_us: u64,
    pub(super) fuel: u64,
    pub(super) memory_bytes: usize,
}

/// A call that broke.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Problem {
    pub(super) message: String,
    /// Whether the guest broke.
    pub(super) is_trap: bool,
    /// Which call it was, and what else happened in it: one line each.
    pub(super) notes: Vec<String>,
}

pub(super) fn examine(arguments: &ExamineArguments) -> Result<CommandOutcome, Failure> {
    limit_this_process()?;
    // What is wrong belongs into the report: the process that reads it shows nothing else.
    let examination = examined(arguments).unwrap_or_else(|failure| Examination {
        uncompiled: Some(failure.to_string()),
        ..Examination::default()
    });
    let document = json!(examination);
    Ok(CommandOutcome { text: format!("{document}\n"), document })
}

fn examined(arguments: &ExamineArguments) -> Result<Examination, Failure> {
    let manifest_text = read_text(&arguments.manifest)?;
    let manifest = Manifest::parse(&manifest_text).map_err(|error| wrong(error.to_string()))?;
    let component = read_component(&arguments.component)?;
    let cases = cases::read(&arguments.cases, manifest.kind)?;
    check_secrets(&manifest, &cases)?;
    let secrets = secrets(&manifest, &cases);
    let runtime = start(arguments)?;
    let grant = grant(&manifest, &secrets, &cases);
    let plugin = load(&runtime, manifest_text, &manifest, grant, component)?;
    let bench = Bench::new(&plugin, Canaries::new(secrets), ports(&cases))?;
    let started = Instant::now();
    let outcome = block_on(async {
        plugin.compile().await?;
        let compile_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok((compile_ms, called(&bench, &cases, arguments.suite).await))
    })?;
    let (compile_ms, calls, uncompiled) = match outcome {
        Ok((compile_ms, calls)) => (compile_ms, calls, None),
        Err(error) => (0, Calls::default(), Some(why_uncompiled(&plugin, &error))),
    };
    let Calls { suite, cases, problems } = calls;
    Ok(Examination {
        compile_ms,
        is_cached: matches!(plugin.state(), PluginState::Compiled { from_cache: true, .. }),
        code_bytes: plugin.code_bytes().unwrap_or_default(),
        calls: most(&runtime),
        suite,
        cases,
        uncompiled,
        problems,
    })
}

/// A sandbox that counts, or the one of a serving host, whose compiled code it shares.
fn start(arguments: &ExamineArguments) -> Result<Runtime, Failure> {
    let tick = Duration::from_millis(2);
    Ok(match &arguments.host_cache {
        None => Runtime::start_metered(tick, arguments.cache.as_deref())?,
        Some(cache) => Runtime::start(RuntimeConfig {
            streams: 1,
            cache_dir: cache.clone(),
            // No grant of an examination has calls recorded.
            recordings_dir: PathBuf::new(),
            tick,
        })?,
    })
}

/// `RLIMIT_DATA` and not `RLIMIT_AS`: the sandbox reserves address space that it does not use.
pub(super) fn limit_this_process() -> Result<(), Failure> {
    let limits = [(Resource::Data, MEMORY_BYTES_MAX), (Resource::Cpu, CPU_SECONDS_MAX)];
    for (resource, most) in limits {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit)
            .map_err(|error| Failure::system("a limit of this process")(error.into()))?;
    }
    Ok(())
}

/// What calling the plugin showed.
#[derive(Default)]
struct Calls {
    suite: Vec<SuiteResult>,
    cases: Vec<CaseResult>,
    problems: Vec<Problem>,
}

async fn called(bench: &Bench, cases: &[Case], with_suite: bool) -> Calls {
    let mut calls = Calls::default();
    let lines = GuestLines::default();
    let sampled = {
        let _watch = lines.watch();
        samples::call(&bench.plugin, cases.is_empty()).await
    };
    if let Err(trouble) = sampled {
        let of = "in a call that `plugin check` makes of every plugin".to_owned();
        calls.problems.push(problem(trouble, bounded_notes([of].into_iter().chain(lines.taken()).collect())));
    }
    if with_suite {
        calls.suite = suite::run(bench, cases).await;
    }
    for case in cases {
        let (result, broke) = bench.run(case).await;
        if let Some(error) = broke {
            let of = format!("in the case `{}`, {}", result.case, result.at);
            let notes = [of].into_iter().chain(result.notes.iter().cloned()).collect();
            calls.problems.push(problem(Trouble::Call(error), notes));
        }
        calls.cases.push(result);
    }
    calls
}

/// A misspelt name would leave the secret that is meant bound to every host.
fn check_secrets(manifest: &Manifest, cases: &[Case]) -> Result<(), Failure> {
    for case in cases {
        let names = case.input.scripts().into_iter().flat_map(|scripts| scripts.secrets.keys());
        if let Some(name) = names.into_iter().find(|name| !manifest.secrets.covers(name)) {
            return Err(wrong(format!(
                "{}: `secrets` names {name}, which plugin.toml does not ask for",
                case.at
            )));
        }
    }
    Ok(())
}

/// The secrets that the plugin may have sent: those of its manifest, and those of its cases where
/// the manifest asks for any.
fn secrets(manifest: &Manifest, cases: &[Case]) -> BTreeSet<SecretName> {
    let of_cases =
        cases.iter().filter_map(|case| case.input.scripts()).flat_map(|scripts| scripts.secrets.keys());
    let of_cases = of_cases.filter(|name| manifest.secrets.covers(name));
    manifest.secrets.named().chain(of_cases).cloned().collect()
}

/// Everything that the manifest asks for, so that only mistakes of the plugin show. Where it asks for
/// any host, those of the cases are granted by name, as they are where secrets go.
fn grant(manifest: &Manifest, secrets: &BTreeSet<SecretName>, cases: &[Case]) -> OperatorGrant {
    let hosts = targets(cases).filter_map(|target| target.host_name().cloned());
    let hosts = hosts.filter(|host| manifest.hosts.covers(host));
    OperatorGrant {
        hosts: manifest.hosts.named().cloned().chain(hosts).collect(),
        any_host: manifest.hosts == Asked::Any,
        secrets: secrets.clone(),
        placeholder_headers: manifest.placeholder_headers.clone(),
        imports: manifest.imports.iter().map(|import| import.as_str().to_owned()).collect(),
        ..OperatorGrant::default()
    }
}

/// Where the requests go that cases list.
fn targets(cases: &[Case]) -> impl Iterator<Item = Target> {
    let requests = cases.iter().filter_map(|case| case.input.scripts()).flat_map(|scripts| &scripts.http);
    requests.filter_map(|request| Target::parse(&request.url).ok())
}

/// The ports that an operator opens for what the cases list, besides the default of `[egress]`.
fn ports(cases: &[Case]) -> Vec<u16> {
    let listed = targets(cases).map(|target| target.port());
    EgressConfig::default().ports.into_iter().chain(listed).collect()
}

fn load(
    runtime: &Runtime,
    text: String,
    manifest: &Manifest,
    grant: OperatorGrant,
    component: Vec<u8>,
) -> Result<Arc<Plugin>, Failure> {
    let name = manifest.name.clone();
    let source = PluginSource {
        manifest: text,
        component: component.into(),
        name: name.clone(),
        digest: None,
        origin: "plugin.toml".to_owned(),
        is_built_in: false,
    };
    let plugins = runtime.load(vec![source], &BTreeMap::from([(name.clone(), grant)]));
    let plugins = plugins.map_err(|error| wrong(error.to_string()))?;
    let plugin = plugins.get(&name).map(Arc::clone);
    plugin.ok_or_else(|| wrong(format!("{name} was not loaded")))
}

fn why_uncompiled(plugin: &Plugin, error: &cofferdam_runtime::CallError) -> String {
    match plugin.state() {
        PluginState::Failed(reason) => reason,
        _ => error.to_string(),
    }
}

fn problem(trouble: Trouble, notes: Vec<String>) -> Problem {
    match trouble {
        Trouble::Rule(message) => Problem { message, is_trap: false, notes },
        Trouble::Call(error) => Problem {
            message: error.to_string(),
            is_trap: matches!(
                error.kind,
                CallErrorKind::Trap(TrapKind::Unreachable | TrapKind::OutOfBounds | TrapKind::InvalidValue)
            ),
            notes,
        },
    }
}

/// The most that any call of each function took.
fn most(runtime: &Runtime) -> Vec<ExaminedCall> {
    let mut calls: Vec<ExaminedCall> = Vec::new();
    for call in runtime.take_calls() {
        let [busy_us, busy_max_us] =
            [call.busy, call.busy_max].map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        match calls.iter_mut().find(|known| known.function == call.function) {
            Some(known) => {
                known.calls += 1;
                if u128::from(busy_us) * u128::from(known.busy_max_us)
                    > u128::from(known.busy_us) * u128::from(busy_max_us)
                {
                    (known.busy_us, known.busy_max_us) = (busy_us, busy_max_us);
                }
                known.fuel = known.fuel.max(call.fuel);
                known.memory_bytes = known.memory_bytes.max(call.memory_bytes);
            }
            None => calls.push(ExaminedCall {
                function: call.function.to_owned(),
                calls: 1,
                busy_us,
                busy_max_us,
                fuel: call.fuel,
                memory_bytes: call.memory_bytes,
            }),
        }
    }
    calls
}
