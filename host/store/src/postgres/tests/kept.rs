//! Rows of secrets that hosts keep in memory.

use std::iter::repeat_with;
use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam_test_postgres::{Options, Server, installed};

use super::stores::{Place, until};
use super::{OPERATOR, PATIENCE, rounds};
use crate::audit::{AuditAction, Purpose};
use crate::changes::NewIntern;
use crate::ids::{InternId, VaultId};
use crate::scratch::{Now, Over, create_workspace, go_on, name, put};
use crate::store::Store;
use crate::vault::{BoundSecret, ReleaseError, ReleaseRequest, ReleaseScope};

const SECRET: &str = "token";

/// What a host releases, as text; `None` where there is no such secret.
fn released(host: &Store, scope: ReleaseScope) -> Option<String> {
    match host.release(request(scope, "api.example.com")).now() {
        Ok(release) => Some(String::from_utf8(release.expose().to_vec()).unwrap()),
        Err(ReleaseError::Unavailable) => None,
        Err(error) => panic!("{error}"),
    }
}

fn bound() -> BoundSecret {
    BoundSecret { name: SECRET.parse().unwrap(), host: "api.example.com".parse().unwrap() }
}

fn request(scope: ReleaseScope, to: &str) -> ReleaseRequest {
    let secret = BoundSecret { name: SECRET.parse().unwrap(), host: to.parse().unwrap() };
    let purpose = Purpose { used_by: "provider demo".to_owned(), request_id: "resp_1".to_owned() };
    ReleaseRequest { actor: OPERATOR, scope, secret, purpose }
}

fn delete(host: &Store, vault: VaultId) {
    let permit = host.queue_permit_within(PATIENCE).unwrap();
    host.delete_secret(permit, OPERATOR, vault, SECRET.parse().unwrap()).wait(PATIENCE).unwrap();
}

/// Two hosts, and a workspace with an intern that both know.
fn two(place: &Place) -> ([Store; 2], VaultId, InternId) {
    place.create().unwrap();
    let hosts = [place.open(), place.open()];
    let workspace = create_workspace(&hosts[0], "w").id;
    let intern = NewIntern { workspace, name: name("bot"), created_by: None };
    let intern = hosts[0].create_intern(OPERATOR, intern).unwrap().id;
    until(|| hosts[1].directory().interns.get(&intern).is_some());
    (hosts, VaultId::Workspace(workspace), intern)
}

fn scope_of(vault: VaultId) -> ReleaseScope {
    match vault {
        VaultId::Workspace(id) => ReleaseScope::Workspace(id),
        VaultId::Intern(id) => ReleaseScope::Intern(id),
        VaultId::Operator => ReleaseScope::Operator,
    }
}

#[test]
fn a_secret_is_read_once_and_recorded_at_each_release() {
    let Some(place) = Place::new("kept_once") else { return };
    let ([one, _], vault, _) = two(&place);
    put(&one, vault, SECRET, "first");
    assert_eq!(released(&one, scope_of(vault)).as_deref(), Some("first"));
    // Without a commit of a host, no host looks for it.
    let damage = "UPDATE secret SET value = set_byte(value, 40, 0), meta = set_byte(meta, 40, 0)";
    Server::shared().unwrap().query_in(&place.address.name, damage).unwrap();
    assert_eq!(released(&one, scope_of(vault)).as_deref(), Some("first"));
    let elsewhere = one.release(request(scope_of(vault), "other.example")).now();
    assert!(matches!(elsewhere, Err(ReleaseError::Unavailable)));
    assert_eq!(one.releasable(vec![(scope_of(vault), bound())]).now().unwrap(), [bound()]);
    one.flush().unwrap();
    let entries = one.audit_records(0, 1000).now().unwrap().into_iter().flat_map(|it| it.entries);
    let (mut releases, mut refusals) = (0, 0);
    for entry in entries {
        match entry.action {
            AuditAction::SecretReleased { .. } => releases += 1,
            AuditAction::ReleaseRefused { .. } => refusals += 1,
            _ => {}
        }
    }
    assert_eq!((releases, refusals), (2, 1));
}

#[test]
fn what_was_answered_is_released_by_every_host_also_under_load() {
    let Some(place) = Place::new("kept_changes") else { return };
    let (hosts, vault, _) = two(&place);
    let [one, other] = &hosts;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = Over(&is_over);
        // Fills the memory of both hosts at every moment.
        for host in &hosts {
            let is_over = &is_over;
            let ask = move || host.releasable(vec![(scope_of(vault), bound())]).now().unwrap();
            scope.spawn(move || repeat_with(ask).take_while(|_| !is_over.load(Ordering::Relaxed)).count());
        }
        for round in 0..rounds(15, 200) {
            let (writer, reader) = if round % 2 == 0 { (one, other) } else { (other, one) };
            let value = format!("value {round}");
            put(writer, vault, SECRET, &value);
            assert_eq!(released(reader, scope_of(vault)), Some(value.clone()));
            assert_eq!(released(writer, scope_of(vault)), Some(value));
            delete(writer, vault);
            assert_eq!(released(reader, scope_of(vault)), None);
            assert_eq!(released(writer, scope_of(vault)), None);
        }
        drop(end);
    });
}

#[test]
fn the_secret_of_an_intern_counts_before_that_of_its_workspace_from_when_it_is_answered() {
    let Some(place) = Place::new("kept_interns") else { return };
    let ([one, other], vault, intern) = two(&place);
    let (of_intern, scope) = (VaultId::Intern(intern), ReleaseScope::Intern(intern));
    assert_eq!(released(&other, scope), None);
    put(&one, vault, SECRET, "of the workspace");
    assert_eq!(released(&other, scope).as_deref(), Some("of the workspace"));
    put(&one, of_intern, SECRET, "own");
    assert_eq!(released(&other, scope).as_deref(), Some("own"));
    delete(&one, of_intern);
    assert_eq!(released(&other, scope).as_deref(), Some("of the workspace"));
    one.delete_intern(OPERATOR, intern).unwrap();
    assert_eq!(released(&other, scope), None);
}

#[test]
fn new_keys_of_vaults_are_used_by_every_host_and_no_damage_is_reported() {
    let Some(place) = Place::new("kept_rotation") else { return };
    let ([one, other], vault, _) = two(&place);
    put(&one, vault, SECRET, "value");
    for _ in 0..3 {
        assert_eq!(released(&other, scope_of(vault)).as_deref(), Some("value"));
        one.rotate_vault_keys(&mut go_on).unwrap();
        assert_eq!(released(&other, scope_of(vault)).as_deref(), Some("value"));
        one.new_recovery_key(&mut go_on).unwrap();
        assert_eq!(released(&other, scope_of(vault)).as_deref(), Some("value"));
    }
    assert_eq!(other.status().damaged_rows_met, 0);
}

#[test]
fn secrets_are_read_each_time_while_the_schema_lets_in_programs_that_do_not_tell_of_them() {
    let Some(place) = Place::new("kept_schema") else { return };
    place.create().unwrap();
    let server = Server::shared().unwrap();
    let sql = |sql: &str| server.query_in(&place.address.name, sql).unwrap();
    sql("UPDATE store SET body = '2' WHERE k = 'schema'; \
         DROP TABLE bucket, seat; ALTER TABLE host DROP CONSTRAINT host_tells_schema");
    let store = place.open();
    let vault = VaultId::Workspace(create_workspace(&store, "w").id);
    // Whether what was released before is released although the row was changed in the database, of which no
    // host tells.
    let is_kept = || {
        put(&store, vault, SECRET, "value");
        assert_eq!(released(&store, scope_of(vault)).as_deref(), Some("value"));
        sql("UPDATE secret SET value = set_byte(value, 40, get_byte(value, 40) # 1)");
        store.release(request(scope_of(vault), "api.example.com")).now().is_ok()
    };
    assert!(!is_kept());
    assert_eq!(store.upgrade_schema().unwrap(), Some((2, 3)));
    until(is_kept);
    // As in a backup from before the upgrade.
    sql("UPDATE store SET body = '2' WHERE k = 'schema'");
    until(|| !is_kept());
}

#[test]
fn rows_that_do_not_fit_into_memory_are_read_each_time() {
    let Some(place) = Place::new("kept_small") else { return };
    place.create().unwrap();
    for bytes in [0, 1, 2_000] {
        let database = place.database.clone().with_cache(bytes);
        let store = Store::open_in(&database, &place.options("root.key")).unwrap();
        let workspaces: Vec<_> = (0..8)
            .map(|at| VaultId::Workspace(create_workspace(&store, &format!("w{bytes}-{at}")).id))
            .collect();
        for round in 0..2 {
            for (at, vault) in workspaces.iter().enumerate() {
                let value = format!("{at} {round}");
                put(&store, *vault, SECRET, &value);
                assert_eq!(released(&store, scope_of(*vault)), Some(value));
            }
        }
    }
}

#[test]
fn a_host_releases_what_it_keeps_until_its_contact_ends() {
    if !installed() {
        return;
    }
    let server = Options::new().without_sync().start().unwrap();
    let place = Place::on(server.database("kept_away").unwrap());
    place.create().unwrap();
    let store = place.open_at(&place.address);
    let workspace = create_workspace(&store, "w").id;
    let scope = ReleaseScope::Workspace(workspace);
    put(&store, VaultId::Workspace(workspace), SECRET, "value");
    assert_eq!(released(&store, scope).as_deref(), Some("value"));
    until(|| store.contact_ages_ms().is_some_and(|[since, _]| since < 500));
    server.stop_signal().unwrap();
    assert_eq!(released(&store, scope).as_deref(), Some("value"));
    until(|| !store.has_contact());
    let refused = store.release(request(scope, "api.example.com")).now();
    assert!(matches!(refused, Err(ReleaseError::Busy)), "{:?}", refused.err());
    server.continue_signal().unwrap();
    until(|| store.has_contact());
    assert_eq!(released(&store, scope).as_deref(), Some("value"));
    store.flush().unwrap();
    let records = store.audit_records(0, 1000).now().unwrap().into_iter().flat_map(|it| it.entries);
    let releases = records.filter(|it| matches!(it.action, AuditAction::SecretReleased { .. })).count();
    assert_eq!(releases, 3, "those without the database too");
}
