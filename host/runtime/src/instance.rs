//! One instance of a guest, and the calls into it. Every call gets budgets of its own, and a
//! further budget covers all calls of one use. A call owns the instance while it runs. A call that
//! fails or is dropped drops the instance, so a broken guest is never called again. After a
//! successful call the instance may wait for the next call of the same owner, see [`crate::warm`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::account::{CallBudget, CallCut, InstanceAccount};
use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::context::CallContext;
use crate::error::{CallError, CallErrorKind, TrapKind};
use crate::fairness::ToolQueuePlace;
use crate::guest::live::LiveInstance;
use crate::guest::{self, GuestState, HOST_CALLS_MAX};
use crate::imports::LimitExceeded;
use crate::manifest::Import;
use crate::owner::Owner;
use crate::permits::Claim;
use crate::plugin::{Compiled, Plugin};
use crate::services::Services;
use crate::tape::{Tape, TapedFailure};

/// Output limit while an instance is created, in bytes.
const START_OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// All calls of one use of an instance together may take this many times the processor time of one
/// call.
const TOTAL_BUDGETS: u32 = 100;
/// Wall-clock limit of a call that only waits for the processor: this many times its processor
/// time, plus `WALL_GRACE`.
const WALL_BUDGETS: u32 = 10;
const WALL_GRACE: Duration = Duration::from_secs(2);
/// Wall-clock limit of a call that may wait for hosts and models. The request's own deadline is
/// shorter.
const WALL_WAITING: Duration = Duration::from_secs(600);

/// An instance in use, for one call or one attempt at a provider.
pub(crate) struct Instance {
    pub(crate) live: Box<LiveInstance>,
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) context: GuestContext,
    owner: Option<Owner>,
    budget: CallBudget,
    claim: Claim,
}

impl Instance {
    /// Creates a new instance. Running its start code counts as a call.
    pub(crate) async fn open(
        plugin: &Arc<Plugin>,
        context: &CallContext,
        services: Services,
    ) -> Result<Self, CallError> {
        let claim = plugin.host.take_claim(context.owner.as_ref()).ok_or_else(|| saturated(plugin))?;
        Self::fresh(claim, plugin, context, services, None).await
    }

    /// Creates a new instance for a tool call, after the earlier calls of the same owner leave it a
    /// turn. A call that waits for its first turn holds no permit.
    pub(crate) async fn open_in_turn(
        plugin: &Arc<Plugin>,
        context: &CallContext,
        services: Services,
    ) -> Result<Self, CallError> {
        let owner = context.owner.as_ref();
        let queue_place = owner.map(|owner| Arc::new(plugin.host.join_tool_queue(owner)));
        if let Some(queue_place) = &queue_place {
            queue_place.enter().await;
        }
        let claim = plugin.host.take_fair_claim(owner).ok_or_else(|| saturated(plugin))?;
        Self::fresh(claim, plugin, context, services, queue_place).await
    }

    /// Takes the idle instance of an earlier call of the same owner, or creates one.
    pub(crate) async fn warm(plugin: &Arc<Plugin>, context: &CallContext) -> Result<Self, CallError> {
        let claim = plugin.host.take_claim(context.owner.as_ref()).ok_or_else(|| saturated(plugin))?;
        Self::resume(claim, plugin, context).await
    }

    /// Same as [`Self::warm`], with a permit that the caller already holds.
    pub(crate) async fn resume(
        claim: Claim,
        plugin: &Arc<Plugin>,
        context: &CallContext,
    ) -> Result<Self, CallError> {
        let left =
            lasting_owner(plugin, context).and_then(|owner| plugin.host.warm.take(plugin.number(), owner));
        match left {
            Some(mut live) => {
                live.renew(context);
                Ok(Self::of(plugin, context, live, claim))
            }
            // Boxed because it is rare: its large future is not part of every call's future.
            None => Box::pin(Self::fresh(claim, plugin, context, Services::default(), None)).await,
        }
    }

    async fn fresh(
        claim: Claim,
        plugin: &Arc<Plugin>,
        context: &CallContext,
        services: Services,
        queue_place: Option<Arc<ToolQueuePlace>>,
    ) -> Result<Self, CallError> {
        loop {
            match Self::make(plugin, context, services.clone(), queue_place.clone()).await {
                Ok(live) => return Ok(Self::of(plugin, context, live, claim)),
                // Ending an idle instance frees a slot, and memories of the pool.
                Err(StartError::PoolIsFull) if plugin.host.warm.evict() => {}
                Err(StartError::PoolIsFull) => return Err(saturated(plugin)),
                Err(StartError::Failed(error)) => return Err(error),
            }
        }
    }

    async fn make(
        plugin: &Arc<Plugin>,
        context: &CallContext,
        services: Services,
        queue_place: Option<Arc<ToolQueuePlace>>,
    ) -> Result<Box<LiveInstance>, StartError> {
        let compiled = plugin.compiled().await?;
        let slot = plugin.host.take_slot().ok_or(StartError::PoolIsFull)?;
        let budget = budget_of(plugin, 0);
        let total = budget.cpu.saturating_mul(TOTAL_BUDGETS);
        let account = Arc::new(InstanceAccount::new(Arc::clone(&plugin.host.turns), total, queue_place));
        let tape = plugin.tape(context, &services);
        let mut store =
            guest::store(&plugin.host.engine, plugin.profile(), context, services, &account, tape);
        store.set_hostcall_fuel(START_OUTPUT_BYTES_MAX);
        store.set_epoch_deadline(1);
        if let Some(meter) = &plugin.host.meter {
            meter.fill(&mut store);
        }
        let started = account.drive(budget, pin!(compiled.pre.instantiate_async(&mut store))).await;
        if let Some(meter) = &plugin.host.meter {
            meter.note("start", &store, &account);
        }
        #[cfg(debug_assertions)]
        search_guests(plugin, "its start");
        if let Some(Err(error)) = &started
            && error.is::<wasmtime::PoolConcurrencyLimitError>()
        {
            return Err(StartError::PoolIsFull);
        }
        let handle = settle(plugin, &account, "its start", store.data(), started)?;
        Ok(Box::new(LiveInstance::new(store, handle, account, slot)))
    }

    fn of(plugin: &Arc<Plugin>, context: &CallContext, mut live: Box<LiveInstance>, claim: Claim) -> Self {
        let guest_context = context.for_guest(plugin.name(), &mut live.alias);
        Self {
            live,
            plugin: Arc::clone(plugin),
            context: guest_context,
            owner: lasting_owner(plugin, context).cloned(),
            budget: budget_of(plugin, 0),
            claim,
        }
    }

    /// Runs one call of the exported `function`. The instance is returned only after a successful
    /// call. `output_bytes_max` limits the bytes that the guest passes to the host, in its answer
    /// or in any one import.
    pub(crate) async fn run<T>(
        mut self,
        function: &'static str,
        output_bytes_max: usize,
        call: impl AsyncFnOnce(&mut Self) -> wasmtime::Result<T>,
    ) -> Result<(Self, T), CallError> {
        let store = &mut self.live.store;
        store.set_hostcall_fuel(output_bytes_max);
        store.set_epoch_deadline(1);
        store.data_mut().host_calls_left = HOST_CALLS_MAX;
        store.data().log.renew();
        if let Some(meter) = &self.plugin.host.meter {
            meter.fill(store);
        }
        let (account, budget) = (Arc::clone(&self.live.account), self.budget);
        let outcome = account.drive(budget, pin!(call(&mut self))).await;
        self.live.store.data().log.end();
        if let Some(meter) = &self.plugin.host.meter {
            meter.note(function, &self.live.store, &account);
        }
        #[cfg(debug_assertions)]
        search_guests(&self.plugin, function);
        let answer = settle(&self.plugin, &account, function, self.live.store.data(), outcome)?;
        Ok((self, answer))
    }

    /// Processor time of the last call.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.live.account.spent_ns())
    }

    /// Notes a call on the tape, before it is made.
    pub(crate) fn note_call(&self, function: &'static str, input: &impl Serialize) {
        #[cfg(debug_assertions)]
        crate::guest_memory::search_handed(function, input);
        if let Some(tape) = self.tape() {
            tape.call(function, input);
        }
    }

    /// Notes the answer to a call on the tape.
    pub(crate) fn note_answer(&self, answer: &impl Serialize) {
        if let Some(tape) = self.tape() {
            tape.answer(answer);
        }
    }

    /// Counts a failure that the host found in an answer, and returns its error.
    pub(crate) fn failed(&self, function: &'static str, kind: CallErrorKind) -> CallError {
        if let Some(tape) = self.tape() {
            tape.fail(TapedFailure { kind: &kind, function, backtrace: None });
        }
        self.plugin.failed(kind)
    }

    /// The tape of a call that is recorded or replayed.
    pub(crate) fn tape(&self) -> Option<&Arc<Tape>> {
        self.live.store.data().tape.as_ref()
    }

    /// Raises the limits of memory and processor time for a request of `request_bytes` bytes, if it
    /// is a long one.
    ///
    /// # Errors
    ///
    /// [`CallErrorKind::Saturated`] if other guests hold the memory for it.
    pub(crate) fn make_room(&mut self, request_bytes: usize) -> Result<(), CallError> {
        self.allow_time(request_bytes);
        let grant = self.plugin.grant();
        let limiter = &mut self.live.store.data_mut().limiter;
        limiter.make_room(request_bytes, grant).map_err(|_| saturated(&self.plugin))
    }

    /// Raises the limit of processor time for an input of `input_bytes` bytes, if it is a long one.
    pub(crate) fn allow_time(&mut self, input_bytes: usize) {
        self.budget = budget_of(&self.plugin, input_bytes);
    }

    /// Whether its memory limit was raised for a long request.
    pub(crate) fn has_room(&self) -> bool {
        self.live.store.data().limiter.has_room()
    }

    /// Whether it may serve the next call of its owner.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.owner.is_some() && self.plugin.is_pure() && self.live.is_clean()
    }

    /// Keeps the instance for the next call of its owner, if it may be kept. Call it only if all
    /// its calls succeeded.
    pub(crate) fn keep(self) {
        drop(self.pause());
    }

    /// Same as [`Self::keep`], but returns the permit, with which the caller can continue later.
    pub(crate) fn pause(self) -> Claim {
        let kept = self.may_be_kept();
        let Self { mut live, plugin, owner, claim, .. } = self;
        if let Some(owner) = owner.filter(|_| kept) {
            live.uses += 1;
            plugin.host.warm.keep(plugin.number(), owner, live);
        }
        claim
    }

    pub(crate) fn compiled(&self) -> Option<&Compiled> {
        self.plugin.compiled_now()
    }
}

/// The owner whose later calls may use the instance of this call. An instance with inputs of its
/// own serves no other call, and neither does one whose calls are recorded.
fn lasting_owner<'a>(plugin: &Plugin, context: &'a CallContext) -> Option<&'a Owner> {
    context.owner.as_ref().filter(|_| context.inputs.is_none() && !plugin.is_taped())
}

/// Searches the memory of guests for released secrets, in tests that ask for it.
#[cfg(debug_assertions)]
fn search_guests(plugin: &Plugin, function: &str) {
    if let Some(memories) = &plugin.host.memories {
        memories.search(plugin.name(), function);
    }
}

/// Why an instance did not start.
enum StartError {
    /// All slots, or all memories of the pool, are taken.
    PoolIsFull,
    Failed(CallError),
}

impl From<CallError> for StartError {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// Counts and returns the error that no instance is free.
fn saturated(plugin: &Plugin) -> CallError {
    plugin.host.count_saturated();
    plugin.failed(CallErrorKind::Saturated)
}

/// The budget of a call with `input_bytes` bytes of input.
fn budget_of(plugin: &Plugin, input_bytes: usize) -> CallBudget {
    let cpu = plugin.grant().deadline_for(input_bytes);
    let waits = [Import::Http, Import::Model, Import::ToolCall];
    let wall = if waits.iter().any(|import| plugin.grant().imports.contains(import)) {
        WALL_WAITING
    } else {
        cpu.saturating_mul(WALL_BUDGETS).saturating_add(WALL_GRACE)
    };
    CallBudget { cpu, wall }
}

/// Counts a finished call and classifies its failure. The failed function and the guest's last
/// warnings are logged.
fn settle<T>(
    plugin: &Plugin,
    account: &InstanceAccount,
    function: &'static str,
    state: &GuestState,
    outcome: Option<wasmtime::Result<T>>,
) -> Result<T, CallError> {
    plugin.counters().called(function, account.spent_ns(), state.limiter.bytes());
    if let Some(spent) = &state.services.spent {
        spent.add(account.spent_ns());
    }
    let fail = |kind: &CallErrorKind, backtrace: Option<&WasmBacktrace>| {
        if let Some(tape) = &state.tape {
            tape.fail(TapedFailure { kind, function, backtrace: backtrace.map(ToString::to_string) });
        }
    };
    let error = match outcome {
        Some(Ok(answer)) => return Ok(answer),
        Some(Err(error)) => error,
        None if account.cut() == Some(CallCut::Turn) => return Err(saturated(plugin)),
        None => {
            fail(&CallErrorKind::OutOfTime, None);
            return Err(plugin.failed(CallErrorKind::OutOfTime));
        }
    };
    let kind = classify(account, &error);
    if kind == CallErrorKind::Saturated {
        plugin.host.count_saturated();
    } else {
        // The error's text is from wasmtime. It names functions of the guest and has no content.
        fail(&kind, error.downcast_ref());
        let (plugin, last_words) = (plugin.name(), state.log.last_words());
        tracing::warn!(plugin, kind = kind.as_str(), function, last_words, "guest call failed: {kind}");
        tracing::debug!(plugin, error = format!("{error:#}"), "guest call failed");
    }
    Err(plugin.failed(kind))
}

fn classify(account: &InstanceAccount, error: &wasmtime::Error) -> CallErrorKind {
    if is_out_of_hostcall_fuel(error) {
        return CallErrorKind::OutputTooLarge;
    }
    let trap = error.downcast_ref::<Trap>();
    match account.cut() {
        Some(CallCut::Time) if trap == Some(&Trap::Interrupt) => return CallErrorKind::OutOfTime,
        // Only a replay limits fuel, where the recorded call ran out of time.
        _ if trap == Some(&Trap::OutOfFuel) => return CallErrorKind::OutOfTime,
        Some(CallCut::HostCalls) => return CallErrorKind::TooManyHostCalls,
        // After refused memory the guest aborts itself, or cannot start.
        Some(cut @ (CallCut::Memory | CallCut::SharedMemory))
            if trap.is_none_or(|trap| *trap == Trap::UnreachableCodeReached) =>
        {
            let is_own = cut == CallCut::Memory;
            return if is_own { CallErrorKind::OutOfMemory } else { CallErrorKind::Saturated };
        }
        _ => {}
    }
    if let Some(LimitExceeded(rule)) = error.downcast_ref() {
        return CallErrorKind::InvalidAnswer(rule);
    }
    if error.is::<I32Exit>() {
        return CallErrorKind::Trap(TrapKind::Unreachable);
    }
    // An error that is not a trap of the code occurred while a value was passed to the host.
    CallErrorKind::Trap(trap.map_or(TrapKind::InvalidValue, trap_kind))
}

/// The type of this error is private to wasmtime, so it can only be recognised by its text.
fn is_out_of_hostcall_fuel(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| cause.to_string().contains("fuel allocated for hostcalls"))
}

fn trap_kind(trap: &Trap) -> TrapKind {
    match trap {
        Trap::UnreachableCodeReached => TrapKind::Unreachable,
        Trap::StackOverflow => TrapKind::StackOverflow,
        Trap::MemoryOutOfBounds | Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => {
            TrapKind::OutOfBounds
        }
        Trap::IntegerOverflow | Trap::IntegerDivisionByZero | Trap::BadConversionToInteger => {
            TrapKind::Arithmetic
        }
        Trap::InvalidChar
        | Trap::StringOutOfBounds
        | Trap::ListOutOfBounds
        | Trap::InvalidDiscriminant
        | Trap::UnalignedPointer => TrapKind::InvalidValue,
        _ => TrapKind::Other,
    }
}
