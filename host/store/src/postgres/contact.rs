//! Contact with the database: whether this host can vouch for what it knows.
//!
//! Each second the host commits a sign of life, its beat, together with how far it has seen the changes of
//! each chain. If the feed has read all changes after that, the host has contact for 4.5 s from when it sent
//! the beat. A primary that answers reads but cannot commit keeps no host in contact. A host that learns of
//! a change says so at once, because others may wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::barrier::Waiting;
use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::feed::FeedReader;
use super::host::{self, Beat, HostId, HostRow, ThisHost};
use super::witness::{SeenNumbers, Witness};
use crate::knowledge::Knowledge;
use crate::published::PublishedState;

/// Time between two beats of a host that learns of nothing.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long contact lasts, in milliseconds from when its beat was sent.
pub(super) const CONTACT_MS: u64 = 4500;
/// How long one attempt of a beat may take.
const BEAT_PATIENCE: Duration = Duration::from_secs(2);
/// Least time between two beats.
const BEAT_PAUSE: Duration = Duration::from_millis(10);
/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_millis(250);
/// Time between two writes of what is known to be durable.
const KEPT_EVERY: Duration = Duration::from_secs(60);
/// Time between two looks at what other hosts have seen, while an answer waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// All hosts as they were at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    /// When this was asked; the moment is not before that.
    pub(super) asked: Option<Instant>,
    pub(super) rows: Vec<KnownHost>,
}

/// A host, and since when its beat stands still.
#[derive(Clone, Debug)]
pub(super) struct KnownHost {
    pub(super) row: HostRow,
    /// When this host first saw the beat.
    pub(super) since: Instant,
}

/// The task that keeps contact.
pub(super) struct Contact {
    database: Arc<Database>,
    host: Arc<ThisHost>,
    shared: Arc<PublishedState>,
    feed: FeedReader,
    witness: Arc<Witness>,
    /// When what is known to be durable was written last.
    kept: Option<Instant>,
    hosts: watch::Sender<Hosts>,
    waiting: Arc<Waiting>,
    session: Option<DatabaseSession>,
    /// The beat of each host, and when it was first seen.
    beats: BTreeMap<HostId, (i64, Instant)>,
    /// Which news of the feed this host has reported.
    reported: u64,
    /// When the next beat is due without news.
    due: Instant,
    /// When a beat or a look was tried last.
    tried: Instant,
    /// Whether the last attempt failed.
    has_failed: bool,
    had: Knowledge,
}

impl Contact {
    pub(super) fn new(
        database: Arc<Database>,
        host: Arc<ThisHost>,
        shared: Arc<PublishedState>,
        feed: FeedReader,
        witness: Arc<Witness>,
        waiting: Arc<Waiting>,
    ) -> (Contact, watch::Receiver<Hosts>) {
        let (hosts, reader) = watch::channel(Hosts::default());
        let now = Instant::now();
        let contact = Contact {
            database,
            host,
            shared,
            feed,
            witness,
            kept: None,
            hosts,
            waiting,
            session: None,
            beats: BTreeMap::new(),
            reported: 0,
            due: now,
            tried: now,
            has_failed: false,
            had: Knowledge::Current,
        };
        (contact, reader)
    }

    /// Runs until the runtime ends.
    pub(super) async fn run(mut self) {
        loop {
            self.wait().await;
            self.note_contact();
            let is_beat = self.is_beat_due();
            self.tried = Instant::now();
            let done = self.attempt(is_beat).await;
            self.has_failed = done.is_err();
            if let Err(failure) = done {
                self.session = None;
                self.due = Instant::now();
                tracing::debug!(%failure, "a beat was not committed");
            }
            self.note_contact();
        }
    }

    /// Connects where there is no connection, which has a time of its own for each host of the database, and
    /// does what is due.
    async fn attempt(&mut self, is_beat: bool) -> Result<(), Failure> {
        connected(&self.database, &mut self.session).await?;
        let done =
            timeout(BEAT_PATIENCE, async { if is_beat { self.beat().await } else { self.look().await } });
        done.await.unwrap_or(Err(Failure::Silent(BEAT_PATIENCE)))
    }

    /// Whether more than a look is due.
    fn is_beat_due(&self) -> bool {
        self.has_failed || Instant::now() >= self.due || self.feed.news() != self.reported
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        loop {
            let mut due = self.due;
            if self.feed.news() != self.reported {
                due = due.min(self.tried + BEAT_PAUSE);
            }
            if self.waiting.is_any() {
                due = due.min(self.tried + LOOK_EVERY);
            }
            if self.has_failed {
                due = due.max(self.tried + FAILURE_PAUSE);
            }
            tokio::select! {
                () = sleep_until(due) => return,
                () = self.feed.until_news() => {}
                () = self.waiting.until_begun() => {}
                () = self.host.until_gone() => {
                    self.due = Instant::now();
                    return;
                }
            }
        }
    }

    /// Commits a beat, and extends the contact once the feed has read all changes that were committed
    /// before it.
    async fn beat(&mut self) -> Result<(), Failure> {
        let sent_ms = self.shared.clock().boot_ms();
        let ((news, point), accepted_losses) = (self.feed.point(), self.witness.accepted_losses());
        let (session, id) = (connected(&self.database, &mut self.session).await?, self.host.id());
        let asked = Instant::now();
        session.take_warning();
        let Beat { server, rows, numbers } = match host::beat(session, id, &point, self.host.about()).await {
            Err(Failure::NoHost) => return self.enter_again().await,
            beat => beat?,
        };
        if session.take_warning() {
            return Err(Failure::Unexpected("a beat"));
        }
        let own = rows.iter().find(|row| row.id == id).ok_or(Failure::NoHost)?;
        let beat = own.beat;
        self.host.acknowledge(beat);
        self.learn(asked, rows);
        self.reported = news;
        self.due = asked + BEAT_EVERY;
        self.feed.until_whole(id, beat, server).await;
        // Of a database that has all that was known before. What only the feed has seen may be of another server,
        // on which it never became durable.
        self.witness.learn(&SeenNumbers::new(accepted_losses, numbers));
        self.shared.extend_contact(sent_ms, CONTACT_MS);
        if self.kept.is_none_or(|kept| kept.elapsed() >= KEPT_EVERY) {
            self.kept = Some(Instant::now());
            let witness = Arc::clone(&self.witness);
            drop(tokio::task::spawn_blocking(move || witness.keep()));
        }
        Ok(())
    }

    /// Makes this process another host, after others took it for dead. Changes that it has not seen may be
    /// deleted, so it reads the directory anew before it has contact again.
    async fn enter_again(&mut self) -> Result<(), Failure> {
        self.shared.end_contact();
        self.note_contact();
        let session = connected(&self.database, &mut self.session).await?;
        let (id, _) = host::enter(session, self.host.about()).await?;
        tracing::error!(was = %self.host.id(), %id, "other hosts took this one for dead; it goes on as a new host");
        self.feed.read_anew();
        self.host.set(id);
        self.due = Instant::now();
        Ok(())
    }

    /// Reads what other hosts have seen.
    async fn look(&mut self) -> Result<(), Failure> {
        let session = connected(&self.database, &mut self.session).await?;
        let asked = Instant::now();
        let rows = host::all(session).await?;
        self.learn(asked, rows);
        Ok(())
    }

    fn learn(&mut self, asked: Instant, rows: Vec<HostRow>) {
        let now = Instant::now();
        let mut beats = BTreeMap::new();
        let known = |row: HostRow| {
            let before = self.beats.get(&row.id).filter(|(beat, _)| *beat == row.beat);
            let since = before.map_or(now, |(_, since)| *since);
            beats.insert(row.id, (row.beat, since));
            KnownHost { row, since }
        };
        let rows = rows.into_iter().map(known).collect();
        self.beats = beats;
        self.hosts.send_replace(Hosts { asked: Some(asked), rows });
    }

    /// Logs when contact is lost and when it is there again.
    fn note_contact(&mut self) {
        let knowledge = self.shared.knowledge();
        if knowledge != Knowledge::Current {
            // Other hosts may have been cut off for as long as this one.
            self.beats.clear();
        }
        match (self.had, knowledge) {
            (had, now) if had == now => {}
            (_, Knowledge::Current) => tracing::info!("contact with the database is there again"),
            (_, Knowledge::Stale) => tracing::error!(
                "contact with the database was lost; for `store.stale_ms`, requests of models go by what was \
                 known, and others are refused"
            ),
            (_, Knowledge::Outdated) => tracing::error!(
                "contact with the database was lost; requests are refused until a beat can be committed"
            ),
        }
        self.had = knowledge;
    }
}

/// The connection, which is made where there is none.
async fn connected<'s>(
    database: &Database,
    session: &'s mut Option<DatabaseSession>,
) -> Result<&'s DatabaseSession, Failure> {
    let connected = match session.take() {
        Some(session) => session,
        None => database.connect().await?,
    };
    Ok(session.insert(connected))
}
