//! The process that compiles and calls a plugin for `plugin check`. It limits itself before it
//! reads the component, so that one which is hard to compile cannot take the machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_runtime::{
    Asked, CallErrorKind, OperatorGrant, Plugin, PluginSource, PluginState, Runtime, TrapKind,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cases;
use super::project::{read_component, read_text, wrong};
use super::samples::{self, Answers, Trouble};
use crate::command::{CommandOutcome, ExamineArguments};
use crate::failure::Failure;
use crate::start::block_on;

/// Memory that compiling and calling may take.
pub(super) const MEMORY_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Processor time that compiling and calling may take.
pub(super) const CPU_SECONDS_MAX: u64 = 600;

/// What the process found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Examination {
    pub(super) compile_ms: u64,
    pub(super) code_bytes: usize,
    pub(super) calls: Vec<ExaminedCall>,
    /// What a tool answered to its cases.
    pub(super) answers: Answers,
    /// What is wrong, if anything.
    pub(super) problem: Option<Problem>,
}

/// The most that the calls of one function took.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ExaminedCall {
    pub(super) function: String,
    pub(super) calls: usize,
    pub(super) busy_us: u64,
    pub(super) fuel: u64,
    pub(super) memory_bytes: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Problem {
    pub(super) message: String,
    /// Whether compiling failed, and not a call.
    pub(super) in_compile: bool,
    /// Whether the guest ended itself.
    pub(super) is_trap: bool,
}

pub(super) fn examine(arguments: &ExamineArguments) -> Result<CommandOutcome, Failure> {
    limit_this_process()?;
    let manifest = read_text(&arguments.manifest)?;
    let component = read_component(&arguments.component)?;
    let cases = cases::read(&arguments.cases)?;
    let mut answers = Vec::new();
    let runtime = Runtime::start_metered(Duration::from_millis(2))?;
    let plugin = load(&runtime, manifest, component)?;
    let started = Instant::now();
    let outcome = block_on(async {
        plugin.compile().await?;
        let compile_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok((compile_ms, samples::call(&plugin, &cases, &mut answers).await))
    })?;
    let (compile_ms, problem) = match outcome {
        Ok((compile_ms, called)) => (compile_ms, called.err().map(problem)),
        Err(error) => (0, Some(compile_problem(&plugin, &error))),
    };
    let examination = Examination {
        compile_ms,
        code_bytes: plugin.code_bytes().unwrap_or_default(),
        calls: most(&runtime),
        answers,
        problem,
    };
    let document = json!(examination);
    Ok(CommandOutcome { text: format!("{document}\n"), document })
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

/// Loads the plugin with everything that its manifest asks for, so that only its own mistakes show.
fn load(runtime: &Runtime, manifest: String, component: Vec<u8>) -> Result<Arc<Plugin>, Failure> {
    let parsed = cofferdam_runtime::Manifest::parse(&manifest).map_err(|error| wrong(error.to_string()))?;
    let name = parsed.name.clone();
    let grant = OperatorGrant {
        hosts: parsed.hosts.named().cloned().collect(),
        any_host: parsed.hosts == Asked::Any,
        imports: parsed.imports.iter().map(|import| import.as_str().to_owned()).collect(),
        ..OperatorGrant::default()
    };
    let source = PluginSource {
        manifest,
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

fn compile_problem(plugin: &Plugin, error: &cofferdam_runtime::CallError) -> Problem {
    let message = match plugin.state() {
        PluginState::Failed(reason) => reason,
        _ => error.to_string(),
    };
    Problem { message, in_compile: true, is_trap: false }
}

fn problem(trouble: Trouble) -> Problem {
    match trouble {
        Trouble::Rule(message) => Problem { message, in_compile: false, is_trap: false },
        Trouble::Call(error) => Problem {
            message: error.to_string(),
            in_compile: false,
            is_trap: matches!(
                error.kind,
                CallErrorKind::Trap(TrapKind::Unreachable | TrapKind::OutOfBounds | TrapKind::InvalidValue)
            ),
        },
    }
}

/// The most that any call of each function took.
fn most(runtime: &Runtime) -> Vec<ExaminedCall> {
    let mut calls: Vec<ExaminedCall> = Vec::new();
    for call in runtime.take_calls() {
        let busy_us = u64::try_from(call.busy.as_micros()).unwrap_or(u64::MAX);
        match calls.iter_mut().find(|known| known.function == call.function) {
            Some(known) => {
                known.calls += 1;
                known.busy_us = known.busy_us.max(busy_us);
                known.fuel = known.fuel.max(call.fuel);
                known.memory_bytes = known.memory_bytes.max(call.memory_bytes);
            }
            None => calls.push(ExaminedCall {
                function: call.function.to_owned(),
                calls: 1,
                busy_us,
                fuel: call.fuel,
                memory_bytes: call.memory_bytes,
            }),
        }
    }
    calls
}
