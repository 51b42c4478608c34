//! A database that goes on without commits that were visible in it.

use cofferdam_test_postgres::{self as kit, Options, Proxy};

use super::stores::{Place, until};
use super::{Host, OPERATOR, World};
use crate::audit::AuditAction;
use crate::authentication::AuthenticationError;
use crate::changes::{WriteBatch, guarded};
use crate::directory::NameKey;
use crate::error::Error;
use crate::scratch::{Now, issue_key, name, token};
use crate::state::Guard;

/// The numbers of the last commits of all chains.
fn numbers(world: &World) -> Vec<i64> {
    let rows = world.sql("SELECT seq FROM chain ORDER BY id").concat();
    rows.into_iter().map(|seq| seq.unwrap().parse().unwrap()).collect()
}

#[test]
fn a_sign_of_life_vouches_for_no_commit_that_only_an_earlier_look_has_seen() {
    let Some(world) = World::new("vouched") else { return };
    let host = world.host();
    host.create_workspace("w").unwrap();
    let (before, other) = (numbers(&world), super::database(&world.address.url()));
    let locked = world.runtime.block_on(other.connect()).unwrap();
    world.runtime.block_on(locked.script("BEGIN; SELECT FROM host FOR UPDATE")).unwrap();
    // A commit that looks at the changes find, while no sign of life is committed.
    world.sql("UPDATE chain SET seq = seq + 9");
    let seen = world.sql("SELECT pg_sleep(0.6); SELECT clock_timestamp()").concat().pop().unwrap().unwrap();
    let waits = format!(
        "SELECT (count(*) > 0)::text FROM pg_stat_activity \
         WHERE datname = 'vouched' AND wait_event_type = 'Lock' AND query_start > '{seen}'"
    );
    until(|| world.sql(&waits) == [[Some("true".to_owned())]]);
    // It is not there any more when the next one is.
    world.sql("UPDATE chain SET seq = seq - 9");
    assert_eq!(numbers(&world), before);
    world.runtime.block_on(locked.script("COMMIT")).unwrap();
    let beat = || world.sql("SELECT beat FROM host").concat().remove(0).unwrap().parse::<i64>().unwrap();
    let first = beat();
    until(|| beat() > first + 1);
    assert_eq!(host.engine.witness().numbers().into_values().max(), before.into_iter().max());
    until(|| host.shared.has_contact());
    host.create_workspace("after").unwrap();
}

#[test]
fn a_commit_with_the_number_of_one_that_another_server_never_had_is_seen() {
    if !kit::installed() {
        return;
    }
    let mut server = Options::new().without_sync().start().unwrap();
    let address = server.database("number").unwrap();
    let proxy = Proxy::start(address.port).unwrap();
    let place = Place::on(address);
    place.create().unwrap();
    let (one, other) = (place.open_at(&place.address), place.open_at(&place.address.at(proxy.port())));
    let [id, of_other] = [&one, &other].map(|host| host.host_id().unwrap().to_string());
    let key = issue_key(&one);
    until(|| other.authenticate(&token(&key)).now().is_ok());
    // A commit of each chain of the one host that the other host sees.
    let query = |server: &kit::Server, sql: &str| server.query_in("number", sql).unwrap();
    let next = format!("FROM chain WHERE host = '{id}'");
    query(&server, &format!("INSERT INTO change SELECT id, seq + 1, 0, '\\x00' {next}"));
    query(&server, &format!("UPDATE chain SET changed = seq + 1 WHERE host = '{id}'"));
    let sees = format!(
        "SELECT bool_and(position(chain.id || int8send(chain.changed) IN host.seen) > 0)::text FROM chain, host \
         WHERE chain.host = '{id}' AND host.id = decode('{of_other}', 'hex')"
    );
    until(|| query(&server, &sees) == [[Some("true".to_owned())]]);
    // The server that takes the place of this one has neither the commits nor what the other host said of them.
    proxy.refuse(true);
    proxy.cut();
    query(&server, &format!("DELETE FROM change WHERE (chain, seq) IN (SELECT id, changed {next})"));
    query(&server, &format!("UPDATE chain SET changed = seq WHERE host = '{id}'"));
    query(&server, &format!("UPDATE host SET seen = '' WHERE id = decode('{of_other}', 'hex')"));
    let commits = format!("SELECT sum(seq)::text {next}");
    let before = query(&server, &commits);
    server.kill9().unwrap();
    server.restart().unwrap();
    std::thread::scope(|scope| {
        until(|| one.has_contact());
        let revoked = scope.spawn(|| one.revoke_key(OPERATOR, key.key.id));
        until(|| query(&server, &commits) != before);
        proxy.refuse(false);
        revoked.join().unwrap().unwrap();
    });
    until(|| other.has_contact());
    let refused = other.authenticate(&token(&key)).now().unwrap_err();
    assert_eq!(refused, AuthenticationError::Revoked(key.key.id));
}

/// Notes in the header that a loss was accepted.
fn accept_loss(host: &Host) {
    let accept = guarded([Guard::Store], |batch: &mut WriteBatch| {
        let action = AuditAction::LossAccepted { newest: 1, chains: 1, commits: 1 };
        batch.change_header(action, |header| header.accepted_losses += 1)
    });
    host.make(None, accept).unwrap();
}

#[test]
fn a_chain_that_outlived_a_loss_is_not_left_for_a_later_one_without_acceptance() {
    let Some(world) = World::new("outlived") else { return };
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    host.put(workspace, "a", "value").unwrap();
    accept_loss(&host);
    until(|| host.engine.witness().accepted_losses() == 1 && host.shared.has_contact());
    host.put(workspace, "b", "value").unwrap();
    let chains = numbers(&world).len();
    world.sql("UPDATE chain SET seq = seq - 1");
    until(|| !host.shared.has_contact());
    let refused = host.put(workspace, "c", "value");
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    assert_eq!(numbers(&world).len(), chains, "no new chain");
}

#[test]
fn a_host_that_knows_of_no_loss_reads_the_directory_anew_when_one_is_accepted() {
    let Some(world) = World::new("accepted") else { return };
    let hosts = [world.host(), world.host()];
    hosts[0].create_workspace("lost").unwrap();
    let lost = NameKey::Workspace(name("lost"));
    let has_it = |host: &Host| host.shared.directory.load().named(&lost).is_some();
    until(|| hosts.iter().all(has_it));
    // The database goes on without it.
    world.sql("DELETE FROM directory WHERE name = 'lost'");
    accept_loss(&hosts[0]);
    until(|| !hosts.iter().any(has_it));
    until(|| hosts.iter().all(|host| host.shared.has_contact()));
}
