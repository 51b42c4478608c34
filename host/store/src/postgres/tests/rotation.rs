//! The root key and the recovery key of a store with several hosts.

use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam_test_postgres::Server;

use super::stores::{Place, until};
use crate::changes::guarded;
use crate::error::{Error, OpenError};
use crate::ids::VaultId;
use crate::operation::VaultError;
use crate::root_key::{PassphraseSource, RootKeyId, RootKeyMaterial, RootKeySource};
use crate::rows;
use crate::scratch::{Now, Over, create_workspace, go_on, put, stop_at, try_put};
use crate::seal::KeyRecord;
use crate::state::{Guard, RowRange};
use crate::store::Store;

/// A store with a few vaults, and the files `root.key` and `new.key`.
fn filled(name: &str) -> Option<(Place, Vec<VaultId>)> {
    let place = Place::new(name)?;
    place.create().unwrap();
    place.key("new.key").read_or_make().unwrap();
    let store = place.open();
    let vaults = (0..5).map(|at| vault_of(&store, &format!("w{at}"))).collect();
    Some((place, vaults))
}

/// Makes a workspace whose vault has one secret.
fn vault_of(store: &Store, name: &str) -> VaultId {
    let vault = VaultId::Workspace(create_workspace(store, name).id);
    put(store, vault, "a", &format!("value of {vault}"));
    vault
}

/// A host with the new key and the one in use.
fn with_both(place: &Place) -> Store {
    Store::open_in(&place.database, &place.options_with("new.key", Some("root.key"))).unwrap()
}

fn open(place: &Place, root_key: &str, previous: Option<&str>) -> Result<Store, OpenError> {
    Store::open_in(&place.database, &place.options_with(root_key, previous))
}

fn new_key(place: &Place) -> RootKeyMaterial {
    place.key("new.key").read().unwrap()
}

fn id(place: &Place, file: &str) -> RootKeyId {
    place.key(file).read().unwrap().id().unwrap()
}

/// Checks the store through this host, and that every vault's keys open with these keys alone.
fn assert_wrapped(store: &Store, vaults: &[VaultId], by: &[RootKeyId]) {
    let found = store.verify(&mut go_on).unwrap();
    assert_eq!((found.problems, found.secrets), (Vec::new(), vaults.len() as u64));
    let state = store.whole_state();
    let (first, last) = rows::vault_keys_range();
    let range = RowRange::all(rows::Keyspace::Keys).from(first).through(last);
    let mut records = 0;
    for row in state.range(&range).unwrap() {
        let (_, value) = row.unwrap();
        let record: KeyRecord = rows::decode_unchecked(&value).unwrap();
        assert_eq!(record.wrapped_by().collect::<Vec<_>>(), by);
        records += 1;
    }
    assert_eq!(records, vaults.len());
    for vault in vaults {
        let listed = store.list_secrets(*vault, 0, 10).now().unwrap();
        assert_eq!(listed.entries.len(), 1, "{vault}");
    }
}

/// Makes vaults until it is over, and one after that.
fn vaults_until(host: &Store, at: usize, is_over: &AtomicBool) -> Vec<VaultId> {
    let mut made = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        made.push(vault_of(host, &format!("h{at}-{}", made.len())));
    }
    made.push(vault_of(host, &format!("h{at}-last")));
    made
}

#[test]
fn a_root_key_is_replaced_while_every_host_makes_vaults() {
    let Some((place, mut vaults)) = filled("rotation_under_load") else { return };
    let (old, new) = (id(&place, "root.key"), id(&place, "new.key"));
    let hosts = [with_both(&place), with_both(&place)];
    assert_eq!(hosts[0].status().root_key_id, old, "a start with both keys does not begin");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let makes = |at: usize| {
            let (host, is_over) = (&hosts[at], &is_over);
            scope.spawn(move || vaults_until(host, at, is_over))
        };
        let threads = [makes(0), makes(1)];
        let end = Over(&is_over);
        let done = hosts[0].rotate_root(new_key(&place), &mut go_on).unwrap();
        assert_eq!((done.root_key, done.previous, done.replaced_file), (new, old, None));
        for host in &hosts {
            let status = host.status();
            assert_eq!(
                (status.root_key_id, status.next_root_key_id),
                (new, None),
                "every host has the header"
            );
        }
        drop(end);
        threads.into_iter().for_each(|thread| vaults.extend(thread.join().unwrap()));
    });
    hosts.iter().for_each(|host| assert_wrapped(host, &vaults, &[new]));
    let again = hosts[1].rotate_root(new_key(&place), &mut go_on).unwrap();
    assert_eq!((again.root_key, again.previous, again.records), (new, old, 0));
    assert_wrapped(&open(&place, "new.key", None).unwrap(), &vaults, &[new]);
    let refused = open(&place, "root.key", None).unwrap_err();
    assert!(
        matches!(refused, OpenError::WrongRootKey { given, needs, replaced: true } if (given, needs) == (old, new)),
        "{refused}"
    );
}

#[test]
fn a_rotation_begins_only_when_every_host_has_the_new_key() {
    let Some((place, vaults)) = filled("rotation_refused") else { return };
    let old = id(&place, "root.key");
    let (ready, other) = (with_both(&place), open(&place, "root.key", None).unwrap());
    let refused = ready.rotate_root(new_key(&place), &mut go_on).unwrap_err();
    let VaultError::HostsLackKey { id: lacking, hosts } = &refused else { panic!("{refused}") };
    assert_eq!((*lacking, hosts.len()), (id(&place, "new.key"), 1));
    assert!(hosts[0].contains(&std::process::id().to_string()), "{refused}");
    let here = other.rotate_root(new_key(&place), &mut go_on).unwrap_err();
    assert!(matches!(here, VaultError::NotConfigured { .. }), "{here}");
    drop(other);
    // Who can write to the database and has no key cannot make a host that seems to have it, or hide what
    // one lacks.
    let server = Server::shared().unwrap();
    let other = open(&place, "root.key", None).unwrap();
    let told = other.hosts().now().unwrap();
    let forged =
        told.iter().filter(|host| host.root_keys == [old]).map(|host| host.id.clone()).next().unwrap();
    let copy = format!(
        "UPDATE host SET about = (SELECT about FROM host WHERE encode(id, 'hex') <> '{forged}' LIMIT 1) \
         WHERE encode(id, 'hex') = '{forged}'"
    );
    server.query_in("rotation_refused", &copy).unwrap();
    let refused = ready.rotate_root(new_key(&place), &mut go_on).unwrap_err();
    assert!(matches!(refused, VaultError::HostsLackKey { .. }), "{refused}");
    drop(other);
    place.write("words", b"correct horse battery staple and more words");
    let passphrase = RootKeySource::Passphrase { from: PassphraseSource::File(place.path("words")) };
    let refused = ready.rotate_root(passphrase.read().unwrap(), &mut go_on).unwrap_err();
    assert!(matches!(refused, VaultError::Passphrase), "{refused}");
    assert_eq!(ready.status().next_root_key_id, None);
    assert_wrapped(&ready, &vaults, &[old]);
}

#[test]
fn a_rotation_stopped_at_any_step_is_finished_by_running_it_again_on_any_host() {
    for step in 0.. {
        let Some((place, mut vaults)) = filled(&format!("rotation_stopped_{step}")) else { return };
        let new = id(&place, "new.key");
        let (one, other) = (with_both(&place), with_both(&place));
        let stopped = one.rotate_root(new_key(&place), &mut stop_at(step)).is_err();
        drop(one);
        vaults.push(vault_of(&other, "between"));
        let (root, next) = (other.status().root_key_id, other.status().next_root_key_id);
        if next == Some(new) {
            let refused = open(&place, "root.key", None).unwrap_err();
            let is_named = matches!(
                refused,
                OpenError::NoNextRootKey { given, needs } if (given, needs) == (root, new)
            );
            assert!(is_named && refused.is_configuration(), "step {step}: {refused}");
            // A command may run without it. What it writes is wrapped at the end.
            let options = place.options_with("root.key", None);
            let command = Store::open_for_command(&place.database, &options).unwrap();
            vaults.push(vault_of(&command, "of a command"));
        }
        other.rotate_root(new_key(&place), &mut go_on).unwrap();
        assert_eq!(other.status().root_key_id, new, "step {step}");
        assert_wrapped(&other, &vaults, &[new]);
        if !stopped {
            return assert!(step > 2, "stopped nowhere");
        }
    }
}

#[test]
fn what_a_host_without_the_next_key_writes_last_is_wrapped_when_that_key_is_put_in_force() {
    let Some((place, mut vaults)) = filled("rotation_rest") else { return };
    let new = id(&place, "new.key");
    let (host, old) = (
        with_both(&place),
        Store::open_for_command(&place.database, &place.options_with("root.key", None)).unwrap(),
    );
    let mut at = 0;
    // Writes a vault at every step, also after all records were wrapped and checked.
    let done = host.rotate_root(new_key(&place), &mut |_, _, _| {
        if host.status().root_key_id != new {
            vaults.push(vault_of(&old, &format!("step-{at}")));
        }
        at += 1;
        std::ops::ControlFlow::Continue(())
    });
    done.unwrap();
    assert!(vaults.len() > 7, "{}", vaults.len());
    assert_wrapped(&host, &vaults, &[new]);
}

#[test]
fn a_host_without_the_root_key_in_force_writes_no_keys_and_has_no_contact() {
    let Some((place, mut vaults)) = filled("rotation_cut_off") else { return };
    let new = id(&place, "new.key");
    let (host, other) = (with_both(&place), open(&place, "root.key", None).unwrap());
    let workspace = VaultId::Workspace(create_workspace(&other, "later").id);
    // As if the other host had not been listed.
    let record = new_key(&place).plain_key().unwrap().record(None);
    host.make(guarded([Guard::Store], move |batch| batch.begin_root_rotation(&record))).unwrap();
    assert_eq!(other.status().next_root_key_id, Some(new), "the other host has the header");
    host.make(guarded([Guard::Store], move |batch| batch.end_root_rotation(new))).unwrap().unwrap();
    let refused = try_put(&other, workspace, "a", "value").unwrap_err();
    assert!(
        matches!(refused, Error::OtherRootKey { needs } if needs == new)
            || matches!(refused, Error::NoContact),
        "{refused}"
    );
    until(|| !other.has_contact());
    drop(other);
    host.rotate_root(new_key(&place), &mut go_on).unwrap();
    put(&host, workspace, "a", "value");
    vaults.push(workspace);
    assert_wrapped(&host, &vaults, &[new]);
}

#[test]
fn a_recovery_key_opens_what_every_host_writes_during_and_after_it_was_made() {
    let Some((place, mut vaults)) = filled("rotation_recovery") else { return };
    let root = id(&place, "root.key");
    let hosts = [place.open(), place.open()];
    let first = hosts[0].new_recovery_key(&mut go_on).unwrap();
    let mut at = 0;
    let recovery = hosts[0].new_recovery_key(&mut |_, _, _| {
        vaults.push(vault_of(&hosts[1], &format!("step-{at}")));
        at += 1;
        std::ops::ControlFlow::Continue(())
    });
    let recovery = recovery.unwrap();
    assert_ne!(first.id, recovery.id);
    assert!(hosts[1].status().has_recovery_key, "the other host has the header");
    vaults.push(vault_of(&hosts[1], "after"));
    assert_wrapped(&hosts[1], &vaults, &[root, recovery.id]);
    // One that is stopped leaves nothing in force, and the next one replaces it.
    hosts[1].new_recovery_key(&mut stop_at(1)).unwrap_err();
    vaults.push(vault_of(&hosts[0], "after it was stopped"));
    let last = hosts[0].new_recovery_key(&mut go_on).unwrap();
    assert_wrapped(&hosts[1], &vaults, &[root, last.id]);
    drop(hosts);
    place.write("recovery.key", last.key.expose());
    let store = open(&place, "recovery.key", None).unwrap();
    assert!(store.status().opened_with_recovery_key);
    assert_wrapped(&store, &vaults, &[root, last.id]);
    drop(store);
    // After the loss of the root key: the new one, and the recovery key in the place of the previous one.
    let store = open(&place, "new.key", Some("recovery.key")).unwrap();
    store.rotate_root(new_key(&place), &mut go_on).unwrap();
    assert_wrapped(&store, &vaults, &[id(&place, "new.key"), last.id]);
}
