//! One instance of a guest, and the calls into it. Every call gets new budgets and owns the
//! instance while it runs. A call that fails or is dropped drops the instance, so a broken guest is
//! never called again. After a successful call the instance may wait for the next call of the same
//! owner, see [`crate::warm`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wasmtime::component::{self, ResourceTable};
use wasmtime::{Store, Trap};
use wasmtime_wasi::{
    HostMonotonicClock, HostWallClock, I32Exit, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView,
};

use crate::account::{CallBudget, CallCut, CpuAccount};
use crate::bindings::cofferdam::plugin::log::Level;
use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::calls::Exports;
use crate::context::{Alias, CallContext, Owner};
use crate::error::{CallError, CallErrorKind, TrapKind};
use crate::fairness::InLine;
use crate::host::{Claim, InstanceSlot};
use crate::limits::Limiter;
use crate::logs::{GuestLog, GuestOutput};
use crate::manifest::Import;
use crate::plugin::{Compiled, Plugin, Profile};
use crate::room::{Room, room_for};
use crate::services::Services;

/// Host calls within one call of a guest, without those of WASI.
const HOST_CALLS_MAX: u32 = 10_000;
/// Number of handles that a guest may hold.
const HANDLES_MAX: usize = 1_024;
/// Length limit of one read of random bytes through WASI.
const WASI_RANDOM_BYTES_MAX: u64 = 64 * 1024;
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
/// Clocks are rounded down to this many milliseconds: a precise clock would help timing attacks.
pub(crate) const CLOCK_GRAIN_MS: u64 = 10;

/// Number of uses after which an instance is replaced, so that small leaks of a guest do not
/// accumulate.
const USES_MAX: u32 = 1_000;
/// Largest size of an instance that is kept. An instance that grew for an unusual request would
/// hold that memory while idle.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The host's state for one instance.
pub(crate) struct GuestState {
    pub(crate) plugin: Arc<Profile>,
    pub(crate) services: Services,
    pub(crate) log: GuestLog,
    pub(crate) clock: GuestClock,
    pub(crate) asks: u32,
    pub(crate) requests: u32,
    pub(crate) account: Arc<CpuAccount>,
    limiter: Limiter,
    host_calls_left: u32,
    wasi: WasiCtx,
    table: ResourceTable,
}

impl GuestState {
    /// Counts one host call. An exceeded budget becomes a trap.
    pub(crate) fn enter_host(&mut self) -> wasmtime::Result<()> {
        match self.host_calls_left.checked_sub(1) {
            Some(left) => {
                self.host_calls_left = left;
                Ok(())
            }
            None => {
                self.account.deny_host_call();
                Err(wasmtime::Error::msg("the budget of host calls is spent"))
            }
        }
    }
}

impl GuestState {
    /// The resources that the guest holds handles to.
    pub(crate) fn table(&mut self) -> &mut ResourceTable {
        &mut self.table
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// The clock of a guest: the request's time plus the time since then. Clones show the same time.
#[derive(Clone)]
pub(crate) struct GuestClock {
    set: Arc<Mutex<Set>>,
    /// Start of the monotonic clock. It continues when the instance serves another request, because
    /// a monotonic clock must never go back.
    made: Instant,
}

/// The time that a clock was set to, and when it was set.
#[derive(Clone, Copy)]
struct Set {
    now_ms: u64,
    at: Instant,
}

impl GuestClock {
    fn new(now_ms: u64) -> Self {
        let at = Instant::now();
        Self { set: Arc::new(Mutex::new(Set { now_ms, at })), made: at }
    }

    /// Sets the clock to another request's time.
    fn set(&self, now_ms: u64) {
        *self.lock() = Set { now_ms, at: Instant::now() };
    }

    /// Unix time in milliseconds, rounded down to [`CLOCK_GRAIN_MS`].
    pub(crate) fn now_ms(&self) -> u64 {
        let set = *self.lock();
        coarse(set.now_ms.saturating_add(milliseconds(set.at.elapsed())))
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostWallClock for GuestClock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(CLOCK_GRAIN_MS)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms())
    }
}

impl HostMonotonicClock for GuestClock {
    fn resolution(&self) -> u64 {
        CLOCK_GRAIN_MS * 1_000_000
    }

    fn now(&self) -> u64 {
        coarse(milliseconds(self.made.elapsed())) * 1_000_000
    }
}

fn coarse(ms: u64) -> u64 {
    ms - ms % CLOCK_GRAIN_MS
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A live guest, in use or idle. Fields are dropped in order: the store must be dropped before the
/// slot is free.
pub(crate) struct LiveInstance {
    pub(crate) store: Store<GuestState>,
    pub(crate) handle: component::Instance,
    /// The exports that were looked up so far.
    pub(crate) exports: Exports,
    account: Arc<CpuAccount>,
    alias: Alias,
    uses: u32,
    /// Additional memory for a long request.
    room: Option<Room>,
    _slot: InstanceSlot,
}

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
        let line = owner.map(|owner| Arc::new(plugin.host.line_up(owner)));
        if let Some(line) = &line {
            line.enter().await;
        }
        let claim = plugin.host.take_fair_claim(owner).ok_or_else(|| saturated(plugin))?;
        Self::fresh(claim, plugin, context, services, line).await
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
        let left = context.owner.as_ref().and_then(|owner| plugin.host.warm.take(plugin.number(), owner));
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
        line: Option<Arc<InLine>>,
    ) -> Result<Self, CallError> {
        loop {
            match Self::make(plugin, context, services.clone(), line.clone()).await {
                Ok(live) => return Ok(Self::of(plugin, context, live, claim)),
                // A slot was free, but the pool had no memories left. Ending an idle instance frees
                // some.
                Err(error) if error.is_saturated() && plugin.host.warm.evict() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn make(
        plugin: &Arc<Plugin>,
        context: &CallContext,
        services: Services,
        line: Option<Arc<InLine>>,
    ) -> Result<Box<LiveInstance>, CallError> {
        let compiled = plugin.compiled().await?;
        let slot = plugin.host.take_slot().ok_or_else(|| saturated(plugin))?;
        let budget = budget_of(plugin);
        let total = budget.cpu.saturating_mul(TOTAL_BUDGETS);
        let account = Arc::new(CpuAccount::new(Arc::clone(&plugin.host.turns), total, line));
        let mut store = store(plugin, context, services, &account);
        store.set_hostcall_fuel(START_OUTPUT_BYTES_MAX);
        store.set_epoch_deadline(1);
        let started = account.drive(budget, compiled.pre.instantiate_async(&mut store)).await;
        let handle = settle(plugin, &account, "its start", &store.data().log, started)?;
        let (exports, alias) = (Exports::default(), Alias::default());
        Ok(Box::new(LiveInstance {
            store,
            handle,
            exports,
            account,
            alias,
            uses: 0,
            room: None,
            _slot: slot,
        }))
    }

    fn of(plugin: &Arc<Plugin>, context: &CallContext, mut live: Box<LiveInstance>, claim: Claim) -> Self {
        let told = context.for_guest(plugin.name(), &mut live.alias);
        Self {
            live,
            plugin: Arc::clone(plugin),
            context: told,
            owner: context.owner.clone(),
            budget: budget_of(plugin),
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
        let (account, budget) = (Arc::clone(&self.live.account), self.budget);
        let outcome = account.drive(budget, call(&mut self)).await;
        self.live.store.data().log.end();
        let answer = settle(&self.plugin, &account, function, &self.live.store.data().log, outcome)?;
        Ok((self, answer))
    }

    /// Raises the memory limit for a request of `request_bytes` bytes, if it is a long one.
    ///
    /// # Errors
    ///
    /// [`CallErrorKind::Saturated`] if other long requests hold all memory for this purpose.
    pub(crate) fn make_room(&mut self, request_bytes: usize) -> Result<(), CallError> {
        let grant = self.plugin.grant();
        let room = room_for(request_bytes, grant).map_err(|_| saturated(&self.plugin))?;
        if let Some(room) = room {
            self.live.store.data_mut().limiter.bound(room.bytes_max);
            self.live.room = Some(room);
        }
        Ok(())
    }

    /// Whether its memory limit was raised for a long request.
    pub(crate) fn has_room(&self) -> bool {
        self.live.room.is_some()
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

impl LiveInstance {
    /// Whether this use leaves nothing behind except in the guest's own memory: no open handle,
    /// nothing that was refused, and a memory of ordinary size.
    fn is_clean(&self) -> bool {
        let state = self.store.data();
        state.table.is_empty()
            && self.account.cut().is_none()
            && state.limiter.bytes() <= KEPT_BYTES_MAX
            && self.uses < USES_MAX
            && self.room.is_none()
    }

    /// Resets the host's state for another call.
    fn renew(&mut self, context: &CallContext) {
        self.account.renew();
        let state = self.store.data_mut();
        state.services = Services::default();
        state.log.turn_to(Arc::clone(&context.request_id));
        state.clock.set(context.now_ms);
        (state.asks, state.requests) = (0, 0);
    }
}

/// Counts and returns the error that no instance is free.
fn saturated(plugin: &Plugin) -> CallError {
    plugin.host.count_saturated();
    plugin.failed(CallErrorKind::Saturated)
}

fn budget_of(plugin: &Plugin) -> CallBudget {
    let cpu = plugin.grant().deadline;
    let waits = [Import::Http, Import::Model, Import::ToolCall];
    let wall = if waits.iter().any(|import| plugin.grant().imports.contains(import)) {
        WALL_WAITING
    } else {
        cpu.saturating_mul(WALL_BUDGETS).saturating_add(WALL_GRACE)
    };
    CallBudget { cpu, wall }
}

fn store(
    plugin: &Arc<Plugin>,
    context: &CallContext,
    services: Services,
    account: &Arc<CpuAccount>,
) -> Store<GuestState> {
    let log = GuestLog::new(Arc::clone(plugin.profile()), Arc::clone(&context.request_id));
    let clock = GuestClock::new(context.now_ms);
    let mut table = ResourceTable::new();
    table.set_max_capacity(HANDLES_MAX);
    let state = GuestState {
        wasi: wasi(&log, &clock),
        plugin: Arc::clone(plugin.profile()),
        services: services.within(plugin.grant()),
        log,
        clock,
        asks: 0,
        requests: 0,
        account: Arc::clone(account),
        limiter: Limiter::new(Arc::clone(account), plugin.grant().memory_bytes),
        host_calls_left: HOST_CALLS_MAX,
        table,
    };
    let mut store = Store::new(&plugin.host.engine, state);
    store.limiter(|state| &mut state.limiter);
    store.set_max_component_handles(HANDLES_MAX);
    let account = Arc::clone(account);
    store.epoch_deadline_callback(move |_| Ok(account.tick()));
    store
}

/// WASI without any access: no files, environment, arguments or network.
fn wasi(log: &GuestLog, clock: &GuestClock) -> WasiCtx {
    let output = |level| GuestOutput { log: log.clone(), level };
    WasiCtxBuilder::new()
        .stdout(output(Level::Info))
        .stderr(output(Level::Warn))
        .wall_clock(clock.clone())
        .monotonic_clock(clock.clone())
        .max_random_size(WASI_RANDOM_BYTES_MAX)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .build()
}

/// Counts a finished call and classifies its failure. The failed function and the guest's last
/// warnings are logged.
fn settle<T>(
    plugin: &Plugin,
    account: &CpuAccount,
    function: &'static str,
    log: &GuestLog,
    outcome: Option<wasmtime::Result<T>>,
) -> Result<T, CallError> {
    plugin.counters().called(account.spent_ns());
    let error = match outcome {
        Some(Ok(answer)) => return Ok(answer),
        Some(Err(error)) => error,
        None => return Err(plugin.failed(CallErrorKind::OutOfTime)),
    };
    let kind = classify(account, &error);
    if kind == CallErrorKind::Saturated {
        plugin.host.count_saturated();
    } else {
        // The error's text is from wasmtime. It names functions of the guest and has no content.
        let (plugin, last_words) = (plugin.name(), log.last_words());
        tracing::warn!(plugin, kind = kind.as_str(), function, last_words, "guest call failed: {kind}");
        tracing::debug!(plugin, error = format!("{error:#}"), "guest call failed");
    }
    Err(plugin.failed(kind))
}

fn classify(account: &CpuAccount, error: &wasmtime::Error) -> CallErrorKind {
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        return CallErrorKind::Saturated;
    }
    if is_out_of_hostcall_fuel(error) {
        return CallErrorKind::OutputTooLarge;
    }
    let trap = error.downcast_ref::<Trap>();
    match account.cut() {
        Some(CallCut::Time) if trap == Some(&Trap::Interrupt) => return CallErrorKind::OutOfTime,
        Some(CallCut::HostCalls) => return CallErrorKind::TooManyHostCalls,
        // After refused memory the guest aborts itself, or cannot start.
        Some(CallCut::Memory) if trap.is_none_or(|trap| *trap == Trap::UnreachableCodeReached) => {
            return CallErrorKind::OutOfMemory;
        }
        _ => {}
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
