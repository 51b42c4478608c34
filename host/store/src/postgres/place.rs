//! Where rows are: the table of a row key, and the columns beside the row.
//!
//! A row key is the same in every engine, so a table and a key together lead back to it.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::digest::{DIGEST_BYTES, Digest};
use crate::directory::{NameKey, Record, RecordId};
use crate::ids::{VAULT_ID_BYTES, WorkspaceId};
use crate::name::Name;
use crate::rows::{self, Keyspace, RowKind};
use crate::state::Guard;
use crate::vault::{head_key, name_in, vault_of_head};

/// Number of slots that workspaces are distributed over.
const SLOTS: u16 = 1024;

/// A table with rows of one keyspace. The values of secrets share a table with their metadata.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Table {
    Store,
    Directory,
    KeyRecord,
    Ledger,
    Head,
    SecretRow,
    SecretValue,
}

impl Table {
    pub(super) fn name(self) -> &'static str {
        match self {
            Table::Store => "store",
            Table::Directory => "directory",
            Table::KeyRecord => "key_record",
            Table::Ledger => "ledger",
            Table::Head => "head",
            Table::SecretRow | Table::SecretValue => "secret",
        }
    }

    /// The column with the row.
    pub(super) fn body(self) -> &'static str {
        match self {
            Table::SecretRow => "meta",
            Table::SecretValue => "value",
            _ => "body",
        }
    }

    /// The condition for what is a row of this table's keyspace.
    pub(super) fn is_row(self) -> &'static str {
        match self {
            Table::Store => "k NOT IN ('schema'::bytea, 'positions'::bytea)",
            // Other keys are guards.
            Table::Head => "body IS NOT NULL AND k >= decode('68', 'hex') AND k < decode('69', 'hex')",
            Table::SecretRow => "meta IS NOT NULL",
            Table::SecretValue => "value IS NOT NULL",
            Table::Directory | Table::KeyRecord | Table::Ledger => "true",
        }
    }

    /// The table of a row; `None` for rows that this engine does not keep under their key.
    pub(super) fn of(keyspace: Keyspace, key: &[u8]) -> Option<Table> {
        match keyspace {
            Keyspace::Keys if key == rows::HEADER || key == crate::seal::STORE_KEYS => Some(Table::Store),
            Keyspace::Keys => match RowKind::of(key)? {
                RowKind::KeyRecord => Some(Table::KeyRecord),
                RowKind::Workspace | RowKind::Member | RowKind::Intern | RowKind::ApiKey => {
                    Some(Table::Directory)
                }
                RowKind::KeySpend | RowKind::WorkspaceSpend | RowKind::DayTotals | RowKind::Intent => {
                    Some(Table::Ledger)
                }
                RowKind::Marker | RowKind::Header => None,
            },
            Keyspace::Meta if vault_of_head(key).is_some() => Some(Table::Head),
            Keyspace::Meta => name_in(key).map(|_| Table::SecretRow),
            Keyspace::Values => name_in(key).map(|_| Table::SecretValue),
            Keyspace::Log => None,
        }
    }

    /// The keyspace of the table's rows.
    #[cfg(test)]
    pub(super) fn keyspace(self) -> Keyspace {
        match self {
            Table::Store | Table::Directory | Table::KeyRecord | Table::Ledger => Keyspace::Keys,
            Table::Head | Table::SecretRow => Keyspace::Meta,
            Table::SecretValue => Keyspace::Values,
        }
    }

    /// The tables with the rows of a keyspace.
    pub(super) fn all_of(keyspace: Keyspace) -> &'static [Table] {
        match keyspace {
            Keyspace::Keys => &[Table::Store, Table::Directory, Table::KeyRecord, Table::Ledger],
            Keyspace::Meta => &[Table::Head, Table::SecretRow],
            Keyspace::Values => &[Table::SecretValue],
            Keyspace::Log => &[],
        }
    }
}

/// Id of a chain.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct ChainId(pub(super) [u8; 16]);

impl ChainId {
    pub(super) fn random() -> Result<ChainId, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        Ok(ChainId(id))
    }

    /// The id as a constant of a statement.
    pub(super) fn literal(self) -> String {
        format!("decode('{}', 'hex')", crate::hex::encode(&self.0))
    }
}

/// A process of a server of the database: when it began, in microseconds since 1970. What was visible in it stays
/// visible in it. A standby that is promoted is another one, and may lack what was not acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ServerId(i64);

impl ServerId {
    /// What a statement asks for it with.
    pub(super) const SQL: &str = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

    /// Of a column as a number.
    pub(super) fn of(column: i64) -> ServerId {
        ServerId(column)
    }

    /// Of a column as text.
    pub(super) fn parse(column: &str) -> Option<ServerId> {
        column.parse().ok().map(ServerId)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How far a chain has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ChainEnd {
    pub(crate) seq: u64,
    pub(crate) head: Digest,
}

impl ChainEnd {
    /// The end of a chain without records.
    pub(super) const FIRST: ChainEnd = ChainEnd { seq: 0, head: [0; DIGEST_BYTES] };
}

/// The columns of the table `directory` that are derived from a record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Columns {
    pub(super) slot: i16,
    pub(super) workspace: Vec<u8>,
    pub(super) kind: i16,
    pub(super) name: Option<String>,
    pub(super) owner: Option<Vec<u8>>,
    pub(super) made_ms: i64,
}

impl Columns {
    pub(super) fn of(record: &Record) -> Columns {
        let text = |name: &Name| Some(name.as_str().to_owned());
        let (workspace, within, name, owner, made_ms) = match record {
            Record::Workspace(it) => (Some(it.id), None, text(&it.name), None, it.created_at_ms),
            Record::Member(it) => {
                (Some(it.workspace), Some(it.workspace), text(&it.name), None, it.created_at_ms)
            }
            Record::Intern(it) => {
                (Some(it.workspace), Some(it.workspace), text(&it.name), None, it.created_at_ms)
            }
            Record::Key(it) => {
                let key = &it.key;
                let owner = key.member.map(RecordId::Member).or_else(|| key.intern.map(RecordId::Intern));
                (key.workspace, key.workspace, None, owner, key.created_at_ms)
            }
        };
        Columns {
            slot: slot(workspace),
            workspace: scope(within),
            kind: kind(record.id()),
            name,
            owner: owner.map(RecordId::row_key),
            made_ms: i64::try_from(made_ms).unwrap_or(i64::MAX),
        }
    }
}

/// The column `ws` of records within a workspace, or within the store.
pub(super) fn scope(workspace: Option<WorkspaceId>) -> Vec<u8> {
    workspace.map(|id| id.as_bytes().to_vec()).unwrap_or_default()
}

/// The column `kind`: the first byte of the row key.
fn kind(id: RecordId) -> i16 {
    id.row_key().first().copied().map_or(0, i16::from)
}

/// Columns `ws`, `kind` and `name` of the record with this name.
pub(super) fn named(name: &NameKey) -> (Vec<u8>, i16, String) {
    let (workspace, kind, name) = match name {
        NameKey::Workspace(name) => (None, b'w', name),
        NameKey::Member(of, name) => (Some(*of), b'm', name),
        NameKey::Intern(of, name) => (Some(*of), b'i', name),
    };
    (scope(workspace), i16::from(kind), name.as_str().to_owned())
}

/// The name that a record has, if records of its kind have names.
pub(super) fn name_of(record: &Record) -> Option<NameKey> {
    match record {
        Record::Workspace(it) => Some(NameKey::Workspace(it.name.clone())),
        Record::Member(it) => Some(NameKey::Member(it.workspace, it.name.clone())),
        Record::Intern(it) => Some(NameKey::Intern(it.workspace, it.name.clone())),
        Record::Key(_) => None,
    }
}

/// The slot of a workspace; 0 for what belongs to none.
pub(super) fn slot(workspace: Option<WorkspaceId>) -> i16 {
    let Some(workspace) = workspace else { return 0 };
    let hash: Digest = Sha256::digest(workspace.as_bytes()).into();
    let [high, low, ..] = hash;
    (u16::from_be_bytes([high, low]) % SLOTS) as i16
}

/// Key of a guard's row in the table `head`. That of a vault is the row key of its head.
pub(super) fn guard_key(guard: Guard) -> Vec<u8> {
    let of = |kind: u8, id: WorkspaceId| [[kind].as_slice(), id.as_bytes()].concat();
    match guard {
        // One row, locked in two ways.
        Guard::Store | Guard::Header => vec![0],
        Guard::Workspace(id) => of(1, id),
        Guard::Account(id) => of(2, id),
        Guard::Quota(id) => of(3, id),
        Guard::Vault(vault) => head_key(vault),
    }
}

/// Row key of the record that a guard belongs to; it is empty for what belongs to the store.
pub(super) fn guarded_record(guard: Guard) -> Vec<u8> {
    match guard {
        Guard::Store | Guard::Header => Vec::new(),
        Guard::Workspace(id) | Guard::Account(id) | Guard::Quota(id) => rows::workspace_key(id),
        Guard::Vault(vault) => vault.to_bytes().to_vec(),
    }
}

/// Row key of the workspace or intern that a row of a vault belongs to. The id of a vault is written
/// like the row key of its owner; that of the operator is the key of no record.
pub(super) fn vault_owner(key: &[u8]) -> Vec<u8> {
    key.get(1..=VAULT_ID_BYTES).unwrap_or_default().to_vec()
}
