//! Runs code: as a script, whose last expression is its value, or as a module if it awaits at top level.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use boa_engine::builtins::promise::{OperationType, Promise, PromiseState};
use boa_engine::context::{ContextBuilder, HostHooks};
use boa_engine::error::{EngineError, RuntimeLimitError};
use boa_engine::job::SimpleJobExecutor;
use boa_engine::module::IdleModuleLoader;
use boa_engine::object::builtins::JsPromise;
use boa_engine::property::Attribute;
use boa_engine::{Context, JsError, JsObject, JsResult, JsValue, Module, Script, Source, js_string};
use cofferdam_guest_kit::server_tool::clip;

use crate::console::{self, Logs};
use crate::inspect::inspect;
use crate::module;
use crate::timers::{CallClock, Timers};

/// The largest number of loop iterations in one function call. The sandbox has limits of its own, but
/// reaching them would lose the output.
pub(crate) const LOOP_ITERATIONS_MAX: u64 = 50_000_000;
/// The deepest nesting of calls. Calls through native functions, such as `map`, may reach the end of
/// the sandbox's stack earlier.
const RECURSION_MAX: usize = 5_000;
/// The largest number of values on the interpreter's stack.
const STACK_VALUES_MAX: usize = 500_000;
/// The largest `ArrayBuffer`, in bytes.
const BUFFER_BYTES_MAX: u64 = 32 << 20;
/// The longest text of a value, in bytes.
const VALUE_BYTES_MAX: usize = 20_000;

/// The result of running code.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    /// The printed text.
    pub(crate) logs: String,
    /// The value of the last expression, if it has one.
    pub(crate) value: Option<String>,
    /// The uncaught exception.
    pub(crate) error: Option<String>,
}

/// Runs `code`. `now_ms` is the time at the start of the call. `loop_iterations_max` limits the loop
/// iterations in one function call.
pub(crate) fn run(code: &str, now_ms: u64, loop_iterations_max: u64) -> Ran {
    let logs = Logs::default();
    let rejected = Rc::new(Hooks::default());
    let mut ran = match prepare(&logs, &rejected, now_ms) {
        Ok((mut context, timers)) => {
            context.runtime_limits_mut().set_loop_iteration_limit(loop_iterations_max);
            let came = evaluate(code, &mut context).and_then(|begun| {
                settle(&mut context, &timers)?;
                begun.value(&mut context)
            });
            let came =
                came.and_then(|value| rejected.first().map_or(Ok(value), |promise| settled(promise.into())));
            shown(came, &mut context)
        }
        Err(error) => {
            Ran { error: Some(format!("The interpreter could not start: {error}")), ..Ran::default() }
        }
    };
    ran.logs = logs.take();
    ran
}

fn prepare(logs: &Logs, hooks: &Rc<Hooks>, now_ms: u64) -> JsResult<(Context, Timers)> {
    let clock = Rc::new(CallClock::new(now_ms));
    let mut context = ContextBuilder::new()
        .host_hooks(Rc::clone(hooks))
        .clock(Rc::clone(&clock))
        .job_executor(Rc::new(SimpleJobExecutor::new()))
        .module_loader(Rc::new(IdleModuleLoader))
        .can_block(false)
        .build()?;
    let limits = context.runtime_limits_mut();
    limits.set_recursion_limit(RECURSION_MAX);
    limits.set_stack_size_limit(STACK_VALUES_MAX);
    console::install(&mut context, logs)?;
    let timers = Timers::install(&mut context, clock)?;
    let global = context.global_object();
    context.register_global_property(js_string!("globalThis"), global, Attribute::all())?;
    Ok((context, timers))
}

/// Code that has run until its first pending promise.
enum Begun {
    /// A script with its value.
    Script(JsValue),
    /// A module, and the promise of its end.
    Module(Module, JsPromise),
}

impl Begun {
    /// The value, after all jobs and timers have run.
    fn value(self, context: &mut Context) -> JsResult<JsValue> {
        match self {
            Self::Script(value) => settled(value),
            Self::Module(module, end) => {
                if end.state() == PromiseState::Pending {
                    // The module waits for a promise that never settles.
                    return Ok(end.into());
                }
                settled(end.into())?;
                // Undefined when the module exports no value.
                settled(module.namespace(context).get(js_string!("default"), context)?)
            }
        }
    }
}

fn source(code: &[u8]) -> Source<'_, impl boa_engine::parser::source::ReadChar> {
    Source::from_bytes(code).with_path(Path::new("code.js"))
}

/// Runs the code until its first pending promise.
fn evaluate(code: &str, context: &mut Context) -> JsResult<Begun> {
    let error = match Script::parse(source(code.as_bytes()), None, context) {
        Ok(script) => return script.evaluate(context).map(Begun::Script),
        Err(error) => error,
    };
    // Only `await` can be the reason to try a module. Otherwise the script's error is the better one.
    if !code.contains("await") {
        return Err(error);
    }
    let exporting = module::exporting(code);
    let mut parsed = |code: &str| Module::parse(source(code.as_bytes()), None, context).ok();
    let Some(module) = exporting.and_then(|code| parsed(&code)).or_else(|| parsed(code)) else {
        return Err(error);
    };
    let end = module.load_link_evaluate(context);
    Ok(Begun::Module(module, end))
}

/// Runs all jobs of promises, and the timers.
fn settle(context: &mut Context, timers: &Timers) -> JsResult<()> {
    context.run_jobs()?;
    while let Some(fired) = timers.fire(context) {
        fired?;
        context.run_jobs()?;
    }
    Ok(())
}

/// The result of a promise. Any other value is returned unchanged.
fn settled(value: JsValue) -> JsResult<JsValue> {
    let Some(promise) = value.as_object().and_then(|object| JsPromise::from_object(object).ok()) else {
        return Ok(value);
    };
    match promise.state() {
        PromiseState::Pending => Ok(value),
        PromiseState::Fulfilled(value) => Ok(value),
        PromiseState::Rejected(reason) => Err(JsError::from_opaque(reason)),
    }
}

fn shown(came: JsResult<JsValue>, context: &mut Context) -> Ran {
    match came {
        Ok(value) if value.is_undefined() => Ran::default(),
        Ok(value) => Ran { value: Some(inspect(&value, context, VALUE_BYTES_MAX)), ..Ran::default() },
        Err(error) => Ran { error: Some(rendered(&error, context)), ..Ran::default() },
    }
}

fn rendered(error: &JsError, context: &mut Context) -> String {
    if let Some(EngineError::RuntimeLimit(limit)) = error.as_engine() {
        return match limit {
            RuntimeLimitError::LoopIteration => "Stopped: a loop went round too many times.",
            RuntimeLimitError::Recursion | RuntimeLimitError::StackSize => {
                "Stopped: the code recursed too deeply."
            }
        }
        .to_owned();
    }
    let what = match error.as_opaque() {
        Some(value) => inspect(value, context, VALUE_BYTES_MAX),
        None => clip(&error.to_string(), VALUE_BYTES_MAX).text.to_owned(),
    };
    format!("Uncaught {what}")
}

/// The interpreter's hooks into its environment.
#[derive(Default)]
struct Hooks {
    /// Rejected promises that no code handles.
    rejected: RefCell<Vec<JsObject<Promise>>>,
}

impl Hooks {
    fn first(&self) -> Option<JsObject> {
        self.rejected.borrow().first().map(|promise| promise.clone().upcast())
    }
}

impl HostHooks for Hooks {
    fn promise_rejection_tracker(
        &self,
        promise: &JsObject<Promise>,
        operation: OperationType,
        _: &mut Context,
    ) {
        let mut rejected = self.rejected.borrow_mut();
        match operation {
            OperationType::Reject => rejected.push(promise.clone()),
            OperationType::Handle => rejected.retain(|known| !JsObject::equals(known, promise)),
        }
    }

    fn local_timezone_offset_seconds(&self, _: i64) -> i32 {
        0
    }

    fn max_buffer_size(&self, _: &mut Context) -> u64 {
        BUFFER_BYTES_MAX
    }
}
