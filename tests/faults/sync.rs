//! The page cache must not do the work of fsync.

use crate::kit::disk::{Disk, Of, assert_complete};
use crate::kit::host::{Host, Setup, program};
use crate::kit::operator::send;
use crate::kit::random::{Random, count, seed};
use crate::kit::record::{Kind, Record};
use crate::kit::shim::{Action, Call, Rule, Shim};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Makes workspaces, four at a time; the names that were acknowledged.
fn make_workspaces(host: &Host, names: std::ops::Range<usize>) {
    let data = host.data();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (data, names) = (&data, names.clone());
            scope.spawn(move || {
                for number in names.filter(|number| number % 4 == worker) {
                    let command = json!({"workspace": {"create": {
                        "name": format!("w{number}"), "no_programme": false, "no_vault_writes": false}}});
                    send(data, &command).unwrap();
                }
            });
        }
    });
}

#[test]
fn no_answer_leaves_before_store_and_anchor_are_synced() {
    for delay in [0, 500] {
        let setup = Setup::new();
        let shim = Shim::new(&setup.data());
        let before = Disk::of(&setup.data());
        let mut host = shim.on(setup).start();
        let rules = ["store", "anchor"]
            .map(|path| Rule::new(Call::Sync, path, Action::Delay(Duration::from_millis(delay))));
        shim.rules(&rules);
        make_workspaces(&host, 0..8);
        shim.rules(&[]);
        host.end();
        let record = shim.record();
        assert_synced_before_answers(&record, 8);
        assert_complete(before, &record);
    }
}

/// Each name acknowledged must have been written to the journal, and the journal and then the anchor synced.
fn assert_synced_before_answers(record: &Record, least: usize) {
    let mut seen = 0;
    for answer in record.answers() {
        let Some(name) = answer.body["done"]["document"]["name"].as_str() else { continue };
        seen += 1;
        let before = &record.entries[..answer.at];
        let quoted = format!("\"{name}\"");
        let written = before.iter().position(|entry| {
            entry.kind == Kind::Write
                && entry.path.extension().is_some_and(|extension| extension == "jnl")
                && entry.data.windows(quoted.len()).any(|window| window == quoted.as_bytes())
        });
        let written = written.unwrap_or_else(|| panic!("{name} was not written before its answer"));
        let journal = synced(before, written, |path| path == before[written].path);
        let anchor = synced(before, journal, |path| path.ends_with("anchor"));
        let slot =
            before[journal..anchor].iter().any(|entry| entry.kind == Kind::Write && entry.is_of("anchor"));
        assert!(slot, "{name}: the anchor was not written between the syncs");
    }
    assert!(seen >= least, "{seen} answers");
}

/// Where the first sync ends that begins after `from`.
fn synced(entries: &[crate::kit::record::Entry], from: usize, of: impl Fn(&Path) -> bool) -> usize {
    let begun = entries[from..].iter().position(|entry| entry.kind == Kind::Sync && of(&entry.path));
    let begun = from + begun.expect("an answer left before the sync began");
    let (thread, ino) = (entries[begun].thread, entries[begun].ino);
    let ended = entries[begun..]
        .iter()
        .position(|entry| entry.kind == Kind::Synced && entry.thread == thread && entry.ino == ino);
    let ended = begun + ended.expect("an answer left before the sync returned");
    assert_eq!(entries[ended].result, 0);
    ended
}

#[test]
fn what_was_acknowledged_is_there_when_everything_after_the_last_syncs_is_gone() {
    let mut random = Random::new(seed());
    let setup = Setup::new();
    let shim = Shim::new(&setup.data());
    let mut disk = Disk::of(&setup.data());
    let mut host = shim.on(setup).start();
    make_workspaces(&host, 0..100);
    host.end();
    let record = shim.record();
    let answers = record.answers();
    let mut points: Vec<usize> =
        (0..count(100, 1000)).map(|_| random.below(record.entries.len() as u64) as usize).collect();
    points.sort_unstable();
    let mut played = 0;
    let folder = tempfile::tempdir().unwrap();
    for (number, point) in points.into_iter().enumerate() {
        disk.play(&record.entries[played..point]);
        played = point;
        let image = folder.path().join(number.to_string());
        let of = [Of::Strict, Of::Ordered][random.below(2) as usize];
        let mut tear = Random::new(random.draw());
        let torn = (random.below(2) == 0).then_some(&mut tear);
        let label = format!("entry {point}, {of:?}, torn {}", torn.is_some());
        disk.save(&image, of, torn, &mut random);
        let output =
            program().arg("--json").arg("--data").arg(&image).args(["workspace", "list"]).output().unwrap();
        assert!(output.status.success(), "{label}: {}", String::from_utf8_lossy(&output.stderr));
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        for answer in answers.iter().take_while(|answer| answer.at < point) {
            let Some(name) = answer.body["done"]["document"]["name"].as_str() else { continue };
            assert!(
                listed.as_array().unwrap().iter().any(|workspace| workspace["name"] == name),
                "{label}: {name}"
            );
        }
        std::fs::remove_dir_all(&image).unwrap();
    }
}
