//! Signals. SIGTERM and SIGINT stop the host. SIGHUP reads configuration and plugins again: if they
//! are valid they replace the old ones as a whole; if not, the error is logged and nothing changes.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::RootKeySource;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::blocking;
use super::compile;
use super::notify::Notifier;
use super::renewal::unix_s;
use crate::app::{Addresses, App};
use crate::config::{Config, ConfigError, DatabaseConfig, LimitsConfig, ServerConfig, TlsFiles, VaultConfig};
use crate::failure::Failure;
use crate::installed::PluginPlaces;
use crate::options::{Options, Serve};
use crate::start::{set_limits, tell_configuration};
use crate::tls::CertificatePair;
use crate::wiring::{self, LiveConfig, SharedServices};

/// Reads configuration and plugins again.
pub(crate) struct Reload {
    options: Options,
    arguments: Serve,
    services: SharedServices,
    settled: FixedSettings,
    pub(super) notifier: Arc<Notifier>,
}

/// Settings that only a restart can change.
#[derive(Clone)]
pub(crate) struct FixedSettings {
    server: ServerConfig,
    limits: LimitsConfig,
    drain: Duration,
    unready: Duration,
    /// The sources of the root key and of the previous one. A source that is a variable has its value.
    root_keys: [Option<RootKeySource>; 2],
    database: Option<DatabaseConfig>,
    /// The bound addresses.
    at: Addresses,
}

impl FixedSettings {
    /// The settings of the configuration at start, and the listeners bound from them.
    pub(crate) fn new(config: &Config, at: Addresses) -> Self {
        Self {
            server: config.server.clone(),
            limits: config.limits,
            drain: config.timeouts.drain,
            unready: config.timeouts.unready,
            root_keys: root_keys(&config.vault),
            database: config.store.database.clone(),
            at,
        }
    }

    /// Gives sources of root keys that have not changed the values of the variables that they were read from: the
    /// environment has them no more.
    fn keep_root_keys(&self, config: &mut Config) {
        let vault = &mut config.vault;
        let now = std::iter::once(&mut vault.root_key).chain(&mut vault.root_key_previous);
        for source in now {
            if let Some(kept) =
                self.root_keys.iter().flatten().find(|kept| kept.to_string() == source.to_string())
            {
                *source = kept.clone();
            }
        }
    }

    /// Adds the ports of this host to those that guests may not reach.
    pub(crate) fn close_own_ports(&self, config: &mut Config) {
        config.egress.own_ports = vec![self.at.listen.port(), self.at.admin.port()];
    }

    /// Warns of changed keys that take effect only after a restart.
    fn warn_of_restart(&self, now: &Config) {
        let Self { server, limits, drain, unready, root_keys: sources, database, at: _ } = self;
        let [root_key, previous] = names(sources);
        let [root_key_now, previous_now] = names(&root_keys(&now.vault));
        for (key, differs) in [
            ("server.listen", server.listen != now.server.listen),
            ("server.admin", server.admin != now.server.admin),
            ("server.tls", server.tls.is_some() != now.server.tls.is_some()),
            ("limits.connections", limits.connections != now.limits.connections),
            ("limits.streams", limits.streams != now.limits.streams),
            ("timeouts.drain_ms", *drain != now.timeouts.drain),
            ("timeouts.unready_ms", *unready != now.timeouts.unready),
            ("vault.root_key", root_key != root_key_now),
            ("vault.root_key_previous", previous != previous_now),
            ("store.url, password, roots, backup_url, ledger or cache_mib", *database != now.store.database),
        ] {
            if differs {
                tracing::warn!(key, "this change takes effect at the next start");
            }
        }
    }
}

fn root_keys(vault: &VaultConfig) -> [Option<RootKeySource>; 2] {
    [Some(vault.root_key.clone()), vault.root_key_previous.clone()]
}

/// The files, variables or descriptors that the sources name.
fn names(sources: &[Option<RootKeySource>; 2]) -> [Option<String>; 2] {
    sources.each_ref().map(|source| source.as_ref().map(ToString::to_string))
}

/// The signals that the host handles.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Installs the handlers. Before this call the signals end the process, but not the first process of a
    /// container, for which the kernel ignores them.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::system("signals"));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal to stop.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl Reload {
    pub(crate) fn new(
        options: Options,
        arguments: Serve,
        services: SharedServices,
        settled: FixedSettings,
        notifier: Arc<Notifier>,
    ) -> Self {
        Self { options, arguments, services, settled, notifier }
    }

    /// Reloads at each SIGHUP until a signal to stop.
    pub(crate) async fn until_stopped(&self, app: &App, signals: &mut Signals) {
        loop {
            tokio::select! {
                _ = signals.terminate.recv() => return,
                _ = signals.interrupt.recv() => return,
                _ = signals.hang_up.recv() => {}
            }
            self.notifier.reloading();
            // Compiling takes a while, and a file may not let itself be read.
            let served = app.tls().map(|tls| Arc::clone(&tls.current()));
            let read = tokio::select! {
                read = self.read(served) => read,
                () = signals.stop() => return,
            };
            match read {
                Ok((live, pair)) => {
                    app.replace_certificate(pair);
                    wiring::take_over(&live, &self.services);
                    self.settled.warn_of_restart(&live.config);
                    set_limits(&live.config, &app.store);
                    tell_configuration(&live.config, &self.options.data, &app.store);
                    app.replace(live);
                    app.metrics.reloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tracing::info!("configuration and plugins were read again");
                }
                Err(error) => {
                    app.metrics.reloads_refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    // What was compiled for it is not needed.
                    self.services.runtime.retain(app.live().engine.plugins());
                    let plugin = error.plugin();
                    tracing::error!(plugin, %error, "the new configuration is not used, the old one stays");
                }
            }
            // Also where the configuration is refused: a token that leaked has to go.
            self.read_operator_token(app);
            self.notifier.ready();
        }
    }

    /// Another token may have been put in the place of the one that works.
    fn read_operator_token(&self, app: &App) {
        if let Err(error) = app.operators.reload(&self.options.data) {
            tracing::error!(%error, "the operator token was not read again, the old one stays");
        }
    }

    /// Reads and compiles everything. The running configuration is not touched. The certificate is `None` where it is the
    /// one that is served: it stays, also when it has expired, so that the rest of the configuration can change.
    async fn read(
        &self,
        served: Option<Arc<CertificatePair>>,
    ) -> Result<(LiveConfig, Option<CertificatePair>), Failure> {
        let (options, arguments, services) =
            (self.options.clone(), self.arguments.clone(), self.services.clone());
        let settled = self.settled.clone();
        let now_s = unix_s(&services.clock);
        let read = move || -> Result<LiveConfig, Failure> {
            let mut config = Config::load(options.config.as_deref(), &options.data)?;
            arguments.apply(&mut config);
            settled.close_own_ports(&mut config);
            settled.keep_root_keys(&mut config);
            let places = PluginPlaces::new(&options.data, arguments.plugins.as_deref());
            Ok(wiring::live(config, places, &services)?)
        };
        let live = blocking("reload", read).await?;
        wiring::warn_of_absent(&live.config, &self.services.store).await;
        compile::required(&live).await?;
        // Last, because a certificate that was renewed meanwhile must not be replaced by the one before.
        let files = live.config.server.tls.clone();
        let pair = move || match files {
            Some(files) => Ok(new_pair(&files, served.as_deref(), now_s)?),
            None => Ok(None),
        };
        Ok((live, blocking("reload", pair).await?))
    }
}

/// Reads the certificate that a reload takes; `None` if it is the one that is served.
fn new_pair(
    files: &TlsFiles,
    served: Option<&CertificatePair>,
    now_s: i64,
) -> Result<Option<CertificatePair>, ConfigError> {
    let pair = CertificatePair::read(files)?;
    if served.is_some_and(|served| served.is_same(&pair)) {
        return Ok(None);
    }
    pair.valid_at(now_s).map(Some).map_err(|problem| ConfigError::Invalid(vec![problem]))
}
