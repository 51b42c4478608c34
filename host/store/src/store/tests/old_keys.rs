//! Deletion of old revoked keys.

use std::time::Duration;

use super::*;
use crate::audit::AuditAction;
use crate::spend::DAY_MS;

/// A key that was used for a request with a cost.
fn used_key(store: &Store) -> IssuedKey {
    let issued = issue_key(store);
    let row = UsageRow { key: issued.key.id, cost_pico: 5, ..usage_row(store, "r") };
    record_usage(store, row);
    store.flush().unwrap();
    issued
}

fn ids(store: &Store) -> Vec<KeyId> {
    let keys = store.keys(None, None).now().unwrap().entries;
    keys.iter().rev().map(|key| key.key().id).collect()
}

#[test]
fn a_revoked_key_is_deleted_after_92_days_and_its_usage_rows_are_kept() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let (live, revoked) = (used_key(&store), used_key(&store));
    store.revoke_key(OPERATOR, revoked.key.id).unwrap();
    scratch.clock.advance(Duration::from_millis(91 * DAY_MS));
    store.drop_old_keys().unwrap();
    assert_eq!(ids(&store).len(), 2);
    scratch.clock.advance(Duration::from_millis(DAY_MS));
    store.drop_old_keys().unwrap();
    store.drop_old_keys().unwrap();
    assert_eq!(ids(&store), [live.key.id]);
    assert!(
        store.authenticate(&token(&live)).now().is_ok()
            && store.authenticate(&token(&revoked)).now().is_err()
    );
    assert!(store.key_spend(revoked.key.id).now().is_err());
    assert_eq!(store.usage_rows(10).now().unwrap().len(), 2, "rows stay");
    store.drop_old_totals().unwrap();
    assert_eq!(store.verify(&mut go_on).unwrap().problems, Vec::<String>::new());
    let records = store.audit_records(0, 100).now().unwrap();
    let forgotten =
        records.into_iter().flat_map(|record| record.entries).filter_map(|entry| match entry.action {
            AuditAction::KeysForgotten { keys } => Some(keys),
            _ => None,
        });
    assert_eq!(forgotten.collect::<Vec<_>>(), [[revoked.key.id]]);
    store.close();
    assert_eq!(ids(&scratch.open()), [live.key.id]);
}

#[test]
fn the_last_key_for_requests_is_kept_so_that_no_first_key_is_issued() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let (first, last) = (used_key(&store), used_key(&store));
    store.revoke_key(OPERATOR, first.key.id).unwrap();
    scratch.clock.advance(Duration::from_millis(1));
    store.revoke_key(OPERATOR, last.key.id).unwrap();
    scratch.clock.advance(Duration::from_millis(1_000 * DAY_MS));
    store.drop_old_keys().unwrap();
    assert_eq!(ids(&store), [last.key.id]);
    assert!(store.has_client_key().now().unwrap());
}
