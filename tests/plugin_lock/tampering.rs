//! A start and a reload refuse files that are not those of the lock, and say what mends them.

use super::{Commands, Edition, NAME, setup};
use crate::kit::host::Setup;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

fn installed() -> (Setup, Edition) {
    let (setup, edition) = (setup(), Edition::plain(0, "0.1.0"));
    setup.done(&["plugin", "install", &edition.file()]);
    (setup, edition)
}

/// The installed file with this extension.
fn file(commands: &impl Commands, extension: &str) -> PathBuf {
    let name = commands.files().into_iter().find(|name| name.ends_with(extension)).unwrap();
    commands.data_folder().join("plugins").join(name)
}

fn refusal_of_start(setup: &Setup) -> String {
    let output = setup.fail();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    String::from_utf8(output.stderr).unwrap().lines().last().unwrap().to_owned()
}

#[test]
fn other_bytes_are_refused_with_both_digests_and_mended_by_installing_again() {
    for extension in ["toml", "wasm"] {
        let (setup, edition) = installed();
        let path = file(&setup, extension);
        let mut bytes = std::fs::read(&path).unwrap();
        let lock = std::fs::read_to_string(setup.data().join("plugins.lock")).unwrap();
        bytes.push(b'\n');
        std::fs::write(&path, bytes).unwrap();
        let complaint = refusal_of_start(&setup);
        for part in
            [path.to_str().unwrap(), "is not the file", "plugin install FILE", "plugin remove tool-clockwork"]
        {
            assert!(complaint.contains(part), "{complaint}");
        }
        let (_, digests) = complaint.split_once("SHA-256 ").unwrap();
        let locked = digests.split_once("plugins.lock has ").unwrap().1.split(';').next().unwrap();
        assert!(lock.contains(locked) && !lock.contains(&digests[..64]), "{complaint}");
        setup.done(&["plugin", "install", &edition.file()]);
        assert_eq!(setup.version().as_deref(), Some("0.1.0"));
    }
}

#[test]
fn a_missing_or_linked_file_is_refused_and_the_plugin_can_be_removed() {
    let (setup, _edition) = installed();
    let path = file(&setup, "wasm");
    let aside = setup.directory().join("aside.wasm");
    std::fs::rename(&path, &aside).unwrap();
    let complaint = refusal_of_start(&setup);
    assert!(complaint.contains("is not there, and plugins.lock names it"), "{complaint}");
    std::os::unix::fs::symlink(&aside, &path).unwrap();
    let complaint = refusal_of_start(&setup);
    assert!(complaint.contains("is a symbolic link"), "{complaint}");
    setup.done(&["plugin", "remove", NAME]);
    assert!(aside.exists() && !path.exists());
    assert_eq!(setup.version(), None);
}

#[test]
fn a_folder_or_lock_that_others_can_change_is_refused() {
    for name in ["plugins", "plugins.lock"] {
        let (setup, _edition) = installed();
        let path = setup.data().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o707)).unwrap();
        let complaint = refusal_of_start(&setup);
        assert!(complaint.contains("every user may write it"), "{name}: {complaint}");
    }
}

#[test]
fn a_lock_that_cannot_be_read_is_refused_with_its_line() {
    let (setup, _edition) = installed();
    let path = setup.data().join("plugins.lock");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("kind = ", "signed = true\nkind = ")).unwrap();
    let complaint = refusal_of_start(&setup);
    assert!(
        complaint.contains("plugins.lock:") && complaint.contains("unknown field `signed`"),
        "{complaint}"
    );
    assert!(complaint.contains("put the file back from a copy"), "{complaint}");
}

#[test]
fn a_reload_keeps_the_plugins_that_run_when_a_file_was_changed() {
    let (setup, _edition) = installed();
    let host = setup.start();
    std::fs::write(file(&host, "wasm"), "other").unwrap();
    host.signal("HUP");
    host.until_logged("the new configuration is not used, the old one stays");
    assert_eq!(host.version().as_deref(), Some("0.1.0"));
}

#[test]
fn a_file_that_the_lock_does_not_name_is_not_loaded_and_not_removed() {
    let (setup, _edition) = installed();
    let stranger = setup.data().join("plugins/tool-stranger.toml");
    std::fs::write(&stranger, "name = \"tool-stranger\"").unwrap();
    let host = setup.start();
    host.until_logged("plugins.lock does not name this file");
    host.done(&["plugin", "remove", NAME]);
    assert!(stranger.exists());
}
