//! Making the store, and starts that are refused.

use super::{Site, demo, failed, refused};
use crate::kit::client::Client;
use crate::kit::host::Setup;

#[tokio::test]
async fn store_create_makes_the_store_and_shows_its_first_key_once() {
    let Some(site) = Site::new() else { return };
    assert!(site.key.starts_with("cfd_"), "no key was shown");
    assert!(site.root_key().exists());
    let again = site.host("").command_output(&["store", "create"]);
    let (code, text) = failed(&again);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("the database has a store already"), "{text}");
    let host = site.host("").start();
    assert_eq!(host.banner.get("key"), None, "a start shows no key");
    assert_eq!(Client::new(&host).ask(&demo(), false).await["status"], "completed");
}

#[test]
fn a_start_on_an_empty_database_is_refused_and_makes_nothing() {
    let Some(site) = Site::empty() else { return };
    for line in [&["serve"][..], &["status"], &["key", "create", "--workspace", "default"]] {
        let (code, text) = failed(&site.host("").command_output(line));
        assert_eq!(code, Some(78), "{line:?}: {text}");
        assert!(text.contains("cofferdam store create"), "{line:?}: {text}");
    }
    assert!(!site.root_key().exists(), "a root key was made");
    let tables = cofferdam_test_postgres::Server::shared().unwrap();
    let sql = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    let found = tables.query_in(&site.database.name, sql).unwrap();
    assert_eq!(found[0][0].as_deref(), Some("0"), "tables were made");
}

#[test]
fn store_create_without_a_database_names_the_key_that_is_missing() {
    let (code, text) = failed(&Setup::new().config("[store]").command_output(&["store", "create"]));
    if crate::kit::database::is_wanted() {
        return;
    }
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("`[store] url` names no database"), "{text}");
}

#[test]
fn a_start_with_another_root_key_or_none_is_refused() {
    let (Some(site), Some(other)) = (Site::new(), Site::new()) else { return };
    std::fs::rename(site.root_key(), site.folder.path().join("kept")).unwrap();
    let (code, text) = refused(site.host(""));
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("the store needs the root key"), "{text}");
    assert!(!site.root_key().exists(), "a root key was made");
    std::fs::copy(other.root_key(), site.root_key()).unwrap();
    let (code, text) = refused(site.host(""));
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("given, the store needs"), "{text}");
}

#[test]
fn a_database_that_cannot_be_used_is_exit_status_69() {
    let Some(mut site) = Site::new() else { return };
    let port = site.database.port;
    // A port of loopback that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    site.database.port = free;
    for line in [&["serve"][..], &["status"], &["store", "create"]] {
        let (code, text) = failed(&site.host("").command_output(line));
        assert_eq!(code, Some(69), "{line:?}: {text}");
        assert!(text.contains(&format!("127.0.0.1:{free}")), "{line:?}: {text}");
    }
    site.database.port = port;
    "not the password".clone_into(&mut site.database.password);
    let (code, text) = refused(site.host(""));
    assert_eq!(code, Some(69), "{text}");
    assert!(!text.contains("not the password"), "{text}");
}

#[test]
fn mistakes_about_the_database_are_named_without_secrets() {
    if !cofferdam_test_postgres::installed() {
        return;
    }
    for (config, key, part) in [
        ("url = \"postgres://u:hunter2@db/d\"", "store.url", "the URL has a password"),
        ("url = \"mysql://u@db/d\"", "store.url", "begins with `postgres://`"),
        ("url = \"postgres://u@db/d?sslmode=disable\"", "store.url", "on another machine"),
        ("password = \"env:X\"", "store.password", "without `url`"),
        ("url = \"postgres://u@db/d\"\npassword = \"hunter2\"", "store.password", "expected file:PATH"),
        ("backup_url = \"postgres://u@db/d\"", "store.backup_url", "without `url`"),
        ("url = \"postgres://u@db/d\"\nbackup_url = \"db\"", "store.backup_url", "begins with `postgres://`"),
        ("url = \"postgres://u@db/d\"\nroots = [\"none.pem\"]", "store.roots[0]", "cannot read none.pem"),
        ("url = \"postgres://u@db/d\"\npassword = \"env:UNSET_1\"", "store.password", "UNSET_1 is not set"),
    ] {
        let (code, text) = refused(Setup::new().config(&format!("[store]\n{config}")));
        // `postgres://` in the text keeps the kit from naming another database.
        if config.contains("postgres://") || !crate::kit::database::is_wanted() {
            assert_eq!(code, Some(78), "{config}: {text}");
            assert!(text.contains(key) && text.contains(part), "{config}: {text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn the_password_may_be_a_variable_which_the_host_removes() {
    let Some(site) = Site::new() else { return };
    let password = format!("password = \"file:{}\"", site.folder.path().join("db.password").display());
    let setup = site.host("");
    setup.write_config();
    let text = std::fs::read_to_string(setup.directory().join("cofferdam.toml")).unwrap();
    std::fs::write(
        setup.directory().join("cofferdam.toml"),
        text.replace(&password, "password = \"env:DB_PASSWORD\""),
    )
    .unwrap();
    let host = setup.reread_config().environment("DB_PASSWORD", &site.database.password).start();
    assert_eq!(Client::new(&host).ask(&demo(), false).await["status"], "completed");
    // A command goes to the host, which has the password.
    assert_eq!(host.command(&["status"])["store"]["engine"], "postgres");
}
