//! Idle connections that are kept for further requests.
//!
//! There is one pool per rule: a connection was checked when it was dialled, under the rule of its
//! pool. Connections that are idle for too long are closed before a typical server closes them,
//! because a request sent at that moment would fail. Idle connections are not polled: that the
//! server closed one is noticed when it is taken from the pool or when the sweep removes it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{runtime, time::Instant};

use crate::local_stream::current_scheduler;
use crate::wire::{SharedSender, UpstreamConnection, Wire};

/// How long a connection may be idle. Typical servers close theirs after 60 seconds or more.
const IDLE: Duration = Duration::from_secs(50);
/// Idle connections kept per origin: as many as the default limit of concurrent streams.
const IDLE_MAX: usize = 1000;
/// Number of origins with idle connections. Bounded because guests may contact very many.
const ORIGINS_MAX: usize = 1000;
/// Requests on a shared connection with which it is still lent to other threads.
const LENT_MAX: usize = 4;
/// Time between two sweeps for connections that have been idle for too long.
const ROUND: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct ConnectionPool {
    kept: Mutex<KeptConnections>,
}

#[derive(Default)]
struct KeptConnections {
    origins: BTreeMap<Arc<str>, OriginConnections>,
    /// A task that closes idle connections is running. It ends when no connection is left.
    is_swept: bool,
}

/// The connections to one origin.
#[derive(Default)]
struct OriginConnections {
    /// Ordered by idle time, the longest idle first.
    own: VecDeque<IdleWire>,
    shared: Vec<SharedConnection>,
}

struct IdleWire {
    since: Instant,
    /// The scheduler that used it last.
    user: Option<runtime::Id>,
    wire: Box<Wire>,
}

struct SharedConnection {
    used: Instant,
    /// The scheduler that dialled it and runs its task.
    runner: Option<runtime::Id>,
    sender: SharedSender,
}

impl ConnectionPool {
    /// Takes a connection that is ready: the last one that this thread used, else the last one of
    /// any thread. So surplus connections reach the idle limit.
    pub(crate) fn take(&self, origin: &str) -> Option<UpstreamConnection> {
        loop {
            let mut connection = self.kept().origins.get_mut(origin)?.take()?;
            // Checked outside of the lock because it reads from the socket.
            let is_ready = match &mut connection {
                UpstreamConnection::Own(wire) => wire.is_ready(),
                UpstreamConnection::Shared(_) => true,
            };
            if is_ready {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose exchange has ended, if it can take another request.
    pub(crate) fn keep(self: &Arc<Self>, origin: &Arc<str>, mut wire: Box<Wire>) {
        if !wire.is_ready() {
            return;
        }
        let mut kept = self.kept();
        let Some(connections) = kept.connections(origin) else { return };
        if connections.own.len() < IDLE_MAX {
            connections.own.push_back(IdleWire { since: Instant::now(), user: current_scheduler(), wire });
        }
        self.sweep_from_now_on(&mut kept);
    }

    /// Lets other requests use a new connection, unless this thread has another one with room.
    pub(crate) fn share(self: &Arc<Self>, origin: &Arc<str>, shared: &SharedSender) {
        let mut kept = self.kept();
        let Some(connections) = kept.connections(origin) else { return };
        let runner = current_scheduler();
        if !connections.shared.iter().any(|kept| kept.runner == runner && !kept.sender.is_full()) {
            connections.shared.push(SharedConnection {
                used: Instant::now(),
                runner,
                sender: shared.clone(),
            });
        }
        self.sweep_from_now_on(&mut kept);
    }

    fn kept(&self) -> MutexGuard<'_, KeptConnections> {
        // No code under this lock can panic halfway through a change, so the data is valid even
        // after poisoning.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sweep_from_now_on(self: &Arc<Self>, kept: &mut KeptConnections) {
        if !kept.is_swept {
            kept.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }
}

impl OriginConnections {
    fn take(&mut self) -> Option<UpstreamConnection> {
        if let Some(shared) = self.roomy() {
            shared.used = Instant::now();
            return Some(UpstreamConnection::Shared(shared.sender.clone()));
        }
        if self.own.back()?.since.elapsed() > IDLE {
            // This was the last used one, so all others are older.
            self.own.clear();
            return None;
        }
        // One that this thread used is registered with its poll. One of another thread moves here.
        let user = current_scheduler();
        let mine = self.own.iter().rposition(|idle| idle.user == user && idle.since.elapsed() <= IDLE);
        let idle = self.own.remove(mine.unwrap_or(self.own.len() - 1))?;
        Some(UpstreamConnection::Own(idle.wire))
    }

    /// A shared connection that can start one more request at once: one of this thread, else one of
    /// another thread that has little to do. Each piece of an answer on such a connection wakes
    /// both threads, so a busy thread dials its own.
    fn roomy(&mut self) -> Option<&mut SharedConnection> {
        self.shared.retain(|kept| !kept.sender.is_closed());
        let runner = current_scheduler();
        let own = self.shared.iter().position(|kept| kept.runner == runner && !kept.sender.is_full());
        let lent = || self.shared.iter().position(|kept| kept.sender.requests() < LENT_MAX);
        let position = own.or_else(lent)?;
        self.shared.get_mut(position)
    }
}

impl KeptConnections {
    /// The connections to an origin. `None` if the pool already has [`ORIGINS_MAX`] other origins.
    fn connections(&mut self, origin: &Arc<str>) -> Option<&mut OriginConnections> {
        if self.origins.len() >= ORIGINS_MAX && !self.origins.contains_key(origin) {
            return None;
        }
        Some(self.origins.entry(Arc::clone(origin)).or_default())
    }

    /// Closes connections that are idle for too long. Returns false if none is left.
    fn close_idle(&mut self) -> bool {
        self.origins.retain(|_, connections| {
            while connections.own.front().is_some_and(|idle| idle.since.elapsed() > IDLE) {
                connections.own.pop_front();
            }
            // Dropping the pool's clone does not end running requests: each holds a clone of its
            // own.
            connections.shared.retain(|kept| kept.used.elapsed() <= IDLE && !kept.sender.is_closed());
            !connections.own.is_empty() || !connections.shared.is_empty()
        });
        self.is_swept = !self.origins.is_empty();
        self.is_swept
    }
}

async fn sweep(pool: Weak<ConnectionPool>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(pool) = pool.upgrade() else { return };
        if !pool.kept().close_idle() {
            return;
        }
    }
}
