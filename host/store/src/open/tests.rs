use std::fs::OpenOptions as FileOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use ::fjall::Keyspace;

use super::*;
use crate::authentication::AuthenticationError;
use crate::fjall::SLOT_BYTES;
use crate::ids::StoreId;
use crate::log;
use crate::root_key::RootKeySource;
use crate::rows::{KEYSPACES, Marker, StoredKey};
use crate::scratch::{Now, ScratchDirectory, broken_audit, create_workspace, issue_key, token};
use crate::store::{OpenOptions, Store};

/// Changes the database of a closed store from outside.
fn tamper(scratch: &ScratchDirectory, change: impl FnOnce(&Database)) {
    let database = Database::open(&scratch.path("store")).unwrap();
    change(&database);
}

fn store_keys(scratch: &ScratchDirectory) -> Arc<StoreKeys> {
    let database = Database::open(&scratch.path("store")).unwrap();
    let configured = &scratch.options().root_key;
    let sources = Sources { configured, previous: None, next: None };
    let (header, record) = (database.keys.get(rows::HEADER).unwrap(), database.keys.get(STORE_KEYS).unwrap());
    Arc::new(unlock(header.as_deref(), record.as_deref(), Given::read(&sources)).unwrap().keys)
}

fn out_of_step(result: Result<Store, OpenError>) -> OutOfStep {
    match result {
        Err(OpenError::OutOfStep(found)) => *found,
        other => panic!("expected a store out of step, got {other:?}"),
    }
}

/// A closed store after `commits` commits that each made a workspace.
fn closed_store(commits: u64) -> ScratchDirectory {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    for number in 1..commits {
        create_workspace(&store, &format!("w{number}"));
    }
    assert_eq!(store.status().seq, commits);
    scratch
}

fn shown(store: &Store) -> String {
    format!("{:?} {:?}", store.directory().workspaces, store.directory().members)
}

fn journal(scratch: &ScratchDirectory) -> PathBuf {
    scratch.path("store/0.jnl")
}

fn evidence(anchor: AnchorContent, markers: [Option<u64>; 4], previous: [u8; 32]) -> Evidence {
    let seq = markers[0].unwrap_or(0);
    let record =
        AuditRecord { seq, at_ms: 0, previous, entries: Vec::new(), usage_rows: 0, usage_digest: [0; 32] };
    let bytes = rows::encode_body(&record);
    Evidence {
        anchor,
        markers,
        record: Some((record, bytes)),
        set: SetHash::default(),
        heads: SetHash::default(),
        rows_hold: true,
        heads_hold: true,
    }
}

#[test]
fn the_opening_rule_accepts_two_states_and_refuses_all_others() {
    let keys = StoreKeys::random(StoreId::random().unwrap()).unwrap();
    let all = |seq| [Some(seq); 4];
    let at = |seq, head| AnchorContent::Slot(AnchorSlot { seq, head });
    let in_step = evidence(AnchorContent::Nothing, all(7), [1; 32]);
    let head = keys.audit_head(&[1; 32], &in_step.record.as_ref().unwrap().1);
    let in_step = Evidence { anchor: at(7, head), ..in_step };
    let ahead = evidence(at(6, [1; 32]), all(7), [1; 32]);
    assert_eq!(judge(&keys, &in_step).map(|verdict| verdict.anchor_is_behind), Ok(false));
    assert_eq!(judge(&keys, &ahead).map(|verdict| verdict.anchor_is_behind), Ok(true));
    assert_eq!(judge(&keys, &ahead).unwrap().last_commit.head, head);

    let refused = [
        Evidence { anchor: AnchorContent::Nothing, ..in_step.clone() },
        Evidence { anchor: AnchorContent::OtherStore, ..in_step.clone() },
        Evidence { anchor: at(8, head), ..in_step.clone() },
        Evidence { anchor: at(5, [1; 32]), ..in_step.clone() },
        Evidence { anchor: at(7, [9; 32]), ..in_step.clone() },
        Evidence { anchor: at(6, [9; 32]), ..ahead.clone() },
        Evidence { record: None, ..in_step.clone() },
        Evidence { record: None, ..ahead.clone() },
        Evidence { rows_hold: false, ..in_step.clone() },
        Evidence { heads_hold: false, ..in_step.clone() },
        Evidence { rows_hold: false, ..ahead },
        Evidence { markers: [Some(7), Some(7), Some(7), Some(8)], ..in_step.clone() },
        Evidence { markers: [Some(8), Some(7), Some(7), Some(7)], ..in_step.clone() },
        Evidence { markers: [Some(7), None, Some(7), Some(7)], ..in_step },
    ];
    for evidence in refused {
        assert!(judge(&keys, &evidence).is_err(), "{:?} {:?}", evidence.anchor, evidence.markers);
    }
}

#[test]
fn a_wrong_root_key_is_a_configuration_error_that_names_both() {
    let scratch = closed_store(1);
    let right = store_keys(&scratch);
    std::fs::rename(scratch.path("root.key"), scratch.path("right.key")).unwrap();
    let missing = scratch.try_open().unwrap_err();
    assert!(matches!(missing, OpenError::RootKey { .. }) && missing.is_configuration());
    assert!(!scratch.path("root.key").exists(), "no key is made for a store that exists");

    let other = RootKeySource::File(scratch.path("root.key")).read_or_make().unwrap().to_new_key().unwrap().0;
    let wrong = scratch.try_open().unwrap_err();
    assert!(wrong.is_configuration());
    let OpenError::WrongRootKey { given, needs, replaced } = wrong else { panic!("{wrong}") };
    assert_eq!(given, other.id());
    let message = OpenError::WrongRootKey { given, needs, replaced }.to_string();
    assert_eq!(message, format!("root key {given} given, the store needs {needs}"));

    std::fs::rename(scratch.path("right.key"), scratch.path("root.key")).unwrap();
    assert_eq!(scratch.open().status().store_id, right.store_id());
}

#[test]
fn a_store_made_with_a_passphrase_opens_with_that_passphrase_only() {
    let scratch = ScratchDirectory::new();
    let phrase = scratch.path("phrase");
    let write = |text: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(&phrase, text).unwrap();
        std::fs::set_permissions(&phrase, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let from = crate::root_key::PassphraseSource::File(phrase.clone());
    let options =
        || OpenOptions { root_key: RootKeySource::Passphrase { from: from.clone() }, ..scratch.options() };
    write("a long enough passphrase\n");
    Store::open(scratch.lock(), options()).unwrap();
    Store::open(scratch.lock(), options()).unwrap();
    write("another long passphrase\n");
    let wrong = Store::open(scratch.lock(), options()).unwrap_err();
    assert!(matches!(wrong, OpenError::WrongRootKey { .. }));
    let kind = scratch.try_open().unwrap_err();
    assert!(matches!(kind, OpenError::RootKey { .. }) && kind.is_configuration());
    assert!(!scratch.path("root.key").exists());
}

#[test]
fn an_interrupted_first_start_is_repeated() {
    let scratch = closed_store(1);
    let key = std::fs::read(scratch.path("root.key")).unwrap();
    // The state before the final rename of a first start.
    std::fs::rename(scratch.path("store"), scratch.path("store.new")).unwrap();
    let store = scratch.open();
    assert_eq!(store.status().seq, 1);
    assert!(!scratch.path("store.new").exists());
    drop(store);
    // An earlier repeat was interrupted after it removed the anchor and before it removed the
    // folder.
    std::fs::rename(scratch.path("store"), scratch.path("store.new")).unwrap();
    std::fs::remove_file(scratch.path("anchor")).unwrap();
    scratch.open();
    assert_eq!(std::fs::read(scratch.path("root.key")).unwrap(), key);
}

#[test]
fn a_missing_store_is_not_replaced_by_a_new_one() {
    let scratch = closed_store(2);
    std::fs::remove_dir_all(scratch.path("store")).unwrap();
    assert!(matches!(scratch.try_open(), Err(OpenError::StoreMissing { .. })));
}

#[test]
fn an_anchor_slot_torn_at_any_byte_never_stops_the_store() {
    // After three commits the newest slot is slot 1, after four it is slot 0.
    for (commits, step) in [(3, 1), (4, 7)] {
        let scratch = closed_store(commits);
        let anchor = FileOptions::new().write(true).open(scratch.path("anchor")).unwrap();
        let whole = std::fs::read(scratch.path("anchor")).unwrap();
        for at in (0..SLOT_BYTES).step_by(step) {
            let offset = (commits % 2) as usize * 4096 + at;
            anchor.write_all_at(&[whole[offset] ^ 0x55], offset as u64).unwrap();
            assert_eq!(scratch.open().status().seq, commits, "byte {at} of the newest slot");
            assert_eq!(std::fs::read(scratch.path("anchor")).unwrap(), whole, "written again");
        }
        let older = (commits + 1) % 2 * 4096;
        anchor.write_all_at(&[0; SLOT_BYTES], older).unwrap();
        assert_eq!(scratch.open().status().seq, commits);
    }
}

#[test]
fn a_store_without_a_valid_anchor_is_refused_and_can_be_accepted() {
    let scratch = closed_store(3);
    std::fs::remove_file(scratch.path("anchor")).unwrap();
    let found = out_of_step(scratch.try_open());
    assert_eq!((found.anchor, found.markers.map(|(_, seq)| seq)), (None, [Some(3); 4]));
    assert!(matches!(scratch.accept(2), Err(OpenError::NothingToAccept { given: 2, .. })));
    assert_eq!(scratch.accept(3).unwrap().status().seq, 4);
    let store = scratch.open();
    assert_eq!(broken_audit(&store), None);
    assert!(store.directory().find_workspace("w2").is_ok());
}

#[test]
fn the_anchor_of_another_store_is_refused() {
    let (scratch, other) = (closed_store(2), closed_store(2));
    std::fs::copy(other.path("anchor"), scratch.path("anchor")).unwrap();
    assert_eq!(out_of_step(scratch.try_open()).reason, "the anchor belongs to another store");
}

#[test]
fn an_older_copy_of_the_store_is_refused_and_can_be_accepted_with_a_record() {
    let scratch = closed_store(2);
    let copy = scratch.path("copy");
    let copied = std::process::Command::new("cp").arg("-r").arg(scratch.path("store")).arg(&copy).status();
    assert!(copied.unwrap().success());
    let store = scratch.open();
    create_workspace(&store, "later");
    create_workspace(&store, "latest");
    drop(store);
    std::fs::remove_dir_all(scratch.path("store")).unwrap();
    std::fs::rename(&copy, scratch.path("store")).unwrap();

    let found = out_of_step(scratch.try_open());
    assert_eq!((found.anchor, found.reason), (Some(4), "the store is older than its anchor"));
    assert!(found.to_string().contains("anchor 4, keys 2, meta 2, values 2, log 2"), "{found}");
    let store = scratch.accept(2).unwrap();
    assert_eq!(store.status().seq, 5);
    assert!(store.directory().find_workspace("later").is_err());
    let record = store.audit_records(2, 10).now().unwrap().remove(0);
    let expected = AuditAction::RollbackAccepted { anchor: Some(4), markers: [Some(2); 4], rows_dropped: 0 };
    assert_eq!((record.seq, &record.entries[0].action), (5, &expected));
    assert_eq!(broken_audit(&store), None);
    drop(store);
    // With the flag left in place, nothing is accepted a second time.
    assert_eq!(scratch.accept(2).unwrap().status().seq, 5);
}

#[test]
fn a_marker_that_differs_in_any_keyspace_is_refused() {
    let choose: [fn(&Database) -> &Keyspace; 4] =
        [|db| &db.keys, |db| &db.meta, |db| &db.values, |db| &db.log];
    for (index, (name, keyspace)) in KEYSPACES.into_iter().zip(choose).enumerate() {
        let scratch = closed_store(3);
        let keys = store_keys(&scratch);
        tamper(&scratch, |database| {
            let set = database.markers(&keys).unwrap()[index].unwrap().set;
            let row = Marker { seq: 2, set }.encode(&keys, name);
            keyspace(database).insert(rows::MARKER, row).unwrap();
        });
        let found = out_of_step(scratch.try_open());
        assert_eq!(found.markers[index], (name, Some(2)));
        assert_eq!(found.reason, "the keyspaces are not in step");

        tamper(&scratch, |database| keyspace(database).remove(rows::MARKER).unwrap());
        assert_eq!(out_of_step(scratch.try_open()).markers[index], (name, None));
    }
}

#[test]
fn an_edited_row_is_detected_and_dropped_when_accepted() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    drop(store);
    let key = rows::api_key_key(issued.key.id);
    tamper(&scratch, |database| {
        let row = database.keys.get(&key).unwrap().unwrap();
        let text = String::from_utf8_lossy(&row[..row.len() - 32]).replace("\"member\"", "\"intern\"");
        database.keys.insert(&key, [text.as_bytes(), &row[row.len() - 32..]].concat()).unwrap();
    });
    assert_eq!(
        out_of_step(scratch.try_open()).reason,
        "rows of the keyspace `keys` were changed from outside"
    );
    let store = scratch.accept(2).unwrap();
    assert_eq!(store.authenticate(&token(&issued)).now().unwrap_err(), AuthenticationError::Unknown);
    let text = serde_json::to_string(&store.audit_records(2, 1).now().unwrap()).unwrap();
    assert!(text.contains("\"rows_dropped\":1"), "{text}");
    drop(store);
    scratch.open();
}

#[test]
fn an_older_row_put_back_is_detected() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    drop(store);
    let key = rows::api_key_key(issued.key.id);
    let mut before = None;
    tamper(&scratch, |database| before = database.keys.get(&key).unwrap());
    let store = scratch.open();
    store.revoke_key(Actor::Operator, issued.key.id).unwrap();
    drop(store);
    // The row is consistent and has a valid MAC, but it is not the row of this state.
    tamper(&scratch, |database| database.keys.insert(&key, before.unwrap()).unwrap());
    assert_eq!(
        out_of_step(scratch.try_open()).reason,
        "rows of the keyspace `keys` were changed from outside"
    );
}

#[test]
fn a_key_whose_workspace_is_missing_is_an_error_of_the_host() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    drop(store);
    let workspace = rows::workspace_key(issued.key.workspace.unwrap());
    tamper(&scratch, |database| database.keys.remove(&workspace).unwrap());
    assert!(matches!(scratch.try_open(), Err(OpenError::OutOfStep(_))));
    let store = scratch.accept(2).unwrap();
    let refused = store.authenticate(&token(&issued)).now().unwrap_err();
    assert_eq!(refused, AuthenticationError::Incomplete(issued.key.id));
}

#[test]
fn an_edited_header_is_reported_as_damage() {
    let scratch = closed_store(1);
    tamper(&scratch, |database| {
        let row = database.keys.get(rows::HEADER).unwrap().unwrap();
        let mut edited = row.to_vec();
        let at = row.windows(13).position(|window| window == b"created_at_ms").unwrap();
        edited[at + 16] = b'2';
        database.keys.insert(rows::HEADER, edited).unwrap();
    });
    assert!(matches!(scratch.try_open(), Err(OpenError::Damaged { .. })));
}

/// A store whose last commit was not acknowledged: its batch is in the journal, the anchor is one
/// commit behind. Also returns the length of the journal before and after that batch.
fn unanswered_commit() -> (ScratchDirectory, u64, u64) {
    let scratch = closed_store(3);
    drop(scratch.open());
    let before = std::fs::metadata(journal(&scratch)).unwrap().len();
    let anchor = std::fs::read(scratch.path("anchor")).unwrap();
    create_workspace(&scratch.open(), "unanswered");
    std::fs::write(scratch.path("anchor"), anchor).unwrap();
    let after = std::fs::metadata(journal(&scratch)).unwrap().len();
    assert!(after > before);
    (scratch, before, after)
}

#[test]
fn a_store_one_commit_ahead_of_its_anchor_is_served() {
    let (scratch, ..) = unanswered_commit();
    let store = scratch.open();
    assert_eq!(store.status().seq, 4);
    assert!(store.directory().find_workspace("unanswered").is_ok());
}

#[test]
fn an_unacknowledged_torn_batch_is_dropped_as_a_whole() {
    let (scratch, before, after) = unanswered_commit();
    let whole = std::fs::read(journal(&scratch)).unwrap();
    let anchor = std::fs::read(scratch.path("anchor")).unwrap();
    // The end of the batch has reached the disk, a part in its middle has not.
    let middle = before as usize + 20..after as usize - 13;
    let mut cut = 0;
    for hole in middle.step_by(37) {
        let mut torn = whole.clone();
        let end = (hole + 40).min(after as usize - 13);
        torn[hole..end].fill(0);
        std::fs::write(journal(&scratch), &torn).unwrap();
        std::fs::write(scratch.path("anchor"), &anchor).unwrap();
        let store = scratch.open();
        assert_eq!(store.status().seq, 3, "hole at {hole}");
        cut += u32::from(store.status().journal_cut);
        assert!(store.directory().find_workspace("unanswered").is_err());
        create_workspace(&store, "next");
        drop(store);
        assert!(scratch.open().directory().find_workspace("next").is_ok());
    }
    assert!(cut > 0, "no hole made the engine refuse the journal");
    assert!(std::fs::read_dir(scratch.path("torn-journals")).unwrap().count() > 0);
}

#[test]
fn a_truncated_batch_is_applied_wholly_or_not_at_all() {
    let (scratch, before, after) = unanswered_commit();
    let whole = std::fs::read(journal(&scratch)).unwrap();
    let anchor = std::fs::read(scratch.path("anchor")).unwrap();
    for length in (before..=after).step_by(31).chain([after]) {
        std::fs::write(journal(&scratch), &whole[..length as usize]).unwrap();
        std::fs::write(scratch.path("anchor"), &anchor).unwrap();
        let store = scratch.open();
        let expected = if length == after { 4 } else { 3 };
        assert_eq!(store.status().seq, expected, "{length} bytes");
        assert_eq!(store.directory().find_workspace("unanswered").is_ok(), expected == 4);
    }
}

#[test]
fn a_journal_without_an_acknowledged_commit_is_refused() {
    let scratch = closed_store(4);
    drop(scratch.open());
    let mut bytes = std::fs::read(journal(&scratch)).unwrap();
    let at = bytes.len() - 40;
    bytes[at] ^= 1;
    std::fs::write(journal(&scratch), bytes).unwrap();
    let found = out_of_step(scratch.try_open());
    assert_eq!((found.anchor, found.markers.map(|(_, seq)| seq)), (Some(4), [Some(3); 4]));
    assert_eq!(std::fs::read_dir(scratch.path("torn-journals")).unwrap().count(), 1);
}

#[test]
fn damage_in_the_middle_of_the_journal_never_loses_rows_silently() {
    let scratch = closed_store(6);
    let expected = shown(&scratch.open());
    let whole = std::fs::read(journal(&scratch)).unwrap();
    for at in (0..whole.len() - 300).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        std::fs::write(journal(&scratch), &damaged).unwrap();
        // The engine's sequence numbers are not covered by its checksums. A changed last one can go
        // unnoticed, but loses nothing.
        if let Ok(store) = scratch.try_open() {
            assert_eq!((store.status().seq, shown(&store)), (6, expected.clone()), "byte {at}");
        }
    }
    std::fs::write(journal(&scratch), &whole).unwrap();
    assert_eq!(scratch.open().status().seq, 6);
}

#[test]
fn rows_in_tables_and_rows_in_the_journal_are_both_loaded() {
    let scratch = closed_store(3);
    tamper(&scratch, |database| {
        for (_, keyspace) in database.keyspaces() {
            keyspace.rotate_memtable_and_wait().unwrap();
        }
    });
    let store = scratch.open();
    assert!(store.directory().find_workspace("w2").is_ok());
    create_workspace(&store, "next");
    drop(store);
    assert_eq!(scratch.open().status().seq, 4);
}

#[test]
fn proofs_of_api_keys_are_stored_in_hexadecimal() {
    let scratch = ScratchDirectory::new();
    let issued = issue_key(&scratch.open());
    let keys = store_keys(&scratch);
    let key = rows::api_key_key(issued.key.id);
    tamper(&scratch, |database| {
        let row = database.keys.get(&key).unwrap().unwrap();
        let stored: StoredKey = rows::decode(&keys, KEYS, &key, &row).unwrap();
        assert_eq!(stored.key, issued.key);
        assert!(String::from_utf8_lossy(&row).contains(&crate::hex::encode(&stored.proof)));
    });
}

#[test]
fn a_first_start_reads_its_root_key_from_a_pipe_only_once() {
    let scratch = ScratchDirectory::new();
    let key = RootKeySource::File(scratch.path("key")).read_or_make().unwrap();
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(key.expose().as_bytes()).unwrap();
    drop(writer);
    let root_key = RootKeySource::Fd(reader.as_raw_fd());
    let store = Store::open(scratch.lock(), OpenOptions { root_key, ..scratch.options() }).unwrap();
    assert_eq!(Some(store.status().root_key_id), key.id());
}

#[test]
fn a_rollback_at_the_highest_sequence_number_is_not_accepted() {
    let scratch = closed_store(2);
    tamper(&scratch, |database| {
        let record = AuditRecord {
            seq: u64::MAX,
            at_ms: 0,
            previous: [0; 32],
            entries: Vec::new(),
            usage_rows: 0,
            usage_digest: [0; 32],
        };
        database.log.insert(log::audit_key(u64::MAX), rows::encode_body(&record)).unwrap();
    });
    out_of_step(scratch.try_open());
    assert!(matches!(scratch.accept(2), Err(OpenError::Damaged { .. })));
}
