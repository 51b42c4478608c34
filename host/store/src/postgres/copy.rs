//! Copying a whole store into an empty database: that of a data directory, or a backup.
//!
//! The copy is one transaction. It is checked before it is committed, so other hosts see a whole and valid
//! store or none.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::begin::{row, unusable, wait};
use super::conclusion::conclude;
use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::place::{ChainId, Table};
use super::readers::{CommittedState, Moment, Readers};
use super::schema;
use super::statement::{Statement, flight};
use super::transaction::bounded;
use super::write::{self, TableChanges};
use crate::audit::AuditRecord;
use crate::changes::Intent;
use crate::check::{Verification, check};
use crate::commit::RowChange;
use crate::digest::Digest;
use crate::directory::Directory;
use crate::error::{Error, OpenError};
use crate::header::Header;
use crate::log::{ChainEnd, ChainKey, ImportedPlace, LogKey};
use crate::operation::{Progress, VaultError, tell};
use crate::rows::{self, KEYS, Keyspace, LOG, META, Marker, RowKind, SetHash};
use crate::seal::StoreKeys;
use crate::vault::{VaultReader, vault_of_head};

/// Rows and bytes that are sent at once.
const BATCH_ROWS: u64 = 1_000;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// How long a batch, and the commit, may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// What the chain of the copied store belongs to: no host adds to it.
const NO_HOST: &str = "a copy";

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = 5000;
    SET LOCAL statement_timeout = 600000;
    SET LOCAL idle_in_transaction_session_timeout = 600000;
    SET LOCAL synchronous_commit = on;
    LOCK TABLE store IN EXCLUSIVE MODE";

/// A copy that is being made.
pub(crate) struct Copy<'k> {
    database: Arc<Database>,
    runtime: Handle,
    keys: &'k Arc<StoreKeys>,
    session: Option<DatabaseSession>,
    /// What the chain of a data directory becomes.
    chain: ChainId,
    /// The header as it is in the copy.
    header: Vec<u8>,
    batch: Batch,
    /// The day of the commit whose rows of the log come next.
    day: i32,
    /// Number of audit records, and whether any is of the chain of a data directory.
    records: u64,
    has_own_chain: bool,
    /// The sets of rows as the markers of the source say, and as they were read.
    marked: [Option<SetHash>; 2],
    found: [SetHash; 2],
    /// The set of the rows of `keys` as they are in the copy.
    written: SetHash,
    rows: u64,
}

/// Rows that are sent together.
#[derive(Default)]
struct Batch {
    tables: BTreeMap<Table, TableChanges>,
    secrets: Vec<RowChange>,
    values: Vec<RowChange>,
    chains: Chains,
    audit: LogRows,
    usage: LogRows,
    rows: u64,
    bytes: usize,
}

/// Chains that were in a database before, as columns.
#[derive(Default)]
struct Chains {
    ids: Vec<Vec<u8>>,
    hosts: Vec<String>,
    seqs: Vec<i64>,
    heads: Vec<Vec<u8>>,
}

/// Rows of the log, as columns.
#[derive(Default)]
struct LogRows {
    days: Vec<i32>,
    chains: Vec<Vec<u8>>,
    seqs: Vec<i64>,
    positions: Vec<i64>,
    parts: Vec<i32>,
    bodies: Vec<Vec<u8>>,
}

impl<'k> Copy<'k> {
    /// Begins a copy of the store with these keys.
    ///
    /// # Errors
    /// [`OpenError::StoreExists`], [`OpenError::Database`].
    pub(crate) fn begin(
        database: &Arc<Database>,
        runtime: &Handle,
        keys: &'k Arc<StoreKeys>,
    ) -> Result<Copy<'k>, OpenError> {
        let begun = wait(runtime, async || {
            let session = database.connect().await?;
            schema::migrate(&session).await?;
            session.script(BEGIN).await?;
            let is_free = row(&session, rows::HEADER).await?.is_none();
            Ok((session, is_free, ChainId::random()?))
        });
        let (session, is_free, chain) = begun?;
        if !is_free {
            return Err(OpenError::StoreExists);
        }
        Ok(Copy {
            database: Arc::clone(database),
            runtime: runtime.clone(),
            keys,
            session: Some(session),
            chain,
            header: Vec::new(),
            batch: Batch::default(),
            day: 0,
            records: 0,
            has_own_chain: false,
            marked: [None; 2],
            found: [SetHash::default(); 2],
            written: SetHash::default(),
            rows: 0,
        })
    }

    /// Copies a row. The rows of a store come keyspace by keyspace, those of the log in ascending order.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`OpenError::Database`].
    pub(crate) fn row(&mut self, keyspace: Keyspace, key: &[u8], row: &[u8]) -> Result<(), VaultError> {
        self.rows += 1;
        match keyspace {
            Keyspace::Keys => self.key_row(key, row)?,
            Keyspace::Meta if key == rows::MARKER => self.marked[1] = Some(self.marker(META, row)?),
            Keyspace::Meta => {
                if vault_of_head(key).is_some() {
                    self.found[1].add(&self.keys.element(key, row));
                }
                self.put(keyspace, key, row)?;
            }
            Keyspace::Values if key == rows::MARKER => {}
            Keyspace::Values => self.put(keyspace, key, row)?,
            Keyspace::Log => self.log_row(key, row)?,
        }
        self.batch.rows += 1;
        self.batch.bytes += key.len() + row.len();
        if self.batch.rows >= BATCH_ROWS || self.batch.bytes >= BATCH_BYTES {
            self.send()?;
        }
        Ok(())
    }

    fn key_row(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        match RowKind::of(key).ok_or(Error::Damaged)? {
            RowKind::Marker => {
                self.marked[0] = Some(self.marker(KEYS, row)?);
                return Ok(());
            }
            RowKind::Intent => {
                self.found[0].add(&self.keys.element(key, row));
                return self.intent(key, row);
            }
            RowKind::Header => {
                self.found[0].add(&self.keys.element(key, row));
                return self.header(key, row);
            }
            _ => self.found[0].add(&self.keys.element(key, row)),
        }
        self.written.add(&self.keys.element(key, row));
        self.put(Keyspace::Keys, key, row)
    }

    /// A request that was running when a backup was made. It becomes one of a host that is gone, so it is
    /// charged by the first host that looks for those.
    fn intent(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let intent: Intent = rows::decode(self.keys, KEYS, key, row).ok_or(Error::Damaged)?;
        let key = intent.shared_key();
        let row = rows::encode(self.keys, KEYS, &key, &intent);
        self.written.add(&self.keys.element(&key, &row));
        self.put(Keyspace::Keys, &key, &row)
    }

    /// A store in a database has no other format with chains of several hosts than without.
    fn header(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let header: Header = rows::decode(self.keys, KEYS, key, row).ok_or(Error::Damaged)?;
        let row = rows::encode(self.keys, KEYS, key, &header.with_chains(false));
        self.written.add(&self.keys.element(key, &row));
        self.put(Keyspace::Keys, key, &row)?;
        self.header = row;
        Ok(())
    }

    fn marker(&self, keyspace: &str, row: &[u8]) -> Result<SetHash, Error> {
        Marker::decode(self.keys, keyspace, row).map(|marker| marker.set).ok_or(Error::Damaged)
    }

    fn put(&mut self, keyspace: Keyspace, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let (key, table) = (key.to_vec(), Table::of(keyspace, key).ok_or(Error::Damaged)?);
        let row = row.to_vec();
        match table {
            Table::SecretRow => self.batch.secrets.push((key, Some(row))),
            Table::SecretValue => self.batch.values.push((key, Some(row))),
            table => self.batch.tables.entry(table).or_default().put.push((key, row)),
        }
        Ok(())
    }

    fn log_row(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        if key == rows::MARKER {
            return Ok(());
        }
        let at = match LogKey::parse(key).ok_or(Error::Damaged)? {
            LogKey::Chain(chain) => {
                let end: ChainEnd = rows::decode(self.keys, LOG, key, row).ok_or(Error::Damaged)?;
                self.batch.chains.add(chain, end);
                return Ok(());
            }
            LogKey::Imported(at) => at,
            // Its positions are the numbers of its commits.
            LogKey::Own(seq, index) => {
                self.has_own_chain = true;
                ImportedPlace { position: seq, chain: self.chain.0, seq, index }
            }
        };
        let rows = match at.index {
            0 => {
                let record: AuditRecord = rows::decode_body(row).ok_or(Error::Damaged)?;
                self.day = write::day(record.at_ms);
                self.records += 1;
                &mut self.batch.audit
            }
            _ => &mut self.batch.usage,
        };
        rows.days.push(self.day);
        rows.chains.push(at.chain.to_vec());
        rows.seqs.push(write::number(at.seq));
        rows.positions.push(write::number(at.position));
        rows.parts.push(i32::try_from(at.index).map_err(|_| Error::Damaged)? - 1);
        rows.bodies.push(row.to_vec());
        Ok(())
    }

    /// Sends what waits.
    fn send(&mut self) -> Result<(), VaultError> {
        let batch = std::mem::take(&mut self.batch);
        let statements = batch.statements(self.keys)?;
        Ok(self.run(statements)?)
    }

    fn run(&mut self, statements: Vec<Statement>) -> Result<(), OpenError> {
        let session = self.session.take();
        let session = wait(&self.runtime, async || {
            let session = session.ok_or(Failure::Unexpected("a copy"))?;
            let client = &session.client;
            let all = statements.iter().map(|statement| Box::pin(statement.execute(client)) as _).collect();
            let answers = timeout(PATIENCE, flight(all)).await.map_err(|_| Failure::Silent(PATIENCE))?;
            answers.into_iter().collect::<Result<Vec<u64>, Failure>>()?;
            Ok(session)
        })?;
        self.session = Some(session);
        Ok(())
    }

    /// Ends the copy of a store whose chain ends like this: checks all of it, and commits it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the copy is not the source, [`OpenError::Database`], [`VaultError::Stopped`].
    pub(crate) fn finish(
        mut self,
        (seq, head): (u64, Digest),
        directory: Arc<Directory>,
        progress: &mut Progress<'_>,
    ) -> Result<(Verification, u64), VaultError> {
        self.send()?;
        let own = self.has_own_chain.then_some((self.chain, seq, head));
        let chain = own.map(|(chain, seq, head)| self::chain(chain, seq, head));
        self.run([slots_of_key_records(), positions(seq)].into_iter().chain(chain).collect())?;
        tell(progress, "rows copied", self.rows, self.rows)?;
        if self.marked != self.found.map(Some) {
            tracing::error!("the rows of the source are not those of its last commit");
            return Err(Error::Damaged.into());
        }
        let checked = self.check(seq, directory, progress)?;
        self.commit(own)?;
        Ok((checked, self.rows))
    }

    /// Checks the copy as its transaction sees it.
    fn check(
        &mut self,
        seq: u64,
        directory: Arc<Directory>,
        progress: &mut Progress<'_>,
    ) -> Result<Verification, VaultError> {
        let readers = Readers::new(Arc::clone(&self.database), Arc::clone(self.keys), self.runtime.clone());
        let readers = Arc::new(readers);
        let session = self.session.take().ok_or(Error::Closed)?;
        let moment = Rc::new(Moment::within(&readers, session).map_err(unusable)?);
        let state = CommittedState::of(&moment, directory);
        let view = VaultReader::new(Arc::clone(self.keys)).view(Box::new(state));
        let checked = check(&view, (seq, Digest::default()), progress)?;
        drop(view);
        self.session = Rc::into_inner(moment).and_then(Moment::into_session);
        let is_same =
            checked.content.sets == [self.written, self.found[1]] && checked.audit_records == self.records;
        if let Some(problem) =
            checked.problems.first().map_or_else(|| (!is_same).then_some("rows differ"), |it| Some(it))
        {
            tracing::error!(problem, "the copy is not the store that was copied");
            return Err(Error::Damaged.into());
        }
        Ok(checked)
    }

    /// Commits, and looks for the copy: the answer may be lost, and COMMIT of a failed transaction is
    /// answered like one that succeeded.
    fn commit(&mut self, own: Option<(ChainId, u64, Digest)>) -> Result<(), OpenError> {
        let Copy { database, runtime, header, session, .. } = self;
        let session = session.take();
        wait(runtime, async || {
            let session = session.ok_or(Failure::Unexpected("a copy"))?;
            if let Err(failure) = timeout(PATIENCE, session.script("COMMIT")).await.unwrap_or(Ok(Vec::new()))
            {
                tracing::warn!(%failure, "the answer to the commit of the copy was lost; the database is asked");
            }
            drop(session);
            let chain = own.map_or_else(
                || "true".to_owned(),
                |(chain, seq, head)| {
                    let (id, head) = (chain.literal(), crate::hex::encode(&head));
                    format!(
                        "EXISTS (SELECT FROM chain WHERE id = {id} AND seq = {seq} AND head = decode('{head}', 'hex'))"
                    )
                },
            );
            conclude(database, "store", header, &chain).await
        })
    }
}

/// Whether the database has a copy of the store with these keys whose chain ends like this.
///
/// # Errors
/// [`OpenError::Database`].
pub(crate) fn has_copy(
    database: &Arc<Database>,
    runtime: &Handle,
    keys: &StoreKeys,
    (seq, head): (u64, Digest),
) -> Result<bool, OpenError> {
    let store = keys.store_id();
    wait(runtime, async || {
        let session = database.connect().await?;
        let header: Option<Header> =
            row(&session, rows::HEADER).await?.and_then(|row| rows::decode_unchecked(&row));
        if header.is_none_or(|header| header.store != store) {
            return Ok(false);
        }
        let asks = Statement::new("SELECT 1 FROM chain WHERE host = $1 AND seq = $2 AND head = $3")
            .with(NO_HOST, Type::TEXT)
            .with(write::number(seq), Type::INT8)
            .with(head.to_vec(), Type::BYTEA);
        Ok(!bounded(asks.rows(&session.client, usize::MAX, |_| Ok(0))).await?.is_empty())
    })
}

impl Batch {
    fn statements(mut self, keys: &StoreKeys) -> Result<Vec<Statement>, Error> {
        let mut statements = Vec::new();
        if let Some(records) = self.tables.remove(&Table::Directory) {
            write::put_records(&mut statements, keys, records)?;
        }
        for (table, changes) in self.tables {
            write::put_rows(&mut statements, table, changes);
        }
        write::put_secrets(&mut statements, self.secrets, Vec::new())?;
        write::put_secrets(&mut statements, Vec::new(), self.values)?;
        self.chains.statement(&mut statements);
        self.audit.statement(&mut statements, AUDIT);
        self.usage.statement(&mut statements, USAGE);
        Ok(statements)
    }
}

const AUDIT: &str = "INSERT INTO audit (day, chain, seq, position, body) \
    SELECT day, chain, seq, position, body FROM unnest($1, $2, $3, $4, $5, $6) \
    AS u (day, chain, seq, position, part, body)";
const USAGE: &str = "INSERT INTO usage (day, chain, seq, part, position, body) \
    SELECT day, chain, seq, part, position, body FROM unnest($1, $2, $3, $4, $5, $6) \
    AS u (day, chain, seq, position, part, body)";

impl LogRows {
    fn statement(self, statements: &mut Vec<Statement>, sql: &'static str) {
        if self.bodies.is_empty() {
            return;
        }
        statements.push(
            Statement::new(sql)
                .with(self.days, Type::INT4_ARRAY)
                .with(self.chains, Type::BYTEA_ARRAY)
                .with(self.seqs, Type::INT8_ARRAY)
                .with(self.positions, Type::INT8_ARRAY)
                .with(self.parts, Type::INT4_ARRAY)
                .with(self.bodies, Type::BYTEA_ARRAY),
        );
    }
}

impl Chains {
    fn add(&mut self, chain: ChainKey, end: ChainEnd) {
        self.ids.push(chain.to_vec());
        self.hosts.push(end.host);
        self.seqs.push(write::number(end.seq));
        self.heads.push(end.head.to_vec());
    }

    fn statement(self, statements: &mut Vec<Statement>) {
        if self.ids.is_empty() {
            return;
        }
        let sql = "INSERT INTO chain (id, host, seq, head, changed, checked, sealed_ms, retired) \
                   SELECT id, host, seq, head, 0, 0, (extract(epoch FROM now()) * 1000)::bigint, true \
                   FROM unnest($1, $2, $3, $4) AS u (id, host, seq, head)";
        statements.push(
            Statement::new(sql)
                .with(self.ids, Type::BYTEA_ARRAY)
                .with(self.hosts, Type::TEXT_ARRAY)
                .with(self.seqs, Type::INT8_ARRAY)
                .with(self.heads, Type::BYTEA_ARRAY),
        );
    }
}

/// Key records come before the records of their owners, which have the slots.
fn slots_of_key_records() -> Statement {
    Statement::new(
        "UPDATE key_record SET slot = d.slot FROM directory d \
         WHERE d.k = substr(key_record.k, 2, length(d.k)) AND key_record.slot <> d.slot",
    )
}

/// The chain of the copied store. No host adds to it.
fn chain(chain: ChainId, seq: u64, head: Digest) -> Statement {
    let sql = "INSERT INTO chain (id, host, seq, head, changed, checked, sealed_ms, retired) \
               VALUES ($1, $2, $3, $4, 0, 0, (extract(epoch FROM now()) * 1000)::bigint, true)";
    Statement::new(sql)
        .with(chain.0.to_vec(), Type::BYTEA)
        .with(NO_HOST, Type::TEXT)
        .with(write::number(seq), Type::INT8)
        .with(head.to_vec(), Type::BYTEA)
}

/// Positions of later rows are above those of the copied ones.
fn positions(seq: u64) -> Statement {
    Statement::new("INSERT INTO store (k, body) VALUES ('positions'::bytea, convert_to($1, 'UTF8'))")
        .with(seq.to_string(), Type::TEXT)
}
