//! A TCP proxy before a server, which understands where messages of the protocol begin and end.

mod flight;
mod link;
mod rule;
mod sql;

pub use rule::{Fault, Place, Rule};

use crate::{PATIENCE, Result, lock};
use anyhow::Context;
use flight::Flight;
use link::Link;
use rule::Strike;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// Further ones are closed at once. Connections that have ended count, because their figures are kept.
const MOST_CONNECTIONS: usize = 4096;

/// Forwards connections to a port of 127.0.0.1, and breaks them where its rules say. A client without TLS comes
/// through message by message. With TLS the proxy sees bytes only: rules do not apply and only bytes are counted.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// What passed in a connection since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Flights: queries, and messages of the extended protocol up to `Sync`.
    pub flights: u64,
    /// Those that ask for something and that the client sent when it had all answers: how often it waited.
    pub round_trips: u64,
    /// Flights with COMMIT.
    pub commits: u64,
    pub bytes_to_server: u64,
    pub bytes_to_client: u64,
}

struct Shared {
    state: Mutex<State>,
    /// A gate may have opened.
    changed: Condvar,
    struck: watch::Sender<u32>,
}

#[derive(Default)]
struct State {
    target: u16,
    is_closing: bool,
    refuses: bool,
    is_silent: bool,
    /// How often `release` was called.
    releases: u64,
    rules: Vec<Rule>,
    connections: Vec<Connection>,
    threads: Vec<JoinHandle<()>>,
}

struct Connection {
    /// Gone when both sides are closed, and their sockets with it.
    link: Weak<Link>,
    tally: Arc<Mutex<Tally>>,
}

impl Proxy {
    /// A proxy on a free port before the server on another port.
    ///
    /// # Errors
    /// There is no free port or no thread.
    pub fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let state = Mutex::new(State { target, ..State::default() });
        let shared = Arc::new(Shared { state, changed: Condvar::new(), struck: watch::channel(0).0 });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::Builder::new()
            .name("postgres proxy".to_owned())
            .spawn(move || accepting.accept(&listener))?;
        Ok(Self { port, shared, acceptor: Some(acceptor) })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds a rule. Each strikes once; where several would at once, the earliest one does and the others have counted.
    pub fn add(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    /// How many rules have struck.
    pub fn struck(&self) -> u32 {
        *self.shared.struck.borrow()
    }

    /// Waits until so many rules have struck.
    ///
    /// # Errors
    /// They have not within [`PATIENCE`].
    pub async fn until_struck(&self, count: u32) -> Result<()> {
        let mut struck = self.shared.struck.subscribe();
        let waited = tokio::time::timeout(PATIENCE, struck.wait_for(|struck| *struck >= count)).await;
        waited.with_context(|| format!("{} of {count} rules struck", self.struck()))??;
        Ok(())
    }

    /// Lets go what is held, delayed or silent.
    pub fn release(&self) {
        let mut state = self.state();
        state.releases += 1;
        state.is_silent = false;
        self.shared.changed.notify_all();
    }

    /// All connections, new ones too, stay open and forward nothing until [`Proxy::release`].
    pub fn fall_silent(&self) {
        self.state().is_silent = true;
    }

    /// Closes both sides of all connections.
    pub fn cut(&self) {
        self.state().connections.iter().filter_map(|one| one.link.upgrade()).for_each(|link| link.cut());
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.state().refuses = refuses;
    }

    /// Forwards new connections to another port, as an address does that moves to a promoted standby.
    pub fn lead_to(&self, target: u16) {
        self.state().target = target;
    }

    /// How many connections hold sockets of the proxy.
    pub fn open(&self) -> usize {
        self.state().connections.iter().filter(|one| one.link.strong_count() > 0).count()
    }

    /// What has passed in each connection, in the order in which they came.
    pub fn connections(&self) -> Vec<Tally> {
        self.state().connections.iter().map(|one| *lock(&one.tally)).collect()
    }

    /// What has passed in all connections.
    pub fn total(&self) -> Tally {
        self.connections().into_iter().fold(Tally::default(), |sum, one| Tally {
            flights: sum.flights + one.flights,
            round_trips: sum.round_trips + one.round_trips,
            commits: sum.commits + one.commits,
            bytes_to_server: sum.bytes_to_server + one.bytes_to_server,
            bytes_to_client: sum.bytes_to_client + one.bytes_to_client,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state().is_closing = true;
        self.shared.changed.notify_all();
        // The acceptor waits for a connection, and looks at the state after each.
        if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            drop(acceptor.join());
        }
        self.cut();
        let threads = std::mem::take(&mut self.state().threads);
        for thread in threads {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if lock(&self.state).is_closing {
                return;
            }
            if let Ok(client) = client {
                // Where the server refuses the connection, the client's is closed.
                drop(self.open(client));
            }
        }
    }

    fn open(self: &Arc<Self>, client: TcpStream) -> Result<()> {
        let (target, is_refused) = {
            let state = lock(&self.state);
            (state.target, state.refuses || state.connections.len() >= MOST_CONNECTIONS)
        };
        anyhow::ensure!(!is_refused, "the connection is refused");
        let server = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, target).into(), PATIENCE)?;
        let tally = Arc::default();
        let link = Arc::new(Link::new(client, server, Arc::clone(&tally)));
        let connection = Connection { link: Arc::downgrade(&link), tally };
        let shared = Arc::clone(self);
        let mut state = lock(&self.state);
        state.threads.retain(|thread| !thread.is_finished());
        let builder = std::thread::Builder::new().name("postgres proxy link".to_owned());
        state.threads.push(builder.spawn(move || link.forward(&shared))?);
        state.connections.push(connection);
        Ok(())
    }

    /// Counts a flight for every rule.
    fn count(&self, flight: &Flight) -> Option<Strike> {
        let mut struck = None;
        lock(&self.state).rules.retain_mut(|rule| {
            let strike = rule.count(flight);
            let is_first = strike.is_some() && struck.is_none();
            struck = struck.or(strike);
            !is_first
        });
        struck
    }

    /// Waits until this link may forward bytes.
    fn pass(&self, link: &Link) -> Result<()> {
        self.wait(None, |state| state.is_silent || link.silent_at() == Some(state.releases))
    }

    /// Strikes, then waits for `release`, at most this long.
    fn hold(&self, longest: Option<Duration>) -> Result<()> {
        let from = lock(&self.state).releases;
        self.strike();
        self.wait(longest, |state| state.releases == from)
    }

    /// Waits while a gate is shut; the end of the proxy is an error.
    fn wait(&self, longest: Option<Duration>, is_shut: impl Fn(&State) -> bool) -> Result<()> {
        let state = lock(&self.state);
        let waits = |state: &mut State| !state.is_closing && is_shut(state);
        let waited = match longest {
            None => self.changed.wait_while(state, waits).ok(),
            Some(longest) => {
                self.changed.wait_timeout_while(state, longest, waits).ok().map(|(state, _)| state)
            }
        };
        let is_closing = waited.is_none_or(|state| state.is_closing);
        anyhow::ensure!(!is_closing, "the proxy has ended");
        Ok(())
    }

    fn strike(&self) {
        self.struck.send_modify(|count| *count += 1);
    }
}

/// A side that is closed already is as it is to be.
fn shut(stream: &TcpStream, how: Shutdown) {
    drop(stream.shutdown(how));
}
