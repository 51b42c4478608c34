//! Commits that the primary has and the standby has not.

use std::time::Duration;

use cofferdam_test_postgres::{self as kit, Pair};

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
    let put = guarded([Guard::Vault(vault)], move |draft| draft.put_secret(OPERATOR, &new).map(drop));
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
