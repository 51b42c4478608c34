use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use wasmtime::Engine;

use super::{Cache, CacheError, CacheLimits, finding_name};
use crate::code::Code;
use crate::engine::Sandbox;

const DIGEST: &str = "00ff";

struct Fixture {
    directory: TempDir,
    engine: Engine,
}

impl Fixture {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), engine: Sandbox::start(1).unwrap().engine }
    }

    fn open(&self) -> Result<Cache, CacheError> {
        Cache::open(&self.directory.path().join("cache"), &self.engine, CacheLimits::HOST)
    }

    fn filled(&self) -> Cache {
        let cache = self.open().unwrap();
        let code = Code::compile(&wat::parse_str("(component)").unwrap(), false).unwrap();
        cache.keep_code(DIGEST, &code);
        assert_eq!(cache.code(DIGEST).unwrap().bytes(), code.bytes());
        cache
    }

    fn entry(&self, cache: &Cache) -> std::path::PathBuf {
        self.directory.path().join("cache").join(cache.code_name(DIGEST))
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn directory_key_and_entries_are_private() {
    let fixture = Fixture::new();
    let cache = fixture.filled();
    let directory = fixture.directory.path().join("cache");
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("key")), 0o600);
    assert_eq!(mode(&fixture.entry(&cache)), 0o600);
    let left: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no temporary files stay: {left:?}");
}

#[test]
fn entries_survive_a_restart() {
    let fixture = Fixture::new();
    drop(fixture.filled());
    assert!(fixture.open().unwrap().code(DIGEST).is_some());
}

#[test]
fn entries_with_a_flipped_bit_are_refused() {
    let fixture = Fixture::new();
    let cache = fixture.filled();
    let path = fixture.entry(&cache);
    let intact = fs::read(&path).unwrap();
    for position in [0, 31, 32, 100, intact.len() / 2, intact.len() - 1] {
        let mut damaged = intact.clone();
        damaged[position] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert!(cache.code(DIGEST).is_none(), "byte {position}");
    }
}

#[test]
fn truncated_and_empty_entries_are_refused() {
    let fixture = Fixture::new();
    let cache = fixture.filled();
    let path = fixture.entry(&cache);
    let intact = fs::read(&path).unwrap();
    for length in [0, 1, 32, 33, intact.len() - 1] {
        fs::write(&path, &intact[..length]).unwrap();
        assert!(cache.code(DIGEST).is_none(), "{length} bytes");
    }
}

#[test]
fn an_entry_is_refused_under_another_name_or_key() {
    let fixture = Fixture::new();
    let cache = fixture.filled();
    let path = fixture.entry(&cache);
    fs::copy(&path, path.with_file_name(cache.code_name("11ff"))).unwrap();
    assert!(cache.code("11ff").is_none());
    fs::remove_file(path.with_file_name("key")).unwrap();
    assert!(fixture.open().unwrap().code(DIGEST).is_none());
}

#[test]
fn entries_behind_links_or_open_to_others_are_not_read() {
    let fixture = Fixture::new();
    let cache = fixture.filled();
    let path = fixture.entry(&cache);
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    assert!(cache.code(DIGEST).is_none());
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let elsewhere = fixture.directory.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(cache.code(DIGEST).is_none());
}

#[test]
fn a_key_open_to_others_is_replaced() {
    let fixture = Fixture::new();
    drop(fixture.filled());
    let key = fixture.directory.path().join("cache").join("key");
    let before = fs::read(&key).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    drop(fixture.open().unwrap());
    assert_ne!(fs::read(&key).unwrap(), before);
    assert_eq!(mode(&key), 0o600);
}

#[test]
fn directories_that_others_can_write_to_are_refused() {
    let fixture = Fixture::new();
    drop(fixture.filled());
    let directory = fixture.directory.path().join("cache");
    for open in [0o770, 0o702, 0o777] {
        fs::set_permissions(&directory, Permissions::from_mode(open)).unwrap();
        assert!(matches!(fixture.open(), Err(CacheError::Writable(_))), "{open:o}");
    }
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    assert!(fixture.open().is_ok());
    let link = fixture.directory.path().join("link");
    symlink(&directory, &link).unwrap();
    assert!(Cache::open(&link, &fixture.engine, CacheLimits::HOST).is_err());
}

#[test]
fn findings_are_sealed_too() {
    let fixture = Fixture::new();
    let cache = fixture.open().unwrap();
    assert_eq!(cache.finding(DIGEST), None);
    cache.keep_finding(DIGEST, b"fine");
    assert_eq!(cache.finding(DIGEST).as_deref(), Some(&b"fine"[..]));
    let path = fixture.directory.path().join("cache").join("00ff.checked");
    let mut entry = fs::read(&path).unwrap();
    *entry.last_mut().unwrap() ^= 1;
    fs::write(&path, entry).unwrap();
    assert_eq!(cache.finding(DIGEST), None);
}

/// Sorted names of the entries, without the key.
fn entries(cache: &Cache) -> Vec<String> {
    let names = fs::read_dir(&cache.directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "key");
    names.sort();
    names
}

fn age(cache: &Cache, name: &str, hours: u64) {
    let file = fs::File::options().write(true).open(cache.directory.join(name)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(hours * 60 * 60)).unwrap();
}

#[test]
fn the_least_recently_used_entries_are_pruned() {
    let fixture = Fixture::new();
    let mut cache = fixture.open().unwrap();
    for (hours, digest) in [(4, "a"), (3, "b"), (2, "c"), (1, "d")] {
        cache.keep_finding(digest, &[0; 68]);
        age(&cache, &finding_name(digest), hours);
    }
    // The oldest entry is used again.
    assert!(cache.finding("a").is_some());
    cache.bounds.entries = 3;
    cache.prune(SystemTime::now());
    assert_eq!(entries(&cache), ["a.checked", "c.checked", "d.checked"]);
    // Each entry has 100 bytes, its seal included.
    cache.bounds.bytes = 200;
    cache.prune(SystemTime::now());
    assert_eq!(entries(&cache), ["a.checked", "d.checked"]);
}

#[test]
fn long_unused_entries_are_pruned_at_the_next_start() {
    let fixture = Fixture::new();
    let cache = fixture.filled();
    let code = cache.code_name(DIGEST);
    cache.keep_finding("recent", b"x");
    age(&cache, &finding_name("recent"), 29 * 24);
    age(&cache, &code, 31 * 24);
    for (name, hours) in [(".1-0.new", 2), (".2-0.new", 0)] {
        fs::write(cache.directory.join(name), b"half").unwrap();
        age(&cache, name, hours);
    }
    let cache = fixture.open().unwrap();
    assert_eq!(entries(&cache), [".2-0.new", "recent.checked"]);
}
