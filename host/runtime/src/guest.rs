//! A live guest on the host's side: the state that its imports use, and the store that holds it.

pub(crate) mod exports;
pub(crate) mod live;

use std::sync::Arc;

use serde::Serialize;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::account::InstanceAccount;
use crate::bindings::cofferdam::plugin::log::Level;
use crate::clock::GuestClock;
use crate::context::CallContext;
use crate::inputs::{GuestInputs, WasiRandom};
use crate::limits::Limiter;
use crate::logs::{GuestLog, GuestOutput};
use crate::profile::Profile;
use crate::services::Services;
use crate::tape::{self, Asked, Tape, TapedInputs};

/// Host calls within one call of a guest, without those of WASI.
pub(crate) const HOST_CALLS_MAX: u32 = 10_000;
/// Number of handles that a guest may hold.
const HANDLES_MAX: usize = 1_024;
/// Length limit of one read of random bytes through WASI.
const WASI_RANDOM_BYTES_MAX: u64 = 64 * 1024;

/// The host's state for one instance.
pub(crate) struct GuestState {
    pub(crate) plugin: Arc<Profile>,
    pub(crate) services: Services,
    pub(crate) log: GuestLog,
    pub(crate) clock: GuestClock,
    /// Where clock readings and random bytes come from, if not from the machine.
    pub(crate) inputs: Option<Arc<dyn GuestInputs>>,
    /// The tape of a call that is recorded or replayed.
    pub(crate) tape: Option<Arc<Tape>>,
    pub(crate) asks: u32,
    pub(crate) requests: u32,
    /// Whether the log names a limit of `http` that was exceeded.
    pub(crate) is_http_limit_logged: bool,
    pub(crate) tool_calls: u32,
    pub(crate) account: Arc<InstanceAccount>,
    pub(crate) limiter: Limiter,
    pub(crate) host_calls_left: u32,
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

    /// Counts one host call, and asks the tape of a call that is recorded or replayed.
    ///
    /// # Errors
    ///
    /// The budget of host calls is spent, or a replay has come to a difference.
    pub(crate) fn enter_taped(
        &mut self,
        name: &'static str,
        sent: &impl Serialize,
    ) -> wasmtime::Result<Asked> {
        self.enter_host()?;
        tape::ask(self.tape.as_ref(), name, sent)
    }

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

/// The store of a new instance, with the limits of its plugin.
pub(crate) fn store(
    engine: &Engine,
    plugin: &Arc<Profile>,
    context: &CallContext,
    services: Services,
    account: &Arc<InstanceAccount>,
    tape: Option<Arc<Tape>>,
) -> Store<GuestState> {
    let services = services.within(&plugin.grant, &plugin.manifest);
    let (request_id, http) = (Arc::clone(&context.request_id), services.http.clone());
    let log = GuestLog::new(Arc::clone(plugin), request_id, http, tape.clone());
    let taped = tape.clone().map(|tape| Arc::new(TapedInputs(tape)) as Arc<dyn GuestInputs>);
    let inputs = taped.or_else(|| context.inputs.clone());
    let clock = GuestClock::new(context.now_ms, inputs.clone());
    let mut table = ResourceTable::new();
    table.set_max_capacity(HANDLES_MAX);
    let state = GuestState {
        wasi: wasi(&log, &clock, inputs.as_ref()),
        plugin: Arc::clone(plugin),
        services,
        log,
        clock,
        inputs,
        tape,
        asks: 0,
        requests: 0,
        is_http_limit_logged: false,
        tool_calls: 0,
        account: Arc::clone(account),
        limiter: Limiter::new(Arc::clone(account), plugin.grant.memory_bytes),
        host_calls_left: HOST_CALLS_MAX,
        table,
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.limiter);
    store.set_max_component_handles(HANDLES_MAX);
    let account = Arc::clone(account);
    store.epoch_deadline_callback(move |_| Ok(account.tick()));
    store
}

/// WASI without any access: no files, environment, arguments or network. Components with the allocator of `guests/kit`
/// rely on empty lists of folders, variables and arguments.
fn wasi(log: &GuestLog, clock: &GuestClock, inputs: Option<&Arc<dyn GuestInputs>>) -> WasiCtx {
    let output = |level| GuestOutput { log: log.clone(), level };
    let mut wasi = WasiCtxBuilder::new();
    if let Some(inputs) = inputs {
        let mut seed = [0; 16];
        inputs.random(&mut seed);
        wasi.secure_random(WasiRandom(Arc::clone(inputs)))
            .insecure_random(WasiRandom(Arc::clone(inputs)))
            .insecure_random_seed(u128::from_le_bytes(seed));
    }
    wasi.stdout(output(Level::Info))
        .stderr(output(Level::Warn))
        .wall_clock(clock.clone())
        .monotonic_clock(clock.clone())
        .max_random_size(WASI_RANDOM_BYTES_MAX)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .build()
}
