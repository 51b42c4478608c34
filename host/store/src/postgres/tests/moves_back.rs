//! Stores that go back from a database into a data directory.

use std::ops::ControlFlow;

use cofferdam_test_postgres::{self as kit, Server};

use super::super::begin::head_rows;
use super::ReadingRuntime;
use super::backups::{Shared, assert_continues, open};
use crate::audit::AuditAction;
use crate::database::Database;
use crate::error::OpenError;
use crate::header::read_header;
use crate::operation::VaultError;
use crate::scratch::{Now, ScratchDirectory, go_on};
use crate::store::{MoveSummary, Store};

fn back(
    shared: &Shared,
    database: &Database,
    scratch: &ScratchDirectory,
) -> Result<Option<MoveSummary>, VaultError> {
    Store::move_back(&scratch.lock(), database, &shared.options(), &mut go_on)
}

fn close(shared: &Shared) {
    shared.hosts.iter().for_each(Store::close);
}

fn opened(scratch: &ScratchDirectory) -> Result<Store, OpenError> {
    Store::open(scratch.lock(), scratch.options())
}

#[test]
fn a_store_goes_back_whole_and_no_host_serves_it_from_the_database_any_more() {
    let Some(shared) = Shared::new("back_whole") else { return };
    let before = shared.seen(&shared.hosts[0]);
    let (scratch, database) = (shared.directory(), &shared.place.database);
    match back(&shared, database, &scratch) {
        Err(VaultError::Open(OpenError::InUse(hosts))) => assert_eq!(hosts.len(), 2, "{hosts:?}"),
        other => panic!("{other:?}"),
    }
    assert!(!scratch.path("store").exists() && !scratch.path("store.moving").exists());
    close(&shared);
    let moved = back(&shared, database, &scratch).unwrap().unwrap();
    assert_eq!((moved.secrets, moved.keys), (10, 1));
    let store = open(&scratch);
    assert_continues(&shared, &before, &store);
    let records = store.audit_records(moved.seq, 1).now().unwrap();
    let actions: Vec<&AuditAction> = records[0].entries.iter().map(|entry| &entry.action).collect();
    assert!(
        matches!(actions[..], [AuditAction::ChainsImported { .. }, AuditAction::MovedBack { position }]
            if *position == moved.seq),
        "{actions:?}"
    );
    for opened in
        [Store::open_in(database, &shared.options()), Store::open_for_command(database, &shared.options())]
    {
        assert!(matches!(opened, Err(OpenError::MovedAway)), "{opened:?}");
    }
    let elsewhere = back(&shared, database, &shared.directory());
    assert!(matches!(elsewhere, Err(VaultError::Open(OpenError::MovedAway))), "{elsewhere:?}");
    let again = back(&shared, database, &{
        store.close();
        scratch
    });
    assert!(matches!(again, Err(VaultError::HasStore(_))), "{again:?}");
}

#[test]
fn a_move_that_is_cut_short_leaves_one_store_that_is_served_and_can_be_made_again() {
    let Some(shared) = Shared::new("back_cut") else { return };
    let before = shared.seen(&shared.hosts[0]);
    close(&shared);
    let scratch = shared.directory();
    let proxy = kit::Proxy::start(shared.place.address.port).unwrap();
    let through = Database::of_test(&shared.place.address.at(proxy.port()));
    // The copy is in its place, and the database does not know.
    proxy.add(kit::Rule::new(kit::Place::Commit, kit::Fault::CutBefore).within("LOCK TABLE host"));
    let cut = back(&shared, &through, &scratch);
    assert!(matches!(cut, Err(VaultError::Open(OpenError::Database { .. }))), "{cut:?}");
    assert!(scratch.path("store").exists());
    assert!(matches!(opened(&scratch), Err(OpenError::Moving(_))));
    let store = Store::open_in(&through, &shared.options()).unwrap();
    store.close();
    // Stopped while the copy is checked.
    let mut checks = 0;
    let mut stop = |what: &str, _: u64, _: u64| {
        checks += u32::from(what == "audit records checked");
        if checks == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let stopped = Store::move_back(&scratch.lock(), &through, &shared.options(), &mut stop);
    assert!(matches!(stopped, Err(VaultError::Stopped)), "{stopped:?}");
    assert!(!scratch.path("store").exists() && !scratch.path("store.new").exists());
    assert!(matches!(opened(&scratch), Err(OpenError::Moving(_))));
    // Now the mark is made and its answer is lost.
    proxy.add(kit::Rule::new(kit::Place::Commit, kit::Fault::SwallowReply).within("LOCK TABLE host"));
    assert!(back(&shared, &through, &scratch).unwrap().is_some());
    assert_eq!(proxy.struck(), 2);
    assert_continues(&shared, &before, &open(&scratch));
}

#[test]
fn a_move_that_was_cut_short_after_the_mark_is_ended_where_it_was_made_only() {
    let Some(shared) = Shared::new("back_marked") else { return };
    close(&shared);
    let (scratch, database) = (shared.directory(), &shared.place.database);
    back(&shared, database, &scratch).unwrap();
    let runtime = ReadingRuntime::new().unwrap();
    let [header, _] = head_rows(&database.connector, runtime.handle()).unwrap();
    let header = read_header(&header.unwrap()).unwrap();
    assert_eq!(header.min_reader, 2, "earlier programs refuse it");
    let id = header.moved.unwrap();
    std::fs::write(scratch.path("store.moving"), format!("{}\n", "0".repeat(id.len()))).unwrap();
    assert!(matches!(back(&shared, database, &scratch), Err(VaultError::Open(OpenError::MovedAway))));
    std::fs::write(scratch.path("store.moving"), format!("{id}\n")).unwrap();
    assert!(matches!(opened(&scratch), Err(OpenError::Moving(_))));
    assert_eq!(back(&shared, database, &scratch).unwrap(), None);
    open(&scratch);
}

#[test]
fn a_host_that_was_killed_is_waited_for_and_does_not_prevent_a_move() {
    let Some(shared) = Shared::new("back_killed") else { return };
    let before = shared.seen(&shared.hosts[0]);
    close(&shared);
    let host = "INSERT INTO host (id, beat, seen, about) \
                VALUES (decode(repeat('07', 16), 'hex'), 5, '', '{\"schema\":3}')";
    Server::shared().unwrap().query_in("back_killed", host).unwrap();
    let scratch = shared.directory();
    back(&shared, &shared.place.database, &scratch).unwrap().unwrap();
    assert_continues(&shared, &before, &open(&scratch));
}

#[test]
fn a_host_that_had_read_the_header_before_the_move_does_not_serve() {
    let Some(shared) = Shared::new("back_late") else { return };
    close(&shared);
    let proxy = kit::Proxy::start(shared.place.address.port).unwrap();
    let through = Database::of_test(&shared.place.address.at(proxy.port()));
    // It waits with what makes it a host.
    proxy.add(kit::Rule::new(kit::Place::Sql("INSERT INTO host".to_owned()), kit::Fault::Hold));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| Store::open_in(&through, &shared.options()));
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(proxy.until_struck(1))
            .unwrap();
        back(&shared, &shared.place.database, &shared.directory()).unwrap();
        proxy.release();
        let late = late.join().unwrap();
        assert!(matches!(late, Err(OpenError::MovedAway)), "{late:?}");
    });
}
