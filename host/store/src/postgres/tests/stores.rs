//! Stores in databases, as the rest of the program uses them.

use std::collections::BTreeSet;
use std::path::Path;

use cofferdam_test_postgres::{self as kit, Server};
use tempfile::TempDir;

use super::{OPERATOR, PATIENCE};
use crate::changes::{KeyOwner, NewIntern, NewKey, NewWorkspace};
use crate::clock::Clock;
use crate::database::Database;
use crate::error::{Error, OpenError};
use crate::ids::{InternId, VaultId};
use crate::name::Name;
use crate::quota::VaultQuota;
use crate::root_key::RootKeySource;
use crate::rows::Keyspace;
use crate::scratch::{Now, create_workspace, go_on, issue_key, put, token, try_put};
use crate::spend::SpendLimits;
use crate::state::RowRange;
use crate::store::{OpenOptions, Store};
use crate::usage::{UsageKind, UsageOutcome, UsageRow};

/// A database, and the root key of the store in it.
pub(super) struct Place {
    pub(super) database: Database,
    pub(super) address: kit::Database,
    folder: TempDir,
}

impl Place {
    pub(super) fn new(name: &str) -> Option<Place> {
        kit::installed().then(|| Place::on(Server::shared().unwrap().database(name).unwrap()))
    }

    pub(super) fn on(address: kit::Database) -> Place {
        let (database, folder) = (Database::of_test(&address), tempfile::tempdir().unwrap());
        Place { database, address, folder }
    }

    /// The folder with the root key.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The source of a key file.
    pub(super) fn key(&self, file: &str) -> RootKeySource {
        RootKeySource::File(self.folder.path().join(file))
    }

    pub(super) fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join(file)
    }

    /// Writes a file that only its owner may read.
    pub(super) fn write(&self, file: &str, content: &[u8]) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(self.path(file), content).unwrap();
        std::fs::set_permissions(self.path(file), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Options with these key files, and the machine's clock.
    pub(super) fn options_with(&self, root_key: &str, previous: Option<&str>) -> OpenOptions {
        let previous_root_key = previous.map(|file| self.key(file));
        OpenOptions { previous_root_key, clock: Clock::system(), ..self.options(root_key) }
    }

    pub(super) fn options(&self, key_file: &str) -> OpenOptions {
        let root_key = self.key(key_file);
        OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock: Clock::manual() }
    }

    pub(super) fn create(&self) -> Result<(), OpenError> {
        Store::create_in(&self.database, &self.options("root.key")).map(drop)
    }

    pub(super) fn open(&self) -> Store {
        Store::open_in(&self.database, &self.options("root.key")).unwrap()
    }

    /// Opens it over another address and with the machine's clock.
    pub(super) fn open_at(&self, address: &kit::Database) -> Store {
        let options = OpenOptions { clock: Clock::system(), ..self.options("root.key") };
        Store::open_in(&Database::of_test(address), &options).unwrap()
    }
}

#[test]
fn a_store_is_made_once_and_opened_with_its_root_key_only() {
    let Some(place) = Place::new("stores_made") else { return };
    let opened = |key: &str| Store::open_in(&place.database, &place.options(key)).err();
    assert!(matches!(opened("root.key"), Some(OpenError::NoStore)), "no schema yet");
    place.create().unwrap();
    assert!(matches!(place.create(), Err(OpenError::StoreExists)));
    // A second root key is made for another store only.
    let other = Place::new("stores_other").unwrap();
    other.create().unwrap();
    std::fs::copy(other.folder.path().join("root.key"), place.folder.path().join("other.key")).unwrap();
    assert!(matches!(opened("other.key"), Some(OpenError::WrongRootKey { .. })));
    assert!(matches!(opened("missing.key"), Some(OpenError::RootKey { .. })));
    let store = place.open();
    let names: Vec<String> =
        store.workspaces(None).now().unwrap().entries.iter().map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["default"]);
}

#[test]
fn a_database_with_a_schema_and_no_store_is_told_apart() {
    let Some(place) = Place::new("stores_none") else { return };
    place.create().unwrap();
    let server = Server::shared().unwrap();
    server.query_in("stores_none", "DELETE FROM store WHERE k <> 'schema'::bytea").unwrap();
    let opened = Store::open_in(&place.database, &place.options("root.key"));
    assert!(matches!(opened, Err(OpenError::NoStore)));
}

#[test]
fn hosts_that_make_a_store_at_the_same_time_make_one() {
    let Some(place) = Place::new("stores_race") else { return };
    // Each host has a root key of its own, so only one of them can open what was made.
    let made: Vec<bool> = std::thread::scope(|scope| {
        let create = |key: &'static str| {
            let place = &place;
            scope.spawn(move || match Store::create_in(&place.database, &place.options(key)) {
                Ok(_) => true,
                Err(OpenError::StoreExists) => false,
                Err(error) => panic!("{error}"),
            })
        };
        let threads = ["a.key", "b.key", "c.key"].map(create);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
    let opens =
        ["a.key", "b.key", "c.key"].map(|key| Store::open_in(&place.database, &place.options(key)).is_ok());
    assert_eq!(made, opens);
}

#[test]
fn records_secrets_and_spend_are_there_after_opening_again() {
    let Some(place) = Place::new("stores_again") else { return };
    place.create().unwrap();
    let store = place.open();
    let workspace = create_workspace(&store, "again").id;
    let key = issue_key(&store);
    let vault = VaultId::Workspace(workspace);
    put(&store, vault, "token", "a value");
    store.add_credit(OPERATOR, workspace, 1_000).unwrap();
    let owner = KeyOwner::Member { workspace, member: None };
    let new = NewKey { owner, name: None, expires_at_ms: None, limits: SpendLimits::default() };
    let payer = store.issue_key(OPERATOR, new).unwrap().key.id;
    for (request, outcome) in [("r_1", UsageOutcome::Completed), ("r_2", UsageOutcome::Completed)] {
        let row = UsageRow::begun(request.to_owned(), workspace, payer, UsageKind::Responses, false);
        let reservation = store.reserve(row).now().unwrap();
        let mut pledge = reservation.pledge(100).now().unwrap();
        reservation.commit_intent().now().unwrap();
        reservation.spend(pledge.as_mut(), |row| row.cost_pico = 70);
        drop(pledge);
        reservation.settle(outcome);
    }
    // The third one is interrupted: only its intent is there.
    let row = UsageRow::begun("r_3".to_owned(), workspace, payer, UsageKind::Responses, false);
    let interrupted = store.reserve(row).now().unwrap();
    let pledge = interrupted.pledge(200).now().unwrap();
    interrupted.commit_intent().now().unwrap();
    store.flush().unwrap();
    std::mem::forget((interrupted, pledge));
    let before = store.balance(workspace).now().unwrap();
    assert_eq!((before.spent_pico, before.reserved_pico), (140, 200));

    let again = place.open();
    assert_eq!(again.balance(workspace).now().unwrap(), before, "its host may still run");
    assert_eq!(again.charge_interrupted(BTreeSet::new).unwrap(), 1);
    assert_eq!(again.balance(workspace).now().unwrap().spent_pico, 340, "the intent was charged");
    assert!(again.authenticate(&token(&key)).now().is_ok());
    let listed = again.list_secrets(vault, 0, 10).now().unwrap();
    assert_eq!(listed.entries.iter().map(|it| it.name.to_string()).collect::<Vec<_>>(), ["token"]);
    let mut requests: Vec<String> =
        again.usage_rows(10).now().unwrap().into_iter().map(|row| row.request_id).collect();
    requests.sort_unstable();
    assert_eq!(requests, ["r_1", "r_2", "r_3"]);
}

#[test]
fn what_one_host_changes_the_other_one_sees() {
    let Some(place) = Place::new("stores_two") else { return };
    place.create().unwrap();
    let (one, other) = (place.open(), place.open());
    let key = issue_key(&one);
    until(|| other.authenticate(&token(&key)).now().is_ok());
    let vault = VaultId::Workspace(one.find_workspace("default").now().unwrap().id);
    put(&one, vault, "shared", "first");
    // Rows of vaults are read from the database each time.
    assert_eq!(other.list_secrets(vault, 0, 10).now().unwrap().entries.len(), 1);
    one.revoke_key(OPERATOR, key.key.id).unwrap();
    assert!(one.authenticate(&token(&key)).now().is_err(), "at once on the host that revoked it");
    assert!(other.authenticate(&token(&key)).now().is_err(), "at once on the other host too");
    // Both hosts write, and both see all of it.
    for at in 0..9 {
        create_workspace(&other, &format!("w{at}"));
    }
    until(|| (0..9).all(|at| one.find_workspace(&format!("w{at}")).now().is_ok()));
    create_workspace(&other, "of the other");
    until(|| one.find_workspace("of the other").now().is_ok());
    let taken = one.create_workspace(
        OPERATOR,
        NewWorkspace { name: Name::parse("of the other").unwrap(), programme: false, vault_writes: false },
    );
    assert!(matches!(taken, Err(Error::NameTaken { .. })), "{taken:?}");
}

#[test]
fn a_quota_of_a_workspace_holds_for_several_hosts() {
    let Some(place) = Place::new("stores_quota") else { return };
    place.create().unwrap();
    let hosts = [place.open(), place.open()];
    let workspace = create_workspace(&hosts[0], "w").id;
    let new = |text: &str| NewIntern { workspace, name: Name::parse(text).unwrap(), created_by: None };
    let interns: Vec<InternId> =
        (0..24).map(|at| hosts[0].create_intern(OPERATOR, new(&format!("bot{at}"))).unwrap().id).collect();
    until(|| hosts[1].intern(interns[23]).now().unwrap().is_some());
    // One secret for each vault, ten for the workspace.
    for host in &hosts {
        host.set_vault_quota(VaultQuota { secrets_max: 1, ..VaultQuota::default() });
    }
    let stored: usize = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (store, interns) in hosts.iter().zip(interns.chunks(12)) {
            threads
                .push(scope.spawn(move || interns.iter().filter(|intern| is_put(store, **intern)).count()));
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(stored, 10);
}

/// Whether a quota lets a secret be put into this vault.
fn is_put(store: &Store, intern: InternId) -> bool {
    match try_put(store, VaultId::Intern(intern), "n", "value") {
        Ok(_) => true,
        Err(Error::Quota(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_check_finds_what_was_changed_in_the_database() {
    let Some(place) = Place::new("stores_check") else { return };
    place.create().unwrap();
    let (store, other) = (place.open(), place.open());
    let workspace = store.find_workspace("default").now().unwrap().id;
    let key = issue_key(&store).key.id;
    for number in 0..300 {
        let row = UsageRow::begun(format!("r_{number}"), workspace, key, UsageKind::Responses, false);
        let reservation = store.reserve(row).now().unwrap();
        reservation.spend(None, |row| row.cost_pico = 7);
        reservation.settle(UsageOutcome::Completed);
    }
    store.flush().unwrap();
    put(&other, VaultId::Workspace(workspace), "token", "a value");
    let found = store.verify(&mut go_on).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!((found.secrets, found.keys, found.usage_rows), (1, 1, 300));
    assert_eq!(found.seq, found.audit_records, "every commit has a record");
    let server = Server::shared().unwrap();
    let problems = |damage: &str, mend: &str| {
        server.query_in("stores_check", damage).unwrap();
        let problems = store.verify(&mut go_on).unwrap().problems;
        server.query_in("stores_check", mend).unwrap();
        assert_eq!(store.verify(&mut go_on).unwrap().problems, Vec::<String>::new(), "{mend}");
        problems
    };
    let set = |table: &str, set: &str| format!("UPDATE {table} SET {set}");
    let broken = problems(
        &set("audit", "seq = seq + 1000 WHERE position = (SELECT max(position) FROM audit)"),
        &set("audit", "seq = seq - 1000 WHERE seq > 1000"),
    );
    assert!(matches!(&broken[..], [one] if one.contains("breaks at record")), "{broken:?}");
    let broken = problems(&set("chain", "seq = seq + 1"), &set("chain", "seq = seq - 1"));
    assert!(broken.iter().any(|one| one.contains("says that it has")), "{broken:?}");
    let flipped = "body = set_byte(body, 9, get_byte(body, 9) # 1)";
    let broken = problems(&set("usage", flipped), &set("usage", flipped));
    assert!(broken.iter().any(|one| one.contains("breaks at record")), "{broken:?}");
    let broken = problems(&set("ledger", flipped), &set("ledger", flipped));
    assert!(broken.iter().any(|one| one.contains("is not ours")), "{broken:?}");
}

#[test]
fn a_read_whose_connection_breaks_is_made_on_another_one() {
    let Some(place) = Place::new("stores_cut") else { return };
    let proxy = kit::Proxy::start(place.address.port).unwrap();
    place.create().unwrap();
    let through = Database::of_test(&place.address.at(proxy.port()));
    let store = Store::open_in(&through, &place.options("root.key")).unwrap();
    let vault = VaultId::Workspace(store.find_workspace("default").now().unwrap().id);
    put(&store, vault, "token", "a value");
    assert_eq!(store.list_secrets(vault, 0, 10).now().unwrap().entries.len(), 1);
    let place_of = kit::Place::Sql("REPEATABLE READ".to_owned());
    proxy.add(kit::Rule::new(place_of, kit::Fault::CutBefore));
    // A connection that breaks is replaced.
    assert_eq!(store.list_secrets(vault, 0, 10).now().unwrap().entries.len(), 1);
    assert_eq!(proxy.struck(), 1);
}

/// Waits until this holds.
pub(super) fn until(mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < end);
        std::thread::yield_now();
    }
}

/// Rows of the table `directory` that the server has read for questions, by its statistics, which come late.
fn rows_read(place: &Place) -> u64 {
    let sql = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables \
               WHERE relname = 'directory'";
    let rows = Server::shared().unwrap().query_in(&place.address.name, sql).unwrap();
    rows[0][0].as_deref().unwrap().parse().unwrap()
}

#[test]
fn a_walk_over_all_records_reads_each_of_them_a_few_times_at_most() {
    const RECORDS: u64 = 20_000;
    let Some(place) = Place::new("walk") else { return };
    place.create().unwrap();
    let store = place.open();
    let server = Server::shared().unwrap();
    // Rows of no record, which a walk reads all the same.
    let fill = format!(
        "INSERT INTO directory (k, slot, ws, kind, made_ms, body) \
         SELECT decode('61', 'hex') || sha256(n::text::bytea), 0, '', 97, n, repeat('x', 200)::bytea \
         FROM generate_series(1, {RECORDS}) n"
    );
    server.query_in(&place.address.name, &fill).unwrap();
    server.query_in(&place.address.name, "ANALYZE directory").unwrap();
    let before = rows_read(&place);
    let range = RowRange::all(Keyspace::Keys);
    let found = store.whole_state().range(&range).unwrap().map(Result::unwrap).count();
    assert!(found as u64 > RECORDS, "{found}");
    let until = std::time::Instant::now() + PATIENCE;
    while rows_read(&place) - before < RECORDS {
        assert!(std::time::Instant::now() < until, "the server has counted no reads");
    }
    let read = rows_read(&place) - before;
    assert!(read < 3 * RECORDS, "{read} rows were read for {RECORDS} records");
}
