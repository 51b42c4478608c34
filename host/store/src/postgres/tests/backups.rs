//! Backups of stores in databases, and stores restored from them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cofferdam_test_postgres::{self as kit, Pair};

use super::OPERATOR;
use super::stores::Place;
use crate::audit::{AuditAction, AuditRecord};
use crate::backup::LastBackup;
use crate::database::Database;
use crate::fjall;
use crate::ids::{VaultId, WorkspaceId};
use crate::ledger::Balance;
use crate::operation::VaultError;
use crate::root_key::RootKeySource;
use crate::rows::Keyspace;
use crate::scratch::{Now, ScratchDirectory, create_workspace, go_on, issue_key, put, token};
use crate::state::RowRange;
use crate::store::{OpenOptions, Store};
use crate::token::KeyId;
use crate::usage::{UsageKind, UsageOutcome, UsageRow};

/// A store in a database that two hosts have open.
pub(super) struct Shared {
    pub(super) place: Place,
    pub(super) hosts: [Store; 2],
    workspace: WorkspaceId,
    token: String,
}

/// What must be the same in every copy.
#[derive(Debug, PartialEq)]
pub(super) struct Seen {
    audit: Vec<(u64, AuditRecord)>,
    requests: Vec<String>,
    secrets: Vec<String>,
    balance: Balance,
    credit: u64,
}

/// A request that ends. Every now and then, its row is committed before the next one.
fn request(host: &Store, workspace: WorkspaceId, key: KeyId, at: usize, number: u64) {
    let row = UsageRow::begun(format!("r_{at}_{number}"), workspace, key, UsageKind::Responses, false);
    let request = host.reserve(row).now().unwrap();
    request.note(|row| row.cost_pico = number);
    request.settle(UsageOutcome::Completed);
    if number.is_multiple_of(30) {
        host.flush().unwrap();
    }
}

impl Shared {
    /// A store with all kinds of rows, made by two hosts, and with one request that runs.
    pub(super) fn new(name: &str) -> Option<Shared> {
        let place = Place::new(name)?;
        place.create().unwrap();
        let hosts = [place.open(), place.open()];
        let workspace = create_workspace(&hosts[0], "shared").id;
        super::stores::until(|| hosts[1].workspace(workspace).now().is_ok_and(|it| it.is_some()));
        hosts[1].add_credit(OPERATOR, workspace, 1_000_000).unwrap();
        let key = issue_key(&hosts[1]);
        let shared = Shared { place, hosts, workspace, token: token(&key) };
        for (at, host) in shared.hosts.iter().enumerate() {
            for number in 0..5 {
                put(host, shared.vault(), &format!("secret_{at}_{number}"), "a value");
            }
            (0..150).for_each(|number| request(host, workspace, key.key.id, at, number));
            host.flush().unwrap();
        }
        Some(shared)
    }

    pub(super) fn vault(&self) -> VaultId {
        VaultId::Workspace(self.workspace)
    }

    pub(super) fn seen(&self, store: &Store) -> Seen {
        let entries = store.list_secrets(self.vault(), 0, 100).now().unwrap().entries;
        let balance = store.balance(self.workspace).now().unwrap();
        assert!(store.authenticate(&self.token).now().is_ok());
        Seen {
            audit: store.placed_audit_records(0, 10_000).now().unwrap(),
            requests: store.usage_rows(1_000).now().unwrap().into_iter().map(|row| row.request_id).collect(),
            secrets: entries.iter().map(|it| it.name.to_string()).collect(),
            credit: balance.spent_pico,
            balance,
        }
    }

    /// An empty data directory with the root key.
    pub(super) fn directory(&self) -> ScratchDirectory {
        let scratch = ScratchDirectory::new();
        std::fs::copy(self.root_key(), scratch.path("root.key")).unwrap();
        scratch
    }

    fn root_key(&self) -> PathBuf {
        self.place.folder().join("root.key")
    }

    /// A database without a store.
    fn database(&self, name: &str) -> Database {
        Database::of_test(&cofferdam_test_postgres::Server::shared().unwrap().database(name).unwrap())
    }

    pub(super) fn options(&self) -> OpenOptions {
        self.place.options("root.key")
    }
}

/// The store of a data directory.
pub(super) fn open(scratch: &ScratchDirectory) -> Store {
    Store::open(scratch.lock(), scratch.options()).unwrap()
}

fn assert_whole(store: &Store) {
    assert_eq!(store.verify(&mut go_on).unwrap().problems, [""; 0]);
}

/// Checks that a store begins as another one was, and goes on.
pub(super) fn assert_continues(shared: &Shared, before: &Seen, store: &Store) {
    let mut now = shared.seen(store);
    let last = before.audit.last().unwrap().0;
    let added = now.audit.split_off(before.audit.len());
    assert!(!added.is_empty() && added.iter().all(|(position, _)| *position > last), "{added:?}");
    assert_eq!(&now, before);
    assert_eq!(store.placed_audit_records(last, 1_000).now().unwrap(), added, "a position is still a cursor");
    let middle = before.audit[before.audit.len() / 2].0;
    let rest = store.placed_audit_records(middle, 1_000).now().unwrap();
    assert_eq!(rest.len(), before.audit.len() - before.audit.len() / 2 - 1 + added.len());
    let all = store.placed_audit_records(0, 10_000).now().unwrap();
    for end in 0..=all.len() {
        let position = all.get(end).map(|(position, _)| *position);
        for limit in [1, 3, 10_000] {
            let newest = store.newest_audit_records(position, limit).now().unwrap();
            assert_eq!(newest, all[end.saturating_sub(limit)..end], "{limit} before {position:?}");
        }
    }
    assert_whole(store);
    put(store, shared.vault(), "after", "x");
    let permit = store.queue_permit().now().unwrap();
    store.delete_secret(permit, OPERATOR, shared.vault(), "after".parse().unwrap()).now().unwrap();
    assert_whole(store);
}

#[test]
fn a_backup_made_while_hosts_serve_is_restored_into_a_directory_and_into_a_database() {
    let Some(shared) = Shared::new("backups_both") else { return };
    let before = shared.seen(&shared.hosts[0]);
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    shared.hosts[0].note_backups_in(folder.path());
    let made = shared.hosts[0].backup(&backup, &mut go_on).unwrap();
    assert_eq!(made.seq, before.audit.last().unwrap().0);
    let noted = LastBackup::read(folder.path()).unwrap().unwrap();
    assert_eq!((noted.path, noted.seq), (backup.clone(), made.seq));
    put(&shared.hosts[1], shared.vault(), "too_late", "value");

    let scratch = shared.directory();
    let done = Store::restore(&scratch.lock(), &scratch.options(), &backup, &mut go_on).unwrap();
    assert_eq!((done.rows, done.secrets, done.keys), (made.rows, 10, 1));
    assert_eq!(done.audit_records, before.audit.len() as u64);
    let embedded = open(&scratch);
    assert_continues(&shared, &before, &embedded);
    let actions: Vec<AuditAction> = embedded
        .audit_records(made.seq, 1)
        .now()
        .unwrap()
        .into_iter()
        .flat_map(|record| record.entries)
        .map(|entry| entry.action)
        .collect();
    assert!(
        matches!(
            &actions[..],
            [AuditAction::ChainsImported { chains: 3.., .. }, AuditAction::Restored { .. }]
        ),
        "{actions:?}"
    );

    let database = shared.database("backups_both_restored");
    Store::restore_into(&database, &shared.options(), &backup, &mut go_on).unwrap();
    let there = Store::open_in(&database, &shared.options()).unwrap();
    assert_continues(&shared, &before, &there);

    // From the directory into a directory and into databases, and from there into a directory again.
    let before = shared.seen(&embedded);
    let again = folder.path().join("again");
    embedded.backup(&again, &mut go_on).unwrap();
    let second = shared.directory();
    Store::restore(&second.lock(), &second.options(), &again, &mut go_on).unwrap();
    assert_continues(&shared, &before, &open(&second));
    let database = shared.database("backups_both_again");
    Store::restore_into(&database, &shared.options(), &again, &mut go_on).unwrap();
    assert_continues(&shared, &before, &Store::open_in(&database, &shared.options()).unwrap());
    let database = shared.database("backups_both_moved");
    embedded.move_to(&database, &shared.options(), &mut go_on).unwrap();
    let moved = Store::open_in(&database, &shared.options()).unwrap();
    assert_continues(&shared, &before, &moved);
    let before = shared.seen(&moved);
    let third = folder.path().join("third");
    moved.backup(&third, &mut go_on).unwrap();
    let directory = shared.directory();
    Store::restore(&directory.lock(), &directory.options(), &third, &mut go_on).unwrap();
    assert_continues(&shared, &before, &open(&directory));
}

#[test]
fn a_request_that_runs_during_a_backup_is_charged_once_in_the_restored_directory() {
    let Some(shared) = Shared::new("backups_running") else { return };
    let row = UsageRow::begun(
        "r_running".to_owned(),
        shared.workspace,
        "abcdefghijkl".parse().unwrap(),
        UsageKind::Responses,
        false,
    );
    let running = shared.hosts[0].reserve(row).now().unwrap();
    let pledge = running.pledge(500).now().unwrap();
    running.commit_intent().now().unwrap();
    let before = shared.hosts[1].balance(shared.workspace).now().unwrap();
    assert_eq!(before.reserved_pico, 500);
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    shared.hosts[1].backup(&backup, &mut go_on).unwrap();
    drop((pledge, running));

    let scratch = shared.directory();
    Store::restore(&scratch.lock(), &scratch.options(), &backup, &mut go_on).unwrap();
    for _ in 0..2 {
        let store = open(&scratch);
        let after = store.balance(shared.workspace).now().unwrap();
        assert_eq!((after.spent_pico, after.reserved_pico), (before.spent_pico + 500, 0));
        assert_whole(&store);
        store.close();
    }
    let database = shared.database("backups_running_restored");
    Store::restore_into(&database, &shared.options(), &backup, &mut go_on).unwrap();
    let there = Store::open_in(&database, &shared.options()).unwrap();
    assert_eq!(there.charge_interrupted(BTreeSet::new).unwrap(), 1);
    there.flush().unwrap();
    assert_eq!(there.balance(shared.workspace).now().unwrap().spent_pico, before.spent_pico + 500);
    assert_whole(&there);
}

#[test]
fn a_damaged_database_is_not_backed_up() {
    let Some(shared) = Shared::new("backups_damaged") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    let server = cofferdam_test_postgres::Server::shared().unwrap();
    let flip = "UPDATE audit SET body = set_byte(body, 9, get_byte(body, 9) # 1) \
                WHERE position = (SELECT max(position) FROM audit)";
    // Rows of one chain that are not in the order of their positions cannot be told apart from damage.
    let swap = "UPDATE audit SET position = -position WHERE chain = \
                (SELECT chain FROM audit GROUP BY chain ORDER BY count(*) DESC LIMIT 1)";
    let stranger = "UPDATE chain SET seq = 0 WHERE seq = (SELECT max(seq) FROM chain)";
    for damage in [flip, stranger, swap] {
        server.query_in("backups_damaged", damage).unwrap();
        let refused = shared.hosts[0].backup(&path, &mut go_on);
        assert!(
            matches!(refused, Err(VaultError::Unusable { .. } | VaultError::Store(_))),
            "{damage}: {refused:?}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{damage}");
        assert!(!shared.hosts[0].verify(&mut go_on).unwrap().problems.is_empty(), "{damage}");
    }
}

/// Changes rows of the log of a data directory, and returns what the check says about it.
fn problems_after(scratch: &ScratchDirectory, change: impl FnOnce(&fjall::Database, Vec<Vec<u8>>)) -> String {
    let database = fjall::Database::open(&scratch.path("store")).unwrap();
    let all = database.state(std::sync::Arc::default()).range(&RowRange::all(Keyspace::Log)).unwrap();
    let keys = all.map(|row| row.unwrap().0.to_vec()).collect();
    change(&database, keys);
    drop(database);
    let store = open(scratch);
    let problems = store.verify(&mut go_on).unwrap().problems;
    assert!(!problems.is_empty());
    problems.join("; ")
}

#[test]
fn a_check_of_a_restored_directory_finds_what_was_changed_in_imported_chains() {
    let Some(shared) = Shared::new("backups_imported") else { return };
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    shared.hosts[0].backup(&backup, &mut go_on).unwrap();
    let restored = || {
        let scratch = shared.directory();
        Store::restore(&scratch.lock(), &scratch.options(), &backup, &mut go_on).unwrap();
        scratch
    };
    let of = |keys: Vec<Vec<u8>>, kind: u8| keys.into_iter().filter(move |key| key[0] == kind);
    let changed = problems_after(&restored(), |database, keys| {
        let key = of(keys, b'I').next_back().unwrap();
        let mut row = database.log.get(&key).unwrap().unwrap().to_vec();
        *row.last_mut().unwrap() ^= 1;
        database.log.insert(key, row).unwrap();
    });
    assert!(changed.contains("breaks at record"), "{changed}");
    let shortened = problems_after(&restored(), |database, keys| {
        let key = of(keys, b'I').next_back().unwrap();
        database.log.remove(key).unwrap();
    });
    assert!(shortened.contains("breaks at record"), "{shortened}");
    // A whole chain with its end.
    let dropped = problems_after(&restored(), |database, keys| {
        let chain = of(keys.clone(), b'C').next().unwrap();
        for key in of(keys, b'I').filter(|key| key[9..25] == chain[1..]) {
            database.log.remove(key).unwrap();
        }
        database.log.remove(chain).unwrap();
    });
    assert!(dropped.contains("are not those that came"), "{dropped}");
    let forged = problems_after(&restored(), |database, keys| {
        let key = of(keys, b'C').next().unwrap();
        let mut row = database.log.get(&key).unwrap().unwrap().to_vec();
        row[3] ^= 1;
        database.log.insert(key, row).unwrap();
    });
    assert!(forged.contains("is not ours") && forged.contains("belong to no chain"), "{forged}");
}

#[test]
fn a_backup_of_a_database_with_a_byte_changed_or_missing_is_refused() {
    let Some(shared) = Shared::new("backups_bytes") else { return };
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    shared.hosts[0].backup(&backup, &mut go_on).unwrap();
    let whole = std::fs::read(&backup).unwrap();
    let (scratch, edited) = (shared.directory(), folder.path().join("edited"));
    let database = shared.database("backups_bytes_none");
    let (lock, options) = (scratch.lock(), scratch.options());
    let refused = |content: &[u8], what: String| {
        std::fs::write(&edited, content).unwrap();
        Store::restore(&lock, &options, &edited, &mut go_on).expect_err(&what);
        assert!(!Path::new(&scratch.path("store")).exists(), "{what}");
        Store::restore_into(&database, &shared.options(), &edited, &mut go_on).expect_err(&what);
    };
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        refused(&flipped, format!("byte {at}"));
        refused(&whole[..at], format!("cut at {at}"));
    }
    Store::restore_into(&database, &shared.options(), &backup, &mut go_on).unwrap();
}

#[test]
fn an_older_program_is_told_the_format_of_a_store_with_imported_chains() {
    let Some(shared) = Shared::new("backups_format") else { return };
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    shared.hosts[0].backup(&backup, &mut go_on).unwrap();
    let material = RootKeySource::File(shared.root_key()).read().unwrap();
    let choose = |header: &crate::header::Header| {
        assert_eq!((header.schema_major, header.min_reader), (2, 2));
        Ok(material.key_of(&header.root).unwrap().unwrap().wrap_key())
    };
    crate::backup::Sealed::open(&backup, choose).unwrap();
    // In the database, every program of this schema reads it.
    let [header, _] = super::super::begin::head_rows(
        &shared.place.database.connector,
        super::ReadingRuntime::new().unwrap().handle(),
    )
    .unwrap();
    assert_eq!(crate::header::read_header(&header.unwrap()).unwrap().min_reader, 1);
}

#[test]
fn a_backup_is_read_from_the_standby_once_it_has_all_commits() {
    if !kit::installed() {
        return;
    }
    let pair = Pair::start().unwrap();
    let address = pair.primary.database("standby").unwrap();
    let place = Place::on(address.clone());
    place.create().unwrap();
    let database = Database::of_pair(&address, pair.standby.port());
    let host = Store::open_in(&database, &place.options("root.key")).unwrap();
    let vault = VaultId::Workspace(create_workspace(&host, "w").id);
    put(&host, vault, "first", "a value");
    let backup = |store: &Store, file: &str| store.backup(&place.path(file), &mut go_on);
    assert!(backup(&host, "one").is_ok(), "the standby has every commit that was answered, in a moment");

    // The standby has what follows on its disk, and does not show it to readers.
    pair.replay(false).unwrap();
    put(&host, vault, "second", "a value");
    let lacks = backup(&host, "two").map(drop).unwrap_err();
    assert!(matches!(lacks, VaultError::StandbyLags { commits: 1.., .. }), "{lacks}");
    assert!(!place.path("two").exists(), "a file was made");
    // Without it the primary is read.
    let command = Store::open_for_command(&place.database, &place.options("root.key")).unwrap();
    backup(&command, "primary").unwrap();
    pair.replay(true).unwrap();
    let made = backup(&host, "two").unwrap();
    let scratch = ScratchDirectory::new();
    std::fs::copy(place.path("root.key"), scratch.path("root.key")).unwrap();
    let done = Store::restore(&scratch.lock(), &scratch.options(), &place.path("two"), &mut go_on).unwrap();
    assert_eq!((done.secrets, done.rows), (2, made.rows));
    // Counted by the server that was read.
    let read = "SELECT sum(seq_scan + coalesce(idx_scan, 0)) > 0 FROM pg_stat_user_tables \
                WHERE relname = 'key_record'";
    super::stores::until(|| pair.standby.query_in("standby", read).unwrap() == [[Some("t".to_owned())]]);
}
