//! This host in the table of hosts.
//!
//! A row stands for one life of a process: it is written before the directory is read, so that from then
//! on others wait for this host, and deleted in the transaction that seals the chains of the host.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::about::{self, About};
use super::connect::DatabaseSession;
use super::failure::Failure;
use super::feed::{DirectoryPoint, Seen};
use super::place::{ChainId, ServerId};
use super::schema;
use super::statement::Statement;
use super::transaction::{BEGIN, bounded};
use super::witness::ChainNumbers;
use crate::hosts::HostFacts;
use crate::seal::StoreKeys;

/// One life of a process.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct HostId(pub(crate) [u8; 16]);

impl HostId {
    fn random() -> Result<HostId, Failure> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        Ok(HostId(id))
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hex::encode(&self.0))
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The id under which this process is a host now. It gets another one when other hosts have taken it for
/// dead.
#[derive(Debug)]
pub(crate) struct ThisHost {
    id: Mutex<HostId>,
    /// The number of the last sign of life under this id that was committed.
    beat: AtomicI64,
    /// Told when a lane finds that this host has no row any more.
    gone: Notify,
    /// When its first row was sent, as a time of [`crate::clock::Clock::boot_ms`].
    entered_ms: u64,
    /// Number of the store's schema at that time.
    schema: u32,
    about: Arc<About>,
}

impl ThisHost {
    pub(super) fn new(id: HostId, entered_ms: u64, schema: u32, about: Arc<About>) -> ThisHost {
        ThisHost {
            id: Mutex::new(id),
            beat: AtomicI64::new(1),
            gone: Notify::new(),
            entered_ms,
            schema,
            about,
        }
    }

    /// What this process tells about itself.
    pub(super) fn about(&self) -> &About {
        &self.about
    }

    pub(super) fn entered_ms(&self) -> u64 {
        self.entered_ms
    }

    /// Number of the store's schema when this process became a host.
    pub(super) fn schema(&self) -> u32 {
        self.schema
    }

    /// Sets the id of the row that this process has now.
    pub(super) fn set(&self, id: HostId) {
        let mut own = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        *own = id;
        self.beat.store(1, Ordering::Release);
    }

    /// Notes a committed sign of life.
    pub(super) fn acknowledge(&self, beat: i64) {
        self.beat.store(beat, Ordering::Release);
    }

    /// The id of the row, and its last sign of life that was committed.
    pub(super) fn acknowledged(&self) -> (HostId, i64) {
        let own = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        (*own, self.beat.load(Ordering::Acquire))
    }

    /// Tells that other hosts took this one for dead.
    pub(super) fn report_gone(&self) {
        self.gone.notify_one();
    }

    /// Waits for [`ThisHost::report_gone`].
    pub(super) async fn until_gone(&self) {
        self.gone.notified().await;
    }

    pub(crate) fn id(&self) -> HostId {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes this process a host: gives it an id and a row. The schema stays as it is meanwhile, so an upgrade
/// finds this host, or this host finds the upgrade. Returns its id and the number of the schema. After a failure
/// the connection must be closed.
///
/// # Errors
/// [`Failure::OtherSchema`], and those of the connection.
pub(super) async fn enter(session: &DatabaseSession, about: &About) -> Result<(HostId, u32), Failure> {
    let id = HostId::random()?;
    bounded(session.script(BEGIN)).await?;
    let schema = schema::check_and_hold(session).await?;
    let row = Statement::new("INSERT INTO host (id, beat, seen, about) VALUES ($1, 1, '', $2)")
        .with(id.0.to_vec(), Type::BYTEA)
        .with(about.text(id), Type::TEXT);
    bounded(row.execute(&session.client)).await?;
    bounded(session.script("COMMIT")).await?;
    Ok((id, schema))
}

/// What all hosts tell about themselves.
pub(super) async fn facts(
    session: &DatabaseSession,
    keys: &StoreKeys,
    now_ms: u64,
) -> Result<Vec<HostFacts>, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question what hosts tell");
    let rows = session.script("SELECT encode(id, 'hex'), about FROM host ORDER BY id").await?;
    let facts = |row: &Vec<Option<String>>| {
        let mut columns = row.iter().map(|column| column.as_deref().unwrap_or_default());
        let id = crate::hex::decode(columns.next()?)?.try_into().ok().map(HostId)?;
        Some(about::read(keys, id, columns.next()?, now_ms))
    };
    rows.iter().map(|row| facts(row).ok_or(UNEXPECTED)).collect()
}

/// Ends this host.
pub(super) async fn leave(session: &DatabaseSession, id: HostId) -> Result<(), Failure> {
    let delete = format!("{BEGIN}; DELETE FROM host WHERE id = decode('{id}', 'hex')");
    bounded(session.script(&delete)).await?;
    end(session, id).await?;
    bounded(session.script("COMMIT")).await.map(drop)
}

/// Ends a host whose beat still stands at this number. Of several that try, one does it. The other result
/// is that it was ended already, or shows signs of life. After a failure the connection must be closed.
pub(super) async fn bury(session: &DatabaseSession, id: HostId, beat: i64) -> Result<bool, Failure> {
    let delete = format!(
        "{BEGIN}; DELETE FROM host WHERE id = decode('{id}', 'hex') AND beat = {beat} RETURNING beat"
    );
    let is_ours = !bounded(session.script(&delete)).await?.is_empty();
    if is_ours {
        end(session, id).await?;
    }
    bounded(session.script(if is_ours { "COMMIT" } else { "ROLLBACK" })).await?;
    Ok(is_ours)
}

/// What becomes of what a host leaves behind, within the transaction that deletes its row, so that it
/// happens once. Nothing can be added to its chains after that.
async fn end(session: &DatabaseSession, id: HostId) -> Result<(), Failure> {
    let seal = format!(
        "UPDATE chain SET sealed_ms = (extract(epoch FROM now()) * 1000)::bigint \
         WHERE host = '{id}' AND sealed_ms IS NULL"
    );
    bounded(session.script(&seal)).await.map(drop)
}

/// The row of a host.
#[derive(Clone, Debug)]
pub(super) struct HostRow {
    pub(super) id: HostId,
    /// Grows with each sign of life.
    pub(super) beat: i64,
    /// How far it has seen the changes of each chain.
    pub(super) seen: Seen,
    /// Whether it serves requests, in contrast to a command.
    pub(super) serves: bool,
}

/// The columns of a row as text.
const COLUMNS: &str = "encode(id, 'hex'), beat, encode(seen, 'hex'), about NOT LIKE '%\"serves\":false%'";

/// What the transaction of a sign of life has read. It is as durable as the sign of life.
pub(super) struct Beat {
    pub(super) server: ServerId,
    /// The rows of all hosts.
    pub(super) rows: Vec<HostRow>,
    /// The last commit of each chain.
    pub(super) numbers: ChainNumbers,
}

/// Commits a sign of life with what the host tells about itself. How far its directory was read counts only on the
/// server where it was read. On another one, a commit that the host has not seen may have the number of one that it has.
///
/// It is one transaction without a word COMMIT: the server answers once it is durable. The wait for another
/// transaction is bounded by the server, so that attempts which were given up do not pile up there.
///
/// # Errors
/// [`Failure::NoHost`] where this host has no row any more.
pub(super) async fn beat(
    session: &DatabaseSession,
    id: HostId,
    DirectoryPoint { server, seen }: &DirectoryPoint,
    about: &About,
) -> Result<Beat, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("a sign of life");
    let seen = format!("decode('{}', 'hex')", crate::hex::encode(&to_bytes(seen)));
    let seen = match server {
        Some(server) => format!("CASE {} WHEN {server} THEN {seen} ELSE seen END", ServerId::SQL),
        None => seen,
    };
    let about = crate::hex::encode(about.text(id).as_bytes());
    let script = format!(
        "SET LOCAL statement_timeout = 2000; SET LOCAL synchronous_commit = on; \
         UPDATE host SET beat = beat + 1, seen = {seen}, \
         about = convert_from(decode('{about}', 'hex'), 'UTF8') WHERE id = decode('{id}', 'hex'); \
         SELECT {COLUMNS} FROM host; SELECT encode(id, 'hex'), seq FROM chain WHERE NOT retired; SELECT {}",
        ServerId::SQL
    );
    let mut answer = session.script(&script).await?;
    let server = answer.pop().and_then(|row| ServerId::parse(row.first()?.as_deref()?)).ok_or(UNEXPECTED)?;
    let (chains, rows): (Vec<_>, Vec<_>) = answer.into_iter().partition(|row| row.len() == 2);
    let rows = parse(&rows)?;
    if !rows.iter().any(|row| row.id == id) {
        return Err(Failure::NoHost);
    }
    let number = |row: &Vec<Option<String>>| {
        let [Some(chain), Some(seq)] = row.as_slice() else { return None };
        Some((ChainId(crate::hex::decode(chain)?.try_into().ok()?), seq.parse().ok()?))
    };
    let numbers = chains.iter().map(|row| number(row).ok_or(UNEXPECTED)).collect::<Result<_, _>>()?;
    Ok(Beat { server, rows, numbers })
}

/// The rows of all hosts.
pub(super) async fn all(session: &DatabaseSession) -> Result<Vec<HostRow>, Failure> {
    parse(&session.script(&format!("SELECT {COLUMNS} FROM host")).await?)
}

fn parse(rows: &[Vec<Option<String>>]) -> Result<Vec<HostRow>, Failure> {
    let row = |row: &Vec<Option<String>>| {
        let mut columns = row.iter().map(|column| column.as_deref().unwrap_or_default());
        let id = crate::hex::decode(columns.next()?)?.try_into().ok().map(HostId)?;
        let beat = columns.next()?.parse().ok()?;
        let seen = of_bytes(&crate::hex::decode(columns.next()?)?)?;
        Some(HostRow { id, beat, seen, serves: columns.next()? == "t" })
    };
    rows.iter().map(|it| row(it).ok_or(Failure::Unexpected("the question for hosts"))).collect()
}

fn to_bytes(seen: &Seen) -> Vec<u8> {
    seen.iter().flat_map(|(chain, seq)| chain.0.into_iter().chain(seq.to_be_bytes())).collect()
}

fn of_bytes(bytes: &[u8]) -> Option<Seen> {
    let (entries, rest) = bytes.as_chunks::<24>();
    let entry = |entry: &[u8; 24]| {
        let (chain, seq) = entry.split_first_chunk::<16>()?;
        Some((ChainId(*chain), i64::from_be_bytes(seq.try_into().ok()?)))
    };
    if rest.is_empty() { entries.iter().map(entry).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_has_seen_is_read_as_it_was_written() {
        let seen: Seen = [(ChainId([1; 16]), 0), (ChainId([2; 16]), i64::MAX)].into();
        let bytes = to_bytes(&seen);
        assert_eq!(of_bytes(&bytes), Some(seen));
        assert_eq!(of_bytes(&[]), Some(Seen::new()));
        assert_eq!(of_bytes(&bytes[1..]), None);
    }
}
