//! Tells the service manager of systemd (`Type=notify`) when the host is ready, reloads, stops, and that it still works.
//! The protocol is sd_notify: datagrams to the socket that `NOTIFY_SOCKET` names. Without that variable nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::Store;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::workers::Workers;

/// The socket of the service manager, if there is one.
pub(super) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Half of the time after which the service manager ends a host that is silent.
    beat: Option<Duration>,
}

impl Notifier {
    pub(super) fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = socket.and_then(|name| match connect(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(?name, %error, "NOTIFY_SOCKET cannot be used: the service manager is told nothing");
                None
            }
        });
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        // The variable is for this process only, not for a child that inherits it.
        let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let beat = number("WATCHDOG_USEC").filter(|micros| *micros > 1 && is_own);
        Self {
            beat: beat.filter(|_| socket.is_some()).map(|micros| Duration::from_micros(micros / 2)),
            socket,
        }
    }

    /// Says that the host answers requests: after the start, and after each reload.
    pub(super) fn ready(&self) {
        self.send("READY=1\nSTATUS=Ready\n");
    }

    /// Says that the host reads its configuration again. `ready` has to follow.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=Reading the configuration again\n"));
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Waiting for running requests to end\n");
    }

    fn send(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, "the service manager could not be told: {}", state.lines().next().unwrap_or_default());
        }
    }

    /// Tells the service manager until `stop` that the host works: that the thread of listeners and signals and all
    /// threads of requests run tasks, and that no commit of the store has failed or hangs.
    pub(super) async fn keep_alive(self: Arc<Self>, store: Store, workers: Workers, stop: CancellationToken) {
        let Some(beat) = self.beat else { return };
        let mut beats = interval(beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beats.tick() => {}
                () = stop.cancelled() => return,
            }
            let all_run = tokio::time::timeout(beat, workers.run_a_task_each()).await.is_ok();
            if all_run && store.is_writable() && !store.is_stalled() {
                self.send("WATCHDOG=1\n");
            }
        }
    }
}

/// A socket to send from, and the address: a path, or with `@` the name of an abstract socket.
fn connect(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::other("expected a path or @NAME")),
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not stop the host.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}
