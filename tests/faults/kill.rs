//! The process is killed.

use super::rows::{NOT_BEGUN, Rows, Stored, TOO_LATE, each, setup};
use crate::kit::client::Client;
use crate::kit::disk::{self, PAGE, scratch};
use crate::kit::host::{Host, Setup};
use crate::kit::random::{Random, count, seed};
use crate::kit::record::{Kind, Record};
use crate::kit::shim::{Action, Call, Rule, Shim};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

#[test]
fn every_acknowledged_row_survives_a_kill_under_load() {
    let mut random = Random::new(seed());
    let mut host = setup().start();
    let rows = Arc::new(Rows::new());
    for _ in 0..count(3, 50) {
        let enough = rows.acknowledged() + 1 + random.below(400) as usize;
        rows.write_during(&host, 200, || {
            rows.until(enough);
            kill(&host);
        });
        host.wait();
        rows.check(&host.data()).unwrap();
        host = Setup::after(&host).start();
    }
}

fn kill(host: &Host) {
    host.signal("KILL");
}

#[test]
fn a_copy_survives_a_kill_completely_or_not_at_all() {
    const NAMES: usize = 64;
    const INTERNS: usize = 8;
    let mut random = Random::new(seed());
    let mut host = setup().start();
    let rows = Arc::new(Rows::of(1000));
    rows.write_exactly(&host, NAMES);
    let names: Vec<String> = rows.names();
    for round in 0..count(2, 20) {
        let interns: Vec<String> = (0..INTERNS).map(|number| format!("i{round}_{number}")).collect();
        for intern in &interns {
            host.command(&["intern", "create", intern, "--workspace", "default"]);
        }
        let enough = random.below(INTERNS as u64) as usize;
        let copied = copy_until_killed(&mut host, &interns, &names, enough);
        rows.check(&host.data()).unwrap();
        for intern in &interns {
            let stored = Stored::of_intern(&host.data(), intern);
            let found = stored.names().unwrap();
            let all = found.len() == names.len();
            assert!(all || found.is_empty(), "{intern} has {} of {}", found.len(), names.len());
            assert!(all || !copied.contains(intern), "{intern}: the copy was acknowledged and is gone");
            for name in &found {
                let value = stored.value(name).unwrap();
                assert!(rows.is_last(name, value.unwrap().expose()), "{intern}: {name}");
            }
        }
        host = Setup::after(&host).start();
    }
}

/// Copies to all interns at the same time and kills the host after `enough` acknowledgements;
/// returns the acknowledged copies.
fn copy_until_killed(
    host: &mut Host,
    interns: &[String],
    names: &[String],
    enough: usize,
) -> BTreeSet<String> {
    let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ids = host.command(&["intern", "list"]);
    let id_of = |name: &String| {
        let found = ids.as_array().unwrap().iter().find(|intern| intern["name"] == name.as_str());
        found.unwrap()["id"].as_str().unwrap().to_owned()
    };
    let body = serde_json::json!({"names": names}).to_string();
    workers.block_on(async {
        let mut copying = tokio::task::JoinSet::new();
        for intern in interns {
            let path = format!("/vault/interns/{}/secrets/copy", id_of(intern));
            let request = Client::new(host).request(reqwest::Method::POST, &path);
            let request = request.header("content-type", "application/json").body(body.clone());
            let intern = intern.clone();
            copying.spawn(async move {
                (intern, request.send().await.map(|response| response.status().as_u16()))
            });
        }
        let mut copied = BTreeSet::new();
        if enough == 0 {
            host.kill();
        }
        while let Some(ended) = copying.join_next().await {
            let (intern, status) = ended.unwrap();
            match status {
                Ok(200) => drop(copied.insert(intern)),
                Ok(NOT_BEGUN | TOO_LATE) | Err(_) => {}
                Ok(status) => panic!("{intern}: {status}"),
            }
            if copied.len() == enough {
                host.kill();
            }
        }
        host.kill();
        copied
    })
}

/// A host that was killed while it was stopped at this call of a commit, with rows waiting for
/// their responses.
fn killed_at(call: Call, path: &'static str) -> (Host, Shim, Arc<Rows>, Record) {
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let mut host = shim.on(setup).start();
    let rows = Arc::new(Rows::new());
    rows.write_exactly(&host, 20);
    shim.rules(&[Rule::new(call, path, Action::Freeze)]);
    rows.write_during(&host, 200, || {
        shim.until_frozen();
        kill(&host);
    });
    host.wait();
    let record = shim.record();
    (host, shim, rows, record)
}

#[test]
fn a_kill_anywhere_in_a_commit_loses_no_acknowledged_row() {
    for (call, path) in
        [(Call::Write, "jnl"), (Call::Sync, "jnl"), (Call::Write, "anchor"), (Call::Sync, "anchor")]
    {
        let (host, _shim, rows, _) = killed_at(call, path);
        assert_eq!(rows.acknowledged(), 20, "nothing was acknowledged at the {path}");
        rows.check(&host.data()).unwrap();
        // The power fails too: writes that were not synced are lost.
    }
}

#[test]
fn a_torn_unacknowledged_group_loses_no_acknowledged_row() {
    let (host, _shim, rows, record) = killed_at(Call::Sync, "jnl");
    let (begin, end) = unanswered(&record);
    let journal =
        record.entries.iter().rfind(|entry| entry.kind == Kind::Write && is_journal(&entry.path)).unwrap();
    let journal = journal.path.strip_prefix(&record.root).unwrap();
    assert!(end > begin, "no group was on its way");
    let folder = scratch();
    let mut torn = 0;
    for page in begin / PAGE as u64..=(end - 1) / PAGE as u64 {
        let from = (page * PAGE as u64).max(begin);
        // The last bytes are kept, so that the group looks complete.
        let to = ((page + 1) * PAGE as u64).min(end - 8);
        if from >= to {
            continue;
        }
        let image = folder.path().join(page.to_string());
        disk::copy(&host.data(), &image);
        let file = std::fs::OpenOptions::new().write(true).open(image.join(journal)).unwrap();
        file.write_all_at(&vec![0; (to - from) as usize], from).unwrap();
        rows.check(&image).unwrap_or_else(|failed| panic!("page {page}: {failed:?}"));
        torn += 1;
    }
    assert!(torn > 0);
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jnl")
}

/// The range of the journal written after its last completed sync.
fn unanswered(record: &Record) -> (u64, u64) {
    let synced =
        record.entries.iter().rposition(|entry| entry.kind == Kind::Synced && is_journal(&entry.path));
    let later = record.entries[synced.unwrap()..].iter();
    let writes = later.filter(|entry| entry.kind == Kind::Write && is_journal(&entry.path));
    let ranges: Vec<(u64, u64)> =
        writes.map(|entry| (entry.offset, entry.offset + entry.data.len() as u64)).collect();
    (ranges.iter().map(|range| range.0).min().unwrap(), ranges.iter().map(|range| range.1).max().unwrap())
}

#[test]
fn an_anchor_slot_torn_at_any_byte_loses_no_acknowledged_row() {
    // The anchor has two slots; both are tested as the newest one.
    for rows_written in [20, 21] {
        let setup = setup();
        let shim = Shim::new(&setup.data());
        let mut host = shim.on(setup).start();
        let rows = Arc::new(Rows::new());
        for _ in 0..rows_written {
            rows.write_exactly(&host, 1);
        }
        kill(&host);
        host.wait();
        let record = shim.record();
        let anchor = record.root.join("anchor");
        let writes: Vec<_> =
            record.entries.iter().filter(|entry| entry.kind == Kind::Write && entry.path == anchor).collect();
        let last = writes.last().unwrap();
        // The slot's previous content, written two commits earlier.
        let before = &writes[writes.len() - 3];
        assert_eq!((last.offset, last.data.len()), (before.offset, before.data.len()));
        let folder = scratch();
        each(0..=last.data.len(), |at| {
            let image = folder.path().join(at.to_string());
            disk::copy(&host.data(), &image);
            let file = std::fs::OpenOptions::new().write(true).open(image.join("anchor")).unwrap();
            file.write_all_at(&[&last.data[..at], &before.data[at..]].concat(), last.offset).unwrap();
            rows.check(&image).unwrap_or_else(|failed| panic!("torn at byte {at}: {failed:?}"));
            std::fs::remove_dir_all(&image).unwrap();
        });
    }
}
