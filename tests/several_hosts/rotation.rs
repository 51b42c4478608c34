//! The root key and the recovery key of a store with several hosts.

use super::{Site, failed, names, put, refused};
use crate::kit::client::Client;
use crate::kit::deadline;
use crate::kit::host::{Host, Setup};
use cofferdam_test_postgres::Server;
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

/// Lets a test put secrets as fast as it can.
const UNLIMITED: &str = "[vault.rate_limit]\nwrites_per_minute = 0\n";
/// How often a rotation changes the header: the key is announced, it is in force, and old wrappings are gone.
pub(super) const HEADER_CHANGES: usize = 3;
/// The most secrets that a client puts; then it replaces them.
const SECRETS_MAX: usize = 20;

/// The source of another root key, in this folder.
pub(super) fn new_key(folder: &Path, number: u8) -> String {
    let file = folder.join(format!("new-{number}.key"));
    let byte = |at: u8| at.wrapping_mul(37) ^ number;
    let digits: String = (0..32_u8).map(|at| format!("{:02x}", byte(at))).collect();
    std::fs::write(&file, digits).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    format!("file:{}", file.display())
}

/// The setup with these sources of root keys in place of those that it has.
pub(super) fn with_keys(setup: Setup, root_key: &str, previous: Option<&str>) -> Setup {
    setup.write_config();
    let file = setup.directory().join("cofferdam.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("[vault]\nroot_key = "), "{text}");
    let others: Vec<&str> = text.lines().filter(|line| !line.starts_with("root_key")).collect();
    let previous = previous.map(|source| format!("\nroot_key_previous = \"{source}\"")).unwrap_or_default();
    let keys = format!("[vault]\nroot_key = \"{root_key}\"{previous}");
    std::fs::write(&file, others.join("\n").replace("[vault]", &keys)).unwrap();
    setup.reread_config()
}

impl Site {
    fn new_key(&self, number: u8) -> String {
        new_key(self.folder.path(), number)
    }

    /// A host with these keys in the place of the one in `root.key` alone.
    fn host_with(&self, root_key: &str, previous: Option<&str>) -> Setup {
        with_keys(self.host(UNLIMITED), root_key, previous)
    }

    fn old_key(&self) -> String {
        format!("file:{}", self.root_key().display())
    }

    /// A host with both keys.
    fn host_with_both(&self, new: &str) -> Setup {
        self.host_with(new, Some(&self.old_key()))
    }
}

/// The ids of the root key in force and of the next one.
pub(super) fn keys(host: &Host) -> (Value, Value) {
    let store = &host.command(&["status"])["store"];
    (store["root_key_id"].clone(), store["next_root_key_id"].clone())
}

/// Puts and replaces secrets until it is over. Returns how many there are.
async fn write(host: &Host, prefix: &str, is_over: &AtomicBool) -> usize {
    let client = Client::new(host);
    let mut puts = 0;
    while !is_over.load(Ordering::Acquire) {
        let name = format!("{prefix}_{}", puts % SECRETS_MAX);
        let answer = put(&client, &name, "a.example", &format!("value {puts}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        puts += 1;
    }
    puts.min(SECRETS_MAX)
}

/// Runs the command beside the rest of the test.
pub(super) async fn rotate(host: &Host, new: &str) -> Output {
    let mut command = host.command_to_run(&["vault", "rotate-root", "--new", new]);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test]
async fn the_root_key_is_replaced_while_secrets_are_put_through_both_hosts() {
    let Some(site) = Site::new() else { return };
    let new = site.new_key(7);
    let [a, b] = [0, 1].map(|_| site.host_with_both(&new).start());
    let (before, next) = keys(&a);
    assert_eq!(next, Value::Null, "a start with both keys begins nothing");
    let is_over = AtomicBool::new(false);
    let rotation = async {
        let done = rotate(&a, &new).await;
        is_over.store(true, Ordering::Release);
        done
    };
    let (done, of_a, of_b) = tokio::join!(rotation, write(&a, "of_a", &is_over), write(&b, "of_b", &is_over));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&done["previous_root_key_id"], &done["configure_root_key"]), (&before, &false.into()));
    for host in [&a, &b] {
        assert_eq!(
            keys(host),
            (done["root_key_id"].clone(), Value::Null),
            "on every host when it is answered"
        );
        assert_eq!(names(&Client::new(host)).await.len(), of_a + of_b);
    }
    // Hosts that end in order leave no row.
    [a, b].iter_mut().for_each(|host| drop(host.end()));
    // The new key suffices now, and the old one does not.
    let c = site.host_with(&new, None).start();
    assert_eq!(c.command(&["vault", "verify"])["ok"], true);
    let (code, text) = refused(site.host(""));
    assert_eq!(code, Some(78), "{text}");
    for id in [&before, &done["root_key_id"]] {
        assert!(text.contains(id.as_str().unwrap()), "{id} is not in {text}");
    }
}

#[tokio::test]
async fn a_host_without_the_next_key_is_named_and_nothing_begins() {
    let Some(site) = Site::new() else { return };
    let new = site.new_key(7);
    let (a, mut b) = (site.host_with_both(&new).start(), site.host(UNLIMITED).start());
    let (before, _) = keys(&a);
    let status = a.command(&["status"]);
    let hosts = status["store"]["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2, "{status}");
    let of = |process: u32| hosts.iter().find(|host| host["process"] == process).unwrap();
    assert_eq!(of(a.pid())["root_key_ids"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(of(b.pid())["root_key_ids"], serde_json::json!([before]), "{status}");
    assert_eq!(status["store"]["hosts_differ_in"], serde_json::json!([]), "root keys are of each host alone");
    let (code, text) = failed(&rotate(&a, &new).await);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("process {}", b.pid())) && !text.contains(&a.pid().to_string()), "{text}");
    // The host that lacks it says so of itself, and so does a command beside it.
    for output in
        [rotate(&b, &new).await, site.host("").command_output(&["vault", "rotate-root", "--new", &new])]
    {
        let (code, text) = failed(&output);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("is not in the configuration here"), "{text}");
    }
    assert_eq!(keys(&a), (before, Value::Null));
    b.end();
    // A command that connects to the database itself does it too.
    let output = site.host_with_both(&new).command_output(&["vault", "rotate-root", "--new", &new]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(keys(&a), (done["root_key_id"].clone(), Value::Null));
}

#[tokio::test]
async fn a_rotation_whose_host_is_killed_after_any_change_of_the_header_is_finished_on_another_one() {
    let mut kills = 0;
    // Killed at once, and after each change.
    for changes in 0..=HEADER_CHANGES {
        let Some(site) = Site::new() else { return };
        let new = site.new_key(7);
        let [a, b] = [0, 1].map(|_| site.host_with_both(&new).start());
        assert_eq!(put(&Client::new(&a), "before", "a.example", "x").await.status, 200);
        let running = rotate(&a, &new);
        let is_killed = tokio::select! {
            _ = running => false,
            () = header_changed(Server::shared().unwrap(), &site.database.name, changes) => true,
        };
        kills += u32::from(is_killed);
        a.signal("KILL");
        assert_eq!(put(&Client::new(&b), "after", "a.example", "x").await.status, 200, "{changes}");
        let (code, text) = failed(&rotate(&b, &new).await);
        assert_eq!(code, Some(0), "{changes}: {text}");
        assert_eq!(keys(&b).1, Value::Null, "{changes}");
        assert_eq!(names(&Client::new(&b)).await.len(), 2);
        assert_eq!(b.command(&["vault", "verify"])["ok"], true, "{changes}");
    }
    assert!(kills >= 2, "{kills}");
}

/// Waits until the header in a database has changed so many times.
pub(super) async fn header_changed(server: &Server, database: &str, times: usize) {
    let header = || {
        let sql = "SELECT encode(body, 'hex') FROM store WHERE k = 'header'::bytea";
        server.query_in(database, sql).unwrap()
    };
    let mut last = header();
    for _ in 0..times {
        last = deadline::within("a change of the header", other_than(&last, &header)).await;
    }
}

/// Reads again and again until there is something else.
async fn other_than<T: PartialEq>(last: &T, read: &impl Fn() -> T) -> T {
    loop {
        let now = read();
        if now != *last {
            return now;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_recovery_key_that_one_host_makes_opens_what_the_other_one_writes() {
    let Some(site) = Site::new() else { return };
    let (a, b) = (site.host("").start(), site.host("").start());
    let made = a.command(&["vault", "recovery", "new"]);
    assert_eq!(b.command(&["status"])["store"]["has_recovery_key"], true);
    let answer = put(&Client::new(&b), "later", "a.example", "value").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    [a, b].iter_mut().for_each(|host| drop(host.end()));
    let file = site.folder.path().join("recovery.key");
    std::fs::write(&file, made["recovery_key"].as_str().unwrap()).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::remove_file(site.root_key()).unwrap();
    let recovery = format!("file:{}", file.display());
    let new = site.new_key(7);
    let host = site.host_with(&new, Some(&recovery)).start();
    assert_eq!(host.command(&["status"])["store"]["opened_with_recovery_key"], true);
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
    let done = rotate(&host, &new).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(host.command(&["status"])["store"]["opened_with_recovery_key"], false);
    assert_eq!(put(&Client::new(&host), "last", "a.example", "value").await.status, 200);
}
