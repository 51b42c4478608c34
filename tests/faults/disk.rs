//! A full disk, and a disk on which syncs fail or hang.

use super::rows::{Rows, setup};
use crate::kit::host::Setup;
use crate::kit::shim::{Action, Call, EIO, ENOSPC, Rule, Shim};
use std::sync::Arc;
use std::time::Duration;

/// A commit that hangs ends the process after a minute.
const HANGS_MAX: Duration = Duration::from_secs(180);

/// Writes rows until a rule makes the store fail, then opens it without the rule.
fn fails_under(rules: &[Rule]) {
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let mut host = shim.on(setup).start();
    let rows = Arc::new(Rows::new());
    rows.write_exactly(&host, 20);
    shim.rules(rules);
    rows.write(&host, 200);
    assert_eq!(host.wait().code(), Some(1), "{}", host.log());
    // Every client that got a response got one of these; the others lost their connection.
    assert_eq!(rows.statuses(), [200, 502]);
    rows.check(&host.data()).unwrap();
    let host = Setup::after(&host).start();
    rows.write_exactly(&host, 20);
}

#[test]
fn full_disk_ends_the_process_and_loses_no_acknowledged_row() {
    for space in [0, 1, 500, 4000, 20_000] {
        fails_under(&[
            Rule::new(Call::Write, "*", Action::Space(space)),
            Rule::new(Call::Create, "*", Action::Fail(ENOSPC)),
        ]);
    }
}

#[test]
fn failing_sync_ends_the_process_and_loses_no_acknowledged_row() {
    for path in ["jnl", "anchor"] {
        for after in [0, 5] {
            fails_under(&[Rule { after, ..Rule::new(Call::Sync, path, Action::Fail(EIO)) }]);
        }
    }
    fails_under(&[Rule::new(Call::Write, "anchor", Action::Fail(EIO))]);
}

#[test]
fn disk_that_hangs_during_the_shutdown_does_not_keep_the_process() {
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let mut host = shim.on(setup).start();
    let rows = Arc::new(Rows::new());
    rows.write_exactly(&host, 5);
    let hour = Action::Delay(Duration::from_secs(3600));
    shim.rules(&[Rule::new(Call::Sync, "jnl", hour)]);
    rows.write_during(&host, 1, || {
        host.until_logged("a commit of the store takes too long");
        host.signal("TERM");
    });
    assert_eq!(host.wait_within(HANGS_MAX).code(), Some(1), "{}", host.log());
    assert_eq!(rows.statuses(), [200]);
    rows.check(&host.data()).unwrap();
}
