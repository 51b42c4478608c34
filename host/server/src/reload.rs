//! Signals. SIGTERM and SIGINT end the host, SIGHUP reads configuration and
//! plugins again: what is good takes the place of what was, as a whole; what is
//! not is reported, and everything stays as it was.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::App;
use crate::cli::{Options, Serve};
use crate::config::Config;
use crate::failure::Failure;
use crate::wiring::{self, Ground, Live};

/// How to read everything again.
pub(crate) struct Reload {
    options: Options,
    arguments: Serve,
    ground: Ground,
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
    pub(crate) fn new(options: Options, arguments: Serve, ground: Ground) -> Self {
        Self { options, arguments, ground }
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
                    warn_of_restart(&app.live().config, &live.config);
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
        let read = move || -> Result<Live, Failure> {
            let mut config = Config::load(options.config.as_deref(), &options.data)?;
            arguments.apply(&mut config);
            Ok(wiring::live(config, arguments.plugins.as_deref(), &ground)?)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let live = read.map_err(|_| Failure::system("reload")(std::io::Error::other("it panicked")))??;
        for plugin in live.engine.required_plugins() {
            if let Err(error) = plugin.compile().await {
                tracing::error!(plugin = plugin.name(), %error, "a plugin that is needed does not compile");
                return Err(Failure::Plugin(plugin.name().to_owned()));
            }
        }
        Ok(live)
    }
}

/// Some keys are read at the start only.
fn warn_of_restart(old: &Config, new: &Config) {
    for (key, changed) in [
        ("server.listen", old.server.listen != new.server.listen),
        ("server.admin", old.server.admin != new.server.admin),
        ("limits.connections", old.limits.connections != new.limits.connections),
        ("limits.streams", old.limits.streams != new.limits.streams),
        ("timeouts.drain_ms", old.timeouts.drain != new.timeouts.drain),
    ] {
        if changed {
            tracing::warn!(key, "this change takes effect at the next start");
        }
    }
}
