//! The transaction of one group of changes, and the question what became of a commit.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::feed::CHANNEL;
use super::host::HostId;
use super::load::load;
use super::place::{self, ChainEnd, ChainId};
use super::prepared::{PreparedStatements, READ_MARK, SETTINGS};
use super::statement::{InFlight, Statement, flight};
use super::write::{Written, position};
use crate::loaded::Loaded;
use crate::seal::StoreKeys;
use crate::state::{Guard, Need};

/// How long one round trip may take. The server gives each statement two seconds.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);

/// Begins a transaction that waits at least for the disk of this server, and for that of a synchronous
/// standby where the cluster has one.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL statement_timeout = 2000;
    SET LOCAL idle_in_transaction_session_timeout = 5000;
    SET LOCAL synchronous_commit = on";

/// A transaction that has locked its chain and its guards.
pub(super) struct Begun {
    /// Where its chain ends.
    pub(super) end: ChainEnd,
    /// The position that its audit record will have.
    pub(super) position: u64,
    /// What it has read.
    pub(super) loaded: Loaded,
}

/// Gives up a round trip that takes too long. The connection must not be used after that.
pub(super) async fn bounded<T>(trip: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(ROUND_TRIP_MAX, trip).await.unwrap_or(Err(Failure::Silent(ROUND_TRIP_MAX)))
}

/// Makes a new chain of a host. The row of the host is locked, so that no host that others take for dead
/// at the same time gets a chain.
pub(super) async fn make_chain(
    session: &DatabaseSession,
    chain: ChainId,
    host: HostId,
) -> Result<(), Failure> {
    let sql = "INSERT INTO chain (id, host, seq, head, changed, checked) \
               SELECT $1, $2, 0, $3, 0, 0 FROM (SELECT FROM host WHERE id = $4 FOR KEY SHARE) AS host";
    let make = Statement::new(sql)
        .with(chain.0.to_vec(), Type::BYTEA)
        .with(host.to_string(), Type::TEXT)
        .with(ChainEnd::FIRST.head.to_vec(), Type::BYTEA)
        .with(host.0.to_vec(), Type::BYTEA);
    match bounded(make.execute(&session.client)).await? {
        0 => Err(Failure::NoHost),
        _ => Ok(()),
    }
}

/// What the statements of a beginning answer.
enum Step {
    Done,
    Mark(Option<String>),
    Chain(Option<LockedChain>),
    Guards(usize),
    Loaded(Loaded),
}

/// A chain that the transaction has locked.
struct LockedChain {
    end: ChainEnd,
    is_sealed: bool,
    /// The position of what this transaction adds to it.
    position: u64,
}

/// Begins a transaction, in one round trip: locks the chain, then the guards in the order of their keys, then loads
/// what is needed. Statements that were sent often are prepared in a round trip before that.
pub(super) async fn begin(
    session: &DatabaseSession,
    keys: &StoreKeys,
    chain: ChainId,
    left: ChainEnd,
    guards: &BTreeSet<Guard>,
    needs: &BTreeSet<Need>,
) -> Result<Begun, Failure> {
    let (begin, mark) = beginning(session).await?;
    let guard_keys: Vec<Vec<u8>> = guards.iter().map(|guard| place::guard_key(*guard)).collect();
    let owners: Vec<Vec<u8>> = guards.iter().map(|guard| place::guarded_record(*guard)).collect();
    let locked_alone = guards.iter().filter(|guard| **guard != Guard::Header);
    let locked_alone: Vec<Vec<u8>> = locked_alone.map(|guard| place::guard_key(*guard)).collect();
    let alone = locked_alone.len();
    let lock = Statement::new("SELECT k FROM head WHERE k = ANY($1) ORDER BY k FOR UPDATE")
        .with(locked_alone, Type::BYTEA_ARRAY);
    // The first of all guards in their order, so no two transactions wait for each other. Two that have
    // shared it could not both lock it alone afterwards.
    let shares = guards.contains(&Guard::Header) && !guards.contains(&Guard::Store);
    let share = Statement::new("SELECT k FROM head WHERE k = $1 FOR SHARE")
        .with(place::guard_key(Guard::Header), Type::BYTEA);
    let ensure = "INSERT INTO head (k, slot) SELECT u.k, coalesce(d.slot, 0) FROM unnest($1, $2) AS u (k, owner) \
                  LEFT JOIN directory d ON d.k = u.owner ORDER BY u.k ON CONFLICT (k) DO NOTHING";
    let ensure = Statement::new(ensure).with(guard_keys, Type::BYTEA_ARRAY).with(owners, Type::BYTEA_ARRAY);
    let lock_chain =
        format!("SELECT seq, head, sealed_ms, {} FROM chain WHERE id = $1 FOR UPDATE", position());
    let lock_chain = Statement::new(lock_chain).with(chain.0.to_vec(), Type::BYTEA);
    let mut statements: Vec<InFlight<'_, Result<Step, Failure>>> = vec![
        Box::pin(async {
            let rows = session.script(&begin).await?;
            Ok(Step::Mark(rows.into_iter().flatten().flatten().next()))
        }),
        Box::pin(async { lock_chain_end(&lock_chain, session).await.map(Step::Chain) }),
        Box::pin(async { ensure.execute_prepared(session).await.map(|_| Step::Done) }),
    ];
    if shares {
        statements.push(Box::pin(async {
            let rows = share.rows_prepared(session, usize::MAX, |_| Ok(0)).await?;
            if rows.is_empty() { Err(Failure::GuardGone) } else { Ok(Step::Done) }
        }));
    }
    statements.extend::<[InFlight<'_, Result<Step, Failure>>; 2]>([
        Box::pin(async {
            let rows = lock.rows_prepared(session, usize::MAX, |_| Ok(0)).await?;
            Ok(Step::Guards(rows.len()))
        }),
        Box::pin(async {
            let mut loaded = Loaded::default();
            load(session, keys, needs, &mut loaded).await?;
            Ok(Step::Loaded(loaded))
        }),
    ]);
    let answers = bounded(async { Ok(flight(statements).await) }).await?;
    let mut begun = Begun { end: left, position: 0, loaded: Loaded::default() };
    for answer in answers {
        match answer? {
            Step::Done => {}
            Step::Mark(found) if found.as_deref() == mark => {}
            Step::Mark(_) => return Err(Failure::NotPrepared),
            Step::Chain(Some(LockedChain { is_sealed: true, .. })) => return Err(Failure::Sealed),
            Step::Chain(Some(LockedChain { end, position, .. })) if end == left => begun.position = position,
            Step::Chain(None) if left == ChainEnd::FIRST => return Err(Failure::NoChain),
            Step::Chain(found) => {
                let found = found.map(|chain| chain.end.seq);
                return Err(Failure::ChainChanged { found, left: left.seq });
            }
            Step::Guards(locked) if locked == alone => {}
            Step::Guards(_) => return Err(Failure::GuardGone),
            Step::Loaded(loaded) => begun.loaded = loaded,
        }
    }
    Ok(begun)
}

/// Prepares what is sent often. Returns the text that begins a transaction, and what it answers: the mark of the
/// session of the server that has the prepared statements, if there are any.
async fn beginning(session: &DatabaseSession) -> Result<(Cow<'static, str>, Option<&str>), Failure> {
    let Some(prepared) = &session.prepared else { return Ok((BEGIN.into(), None)) };
    prepare_often_sent(session, prepared).await?;
    if !prepared.has_any() {
        return Ok((BEGIN.into(), None));
    }
    Ok((format!("{BEGIN}; {SETTINGS}; {READ_MARK}").into(), Some(prepared.mark())))
}

/// Prepares what was sent often, between two transactions, in one round trip.
///
/// # Errors
/// [`Failure::NotPrepared`] where the server refuses to prepare a statement, or has another session for each
/// transaction; another [`Failure`] that passes.
async fn prepare_often_sent(session: &DatabaseSession, prepared: &PreparedStatements) -> Result<(), Failure> {
    enum Answer {
        Mark(Option<String>),
        Prepared(String, tokio_postgres::Statement),
        Done,
    }
    let often = prepared.often_sent();
    if often.is_empty() {
        return Ok(());
    }
    let (set_mark, begin) = (prepared.set_mark(), format!("{BEGIN}; {READ_MARK}"));
    let mut statements: Vec<InFlight<'_, Result<Answer, Failure>>> = Vec::new();
    if !prepared.has_any() {
        statements.push(Box::pin(async { session.script(&set_mark).await.map(|_| Answer::Done) }));
    }
    // A transaction keeps a pooler from changing the session.
    statements.push(Box::pin(async {
        let rows = session.script(&begin).await?;
        Ok(Answer::Mark(rows.into_iter().flatten().flatten().next()))
    }));
    for (sql, types) in &often {
        statements.push(Box::pin(async {
            let statement = session.client.prepare_typed(sql, types).await?;
            Ok(Answer::Prepared(sql.clone(), statement))
        }));
    }
    // What was prepared stays.
    statements.push(Box::pin(async { session.script("ROLLBACK").await.map(|_| Answer::Done) }));
    let answers = bounded(async { Ok(flight(statements).await) }).await?;
    let mut found = Vec::new();
    for answer in answers {
        match answer {
            Ok(Answer::Mark(mark)) if mark.as_deref() == Some(prepared.mark()) => {}
            Ok(Answer::Mark(_)) => return Err(Failure::NotPrepared),
            Ok(Answer::Prepared(sql, statement)) => found.push((sql, statement)),
            Ok(Answer::Done) => {}
            Err(failure) if failure.is_transient() => return Err(failure),
            Err(failure) => {
                tracing::info!(%failure, "the database does not prepare a statement");
                return Err(Failure::NotPrepared);
            }
        }
    }
    prepared.add(found);
    Ok(())
}

/// Locks the chain.
async fn lock_chain_end(lock: &Statement, session: &DatabaseSession) -> Result<Option<LockedChain>, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the lock of a chain");
    let rows = lock.rows_prepared(session, usize::MAX, |_| Ok(0)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let seq: i64 = row.try_get(0).map_err(|_| UNEXPECTED)?;
    let head: &[u8] = row.try_get(1).map_err(|_| UNEXPECTED)?;
    let sealed: Option<i64> = row.try_get(2).map_err(|_| UNEXPECTED)?;
    let position: i64 = row.try_get(3).map_err(|_| UNEXPECTED)?;
    let [seq, position] = [seq, position].map(u64::try_from);
    let head = head.try_into().map_err(|_| UNEXPECTED)?;
    let end = ChainEnd { seq: seq.map_err(|_| UNEXPECTED)?, head };
    let position = position.map_err(|_| UNEXPECTED)?;
    Ok(Some(LockedChain { end, is_sealed: sealed.is_some(), position }))
}

/// Loads more rows within the transaction.
pub(super) async fn load_more(
    session: &DatabaseSession,
    keys: &StoreKeys,
    needs: &BTreeSet<Need>,
    loaded: &mut Loaded,
) -> Result<(), Failure> {
    bounded(load(session, keys, needs, loaded)).await
}

/// Gives the transaction up.
pub(super) async fn rollback(session: &DatabaseSession) -> Result<(), Failure> {
    bounded(session.script("ROLLBACK")).await.map(drop)
}

/// How COMMIT ended.
#[derive(Debug)]
pub(super) enum Committed {
    /// It is durable. Tells whether there are other hosts, if it changes records.
    Yes { has_others: bool },
    /// Nothing was committed.
    No(Failure),
    /// Only the database knows.
    InDoubt(Failure),
}

/// Writes and commits, in one round trip.
///
/// The server answers COMMIT of a failed transaction with ROLLBACK, which the client library takes
/// for success. So COMMIT counts only with the number of the chain that is read after it.
pub(super) async fn commit(
    session: &DatabaseSession,
    chain: ChainId,
    before: ChainEnd,
    written: &Written,
) -> Committed {
    // Asked after COMMIT: a host that is not there yet reads the directory after this commit.
    let others = match written.changes_kept {
        true => "EXISTS (SELECT FROM host WHERE encode(host.id, 'hex') <> chain.host)",
        false => "false",
    };
    let commit = format!("COMMIT; SELECT seq, {others} FROM chain WHERE id = {}", chain.literal());
    let notify = format!("NOTIFY {CHANNEL}");
    let mut statements: Vec<InFlight<'_, Result<Option<NumberAfter>, Failure>>> = Vec::new();
    for statement in &written.statements {
        statements.push(Box::pin(async { statement.execute_prepared(session).await.map(|_| None) }));
    }
    statements.push(Box::pin(async { session.script(&commit).await.map(|rows| number_in(&rows)) }));
    if written.changes_kept {
        // A transaction of its own: a commit with a notification takes a lock of the whole server. Hosts
        // that get none find the change at their next look.
        statements.push(Box::pin(async {
            if let Err(failure) = session.script(&notify).await {
                tracing::debug!(%failure, "other hosts were not notified of a change");
            }
            Ok(None)
        }));
    }
    session.take_warning();
    let answers = match bounded(async { Ok(flight(statements).await) }).await {
        Ok(answers) => answers,
        Err(failure) => return Committed::InDoubt(failure),
    };
    let mut found = None;
    let mut ended = None;
    for answer in answers {
        match answer {
            Ok(number) => found = number.or(found),
            // The first failure is the cause of those after it.
            Err(failure) => ended = ended.or(Some(failure)),
        }
    }
    let is_warned = session.take_warning();
    match (found, ended) {
        (Some((seq, has_others)), None) if seq == written.end.seq && !is_warned => {
            Committed::Yes { has_others }
        }
        (Some((seq, _)), failure) if seq == before.seq => {
            Committed::No(failure.unwrap_or(Failure::Unexpected("COMMIT")))
        }
        (None, Some(failure)) if failure.is_rollback() => Committed::No(failure),
        (_, failure) => Committed::InDoubt(failure.unwrap_or(Failure::Unexpected("COMMIT"))),
    }
}

/// The number of the chain after COMMIT, and whether there are other hosts.
type NumberAfter = (u64, bool);

fn number_in(rows: &[Vec<Option<String>>]) -> Option<NumberAfter> {
    let [Some(seq), others] = rows.last()?.as_slice() else { return None };
    Some((seq.parse().ok()?, others.as_deref() == Some("t")))
}

/// Asks the database where the chain ends, on a new connection, with a write: a commit that was
/// neither replicated nor acknowledged can be visible for a while and be gone later, but what a later
/// acknowledged commit builds on is as durable as that commit. The write waits for the transaction in
/// doubt, which holds the row until it ends. `None`: the database has no such chain.
pub(super) async fn resolve(
    database: &Database,
    chain: ChainId,
) -> Result<(DatabaseSession, Option<ChainEnd>), Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question where a chain ends");
    let session = database.connect_lane().await?;
    let id = chain.literal();
    let script = format!(
        "{BEGIN}; UPDATE chain SET checked = checked + 1 WHERE id = {id} RETURNING seq, encode(head, 'hex'); COMMIT"
    );
    let rows = bounded(session.script(&script)).await?;
    if session.take_warning() {
        return Err(UNEXPECTED);
    }
    let Some(row) = rows.first() else { return Ok((session, None)) };
    let mut columns = row.iter().map(|column| column.as_deref().unwrap_or_default());
    let seq = columns.next().and_then(|seq| seq.parse().ok()).ok_or(UNEXPECTED)?;
    let head = columns.next().and_then(crate::hex::decode).ok_or(UNEXPECTED)?;
    let head = head.as_slice().try_into().map_err(|_| UNEXPECTED)?;
    Ok((session, Some(ChainEnd { seq, head })))
}
