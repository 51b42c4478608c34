//! Stores in databases of a real PostgreSQL server.
//!
//! With `COFFERDAM_STORE=postgres`, every host of a test has its store in a database of its own; hosts that a test
//! starts one after the other on one directory share it. Tests that need an embedded store are skipped then.

use cofferdam_store::{Clock, OpenError, OpenOptions, RootKeySource, Store};
use cofferdam_test_postgres::{Database, Server};
use serde_json::{Value, json};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names the engine for the hosts of all tests.
const STORE: &str = "COFFERDAM_STORE";
/// In the directory of a host: which database it has.
const NOTE: &str = "database.json";
const PASSWORD: &str = "db.password";

/// `[store]` for this database. The password is in a file of the directory.
pub fn section(database: &Database, directory: &Path) -> String {
    let Database { name, user, password, port } = database;
    let file = directory.join(PASSWORD);
    let mut options = std::fs::File::options();
    let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&file).unwrap();
    std::io::Write::write_all(&mut written, password.as_bytes()).unwrap();
    format!(
        "[store]\nurl = \"postgres://{user}@127.0.0.1:{port}/{name}\"\npassword = \"file:{}\"\n",
        file.display()
    )
}

/// A new database of the server that this process shares.
pub fn fresh() -> Database {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("host_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    Server::shared().unwrap().database(&name).unwrap()
}

/// Whether the environment asks for stores in databases.
pub fn is_wanted() -> bool {
    std::env::var(STORE).is_ok_and(|value| value == "postgres")
}

/// Whether hosts have embedded stores. Otherwise it is said why a test that needs one does not run.
pub fn is_embedded(reason: &str) -> bool {
    if is_wanted() {
        eprintln!("SKIPPED with a database: {reason}");
    }
    !is_wanted()
}

/// A configuration with the database of this directory, where stores in databases are wanted.
pub fn configured(config: &str, directory: &Path) -> String {
    if !is_wanted() || config.contains("postgres://") {
        return config.to_owned();
    }
    let section = section(&of(directory), directory);
    match config.split_once("[store]\n") {
        Some((before, after)) => format!("{before}{section}{after}"),
        None => format!("{config}{section}"),
    }
}

/// The configuration of a data directory whose test writes none, where stores in databases are wanted. Its first
/// command makes the store.
pub fn config_of(data: &Path) -> Option<PathBuf> {
    if !is_wanted() {
        return None;
    }
    let directory = directory_of(data);
    let config = directory.join("cofferdam.toml");
    if !config.exists() {
        std::fs::write(&config, configured("", directory)).unwrap();
        open(data)?.close();
    }
    Some(config)
}

/// The directory of the host that has this data directory.
fn directory_of(data: &Path) -> &Path {
    data.ancestors().find(|it| it.join(NOTE).exists()).or_else(|| data.parent()).unwrap()
}

/// Opens the store of the data directory `data` in its database, where stores in databases are wanted.
pub fn open(data: &Path) -> Option<Store> {
    if !is_wanted() {
        return None;
    }
    let database = of(directory_of(data));
    let Database { name, user, password, port } = &database;
    let url = format!("postgres://{user}@127.0.0.1:{port}/{name}").parse().unwrap();
    let password = cofferdam_store::Secret::from(password.clone());
    let place = cofferdam_store::Database::new(&url, Some(&password), &[]).unwrap();
    std::fs::create_dir_all(data).unwrap();
    let root_key = RootKeySource::File(data.join("root.key"));
    let clock = Clock::system();
    let options = OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock };
    // As a start does, which charges what was running when the host was killed.
    Some(match Store::open_in(&place, &options) {
        Err(OpenError::NoStore) => Store::create_in(&place, &options).unwrap(),
        opened => opened.unwrap(),
    })
}

/// The database of this directory, which is made at the first call.
fn of(directory: &Path) -> Database {
    let note = directory.join(NOTE);
    if let Ok(text) = std::fs::read_to_string(&note) {
        let noted: Value = serde_json::from_str(&text).unwrap();
        let text = |member: &str| noted[member].as_str().unwrap().to_owned();
        let port = noted["port"].as_u64().unwrap() as u16;
        return Database { name: text("name"), user: text("user"), password: text("password"), port };
    }
    let database = fresh();
    let Database { name, user, password, port } = &database;
    let noted = json!({"name": name, "user": user, "password": password, "port": port});
    std::fs::write(note, noted.to_string()).unwrap();
    database
}
