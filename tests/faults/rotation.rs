//! The root key is rotated while requests run. Whatever happens meanwhile, one of the two keys
//! opens the store.

use super::rows::{Rows, setup};
use crate::kit::disk::{self, scratch};
use crate::kit::host::{Host, Setup, program};
use crate::kit::random::{Random, count, seed};
use crate::kit::shim::{Action, Call, Rule, Shim};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with vaults whose keys must be wrapped again.
fn prepared() -> (Host, Arc<Rows>) {
    let mut host = setup().start();
    let rows = Arc::new(Rows::new());
    rows.write_exactly(&host, 8);
    for number in 0..3 {
        host.command(&["workspace", "create", &format!("w{number}")]);
    }
    host.end();
    (host, rows)
}

/// Runs `vault rotate-root` in a process of its own.
fn rotate(data: &Path, shim: Option<&Shim>) -> Child {
    let mut command = program();
    command.envs(shim.into_iter().flat_map(Shim::environment));
    command.arg("--json").arg("--data").arg(data);
    command.args(["vault", "rotate-root", "--new", &format!("file:{}", data.join("next.key").display())]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Whether the rotation finished; otherwise it is killed where the shim stopped it.
fn ends(mut rotation: Child, shim: &Shim) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = rotation.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return true;
        }
        if shim.is_frozen() {
            rotation.kill().unwrap();
            rotation.wait().unwrap();
            return false;
        }
        assert!(Instant::now() < end, "the rotation neither ends nor is stuck");
        std::thread::yield_now();
    }
}

#[test]
fn root_key_rotation_can_be_killed_at_every_write_and_sync() {
    let (host, rows) = prepared();
    let folder = scratch();
    for call in [Call::Write, Call::Sync, Call::Create] {
        for after in 0.. {
            let data = folder.path().join(format!("{}{after}", call.name()));
            disk::copy(&host.data(), &data);
            let shim = Shim::new(&data);
            shim.rules(&[Rule { after, ..Rule::new(call, "*", Action::Freeze) }]);
            let ended = ends(rotate(&data, Some(&shim)), &shim);
            rows.check(&data).unwrap_or_else(|failed| panic!("{} {after}: {failed:?}", call.name()));
            // Run the rotation again, to its end.
            assert!(rotate(&data, None).wait().unwrap().success(), "{} {after}", call.name());
            rows.check(&data).unwrap_or_else(|failed| panic!("after {} {after}: {failed:?}", call.name()));
            if ended {
                assert!(after > 0, "the rotation does nothing");
                break;
            }
        }
    }
}

#[test]
fn no_request_fails_during_root_key_rotation() {
    let (host, rows) = prepared();
    let mut host = Setup::after(&host).start();
    rows.write_during(&host, 16, || {
        for round in 0..3 {
            let seen = rows.acknowledged();
            let new = format!("file:{}", host.directory().join(format!("key{round}")).display());
            host.command(&["vault", "rotate-root", "--new", &new]);
            rows.until(seen + 50);
        }
        assert_eq!(rows.statuses(), [200]);
        host.signal("KILL");
    });
    host.wait();
    rows.check(&host.data()).unwrap();
}

#[test]
fn a_kill_during_root_key_rotation_leaves_a_key_that_opens_the_store() {
    let mut random = Random::new(seed());
    let (host, rows) = prepared();
    let mut host = host;
    for _ in 0..count(4, 50) {
        let shim = Shim::new(&host.data());
        host = shim.on(Setup::after(&host)).start();
        let mut rotation = rows.write_during(&host, 16, || {
            rows.until(rows.acknowledged() + 10);
            let after = random.below(30);
            shim.rules(&[Rule { after, ..Rule::new(Call::Sync, "*", Action::Freeze) }]);
            let rotation = rotate(&host.data(), None);
            shim.until_frozen();
            host.signal("KILL");
            rotation
        });
        rotation.wait().unwrap();
        host.wait();
        rows.check(&host.data()).unwrap();
    }
}
