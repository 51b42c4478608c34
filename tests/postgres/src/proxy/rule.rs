//! What a proxy is told to break, and where.

use super::flight::Flight;
use std::time::Duration;

/// Where a fault strikes. Flights are what a client sends before it waits: one query, or messages up to `Sync`.
#[derive(Clone, Debug)]
pub enum Place {
    /// The message that commits: a query with COMMIT or END, or the execution of a statement that was prepared so.
    Commit,
    /// So many flights into a transaction: 1 is the flight that begins it, or is the whole of it.
    Flight(u32),
    /// A flight that executes a statement with this text in it.
    Sql(String),
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Both sides are closed; the message of [`Place::Commit`], or the flight, is not forwarded.
    CutBefore,
    /// It is forwarded, then both sides are closed at once: whether the server had time for it is open.
    CutAfter,
    /// The flight is forwarded, its answer is read to its end and thrown away, then both sides are closed.
    SwallowReply,
    /// The flight is forwarded so much later, or when [`Proxy::release`](super::Proxy::release) is called.
    Delay(Duration),
    /// The flight is held until [`Proxy::release`](super::Proxy::release).
    Hold,
    /// The flight is forwarded and the connection to the server half-closed: the answer still arrives.
    CloseToServer,
    /// The connection to the client is half-closed, so that it gets no answer, then the flight is forwarded. The server
    /// sees nothing of this before the client closes its side.
    CloseToClient,
    /// Both sides stay open and nothing is forwarded, from this flight on, until
    /// [`Proxy::release`](super::Proxy::release).
    SilenceBefore,
    /// The same after the flight: the server gets it, the client gets no answer.
    SilenceAfter,
}

/// A fault that strikes once.
#[derive(Clone, Debug)]
pub struct Rule {
    place: Place,
    fault: Fault,
    within: Option<String>,
    left: u32,
}

impl Rule {
    /// The first time that any connection comes to this place.
    pub fn new(place: Place, fault: Fault) -> Self {
        Self { place, fault, within: None, left: 1 }
    }

    /// The n-th time, counted from 1 over all connections from now on.
    pub fn nth(self, n: u32) -> Self {
        Self { left: n, ..self }
    }

    /// Only in transactions that have executed a statement with this text, in this flight at the latest.
    pub fn within(self, text: &str) -> Self {
        Self { within: Some(text.to_owned()), ..self }
    }

    /// Counts a flight. `Some`: the fault strikes now.
    pub(super) fn count(&mut self, flight: &Flight) -> Option<Strike> {
        let commit = flight.commit.clone();
        let (is_here, bytes) = match &self.place {
            Place::Commit => (commit.is_some(), commit),
            Place::Flight(position) => (flight.position == *position, None),
            Place::Sql(text) => (flight.sql.contains(text.as_str()), None),
        };
        let is_within = self.within.as_ref().is_none_or(|text| flight.transaction.contains(text.as_str()));
        if !flight.is_request || !is_here || !is_within {
            return None;
        }
        self.left = self.left.saturating_sub(1);
        let bytes = bytes.unwrap_or(0..flight.bytes.len());
        (self.left == 0).then_some(Strike { fault: self.fault, start: bytes.start, end: bytes.end })
    }
}

/// A fault and the bytes of the flight that it is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strike {
    pub(super) fault: Fault,
    pub(super) start: usize,
    pub(super) end: usize,
}
