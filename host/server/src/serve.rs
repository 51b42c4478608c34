//! `serve`: starts the host, serves until a signal, and shuts down. The order matters: the host
//! listens only after the store is open, it is ready only after the plugins that it requires are
//! compiled, and the admin listener stays open until the last request has ended, so that health
//! checks and metrics work during the drain.

mod check;
mod compile;
mod greeting;
mod memory;
mod notify;
mod reload;
mod renewal;
mod upkeep;
mod watchdog;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_engine::{Memory, ShutdownSender};
use cofferdam_runtime::processors;
use cofferdam_store::{Clock, DirectoryLock, Store};
use futures_util::future;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin;
use crate::admin::listener::{Admin, RunningCommands};
use crate::app::{Addresses, App};
use crate::config::{Config, Environment};
use crate::connection::{CLIENT_STREAMS_MAX, Connections, LAST_WORD};
use crate::failure::Failure;
use crate::forwarded;
use crate::grants::GrantEditor;
use crate::handle::handle;
use crate::hygiene;
use crate::installed::PluginPlaces;
use crate::metrics::Metrics;
use crate::operators::Operators;
use crate::options::{Options, Serve};
use crate::start::{StoreUse, acquire, connect, open, runtime, tell_configuration};
use crate::telemetry::PluginLines;
use crate::tls::Tls;
use crate::wiring::{self, SharedServices};
use crate::workers::Workers;

use check::check;
pub(crate) use greeting::first_key;

use greeting::Greeting;
use notify::Notifier;
use reload::{FixedSettings, Reload, Signals};

const ADMIN_CONNECTIONS: usize = 64;
/// Connections of one address to the admin listener, unless `limits.connections_per_address` is less.
const ADMIN_CONNECTIONS_OF_ADDRESS: usize = 16;
/// Concurrent requests on one HTTP/2 connection of the admin listener. A browser with some pages of
/// the console needs fewer.
const ADMIN_STREAMS_MAX: u32 = 32;
/// For how long running requests may go on after the store has stopped writing.
const LOST_PATIENCE: Duration = Duration::from_secs(5);

/// For how long the export of the last finished requests may take.
const FLUSH_PATIENCE: Duration = Duration::from_secs(3);

/// For how long operators' requests may go on after the last client has left.
const OPERATORS_PATIENCE: Duration = Duration::from_secs(1);

/// For how long the host waits for its own tasks, for operators' commands and for last calls of tools,
/// when it ends.
const WORK_PATIENCE: Duration = Duration::from_secs(3);

// The units and manifests of `deploy/` kill the host 10 seconds after the drain time. One second is left for
// closing the store.
const _: () = {
    let waits = LAST_WORD.as_secs() + FLUSH_PATIENCE.as_secs() + OPERATORS_PATIENCE.as_secs();
    assert!(waits + WORK_PATIENCE.as_secs() < 10);
};

/// Serves until a signal to stop, or with `--check` only checks the configuration.
///
/// # Errors
///
/// The host cannot start, or its store failed while it served.
pub(crate) fn run(options: &Options, arguments: &Serve, lines: PluginLines) -> Result<(), Failure> {
    let environment = Arc::new(Environment::default());
    let mut config = Config::load(options.config.as_deref(), &options.data)?;
    environment.take(&config);
    config.vault.take_variables();
    config.store.take_variables();
    arguments.apply(&mut config);
    if arguments.check {
        return check(options, arguments, &config, &environment);
    }
    make_room(&config);
    let mut control = tokio::runtime::Builder::new_current_thread();
    let control = control.enable_all().build().map_err(Failure::system("worker threads"))?;
    let mut signals = control.block_on(async { Signals::listen() })?;
    let (data, accepted) = (options.data.clone(), arguments.accept_rollback);
    let open = move || open_store(&config, &data, accepted).map(|opened| (config, opened));
    // Waiting for the lock or a database, and opening a store, takes seconds. A signal to stop ends the process
    // meanwhile. After a signal to reload, the configuration is read again once the host serves.
    let opened = control.block_on(async {
        tokio::select! {
            opened = blocking("opening the store", open) => Some(opened),
            () = signals.stop() => None,
        }
    });
    let Some(opened) = opened else {
        tracing::info!("stopped before the host served");
        control.shutdown_background();
        return Ok(());
    };
    let (config, (store, _lock)) = opened?;
    store.note_backups_in(&options.data);
    tell_configuration(&config, &options.data, &store);
    let runtime = runtime(&config, &options.data)?;
    let (workers, threads) = Workers::start(processors()).map_err(Failure::system("worker threads"))?;
    let clock = Clock::system();
    let memory = Arc::new(Memory::new(&clock));
    let (end, ending) = ShutdownSender::new();
    let services =
        SharedServices { runtime, store: store.clone(), clock, environment, memory, ending, lines };
    let end = Stop { drain: config.timeouts.drain, unready: config.timeouts.unready, end };
    let ended =
        control.block_on(Box::pin(serve(options, arguments, config, services, workers, signals, end)));
    drop(threads);
    // Does not wait for blocking threads, which may hang with the disk.
    control.shutdown_background();
    if matches!(ended, Err(Failure::StoreHangs)) {
        // Closing would wait for the writer, which waits for the disk.
        std::mem::forget(store);
        return ended;
    }
    let closed = close(store);
    ended.and(closed)
}

/// Locks the data directory and opens the store. The lock is held beside a store in a database too: the
/// directory has the socket and the plugins of one host.
fn open_store(
    config: &Config,
    data: &Path,
    accepted: Option<u64>,
) -> Result<(Store, Option<DirectoryLock>), Failure> {
    let lock = acquire(data)?;
    match &config.store.database {
        Some(database) => Ok((connect(config, database, StoreUse::Serve { data, accepted })?, Some(lock))),
        None => Ok((open(config, lock, accepted)?, None)),
    }
}

/// Does work on a thread that may block. `what` names the work if it panics.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Failure::system(what)(std::io::Error::other("it panicked")))?
}

/// Closes the store, on a thread of its own: it is not waited for longer than for a commit, in case
/// the disk hangs.
///
/// # Errors
///
/// The store is not closed, and never will be.
fn close(store: Store) -> Result<(), Failure> {
    let (tell, closed) = std::sync::mpsc::sync_channel(1);
    let close = move || {
        store.close();
        tell.send(()).ok();
    };
    std::thread::Builder::new().name("close".to_owned()).spawn(close).map_err(Failure::system("a thread"))?;
    closed.recv_timeout(watchdog::COMMIT_MAX).map_err(|_| Failure::StoreHangs)
}

/// Raises the limit of open files: each connection is an open file, and its request to a provider
/// may be another.
fn make_room(config: &Config) {
    let wanted = (config.limits.connections + config.limits.streams) as u64;
    match hygiene::raise_open_files() {
        Ok(allowed) if allowed < wanted => {
            tracing::warn!(allowed, wanted, "fewer open files are allowed than the limits ask for");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
}

/// The time limits of a shutdown.
struct Stop {
    /// From the signal until running requests are ended.
    drain: Duration,
    /// From the signal until the listener closes. `/readyz` already fails then, so load balancers
    /// can react.
    unready: Duration,
    /// Makes running requests end at once.
    end: ShutdownSender,
}

/// All listeners. They are bound before the host prints its addresses.
struct Listeners {
    api: TcpListener,
    admin: TcpListener,
    socket: std::os::unix::net::UnixListener,
    at: Addresses,
}

impl Listeners {
    async fn bind(config: &Config, data: &Path) -> Result<Self, Failure> {
        let (api, listen) = bind("server.listen", config.server.listen).await?;
        let (admin, operators) = bind("server.admin", config.server.admin).await?;
        let socket = admin::socket::bind(data).map_err(Failure::system("admin.sock"))?;
        let at = Addresses { listen, admin: operators, is_tls: config.server.tls.is_some() };
        admin::admin_url::write(data, at).map_err(Failure::system("admin.url"))?;
        Ok(Self { api, admin, socket, at })
    }
}

async fn bind(key: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = || Failure::system(format!("cannot listen on {address} ({key})"));
    let listener = TcpListener::bind(address).await.map_err(failed())?;
    let bound = listener.local_addr().map_err(failed())?;
    Ok((listener, bound))
}

/// A host that is wired and has its addresses, and serves no requests yet.
struct Prepared {
    app: Arc<App>,
    listeners: Listeners,
    settled: FixedSettings,
}

/// Binds the listeners, then wires the host: only then are the real ports known, which guests must not reach.
async fn prepare(
    options: &Options,
    arguments: &Serve,
    mut config: Config,
    services: &SharedServices,
) -> Result<Prepared, Failure> {
    let tls = match &config.server.tls {
        Some(files) => Some(Arc::new(Tls::start(files, renewal::unix_s(&services.clock))?)),
        None => None,
    };
    let listeners = Listeners::bind(&config, &options.data).await?;
    let at = listeners.at;
    let settled = FixedSettings::new(&config, at);
    settled.close_own_ports(&mut config);
    let places = PluginPlaces::new(&options.data, arguments.plugins.as_deref());
    let live = wiring::live(config, places, services)?;
    wiring::take_over(&live, services);
    wiring::warn_of_absent(&live.config, &services.store).await;
    warn_if_open(at, &live.config);
    let (runtime, environment) = (services.runtime.clone(), Arc::clone(&services.environment));
    let operators = Operators::open(&options.data, &services.clock)?;
    let grants = GrantEditor::serving(options.clone(), arguments.clone(), runtime, environment);
    let app = App::new(services, live, Arc::default(), at, tls, grants, operators);
    Ok(Prepared { app: Arc::new(app), listeners, settled })
}

/// Serves until a signal to stop or the loss of the store, then shuts down.
async fn serve(
    options: &Options,
    arguments: &Serve,
    config: Config,
    services: SharedServices,
    workers: Workers,
    mut signals: Signals,
    end: Stop,
) -> Result<(), Failure> {
    let Prepared { app, listeners, settled } = prepare(options, arguments, config, &services).await?;
    let (store, memory) = (services.store.clone(), Arc::clone(&services.memory));
    Greeting::new(&app, &store).await?.show(options.json, &store)?;

    let Listeners { api, admin, socket, at } = listeners;
    let connections_max = app.live().config.limits.connections;
    let (counted, uncounted) = (Arc::clone(&app.metrics), Arc::new(Metrics::default()));
    let (tls, operators_tls) = (app.tls().cloned(), app.tls().cloned());
    let clients = Connections::new(connections_max, CLIENT_STREAMS_MAX, counted, workers.clone(), tls);
    let operators =
        Connections::new(ADMIN_CONNECTIONS, ADMIN_STREAMS_MAX, uncounted, Workers::current(), operators_tls);
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(accept_clients(clients.clone(), api, Arc::clone(&app)));
    let host = Admin::new(Arc::clone(&app), stop.clone());
    let commands = host.running_commands();
    tasks.spawn(accept_operators(operators.clone(), admin, Arc::clone(&app), host));
    tasks.spawn(accept_commands(socket, Arc::clone(&app), stop.clone()));
    tracing::info!(listen = %at.listen, admin = %at.admin, tls = at.is_tls, "listening");

    start_upkeep(&tasks, &app, &services.clock, &stop);
    let notifier = Arc::new(Notifier::from_environment());
    tasks.spawn(Arc::clone(&notifier).keep_alive(store.clone(), workers, stop.clone()));
    let reload = Reload::new(options.clone(), arguments.clone(), services, settled, Arc::clone(&notifier));
    // From here on there are two ways to end: a signal, or a store that stops writing.
    let ended = tokio::select! {
        ended = run_until_signal(&app, &reload, &mut signals) => ended,
        lost = watchdog::until_lost(&store) => Err(lost),
    };
    notifier.stopping();
    let mut ended = drain_clients(&app, &clients, &memory, &mut signals, ended, &end).await;
    // No client is left. The admin listener has reported the drain until now.
    stop.cancel();
    operators.drain(Instant::now() + OPERATORS_PATIENCE, std::future::pending(), None).await;
    tasks.close();
    unless_lost(&store, &mut ended, end_last_work(&tasks, &commands, &memory)).await;
    remove_addresses(&options.data);
    tracing::info!("stopped");
    ended
}

/// Starts what the host does beside requests, until `stop`.
fn start_upkeep(tasks: &TaskTracker, app: &Arc<App>, clock: &Clock, stop: &CancellationToken) {
    tasks.spawn(compile::background(Arc::clone(app), stop.clone()));
    app.memory_limit.bound_shared();
    tasks.spawn(memory::run(Arc::clone(app), stop.clone()));
    tasks.spawn(upkeep::run(Arc::clone(app), clock.clone(), stop.clone()));
    if let Some(tls) = app.tls() {
        tasks.spawn(renewal::run(Arc::clone(app), Arc::clone(tls), clock.clone(), stop.clone()));
    }
}

/// Removes the files that tell commands where the host listens.
fn remove_addresses(data: &Path) {
    if let Err(error) = admin::socket::remove(data) {
        tracing::debug!(%error, "admin.sock could not be removed");
    }
    if let Err(error) = admin::admin_url::remove(data) {
        tracing::debug!(%error, "admin.url could not be removed");
    }
}

/// Waits for tasks of the host, for operators' commands and for last calls of tools. Some of them may
/// wait for a file system that hangs.
async fn end_last_work(tasks: &TaskTracker, commands: &RunningCommands, memory: &Memory) {
    let all = future::join3(tasks.wait(), commands.ended(), memory.end_closing_calls());
    if timeout(WORK_PATIENCE, all).await.is_err() {
        tracing::warn!("the host ends although a task, a command or a last call of a tool still runs");
    }
}

/// Shuts clients down: from the signal to stop, or the loss of the store, until their last request
/// has ended.
async fn drain_clients(
    app: &App,
    clients: &Connections,
    memory: &Memory,
    signals: &mut Signals,
    ended: Result<(), Failure>,
    stop: &Stop,
) -> Result<(), Failure> {
    let begun = Instant::now();
    app.note_draining();
    tracing::info!("stopping");
    let Stop { drain, unready, end } = stop;
    let window = tokio::time::sleep((*unready).min(*drain));
    let (mut ended, hurried) = match ended {
        Err(lost) => (Err(lost), false),
        // Keep accepting for a while: a load balancer may not have polled `/readyz` yet.
        Ok(()) => tokio::select! {
            () = window => (Ok(()), false),
            () = signals.stop() => (Ok(()), true),
            lost = watchdog::until_lost(&app.store) => (Err(lost), false),
        },
    };
    let was_lost = is_lost(&ended);
    let last = if was_lost { (Instant::now() + LOST_PATIENCE).min(begun + *drain) } else { begun + *drain };
    // A second signal and the loss of the store end running requests before that.
    let hurry = async {
        if hurried {
            return;
        }
        tokio::select! {
            () = signals.stop() => {}
            lost = watchdog::until_lost(&app.store), if !was_lost => ended = Err(lost),
        }
    };
    let cut = clients.drain(last, hurry, Some(&|| end.begin())).await;
    if cut > 0 {
        tracing::warn!(connections = cut, "connections were cut with requests running on them");
    }
    // Responses that are read on after their client has left are settled here, so that their usage
    // rows are written.
    unless_lost(&app.store, &mut ended, memory.end_reading_on()).await;
    if !is_lost(&ended) {
        app.flush_broadcasts(FLUSH_PATIENCE).await;
    }
    ended
}

fn is_lost(ended: &Result<(), Failure>) -> bool {
    matches!(ended, Err(Failure::StoreFailed | Failure::StoreHangs))
}

/// Waits for the last work of a shutdown. Work that needs a store which is lost, or is lost
/// meanwhile, may never end.
async fn unless_lost(store: &Store, ended: &mut Result<(), Failure>, work: impl Future<Output = ()>) {
    if is_lost(ended) {
        drop(timeout(LOST_PATIENCE, work).await);
        return;
    }
    tokio::select! {
        () = work => {}
        lost = watchdog::until_lost(store) => *ended = Err(lost),
    }
}

async fn accept_clients(connections: Connections, listener: TcpListener, app: Arc<App>) {
    let host = Arc::clone(&app);
    let address_max = move |address| connections_max(&host.live().config, address);
    connections
        .accept(listener, address_max, move |request, peer| handle(Arc::clone(&app), peer, request))
        .await;
}

async fn accept_operators(connections: Connections, listener: TcpListener, app: Arc<App>, admin: Admin) {
    let admin = Arc::new(admin);
    let address_max = move |address| {
        let most = connections_max(&app.live().config, address)?;
        Some(most.min(ADMIN_CONNECTIONS_OF_ADDRESS))
    };
    let handler = move |request, peer| {
        let admin = Arc::clone(&admin);
        async move { admin.handle(peer, request).await }
    };
    connections.accept(listener, address_max, handler).await;
}

/// How many connections may be open from this address, if there is a limit. Loopback addresses and
/// trusted proxies have none, since a proxy carries the connections of all its clients.
fn connections_max(config: &Config, address: IpAddr) -> Option<usize> {
    let address = address.to_canonical();
    let is_exempt =
        || address.is_loopback() || forwarded::is_trusted(address, &config.server.trusted_proxies);
    let most = config.limits.connections_per_address;
    (most > 0 && !is_exempt()).then_some(most)
}

async fn accept_commands(listener: std::os::unix::net::UnixListener, app: Arc<App>, stop: CancellationToken) {
    if let Err(error) = admin::socket::serve(listener, app, stop).await {
        tracing::error!(%error, "commands cannot be taken from other processes");
    }
}

/// Compiles the required plugins, then serves until a signal to stop.
async fn run_until_signal(app: &App, reload: &Reload, signals: &mut Signals) -> Result<(), Failure> {
    let live = Arc::clone(&app.live());
    let compiled = tokio::select! {
        compiled = compile::required(&live) => compiled,
        () = signals.stop() => return Ok(()),
    };
    drop(live);
    compiled?;
    app.note_compiled();
    tracing::info!("ready");
    reload.notifier.ready();
    reload.until_stopped(app, signals).await;
    Ok(())
}

/// Warns of addresses that other machines can reach.
fn warn_if_open(at: Addresses, config: &Config) {
    let Addresses { listen, admin, is_tls } = at;
    if !admin.ip().is_loopback() {
        tracing::warn!(%admin, "health and metrics are open to anyone who can reach this address");
    }
    if !is_tls && !listen.ip().is_loopback() && config.server.trusted_proxies.is_empty() {
        tracing::warn!(
            %listen,
            "keys and content travel unencrypted to this address: set [server.tls], or let a proxy that ends TLS reach \
             it and name it in server.trusted_proxies, or listen on a loopback address"
        );
    }
}
