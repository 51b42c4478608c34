//! One instance of a guest and the calls into it. Every call gets its budgets
//! anew and owns the instance while it runs: a call that fails or is dropped
//! takes the instance with it, so a broken guest is never entered again. One that
//! did well may wait for the next call of the same owner, see [`crate::warm`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wasmtime::component::{self, ResourceTable};
use wasmtime::{Store, Trap};
use wasmtime_wasi::{
    HostMonotonicClock, HostWallClock, I32Exit, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView,
};

use crate::account::{Account, Budget, Cut};
use crate::bindings::cofferdam::plugin::log::Level;
use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::calls::Exports;
use crate::context::{Alias, CallContext, Owner};
use crate::error::{CallError, CallErrorKind, TrapKind};
use crate::fairness::InLine;
use crate::host::{Claim, Slot};
use crate::limits::Limiter;
use crate::logs::{GuestLog, GuestOutput};
use crate::manifest::Import;
use crate::plugin::{Compiled, Plugin, Profile};
use crate::room::{Room, room_for};
use crate::services::Services;

/// Calls of the host within one call of a guest, WASI not counted.
const HOST_CALLS_MAX: u32 = 10_000;
/// Handles a guest may hold.
const HANDLES_MAX: usize = 1_024;
/// Random bytes at once through WASI.
const WASI_RANDOM_BYTES_MAX: u64 = 64 * 1024;
/// What a guest may hand over while it is being instantiated.
const START_OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// All calls of one attempt together may use this many times the budget of one.
const TOTAL_BUDGETS: u32 = 100;
/// Wall time of a call that waits for nothing but the processor.
const WALL_BUDGETS: u32 = 10;
const WALL_GRACE: Duration = Duration::from_secs(2);
/// Wall time of a call that may wait for hosts and models; the request's own
/// deadline is shorter.
const WALL_WAITING: Duration = Duration::from_secs(600);
/// What clocks are rounded down to: a fine clock is half of a timing attack.
pub(crate) const CLOCK_GRAIN_MS: u64 = 10;

/// How often an instance is used before a fresh one takes its place: what a guest
/// loses little by little does not add up for ever.
const USES_MAX: u32 = 1_000;
/// Memory and tables of an instance that is kept. One that grew for an unusual
/// request does not hold on to what it needed.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What belongs to one instance on the host's side.
pub(crate) struct GuestState {
    pub(crate) plugin: Arc<Profile>,
    pub(crate) services: Services,
    pub(crate) log: GuestLog,
    pub(crate) clock: Clock,
    pub(crate) asks: u32,
    pub(crate) requests: u32,
    pub(crate) account: Arc<Account>,
    limiter: Limiter,
    host_calls_left: u32,
    wasi: WasiCtx,
    table: ResourceTable,
}

impl GuestState {
    /// Counts one call of the host; the call's budget spent is a trap.
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
    /// What the guest holds handles to.
    pub(crate) fn table(&mut self) -> &mut ResourceTable {
        &mut self.table
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// Time as a guest sees it: the request's, moved on by what has passed since.
/// Clones show the same time.
#[derive(Clone)]
pub(crate) struct Clock {
    set: Arc<Mutex<Set>>,
    /// Where the monotonic clock starts. It goes on when the instance serves
    /// another request: a monotonic clock never goes back.
    made: Instant,
}

/// What a clock was set to, and when.
#[derive(Clone, Copy)]
struct Set {
    now_ms: u64,
    at: Instant,
}

impl Clock {
    fn new(now_ms: u64) -> Self {
        let at = Instant::now();
        Self { set: Arc::new(Mutex::new(Set { now_ms, at })), made: at }
    }

    /// Starts again at another request's time.
    fn set(&self, now_ms: u64) {
        *self.lock() = Set { now_ms, at: Instant::now() };
    }

    /// Unix time in milliseconds, coarse.
    pub(crate) fn now_ms(&self) -> u64 {
        let set = *self.lock();
        coarse(set.now_ms.saturating_add(milliseconds(set.at.elapsed())))
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(CLOCK_GRAIN_MS)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms())
    }
}

impl HostMonotonicClock for Clock {
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

/// A guest that lives, whoever it serves. Field order is drop order: the store
/// goes before the slot.
pub(crate) struct Live {
    pub(crate) store: Store<GuestState>,
    pub(crate) handle: component::Instance,
    /// What was looked up of the instance so far.
    pub(crate) exports: Exports,
    account: Arc<Account>,
    alias: Alias,
    uses: u32,
    /// Memory beyond that of the grant.
    room: Option<Room>,
    _slot: Slot,
}

/// An instance in use: for one call, or for one attempt at a provider.
pub(crate) struct Instance {
    pub(crate) live: Box<Live>,
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) context: GuestContext,
    owner: Option<Owner>,
    budget: Budget,
    claim: Claim,
}

impl Instance {
    /// Makes a fresh instance; running its start code counts as a call.
    pub(crate) async fn open(
        plugin: &Arc<Plugin>,
        context: &CallContext,
        services: Services,
    ) -> Result<Self, CallError> {
        let claim = plugin.host.take_claim(context.owner.as_ref()).ok_or_else(|| saturated(plugin))?;
        Self::fresh(claim, plugin, context, services, None).await
    }

    /// Makes a fresh instance for a tool call, once the calls of the same owner that came before leave it a
    /// turn. A call that waits for its first turn takes no place.
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

    /// Takes the instance that an earlier call of the same owner left, or makes one.
    pub(crate) async fn warm(plugin: &Arc<Plugin>, context: &CallContext) -> Result<Self, CallError> {
        let claim = plugin.host.take_claim(context.owner.as_ref()).ok_or_else(|| saturated(plugin))?;
        Self::resume(claim, plugin, context).await
    }

    /// As [`Self::warm`], for whoever has the right to an instance already.
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
            // Rare, and large: what it takes is not part of every call.
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
                // A slot was free, but not the memories: idle instances have some.
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
    ) -> Result<Box<Live>, CallError> {
        let compiled = plugin.compiled().await?;
        let slot = plugin.host.take_slot().ok_or_else(|| saturated(plugin))?;
        let budget = budget_of(plugin);
        let total = budget.cpu.saturating_mul(TOTAL_BUDGETS);
        let account = Arc::new(Account::new(Arc::clone(&plugin.host.turns), total, line));
        let mut store = store(plugin, context, services, &account);
        store.set_hostcall_fuel(START_OUTPUT_BYTES_MAX);
        store.set_epoch_deadline(1);
        let started = account.drive(budget, compiled.pre.instantiate_async(&mut store)).await;
        let handle = settle(plugin, &account, "its start", &store.data().log, started)?;
        let (exports, alias) = (Exports::default(), Alias::default());
        Ok(Box::new(Live { store, handle, exports, account, alias, uses: 0, room: None, _slot: slot }))
    }

    fn of(plugin: &Arc<Plugin>, context: &CallContext, mut live: Box<Live>, claim: Claim) -> Self {
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

    /// Runs one call, of the exported `function`. The instance comes back only from a call that went well.
    /// `output_bytes_max` bounds what the guest hands over, in its answer or to
    /// any one import.
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

    /// Makes room for a request of so many bytes.
    ///
    /// # Errors
    ///
    /// Other long requests have all the memory there is.
    pub(crate) fn make_room(&mut self, request_bytes: usize) -> Result<(), CallError> {
        let grant = self.plugin.grant();
        let room = room_for(request_bytes, grant).map_err(|_| saturated(&self.plugin))?;
        if let Some(room) = room {
            self.live.store.data_mut().limiter.bound(room.bytes_max);
            self.live.room = Some(room);
        }
        Ok(())
    }

    /// Whether it has more memory than its plugin usually has.
    pub(crate) fn has_room(&self) -> bool {
        self.live.room.is_some()
    }

    /// Whether it may serve the next call of its owner.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.owner.is_some() && self.plugin.is_pure() && self.live.is_clean()
    }

    /// Leaves the instance to the next call of its owner, if it may be kept. Only
    /// for one that did well in all it was asked.
    pub(crate) fn keep(self) {
        drop(self.pause());
    }

    /// As [`Self::keep`], and what is left is the right to go on with an instance.
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

impl Live {
    /// Whether nothing of this use would be met again, or hurt, except in the
    /// guest's own memory: no handle of a stream or a clock is left, nothing was
    /// refused, and the memory has its ordinary size.
    fn is_clean(&self) -> bool {
        let state = self.store.data();
        state.table.is_empty()
            && self.account.cut().is_none()
            && state.limiter.bytes() <= KEPT_BYTES_MAX
            && self.uses < USES_MAX
            && self.room.is_none()
    }

    /// Makes everything on the host's side that of another call.
    fn renew(&mut self, context: &CallContext) {
        self.account.renew();
        let state = self.store.data_mut();
        state.services = Services::default();
        state.log.turn_to(Arc::clone(&context.request_id));
        state.clock.set(context.now_ms);
        (state.asks, state.requests) = (0, 0);
    }
}

/// No instance is free.
fn saturated(plugin: &Plugin) -> CallError {
    plugin.host.count_saturated();
    plugin.failed(CallErrorKind::Saturated)
}

fn budget_of(plugin: &Plugin) -> Budget {
    let cpu = plugin.grant().deadline;
    let waits = [Import::Http, Import::Model, Import::ToolCall];
    let wall = if waits.iter().any(|import| plugin.grant().imports.contains(import)) {
        WALL_WAITING
    } else {
        cpu.saturating_mul(WALL_BUDGETS).saturating_add(WALL_GRACE)
    };
    Budget { cpu, wall }
}

fn store(
    plugin: &Arc<Plugin>,
    context: &CallContext,
    services: Services,
    account: &Arc<Account>,
) -> Store<GuestState> {
    let log = GuestLog::new(Arc::clone(plugin.profile()), Arc::clone(&context.request_id));
    let clock = Clock::new(context.now_ms);
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

/// WASI with nothing in it: no files, environment, arguments or network.
fn wasi(log: &GuestLog, clock: &Clock) -> WasiCtx {
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

/// Counts a finished call and gives a failure its name. The log is told the function that failed and what the guest
/// said last.
fn settle<T>(
    plugin: &Plugin,
    account: &Account,
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
        // The text is wasmtime's and names functions of the guest, no content.
        let (plugin, last_words) = (plugin.name(), log.last_words());
        tracing::warn!(plugin, kind = kind.as_str(), function, last_words, "guest call failed: {kind}");
        tracing::debug!(plugin, error = format!("{error:#}"), "guest call failed");
    }
    Err(plugin.failed(kind))
}

fn classify(account: &Account, error: &wasmtime::Error) -> CallErrorKind {
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        return CallErrorKind::Saturated;
    }
    if is_out_of_hostcall_fuel(error) {
        return CallErrorKind::OutputTooLarge;
    }
    let trap = error.downcast_ref::<Trap>();
    match account.cut() {
        Some(Cut::Time) if trap == Some(&Trap::Interrupt) => return CallErrorKind::OutOfTime,
        Some(Cut::HostCalls) => return CallErrorKind::TooManyHostCalls,
        // Refused memory ends in an abort of the guest, or stops it from starting.
        Some(Cut::Memory) if trap.is_none_or(|trap| *trap == Trap::UnreachableCodeReached) => {
            return CallErrorKind::OutOfMemory;
        }
        _ => {}
    }
    if error.is::<I32Exit>() {
        return CallErrorKind::Trap(TrapKind::Unreachable);
    }
    // What is no trap of the code was noticed while a value was handed over.
    CallErrorKind::Trap(trap.map_or(TrapKind::InvalidValue, trap_kind))
}

/// The type of this error is private to wasmtime; its text is what there is.
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
