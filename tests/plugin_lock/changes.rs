//! Installing, updating, rolling back and removing, with and without a host.

use super::{Commands, EDITIONS, Edition, NAME, setup};
use crate::kit::client::Client;
use crate::kit::host::{Host, Setup};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Asks the built-in model for the time, which calls the tool.
pub fn request() -> Value {
    json!({
        "model": "local/demo",
        "input": "What is the date and time in the time zone Europe/Berlin?",
        "tools": [{"type": "service:clockwork"}],
        "tool_choice": "required",
    })
}

/// Which edition of the tool gave its answer to the model, which repeats it.
pub fn edition_of(response: &Value) -> usize {
    let output = response["output"].as_array().unwrap();
    assert!(output.iter().any(|item| item["type"] == "service:clockwork"), "{response}");
    let message = output.iter().find(|item| item["type"] == "message").unwrap();
    let text = message["content"][0]["text"].as_str().unwrap();
    let said = EDITIONS.map(|end| text.contains(end));
    assert!(said[0] != said[1], "not of one edition: {text}");
    usize::from(said[1])
}

/// Polls until the running host has loaded a version.
pub fn until_version(host: &Host, version: &str) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while host.version().as_deref() != Some(version) {
        assert!(std::time::Instant::now() < end, "the host does not load {version}: {}", host.log());
    }
}

#[test]
fn a_plugin_is_installed_before_the_first_start() {
    let setup = setup();
    let edition = Edition::plain(0, "0.1.0");
    let done = setup.done(&["plugin", "install", &edition.file()]);
    assert_eq!(
        (&done["plugin"], &done["version"], &done["state"], &done["reloading"]),
        (&NAME.into(), &"0.1.0".into(), &"installed".into(), &false.into())
    );
    assert!(done["asks"].to_string().contains("import clock"), "{done}");
    let data = setup.data();
    assert_eq!((mode(&data.join("plugins")), mode(&data.join("plugins.lock"))), (0o700, 0o600));
    for file in setup.files() {
        assert_eq!(mode(&data.join("plugins").join(file)), 0o600);
    }
    let lock = std::fs::read_to_string(data.join("plugins.lock")).unwrap();
    assert!(lock.contains(&edition.file()) && lock.contains("installed_at") && lock.contains("format = 1"));
    let entries: Vec<_> = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!entries.iter().any(|name| name.to_str().unwrap().starts_with("plugin-incoming")), "{entries:?}");
    assert_eq!(setup.version().as_deref(), Some("0.1.0"));
}

#[tokio::test]
async fn a_running_host_serves_what_is_installed_updated_and_rolled_back() {
    let host = setup().start();
    let client = Client::new(&host);
    let done = host.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    assert_eq!(done["reloading"], true);
    until_version(&host, "0.1.0");
    assert_eq!(edition_of(&client.ask(&request(), false).await), 0);
    let done = host.done(&["plugin", "update", &Edition::plain(1, "0.2.0").file()]);
    assert_eq!((&done["state"], &done["from"]), (&"updated".into(), &"0.1.0".into()));
    until_version(&host, "0.2.0");
    assert_eq!(edition_of(&client.ask(&request(), true).await), 1);
    let done = host.done(&["plugin", "rollback", NAME]);
    assert_eq!((&done["version"], &done["from"]), (&"0.1.0".into(), &"0.2.0".into()));
    until_version(&host, "0.1.0");
    assert_eq!(edition_of(&client.ask(&request(), false).await), 0);
    // Back and forth: the version before is now the newer one.
    host.done(&["plugin", "rollback", NAME]);
    until_version(&host, "0.2.0");
    let host = host.restart();
    assert_eq!(host.version().as_deref(), Some("0.2.0"));
    host.done(&["plugin", "remove", NAME]);
    assert_eq!(host.files(), Vec::<String>::new());
    let host = host.restart();
    assert_eq!(host.version(), None);
}

#[test]
fn the_file_may_be_a_component_a_manifest_or_a_folder() {
    let edition = Edition::plain(0, "0.1.0");
    let folder = edition.folder();
    let manifest = folder.join(format!("{NAME}.toml"));
    for file in [folder.join(format!("{NAME}.wasm")), manifest.clone(), folder.to_owned()] {
        let setup = setup();
        setup.done(&["plugin", "install", file.to_str().unwrap()]);
        assert_eq!(setup.version().as_deref(), Some("0.1.0"));
    }
    let setup = setup();
    for (prepare, says) in [
        (Box::new(|| {}) as Box<dyn Fn()>, "nothing.wasm is not there"),
        (
            Box::new(|| std::fs::write(folder.join("nothing.wasm"), "").unwrap()),
            "the manifest has to be beside",
        ),
        (
            Box::new(|| {
                std::fs::copy(&manifest, folder.join("nothing.toml")).unwrap();
            }),
            "has to be named tool-clockwork.toml",
        ),
    ] {
        prepare();
        let complaint = setup.refused(&["plugin", "install", folder.join("nothing.wasm").to_str().unwrap()]);
        assert!(complaint.contains(says), "{complaint}");
    }
    let complaint = setup.refused(&["plugin", "install", folder.to_str().unwrap()]);
    assert!(complaint.contains("has 2 manifests"), "{complaint}");
    assert!(!setup.data().join("plugins.lock").exists());
}

#[test]
fn what_no_host_would_load_is_not_installed() {
    let setup = setup();
    let install = |edition: &Edition| setup.refused(&["plugin", "install", &edition.file()]);
    let complaint = install(&Edition::new(0, "0.1.0", "imports = []"));
    assert!(complaint.contains("imports clock") && complaint.contains("does not ask for it"), "{complaint}");
    let complaint = install(&Edition::plain(0, "first"));
    assert!(complaint.contains("the form 1.2.3 of semver.org"), "{complaint}");
    let edition = Edition::plain(0, "0.1.0");
    std::fs::write(edition.file(), "\0asm").unwrap();
    assert!(install(&edition).contains("the component"), "{}", install(&edition));
    let edition = Edition::plain(0, "0.1.0");
    let manifest = edition.folder().join(format!("{NAME}.toml"));
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"clockwork\"", "\"datetime\"")).unwrap();
    assert!(install(&edition).contains("the tool type `datetime` is taken"), "{}", install(&edition));
    assert_eq!(setup.files(), Vec::<String>::new());
    assert!(!setup.data().join("plugins.lock").exists());
}

#[test]
fn a_name_in_two_places_is_refused_with_both() {
    let edition = Edition::plain(0, "0.1.0");
    let there = ["--plugins", edition.folder().to_str().unwrap()];
    let setup = setup();
    let complaint = setup.refused(&[&["plugin", "install", &edition.file()][..], &there].concat());
    assert!(complaint.contains("the name `tool-clockwork` is taken by"), "{complaint}");
    setup.done(&["plugin", "install", &edition.file()]);
    let output = setup.plugins(edition.folder()).fail();
    assert_eq!(output.status.code(), Some(78));
    let complaint = String::from_utf8(output.stderr).unwrap();
    let (folder, installed) = (edition.folder().to_str().unwrap(), "/data/plugins/tool-clockwork-");
    assert!(complaint.contains(folder) && complaint.contains(installed), "{complaint}");
}

#[test]
fn the_folder_of_installed_plugins_is_no_folder_for_the_option() {
    let setup = setup();
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    let plugins = setup.data().join("plugins");
    let output = setup.plugins(&plugins).fail();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("is the folder of installed plugins"), "{complaint}");
}

#[test]
fn a_plugin_with_grants_is_removed_with_its_table_or_not_at_all() {
    let setup = Setup::new().config("# kept\n[limits]\nstreams = 50\n");
    let edition = Edition::new(0, "0.1.0", "imports = [\"clock\", \"http\"]\nhosts = [\"a.test\"]");
    let done = setup.done(&["plugin", "install", &edition.file()]);
    assert_eq!(done["missing"], json!([format!("cofferdam plugin grant {NAME} --host a.test")]));
    setup.done(&["plugin", "grant", NAME, "--host", "a.test"]);
    let setup = setup.reread_config();
    let complaint = setup.refused(&["plugin", "remove", NAME]);
    assert!(complaint.contains(&format!("cofferdam plugin remove {NAME} --grants")), "{complaint}");
    assert_eq!(setup.version().as_deref(), Some("0.1.0"));
    setup.done(&["plugin", "remove", NAME, "--grants"]);
    let setup = setup.reread_config();
    let config = std::fs::read_to_string(setup.directory().join("cofferdam.toml")).unwrap();
    assert!(config.contains("# kept") && !config.contains("plugins"), "{config}");
    assert_eq!((setup.version(), setup.files()), (None, Vec::new()));
}

#[test]
fn a_plugin_that_is_not_installed_cannot_be_changed() {
    let setup = setup();
    for line in [
        &["plugin", "remove", NAME][..],
        &["plugin", "rollback", NAME],
        &["plugin", "grant", NAME, "--accept"],
    ] {
        let complaint = setup.refused(line);
        assert!(complaint.contains("tool-clockwork is not installed; installed: nothing"), "{complaint}");
    }
    let complaint = setup.refused(&["plugin", "update", &Edition::plain(0, "0.1.0").file()]);
    assert!(complaint.contains("`cofferdam plugin install "), "{complaint}");
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    assert!(
        setup.refused(&["plugin", "rollback", NAME]).contains("no version of tool-clockwork before 0.1.0")
    );
    assert!(
        setup.refused(&["plugin", "remove", NAME, "--held"]).contains("no update of tool-clockwork is held")
    );
    let complaint = setup.refused(&["plugin", "install", &Edition::plain(1, "0.2.0").file()]);
    assert!(complaint.contains("0.1.0 is installed: `cofferdam plugin update "), "{complaint}");
}
