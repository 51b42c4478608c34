//! Commits that the primary has and the standby has not, and chains that are gone.

use std::time::Duration;

use cofferdam_test_postgres::{self as kit, Fault, Pair, Place, Proxy, Rule};

use super::{OPERATOR, PATIENCE, World};
use crate::changes::guarded;
use crate::ids::VaultId;
use crate::pending;
use crate::scratch::new_secret;
use crate::state::Guard;

#[test]
fn a_commit_that_is_not_replicated_is_not_acknowledged() {
    if !kit::installed() {
        return;
    }
    let pair = Pair::start().unwrap();
    let world = World::on(pair.primary.database("doubt").unwrap());
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    let vault = VaultId::Workspace(workspace);
    pair.standby.stop_signal().unwrap();
    let new = new_secret(vault, "a", "value");
    let put = guarded([Guard::Vault(vault)], move |batch| batch.put_secret(OPERATOR, &new).map(drop));
    let mut pending = host.begin(Some(workspace), put);
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = 'doubt'";
    world.runtime.block_on(pair.primary.until(waits, "1")).unwrap();
    // The server gives up the wait, makes the commit visible and answers that it committed.
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    pair.primary.query(cancel).unwrap();
    // The lane asks with a write, which waits for the standby too.
    world.runtime.block_on(pair.primary.until(waits, "1")).unwrap();
    world.runtime.block_on(pair.primary.until_logged("canceling wait for synchronous replication")).unwrap();
    assert!(pending::wait(&mut pending, Duration::from_millis(1)).is_none(), "no answer");
    pair.standby.continue_signal().unwrap();
    pending::wait(&mut pending, PATIENCE).unwrap().unwrap();
    assert!(world.read(|view| view.secret(vault, &"a".parse().unwrap())).is_some());
    assert_eq!(world.verify(), 1);
    world.audit();
}

#[test]
fn a_new_chain_that_was_not_kept_is_made_again() {
    let Some(world) = World::new("new_chain") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    let before: Vec<_> = world.sql("SELECT encode(id, 'hex') FROM chain").concat();
    proxy.add(Rule::new(Place::Sql("FROM chain WHERE id = $1 FOR UPDATE".to_owned()), Fault::Hold));
    std::thread::scope(|scope| {
        let made = scope.spawn(|| host.create_workspace("w"));
        world.runtime.block_on(proxy.until_struck(1)).unwrap();
        let [Some(known)] = &before[..] else { panic!("{before:?}") };
        let gone =
            world.sql(&format!("DELETE FROM chain WHERE id <> decode('{known}', 'hex') RETURNING seq"));
        assert_eq!(gone, [[Some("0".to_owned())]]);
        proxy.release();
        made.join().unwrap().unwrap();
    });
    host.engine.close();
    assert_eq!(world.audit().len(), 2);
}

#[test]
fn a_commit_stays_in_doubt_while_its_chain_is_gone() {
    let Some(world) = World::new("chain_gone") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    host.create_workspace("first").unwrap();
    proxy.add(Rule::new(Place::Commit, Fault::SwallowReply));
    proxy.add(Rule::new(Place::Sql("checked + 1".to_owned()), Fault::Hold));
    std::thread::scope(|scope| {
        let made = scope.spawn(|| host.create_workspace("second"));
        world.runtime.block_on(proxy.until_struck(2)).unwrap();
        let of = "FROM chain WHERE sealed_ms IS NULL AND seq = 2";
        world.sql(&format!("CREATE TABLE kept AS SELECT * {of}; DELETE {of}"));
        proxy.release();
        // It asks again and again.
        proxy.add(Rule::new(Place::Sql("checked + 1".to_owned()), Fault::Hold).nth(3));
        world.runtime.block_on(proxy.until_struck(3)).unwrap();
        assert!(!made.is_finished());
        world.sql("INSERT INTO chain SELECT * FROM kept");
        proxy.release();
        made.join().unwrap().unwrap();
    });
    host.engine.close();
    assert_eq!(world.audit().len(), 3);
}
