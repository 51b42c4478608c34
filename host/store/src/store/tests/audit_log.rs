//! The audit chain and the usage rows: what they hold, and what breaks the chain.

use super::*;
use crate::fjall::Database;
use crate::log;
use crate::operation::VaultError;
use crate::usage::block;

/// Number of valid audit records, number of usage rows, and where the chain breaks.
fn audit(store: &Store) -> (u64, u64, Option<String>) {
    let found = store.verify(&mut go_on).unwrap();
    (found.audit_records, found.usage_rows, broken_audit(store))
}

fn broken_at(record: u64) -> Option<String> {
    Some(format!("the audit log breaks at record {record}"))
}

#[test]
fn the_audit_chain_has_every_change_and_no_secret() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    create_workspace(&store, "second");
    let issued = issue_key(&store);
    store.revoke_key(Actor::Key(issued.key.id), issued.key.id).unwrap();
    let records = store.audit_records(0, 100).now().unwrap();
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let text = serde_json::to_string(&records).unwrap();
    for word in ["store_created", "workspace_created", "member_created", "key_issued", "key_revoked"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(!text.contains(token(&issued).split('_').nth(2).unwrap()));
    assert_eq!(store.audit_records(3, 100).now().unwrap(), records[3..]);
    assert_eq!(audit(&store), (4, 0, None));
    store.close();
    assert!(matches!(store.verify(&mut go_on), Err(VaultError::Store(Error::Closed))));

    // With an edited record in the middle, the store opens, and the check says where the chain is
    // broken.
    let database = Database::open(&scratch.path("store")).unwrap();
    let row = database.log.get(log::audit_key(2)).unwrap().unwrap();
    let edited = String::from_utf8(row.to_vec()).unwrap().replace("second", "secund");
    database.log.insert(log::audit_key(2), edited).unwrap();
    drop(database);
    let store = scratch.open();
    assert_eq!(audit(&store), (2, 0, broken_at(3)));
}

#[test]
fn usage_rows_are_written_without_waiting_and_survive_closing() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    for request in ["a", "b", "c"] {
        record_usage(&store, usage_row(&store, request));
    }
    store.flush().unwrap();
    let ids = |store: &Store, limit| -> Vec<String> {
        store.usage_rows(limit).now().unwrap().into_iter().map(|row| row.request_id).collect()
    };
    assert_eq!(ids(&store, 10), ["c", "b", "a"]);
    assert_eq!(ids(&store, 1), ["c"]);
    record_usage(&store, usage_row(&store, "d"));
    let row = usage_row(&store, "e");
    store.close();
    assert_eq!(store.reserve(row).now().unwrap_err(), ReservationRefused::NoRoom);
    let store = scratch.open();
    assert_eq!(ids(&store, 10), ["d", "c", "b", "a"]);
    assert_eq!(broken_audit(&store), None);
}

#[test]
fn an_edited_added_or_removed_usage_row_breaks_the_chain() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    // Enough rows for three values.
    let requests = 2 * block::ROWS_MAX + 1;
    for request in 0..requests {
        record_usage(&store, usage_row(&store, &request.to_string()));
    }
    store.flush().unwrap();
    create_workspace(&store, "after");
    let whole = (3, requests as u64, None);
    let newest: Vec<_> =
        store.usage_rows(requests).now().unwrap().into_iter().map(|row| row.request_id).collect();
    assert_eq!(newest, (0..requests).rev().map(|request| request.to_string()).collect::<Vec<_>>());
    assert_eq!(store.usage_rows(3).now().unwrap().len(), 3);
    assert_eq!(audit(&store), whole);
    store.close();
    let write = |place, value: Option<Vec<u8>>| {
        let log = Database::open(&scratch.path("store")).unwrap().log;
        let key = log::usage_key(2, place);
        let before = log.get(&key).unwrap().map(|value| value.to_vec());
        match value {
            Some(value) => log.insert(key, value).unwrap(),
            None => log.remove(key).unwrap(),
        }
        before
    };
    let row = write(1, None).unwrap();
    write(1, Some(row.clone()));
    let mut rows = block::decode(&row).unwrap();
    rows[5].outcome = UsageOutcome::Cancelled;
    let edited = block::encode(&rows);
    let shorter = block::encode(&rows[1..]);
    for (place, value) in [(1, Some(edited)), (1, Some(shorter)), (1, None), (2, None), (3, Some(row))] {
        let before = write(place, value);
        let store = scratch.open();
        assert_eq!(audit(&store), (1, 0, broken_at(2)), "place {place}");
        store.close();
        write(place, before);
    }
    assert_eq!(audit(&scratch.open()), whole);
}
