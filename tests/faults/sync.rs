//! Acknowledged rows must be synced, not only in the page cache. The record of the shim shows that
//! no response was sent before the sync, and playing the record back without unsynced data must
//! give every acknowledged row.

use super::rows::{Failed, Rows, each, setup};
use crate::kit::disk::{Disk, Of, assert_complete, scratch};
use crate::kit::random::{Random, count, seed};
use crate::kit::record::{Entry, Kind, Record, Sent};
use crate::kit::shim::{Action, Call, Rule, Shim};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// With values of this size the engine writes tables and starts new journals within a few hundred
/// rows.
const LARGE: usize = 12 * 1024;
/// Images that are prepared ahead of the threads that open them.
const AHEAD: usize = 4;

#[test]
fn no_200_is_sent_before_the_store_and_the_anchor_are_synced() {
    for delay in [0, 500] {
        let setup = setup();
        let shim = Shim::new(&setup.data());
        let before = Disk::of(&setup.data());
        let mut host = shim.on(setup).start();
        let slow = Action::Delay(Duration::from_millis(delay));
        shim.rules(&["store", "anchor"].map(|path| Rule::new(Call::Sync, path, slow)));
        let rows = Arc::new(Rows::new());
        rows.write_exactly(&host, 12);
        shim.rules(&[]);
        host.end();
        let record = shim.record();
        assert_complete(before, &record);
        assert_eq!(ahead_of_the_disk(&record), (12, Vec::new()));
        // Control: the check detects a response that did not wait for a sync.
        for file in ["0.jnl", "anchor"] {
            let mut blind = shim.record();
            blind.entries.retain(|entry| entry.kind != Kind::Synced || !entry.is_of(file));
            assert_eq!(ahead_of_the_disk(&blind).1.len(), 12, "{file}");
        }
    }
}

/// The number of acknowledged names, and the names whose response was sent before first the journal
/// and then the anchor were written and synced.
fn ahead_of_the_disk(record: &Record) -> (usize, Vec<String>) {
    let acknowledged = acknowledged(record);
    let ahead = acknowledged.iter().filter(|(name, sent)| !is_synced(name, &record.entries[..sent.at]));
    (acknowledged.len(), ahead.map(|(name, _)| name.clone()).collect())
}

/// The names in responses with status 200, in the order they were sent.
fn acknowledged(record: &Record) -> Vec<(String, Sent)> {
    let answers = record.answers().into_iter().filter(|answer| answer.status == 200);
    answers.filter_map(|answer| Some((answer.body["data"]["name"].as_str()?.to_owned(), answer))).collect()
}

fn is_synced(name: &str, before: &[Entry]) -> bool {
    let written = before.iter().rposition(|entry| {
        let data = &entry.data;
        entry.kind == Kind::Write
            && is_journal(&entry.path)
            && data.windows(name.len()).any(|part| part == name.as_bytes())
    });
    let Some(written) = written else { return false };
    let journal = before[written].path.clone();
    let Some(journal) = synced(before, written, |path| path == journal) else { return false };
    let slot = before[journal..].iter().position(|entry| entry.kind == Kind::Write && entry.is_of("anchor"));
    slot.is_some_and(|slot| synced(before, journal + slot, |path| path.ends_with("anchor")).is_some())
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jnl")
}

/// The index at which the first sync that begins after `from` has completed successfully.
fn synced(entries: &[Entry], from: usize, of: impl Fn(&Path) -> bool) -> Option<usize> {
    let begun = entries[from..].iter().position(|entry| entry.kind == Kind::Sync && of(&entry.path))? + from;
    let (thread, ino) = (entries[begun].thread, entries[begun].ino);
    let same = |entry: &Entry| entry.kind == Kind::Synced && entry.thread == thread && entry.ino == ino;
    let ended = entries[begun..].iter().position(same)? + begun;
    (entries[ended].result == 0).then_some(ended)
}

/// A disk image, and the rows it must contain.
struct Image {
    path: PathBuf,
    label: String,
    acknowledged: BTreeMap<String, usize>,
}

#[test]
fn acknowledged_rows_survive_the_loss_of_unsynced_data() {
    play_back(&[Of::Synced, Of::Ordered], 0, count(100, 1000));
}

#[test]
fn acknowledged_rows_survive_while_the_engine_replaces_files() {
    play_back(&[Of::Synced, Of::Ordered], LARGE, count(15, 500));
}

#[test]
#[ignore = "the engine does not sync the folder of its blob files (lsm-tree 3.1.10), and removes the journal"]
fn acknowledged_rows_survive_if_names_need_a_sync_of_their_folder() {
    play_back(&[Of::Strict], LARGE, count(15, 500));
}

/// Opens images of a disk with this guarantee for names, taken at random moments.
fn play_back(names: &[Of], filler: usize, points: usize) {
    let mut random = Random::new(seed());
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let mut disk = Disk::of(&setup.data());
    let mut host = shim.on(setup).start();
    let rows = Arc::new(Rows::of(filler));
    rows.write_exactly(&host, 400);
    host.end();
    let record = shim.record();
    let acknowledged = acknowledged(&record);
    let mut points: Vec<usize> =
        (0..points).map(|_| random.below(record.entries.len() as u64) as usize).collect();
    points.sort_unstable();
    let folder = scratch();
    let (sender, images) = sync_channel::<Image>(AHEAD);
    std::thread::scope(|scope| {
        scope.spawn(|| each(images.into_iter(), |image| open(&rows, &image)));
        let mut played = 0;
        for (number, point) in points.into_iter().enumerate() {
            disk.play(&record.entries[played..point]);
            played = point;
            let path = folder.path().join(number.to_string());
            let of = names[random.below(names.len() as u64) as usize];
            let mut tear = Random::new(random.draw());
            let torn = (number % 3 == 0).then_some(&mut tear);
            let label = format!("before entry {point}, names {of:?}, torn {}", torn.is_some());
            disk.save(&path, of, torn, &mut random);
            sender.send(Image { path, label, acknowledged: versions(&rows, &acknowledged, point) }).unwrap();
        }
        drop(sender);
    });
}

fn open(rows: &Rows, image: &Image) {
    let checked = rows.check_only(&image.path, &image.acknowledged);
    checked.unwrap_or_else(|failed| panic!("{}: {failed:?}", image.label));
    std::fs::remove_dir_all(&image.path).unwrap();
}

/// The newest version of each name that was acknowledged before this entry.
fn versions(rows: &Rows, acknowledged: &[(String, Sent)], point: usize) -> BTreeMap<String, usize> {
    let sent = acknowledged.iter().take_while(|(_, sent)| sent.at < point);
    sent.map(|(name, sent)| {
        let fingerprint = sent.body["data"]["fingerprint"].as_str().unwrap();
        (name.clone(), rows.version_of(fingerprint))
    })
    .collect()
}

#[test]
fn a_simulated_power_failure_leaves_a_renamed_file_one_of_its_names() {
    let folder = scratch();
    let root = folder.path().canonicalize().unwrap().join("disk");
    std::fs::create_dir(&root).unwrap();
    let entry = |kind, name: &str, data: &[u8]| {
        let path = root.join(name);
        Entry { kind, thread: 1, ino: u64::MAX, offset: 0, result: 0, path, data: data.to_vec() }
    };
    let mut disk = Disk::of(&root);
    let old = root.join("old").into_os_string().into_encoded_bytes();
    disk.play(&[entry(Kind::Create, "old", b""), entry(Kind::Rename, "new", &old)]);
    let mut found = BTreeSet::new();
    for seed in 0..32 {
        let image = folder.path().join(seed.to_string());
        disk.save(&image, Of::Ordered, None, &mut Random::new(seed));
        let names = std::fs::read_dir(&image).unwrap().map(|name| name.unwrap().file_name());
        found.insert(names.collect::<Vec<_>>());
    }
    assert_eq!(found, BTreeSet::from([vec!["new".into()], vec!["old".into()]]));
}

#[test]
fn lost_data_on_a_disk_that_ignores_syncs_is_detected() {
    for file in ["0.jnl", "anchor"] {
        let setup = setup();
        let shim = Shim::new(&setup.data());
        let mut disk = Disk::of(&setup.data());
        let mut host = shim.on(setup).start();
        let rows = Arc::new(Rows::new());
        let made = shim.record().entries.len();
        for _ in 0..3 {
            rows.write_exactly(&host, 1);
        }
        host.kill();
        let mut record = shim.record();
        for entry in record.entries[made..].iter_mut().filter(|entry| entry.is_of(file)) {
            entry.result = if entry.kind == Kind::Synced { -1 } else { entry.result };
        }
        disk.play(&record.entries);
        let image = host.directory().join("image");
        disk.save(&image, Of::Strict, None, &mut Random::new(0));
        let found = rows.check(&image);
        assert!(matches!(found, Err(Failed::Refused(_))), "{file}: {found:?}");
    }
}
