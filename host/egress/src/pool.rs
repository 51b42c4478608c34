//! Connections that wait for their next request.
//!
//! One pool per reach: a connection was checked when it was dialled, under the rule of its pool. What waits
//! too long is closed before the usual server closes it under a request. Nobody polls a connection that waits:
//! that the server has closed it is noticed when it is taken, or when its time is up.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::Instant;

use crate::wire::{Line, Shared, Wire};

/// Idle connections are closed before the usual server (60 s and more) closes them under a request.
const IDLE: Duration = Duration::from_secs(50);
/// Idle connections kept per origin: as many as the default number of streams.
const IDLE_MAX: usize = 1000;
/// Origins of which idle connections are kept: guests may go to very many.
const ORIGINS_MAX: usize = 1000;
/// Between two looks for connections that have been idle for too long.
const ROUND: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Pool {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    origins: BTreeMap<Arc<str>, Lines>,
    /// A task closes what is idle for too long. It ends with the last connection.
    is_swept: bool,
}

/// The connections to one origin.
#[derive(Default)]
struct Lines {
    /// The longest idle first.
    own: VecDeque<(Instant, Box<Wire>)>,
    /// The first one with room is used; another is made only when all are full.
    shared: Vec<(Instant, Shared)>,
}

impl Pool {
    /// A connection that is ready, the last used one first so that surplus ones grow old.
    pub(crate) fn take(&self, origin: &str) -> Option<Line> {
        loop {
            let mut line = self.kept().origins.get_mut(origin)?.take()?;
            // Looked at outside the lock: it reads from the socket.
            let is_ready = match &mut line {
                Line::Own(wire) => wire.is_ready(),
                Line::Shared(_) => true,
            };
            if is_ready {
                return Some(line);
            }
        }
    }

    /// Keeps a connection whose exchange has ended, if it can be used again.
    pub(crate) fn keep(self: &Arc<Self>, origin: &Arc<str>, mut wire: Box<Wire>) {
        if !wire.is_ready() {
            return;
        }
        let mut kept = self.kept();
        let Some(lines) = kept.lines(origin) else { return };
        if lines.own.len() < IDLE_MAX {
            lines.own.push_back((Instant::now(), wire));
        }
        self.sweep_from_now_on(&mut kept);
    }

    /// Lets others use a new connection too, unless there is one already that has room.
    pub(crate) fn share(self: &Arc<Self>, origin: &Arc<str>, shared: &Shared) {
        let mut kept = self.kept();
        let Some(lines) = kept.lines(origin) else { return };
        if lines.roomy().is_none() {
            lines.shared.push((Instant::now(), shared.clone()));
        }
        self.sweep_from_now_on(&mut kept);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing under the lock leaves it half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sweep_from_now_on(self: &Arc<Self>, kept: &mut Kept) {
        if !kept.is_swept {
            kept.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }
}

impl Lines {
    fn take(&mut self) -> Option<Line> {
        if let Some((used, shared)) = self.roomy() {
            *used = Instant::now();
            return Some(Line::Shared(shared.clone()));
        }
        let (since, wire) = self.own.pop_back()?;
        if since.elapsed() <= IDLE {
            return Some(Line::Own(wire));
        }
        // The others are older still.
        self.own.clear();
        None
    }

    /// A shared connection that takes one more request at once.
    fn roomy(&mut self) -> Option<&mut (Instant, Shared)> {
        self.shared.retain(|(_, shared)| !shared.is_closed());
        self.shared.iter_mut().find(|(_, shared)| !shared.is_full())
    }
}

impl Kept {
    /// The connections to an origin; `None` if there is no room for one more origin.
    fn lines(&mut self, origin: &Arc<str>) -> Option<&mut Lines> {
        if self.origins.len() >= ORIGINS_MAX && !self.origins.contains_key(origin) {
            return None;
        }
        Some(self.origins.entry(Arc::clone(origin)).or_default())
    }

    /// Closes what is too old. False when nothing is left.
    fn close_idle(&mut self) -> bool {
        self.origins.retain(|_, lines| {
            while lines.own.front().is_some_and(|(since, _)| since.elapsed() > IDLE) {
                lines.own.pop_front();
            }
            // Requests that run on it hold it open.
            lines.shared.retain(|(used, shared)| used.elapsed() <= IDLE && !shared.is_closed());
            !lines.own.is_empty() || !lines.shared.is_empty()
        });
        self.is_swept = !self.origins.is_empty();
        self.is_swept
    }
}

async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(pool) = pool.upgrade() else { return };
        if !pool.kept().close_idle() {
            return;
        }
    }
}
