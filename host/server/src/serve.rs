//! `serve`: from a locked store to a listening host, and from a signal to its
//! end. The order matters: nothing listens before the store is open, nothing is
//! ready before plugins are compiled, and the admin listener stays until the
//! last request is done.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_engine::Memory;
use cofferdam_store::Clock;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin;
use crate::advice;
use crate::app::{Addresses, App};
use crate::cli::{Options, Serve};
use crate::compile;
use crate::config::{Config, Environment};
use crate::connection::Connections;
use crate::failure::Failure;
use crate::grants::Desk;
use crate::greeting::Greeting;
use crate::handle::handle;
use crate::hygiene;
use crate::metrics::Metrics;
use crate::reload::{Reload, Settled, Signals};
use crate::start::{acquire, open, runtime, write_out};
use crate::upkeep;
use crate::watchdog;
use crate::wiring::{self, Ground};

/// Connections of the admin listener.
const ADMIN_CONNECTIONS: usize = 64;
/// For running requests to end when the store does not write any more.
const LOST_PATIENCE: Duration = Duration::from_secs(5);

/// For the last records of finished requests to reach their destinations.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// Serves until told to stop, or checks and returns.
///
/// # Errors
///
/// The host cannot start.
pub(crate) fn run(options: &Options, arguments: &Serve) -> Result<(), Failure> {
    let environment = Arc::new(Environment::default());
    let mut config = Config::load(options.config.as_deref(), &options.data)?;
    environment.take(&config);
    config.vault.take_variables();
    arguments.apply(&mut config);
    if arguments.check {
        return check(options, arguments, &config, &environment);
    }
    make_room(&config);
    let lock = acquire(&options.data)?;
    let store = open(&config, lock, arguments.accept_rollback)?;
    let runtime = runtime(&config, &options.data)?;
    let mut workers = tokio::runtime::Builder::new_multi_thread();
    workers.enable_all().thread_name("cofferdam");
    let workers = cofferdam_runtime::tune(&mut workers).build().map_err(Failure::system("worker threads"))?;
    let clock = Clock::system();
    let memory = Arc::new(Memory::new(&clock));
    let ground = Ground { runtime, store: store.clone(), clock, environment, memory };
    let ended = workers.block_on(Box::pin(serve(options, arguments, config, ground)));
    workers.shutdown_background();
    if matches!(ended, Err(Failure::StoreHangs)) {
        // Closing would wait for the writer, which waits for the disk.
        std::mem::forget(store);
    } else {
        store.close();
    }
    ended
}

impl Serve {
    /// What the command line says wins over the file.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.server.listen = self.listen.unwrap_or(config.server.listen);
        config.server.admin = self.admin.unwrap_or(config.server.admin);
    }
}

/// Each connection is an open file, and a request upstream may be another.
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

fn check(
    options: &Options,
    arguments: &Serve,
    config: &Config,
    environment: &Environment,
) -> Result<(), Failure> {
    let runtime = runtime(config, &options.data)?;
    let folder = arguments.plugins.as_deref();
    let services = wiring::services(config, folder, &runtime, environment, &Memory::default(), 0)?;
    advice::warn_of_origins(config);
    let (models, plugins) = (services.catalog.models().len(), services.plugins.iter().count());
    if options.json {
        return write_out(&format!("{}\n", json!({"ok": true, "models": models, "plugins": plugins})));
    }
    write_out(&format!("The configuration is good: {models} models, {plugins} plugins.\n"))
}

/// The listeners, bound before anything is promised.
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
        Ok(Self { api, admin, socket, at: Addresses { listen, admin: operators } })
    }
}

async fn bind(key: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = || Failure::system(format!("cannot listen on {address} ({key})"));
    let listener = TcpListener::bind(address).await.map_err(failed())?;
    let bound = listener.local_addr().map_err(failed())?;
    Ok((listener, bound))
}

async fn serve(
    options: &Options,
    arguments: &Serve,
    mut config: Config,
    ground: Ground,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let listeners = Listeners::bind(&config, &options.data).await?;
    let settled = Settled::new(&config, listeners.at);
    settled.close_own_ports(&mut config);
    let folder = arguments.plugins.clone();
    let live = wiring::live(config, folder.as_deref(), &ground)?;
    let (limits, drain) = (live.config.limits, live.config.timeouts.drain);
    let metrics = Arc::new(Metrics::default());
    let Listeners { api, admin, socket, at } = listeners;
    let (runtime, environment) = (ground.runtime.clone(), Arc::clone(&ground.environment));
    let desk = Desk::serving(options.clone(), arguments.clone(), runtime, environment);
    let app = Arc::new(App::new(&ground, live, Arc::clone(&metrics), at, desk));
    warn_if_open(at.admin);
    let greeting = Greeting::new(&app.live(), &ground.store, at)?;
    write_out(&greeting.text(options.json))?;

    let clients = Connections::new(limits.connections, Arc::clone(&metrics));
    let operators = Connections::new(ADMIN_CONNECTIONS, Arc::new(Metrics::default()));
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(accept_clients(clients.clone(), api, Arc::clone(&app)));
    tasks.spawn(accept_operators(operators.clone(), admin, Arc::clone(&app)));
    tasks.spawn(accept_commands(socket, Arc::clone(&app), stop.clone()));
    tracing::info!(listen = %at.listen, admin = %at.admin, "listening");

    tasks.spawn(compile::background(Arc::clone(&app), stop.clone()));
    tasks.spawn(upkeep::run(Arc::clone(&app), ground.clock.clone(), stop.clone()));
    let (store, memory) = (ground.store.clone(), Arc::clone(&ground.memory));
    let reload = Reload::new(options.clone(), arguments.clone(), ground, settled);
    let ended = tokio::select! {
        ended = run_until_signal(&app, &reload, &mut signals) => ended,
        lost = watchdog::until_lost(&store) => Err(lost),
    };
    app.note_draining();
    tracing::info!("stopping");
    let lost = matches!(ended, Err(Failure::StoreFailed | Failure::StoreHangs));
    let drain = if lost { drain.min(LOST_PATIENCE) } else { drain };
    let cut = clients.drain(drain, signals.stop()).await;
    if cut > 0 {
        tracing::warn!(connections = cut, "connections were cut with requests running on them");
    }
    memory.end_reading_on().await;
    if !lost {
        let broadcast = app.live().broadcast.clone();
        broadcast.flush(FLUSH_PATIENCE).await;
    }
    stop.cancel();
    operators.drain(Duration::from_secs(1), std::future::pending()).await;
    tasks.close();
    if lost {
        // A command may be waiting for the store.
        drop(tokio::time::timeout(LOST_PATIENCE, tasks.wait()).await);
    } else {
        tasks.wait().await;
    }
    if let Err(error) = admin::socket::remove(&options.data) {
        tracing::debug!(%error, "admin.sock could not be removed");
    }
    tracing::info!("stopped");
    ended
}

async fn accept_clients(connections: Connections, listener: TcpListener, app: Arc<App>) {
    connections.accept(listener, move |request, peer| handle(Arc::clone(&app), peer, request)).await;
}

async fn accept_operators(connections: Connections, listener: TcpListener, app: Arc<App>) {
    let handler = move |request, peer| admin::http::handle(Arc::clone(&app), peer, request);
    connections.accept(listener, handler).await;
}

async fn accept_commands(listener: std::os::unix::net::UnixListener, app: Arc<App>, stop: CancellationToken) {
    if let Err(error) = admin::socket::serve(listener, app, stop).await {
        tracing::error!(%error, "commands cannot be taken from other processes");
    }
}

/// Compiles what is configured, then waits for a signal to stop.
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
    reload.until_stopped(app, signals).await;
    Ok(())
}

fn warn_if_open(admin: SocketAddr) {
    if !admin.ip().is_loopback() {
        tracing::warn!(%admin, "health and metrics are open to whoever reaches this address");
    }
}
