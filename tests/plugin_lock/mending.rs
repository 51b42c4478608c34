//! Updates of plugins that this program refuses, as a newer program may refuse what an older one
//! installed.

use super::{Commands, Edition, NAME, setup};
use crate::kit::host::Setup;
use std::path::Path;
use std::process::Command;

/// Another plugin with the same component.
const SECOND: &str = "tool-second";

/// An edition of the second plugin.
fn second(edition: usize, version: &str) -> Edition {
    let made = Edition::plain(edition, version);
    let path = |name: &str, extension: &str| made.folder().join(format!("{name}.{extension}"));
    let manifest = std::fs::read_to_string(path(NAME, "toml")).unwrap();
    let manifest = manifest.replace(NAME, SECOND).replace("clockwork", "second");
    std::fs::write(path(SECOND, "toml"), manifest).unwrap();
    std::fs::rename(path(NAME, "wasm"), path(SECOND, "wasm")).unwrap();
    std::fs::remove_file(path(NAME, "toml")).unwrap();
    made
}

fn digest(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// Gives the installed plugin a manifest with a key that this program does not know, and notes its
/// digest in the lock.
fn outdate(setup: &Setup, plugin: &str) {
    let folder = setup.data().join("plugins");
    let name = setup.files().into_iter().find(|name| name.starts_with(plugin) && name.ends_with(".toml"));
    let old = folder.join(name.unwrap());
    let draft = setup.directory().join("draft.toml");
    let text = std::fs::read_to_string(&old).unwrap();
    std::fs::write(&draft, format!("{text}an_old_key = true\n")).unwrap();
    let (was, is) = (digest(&old), digest(&draft));
    let new = folder.join(format!("{plugin}-{}.toml", &is[..32]));
    std::fs::copy(&old, &new).unwrap();
    std::fs::copy(&draft, &new).unwrap();
    std::fs::remove_file(old).unwrap();
    let lock = setup.data().join("plugins.lock");
    let text = std::fs::read_to_string(&lock).unwrap();
    std::fs::write(lock, text.replace(&was, &is)).unwrap();
}

fn file_of(edition: &Edition, plugin: &str) -> String {
    edition.folder().join(format!("{plugin}.wasm")).to_str().unwrap().to_owned()
}

fn start_is_refused(setup: &Setup) -> String {
    let output = setup.serve().arg("--check").output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn two_plugins_that_are_refused_are_mended_one_after_the_other() {
    let setup = setup();
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    setup.done(&["plugin", "install", &file_of(&second(0, "0.1.0"), SECOND)]);
    for plugin in [NAME, SECOND] {
        outdate(&setup, plugin);
    }
    assert!(start_is_refused(&setup).contains("an_old_key"));
    let (one, other) = (Edition::plain(1, "0.2.0"), second(1, "0.2.0"));
    let done = setup.done(&["plugin", "update", &file_of(&other, SECOND)]);
    assert_eq!(done["state"], "updated", "it asks for nothing new: {done}");
    assert!(start_is_refused(&setup).contains(NAME));
    assert_eq!(setup.done(&["plugin", "update", &one.file()])["state"], "updated");
    assert_eq!(setup.version().as_deref(), Some("0.2.0"));

    // An update that is wrong itself is refused, whatever else is.
    outdate(&setup, SECOND);
    let wrong = Edition::plain(0, "0.3.0");
    let manifest = wrong.folder().join(format!("{NAME}.toml"));
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(manifest, text.replace("\"clockwork\"", "\"datetime\"")).unwrap();
    let told = setup.refused(&["plugin", "update", &wrong.file()]);
    assert!(told.contains("the tool type `datetime` is taken"), "{told}");
}

#[test]
fn an_update_of_a_refused_plugin_that_asks_for_more_is_held_until_it_is_accepted() {
    let setup = setup();
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    outdate(&setup, NAME);
    let more = "imports = [\"clock\", \"http\"]\nhosts = [\"a.test\"]";
    let done = setup.done(&["plugin", "update", &Edition::new(1, "0.2.0", more).file()]);
    assert_eq!(
        (&done["state"], &done["asks_more"]),
        (&"held".into(), &["host a.test", "import http"].into())
    );
    start_is_refused(&setup);
    let done = setup.done(&["plugin", "grant", NAME, "--accept"]);
    assert!(done["lines"].as_str().unwrap().contains("a.test"), "{done}");
    let setup = setup.reread_config();
    assert_eq!(setup.version().as_deref(), Some("0.2.0"));
}

#[test]
fn a_damaged_earlier_version_is_told_with_what_concerns_it() {
    let setup = setup();
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    let earlier = setup.files().into_iter().find(|name| name.ends_with(".wasm")).unwrap();
    setup.done(&["plugin", "update", &Edition::plain(1, "0.2.0").file()]);
    std::fs::write(setup.data().join("plugins").join(earlier), "other").unwrap();
    let told = setup.refused(&["plugin", "rollback", NAME]);
    assert!(told.contains("is not the file of plugin tool-clockwork 0.1.0"), "{told}");
    assert!(told.contains("the version that serves is not affected"), "{told}");
    assert!(!told.contains("plugin install") && !told.contains("plugin remove"), "{told}");
    let serving = setup.done(&["plugin", "update", &Edition::plain(0, "0.1.0").file(), "--allow-downgrade"]);
    assert_eq!(serving["version"], "0.1.0");
}
