//! Contact with the database, and answers that wait for other hosts.

use cofferdam_test_postgres::{self as kit, Options, Proxy};

use super::OPERATOR;
use super::stores::{Place, until};
use crate::authentication::AuthenticationError;
use crate::changes::KeyChange;
use crate::error::Error;
use crate::ids::VaultId;
use crate::records::MemberRole;
use crate::scratch::{Now, issue_key, put, token};
use crate::store::Store;
use crate::usage::{ReservationRefused, UsageKind, UsageRow};

#[test]
fn what_was_taken_away_is_refused_by_other_hosts_when_the_answer_comes() {
    let Some(place) = Place::new("contact_revoked") else { return };
    place.create().unwrap();
    let hosts = [place.open(), place.open(), place.open()];
    for round in 0..9 {
        let (one, other) = (&hosts[round % 3], &hosts[(round + 1) % 3]);
        let key = issue_key(one);
        let id = key.key.id;
        until(|| hosts.iter().all(|host| host.authenticate(&token(&key)).now().is_ok()));
        match round % 3 {
            0 => drop(one.revoke_key(OPERATOR, id).unwrap()),
            1 => {
                let change = KeyChange { disabled: Some(true), ..KeyChange::default() };
                one.set_key(OPERATOR, id, change).unwrap();
            }
            _ => {
                let member = key.key.member.unwrap();
                one.set_member_role(OPERATOR, member, MemberRole::Member).unwrap();
                assert_eq!(other.member(member).now().unwrap().unwrap().role, MemberRole::Member);
                one.set_member_role(OPERATOR, member, MemberRole::Admin).unwrap();
                continue;
            }
        }
        let refused = other.authenticate(&token(&key)).now().unwrap_err();
        assert!(
            matches!(refused, AuthenticationError::Revoked(_) | AuthenticationError::Disabled(_)),
            "{refused}"
        );
    }
}

/// Whether a host refuses everything that another host may have changed.
fn refuses(host: &Store, token: &str, vault: VaultId, row: &UsageRow) {
    assert_eq!(host.authenticate(token).now().unwrap_err(), AuthenticationError::NoContact);
    assert!(matches!(host.list_secrets(vault, 0, 10).now(), Err(Error::NoContact)));
    assert!(matches!(host.queue_permit().now(), Err(Error::NoContact)));
    assert!(matches!(host.reserve(row.clone()).now(), Err(ReservationRefused::NoRoom)));
    assert!(!host.status().has_contact);
}

#[test]
fn a_host_that_is_cut_off_refuses_requests_when_a_revocation_elsewhere_is_answered() {
    let Some(place) = Place::new("contact_cut_off") else { return };
    place.create().unwrap();
    let proxy = Proxy::start(place.address.port).unwrap();
    let one = place.open();
    let cut_off = place.open_at(&place.address.at(proxy.port()));
    let key = issue_key(&one);
    let workspace = one.find_workspace("default").now().unwrap().id;
    let vault = VaultId::Workspace(workspace);
    put(&one, vault, "token", "a value");
    until(|| cut_off.authenticate(&token(&key)).now().is_ok());
    let row = UsageRow::begun("r_1".to_owned(), workspace, key.key.id, UsageKind::Responses, false);
    drop(cut_off.reserve(row.clone()).now().unwrap());

    proxy.fall_silent();
    one.revoke_key(OPERATOR, key.key.id).unwrap();
    refuses(&cut_off, &token(&key), vault, &row);
    // Who is known to be without contact is not waited for again, and what only adds something never is for
    // long.
    let another = issue_key(&one);
    one.revoke_key(OPERATOR, another.key.id).unwrap();

    proxy.release();
    until(|| cut_off.has_contact());
    let refused = cut_off.authenticate(&token(&key)).now().unwrap_err();
    assert_eq!(refused, AuthenticationError::Revoked(key.key.id));
    assert_eq!(cut_off.list_secrets(vault, 0, 10).now().unwrap().entries.len(), 1);
}

/// A store on a server of its own, opened with the machine's clock.
fn alone(address: kit::Database) -> (Place, Store) {
    let place = Place::on(address);
    place.create().unwrap();
    let store = place.open_at(&place.address);
    (place, store)
}

#[test]
fn a_host_whose_database_is_paused_has_no_contact_until_it_goes_on() {
    if !kit::installed() {
        return;
    }
    let server = Options::new().without_sync().start().unwrap();
    let (_place, store) = alone(server.database("paused").unwrap());
    let key = issue_key(&store);
    assert!(store.authenticate(&token(&key)).now().is_ok());
    server.stop_signal().unwrap();
    until(|| !store.has_contact());
    assert_eq!(store.authenticate(&token(&key)).now().unwrap_err(), AuthenticationError::NoContact);
    server.continue_signal().unwrap();
    until(|| store.authenticate(&token(&key)).now().is_ok());
    assert!(store.contact_ages_ms().is_some_and(|ages| ages.iter().all(|age| *age < 60_000)));
}

#[test]
fn a_primary_that_answers_and_cannot_commit_keeps_no_host_in_contact() {
    if !kit::installed() {
        return;
    }
    let pair = Options::new().without_sync().start_pair().unwrap();
    let (_place, store) = alone(pair.primary.database("no_commit").unwrap());
    assert!(store.has_contact());
    pair.standby.stop_signal().unwrap();
    until(|| !store.has_contact());
    // It still reads.
    assert_eq!(pair.primary.query_in("no_commit", "SELECT count(*) FROM host").unwrap().len(), 1);
    pair.standby.continue_signal().unwrap();
    until(|| store.has_contact());
}

#[test]
fn a_former_primary_that_answers_again_keeps_no_host_in_contact() {
    if !kit::installed() {
        return;
    }
    let pair = Options::new().without_sync().start_pair().unwrap();
    let address = pair.primary.database("former").unwrap();
    let proxies = [(); 2].map(|()| Proxy::start(address.port).unwrap());
    let place = Place::on(address);
    place.create().unwrap();
    let [one, other] = proxies.each_ref().map(|proxy| place.open_at(&place.address.at(proxy.port())));
    let key = issue_key(&one);
    until(|| other.authenticate(&token(&key)).now().is_ok());
    pair.until_replayed().unwrap();
    pair.primary.stop_signal().unwrap();
    pair.promote().unwrap();
    for proxy in &proxies {
        proxy.lead_to(pair.standby.port());
    }
    // The connections of the other host still lead to the former primary, which answers again once the
    // host has lost its contact.
    proxies[0].cut();
    until(|| one.has_contact() && one.revoke_key(OPERATOR, key.key.id).is_ok());
    pair.primary.continue_signal().unwrap();
    until(|| other.has_contact());
    let refused = other.authenticate(&token(&key)).now().unwrap_err();
    assert_eq!(refused, AuthenticationError::Revoked(key.key.id));
}
