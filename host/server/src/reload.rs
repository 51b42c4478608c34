//! Signals. SIGTERM and SIGINT end the host, SIGHUP reads configuration and
//! plugins again: what is good takes the place of what was, as a whole; what is
//! not is reported, and everything stays as it was.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::{Addresses, App};
use crate::cli::{Options, Serve};
use crate::compile;
use crate::config::{Config, Limits, Server, Vault};
use crate::failure::Failure;
use crate::start::set_limits;
use crate::wiring::{self, Ground, Live};

/// How to read everything again.
pub(crate) struct Reload {
    options: Options,
    arguments: Serve,
    ground: Ground,
    settled: Settled,
}

/// What the start has settled, whatever later configurations say.
#[derive(Clone)]
pub(crate) struct Settled {
    server: Server,
    limits: Limits,
    drain: Duration,
    unready: Duration,
    /// Where the root key and the one before it came from, never what they are.
    root_keys: [Option<String>; 2],
    /// Where this host really listens.
    at: Addresses,
}

impl Settled {
    /// With the configuration of the start and the listeners that came of it.
    pub(crate) fn new(config: &Config, at: Addresses) -> Self {
        Self {
            server: config.server.clone(),
            limits: config.limits,
            drain: config.timeouts.drain,
            unready: config.timeouts.unready,
            root_keys: root_keys(&config.vault),
            at,
        }
    }

    /// Closes to guests the ports on which this host listens.
    pub(crate) fn close_own_ports(&self, config: &mut Config) {
        config.egress.own_ports = vec![self.at.listen.port(), self.at.admin.port()];
    }

    /// Names the keys that say something else now, to no effect before the next start.
    fn warn_of_restart(&self, now: &Config) {
        let Self { server, limits, drain, unready, root_keys: [root_key, previous], at: _ } = self;
        let [root_key_now, previous_now] = root_keys(&now.vault);
        for (key, differs) in [
            ("server.listen", server.listen != now.server.listen),
            ("server.admin", server.admin != now.server.admin),
            ("limits.connections", limits.connections != now.limits.connections),
            ("limits.streams", limits.streams != now.limits.streams),
            ("timeouts.drain_ms", *drain != now.timeouts.drain),
            ("timeouts.unready_ms", *unready != now.timeouts.unready),
            ("vault.root_key", *root_key != root_key_now),
            ("vault.root_key_previous", *previous != previous_now),
        ] {
            if differs {
                tracing::warn!(key, "this change takes effect at the next start");
            }
        }
    }
}

fn root_keys(vault: &Vault) -> [Option<String>; 2] {
    [Some(vault.root_key.to_string()), vault.root_key_previous.as_ref().map(ToString::to_string)]
}

/// The signals that mean something to the host.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Takes the signals over from the system; until then they end the process.
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
    pub(crate) fn new(options: Options, arguments: Serve, ground: Ground, settled: Settled) -> Self {
        Self { options, arguments, ground, settled }
    }

    /// Reloads at each SIGHUP until a signal to stop.
    pub(crate) async fn until_stopped(&self, app: &App, signals: &mut Signals) {
        loop {
            tokio::select! {
                _ = signals.terminate.recv() => return,
                _ = signals.interrupt.recv() => return,
                _ = signals.hang_up.recv() => {}
            }
            match self.read().await {
                Ok(live) => {
                    self.settled.warn_of_restart(&live.config);
                    set_limits(&live.config, &app.store);
                    app.replace(live);
                    app.metrics.reloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tracing::info!("configuration and plugins were read again");
                }
                Err(error) => {
                    app.metrics.reloads_refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tracing::error!(%error, "the new configuration is not used, the old one stays");
                }
            }
        }
    }

    /// Reads and compiles everything; nothing is replaced before all of it is good.
    async fn read(&self) -> Result<Live, Failure> {
        let (options, arguments, ground) =
            (self.options.clone(), self.arguments.clone(), self.ground.clone());
        let settled = self.settled.clone();
        let read = move || -> Result<Live, Failure> {
            let mut config = Config::load(options.config.as_deref(), &options.data)?;
            arguments.apply(&mut config);
            settled.close_own_ports(&mut config);
            Ok(wiring::live(config, arguments.plugins.as_deref(), &ground)?)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let live = read.map_err(|_| Failure::system("reload")(std::io::Error::other("it panicked")))??;
        compile::required(&live).await?;
        Ok(live)
    }
}
