//! The store's files are changed from outside: the damage is detected, or it does no harm.

use super::rows::{Failed, Rows, command, each, setup};
use crate::kit::disk::{self, PAGE, scratch};
use crate::kit::host::{Host, Setup};
use crate::kit::random::{Random, count, seed};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
struct Damage {
    file: PathBuf,
    at: u64,
    bytes: Vec<u8>,
}

/// How often the program accepted everything, and its errors otherwise.
#[derive(Debug, Default)]
struct Outcomes {
    whole: usize,
    refused: BTreeMap<String, usize>,
    reported: BTreeMap<String, usize>,
}

impl Outcomes {
    fn count(&mut self, result: Result<(), Failed>, damage: &Damage) {
        let (said, what) = match result {
            Ok(()) => return self.whole += 1,
            Err(Failed::Refused(what)) => (&mut self.refused, what),
            Err(Failed::Reported(what)) => (&mut self.reported, what),
            Err(Failed::Silent(what)) => panic!("{damage:?}: {what}"),
        };
        if what.ends_with("aborted") || what.contains("does not write") {
            println!("{}, {} bytes at {}: {what}", damage.file.display(), damage.bytes.len(), damage.at);
        }
        let last = what.lines().last().unwrap_or_default();
        let words: String =
            last.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).take(120).collect();
        *said.entry(words).or_default() += 1;
    }
}

fn open_damaged(data: &Path, rows: &Rows, damages: Vec<Damage>) -> Outcomes {
    let folder = scratch();
    let outcomes = Mutex::new(Outcomes::default());
    each(damages.into_iter().enumerate(), |(number, damage)| {
        let image = folder.path().join(number.to_string());
        disk::copy(data, &image);
        let file = std::fs::OpenOptions::new().write(true).open(image.join(&damage.file)).unwrap();
        file.write_all_at(&damage.bytes, damage.at).unwrap();
        let result = rows.check(&image);
        outcomes.lock().unwrap().count(result, &damage);
        std::fs::remove_dir_all(&image).unwrap();
    });
    outcomes.into_inner().unwrap()
}

/// The files of the store and the anchor, with their content up to the last byte that is not zero.
fn files_of(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = vec![data.join("anchor")];
    crate::kit::host::list_files(&data.join("store"), &mut files);
    files.sort();
    let contents = files.into_iter().map(|file| {
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        (file.strip_prefix(data).unwrap().to_owned(), bytes)
    });
    contents.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

/// Bit flips at random positions: half of them spread evenly over the files, half in proportion to
/// their sizes.
fn flips(files: &[(PathBuf, Vec<u8>)], count: usize, random: &mut Random) -> Vec<Damage> {
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let places = (0..count).map(|number| {
        let (file, bytes) = &files[number % files.len()];
        if number % 2 == 0 {
            return (file, bytes, random.below(bytes.len() as u64) as usize);
        }
        let mut at = random.below(total as u64) as usize;
        let within = files.iter().find(|(_, bytes)| {
            let found = at < bytes.len();
            at -= if found { 0 } else { bytes.len() };
            found
        });
        let (file, bytes) = within.unwrap();
        (file, bytes, at)
    });
    let places: Vec<_> = places.collect();
    let flipped = places.into_iter().map(|(file, bytes, at)| Damage {
        file: file.clone(),
        at: at as u64,
        bytes: vec![bytes[at] ^ (1 << random.below(8))],
    });
    flipped.collect()
}

/// Random pages with content, zeroed.
fn zeroed_pages(files: &[(PathBuf, Vec<u8>)], count: usize, random: &mut Random) -> Vec<Damage> {
    let pages = files.iter().flat_map(|(file, bytes)| {
        bytes.chunks(PAGE).enumerate().map(|(number, page)| Damage {
            file: file.clone(),
            at: (number * PAGE) as u64,
            bytes: vec![0; page.len()],
        })
    });
    let mut pages: Vec<Damage> = pages.collect();
    while pages.len() > count {
        pages.swap_remove(random.below(pages.len() as u64) as usize);
    }
    pages
}

fn damaged_everywhere(host: &Host, rows: &Rows, samples: usize) {
    let mut random = Random::new(seed());
    let files = files_of(&host.data());
    let mut damages = flips(&files, samples, &mut random);
    damages.extend(zeroed_pages(&files, samples / 2, &mut random));
    let outcomes = open_damaged(&host.data(), rows, damages);
    println!("{outcomes:#?}");
    assert!(!outcomes.refused.is_empty() && outcomes.whole > 0, "{outcomes:?}");
}

#[test]
fn damage_in_a_journal_is_detected_or_harmless() {
    let mut host = setup().start();
    let rows = Arc::new(Rows::new());
    rows.write_exactly(&host, 60);
    host.kill();
    damaged_everywhere(&host, &rows, count(80, 3000));
}

#[test]
fn damage_in_tables_and_blobs_is_detected_or_harmless() {
    let mut host = setup().start();
    // Enough rows for the engine to have written tables for one keyspace and not for the others.
    let rows = Arc::new(Rows::of(24 * 1024));
    rows.write_exactly(&host, 300);
    host.kill();
    assert!(
        files_of(&host.data())
            .iter()
            .any(|(file, _)| file.components().any(|part| part.as_os_str() == "blobs"))
    );
    damaged_everywhere(&host, &rows, count(40, 1000));
}

#[test]
fn an_older_store_than_its_anchor_is_refused_with_both_numbers() {
    let mut host = setup().start();
    let rows = Arc::new(Rows::new());
    rows.write_exactly(&host, 5);
    host.end();
    let older = host.directory().join("older");
    disk::copy(&host.data(), &older);
    let seq = |data: &Path| {
        let status: serde_json::Value = serde_json::from_slice(&command(data, "status").stdout).unwrap();
        status["store"]["seq"].as_u64().unwrap()
    };
    let before = seq(&host.data());
    let mut host = Setup::after(&host).start();
    rows.write_exactly(&host, 20);
    host.end();
    let after = seq(&host.data());
    assert!(before < after);

    let newer = host.directory().join("newer");
    disk::copy(&host.data(), &newer);
    std::fs::remove_dir_all(newer.join("store")).unwrap();
    std::fs::rename(older.join("store"), newer.join("store")).unwrap();
    let output = command(&newer, "serve");
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    for number in
        [format!("anchor {after}"), format!("keys {before}, meta {before}, values {before}, log {before}")]
    {
        assert!(complaint.contains(&number), "no {number} in {complaint}");
    }

    // The other way round: an older anchor beside the store.
    std::fs::copy(older.join("anchor"), host.data().join("anchor")).unwrap();
    let output = command(&host.data(), "serve");
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    for number in
        [format!("anchor {before}"), format!("keys {after}, meta {after}, values {after}, log {after}")]
    {
        assert!(complaint.contains(&number), "no {number} in {complaint}");
    }
}

#[test]
fn another_root_key_is_refused_with_both_ids_and_changes_nothing() {
    let mut host = setup().start();
    let rows = Arc::new(Rows::new());
    rows.write_exactly(&host, 20);
    host.kill();
    let stranger = Setup::new();
    crate::kit::store::prepare(&stranger, |_| ());
    let other = stranger.command_output(&["status"]);
    let other: serde_json::Value = serde_json::from_slice(&other.stdout).unwrap();
    let data = host.directory().join("copy");
    disk::copy(&host.data(), &data);
    let ours: serde_json::Value = serde_json::from_slice(&command(&data, "status").stdout).unwrap();

    let before = host.directory().join("before");
    std::fs::copy(stranger.data().join("root.key"), host.data().join("root.key")).unwrap();
    // The lock file contains the process id and no data, so it is emptied before the comparison.
    std::fs::write(host.data().join("lock"), "").unwrap();
    disk::copy(&host.data(), &before);
    for line in ["serve", "status", "key create --workspace default"] {
        let output = command(&host.data(), line);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{line}: {complaint}");
        for id in [&other["store"]["root_key_id"], &ours["store"]["root_key_id"]] {
            assert!(complaint.contains(id.as_str().unwrap()), "{line}: no {id} in {complaint}");
        }
        assert_eq!(disk::difference(&before, &host.data()), None, "{line}");
    }
    std::fs::copy(data.join("root.key"), host.data().join("root.key")).unwrap();
    rows.check(&host.data()).unwrap();
}
