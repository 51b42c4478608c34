//! `plugin logs` of an installed plugin.

use super::changes::until_version;
use super::{Commands, Edition, NAME, setup};

fn texts(commands: &impl Commands) -> Vec<String> {
    let shown = commands.done(&["plugin", "logs", NAME]);
    let lines = shown["lines"].as_array().unwrap();
    lines.iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_a_reload_refuses_is_among_the_lines_of_the_plugin() {
    let setup = setup();
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    let host = setup.start();
    let file = host.files().into_iter().find(|name| name.ends_with(".wasm")).unwrap();
    std::fs::write(host.data().join("plugins").join(file), "other").unwrap();
    host.signal("HUP");
    host.until_logged("the new configuration is not used, the old one stays");
    let texts = texts(&host);
    let refused = texts.iter().find(|text| text.starts_with("the new configuration is not used")).unwrap();
    assert!(refused.contains("this is not the file of plugin tool-clockwork 0.1.0"), "{refused}");
}

#[test]
fn the_lines_of_a_plugin_survive_an_update_and_end_with_its_removal() {
    let setup = setup();
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    let host = setup.start();
    assert!(host.refused(&["plugin", "logs", "tool-nothing"]).contains("no plugin tool-nothing is loaded"));
    host.done(&["plugin", "update", &Edition::plain(1, "0.2.0").file()]);
    until_version(&host, "0.2.0");
    let before = texts(&host);
    assert!(before.iter().any(|line| line.starts_with("installed version=0.2.0")), "{before:#?}");

    // Read again, they are still there.
    host.done(&["plugin", "rollback", NAME]);
    until_version(&host, "0.1.0");
    assert_eq!(texts(&host)[..before.len()], before);

    host.done(&["plugin", "remove", NAME]);
    host.until_logged("configuration and plugins were read again");
    while host.listed().is_some() {
        std::thread::yield_now();
    }
    assert!(host.refused(&["plugin", "logs", NAME]).contains("is loaded in the running host"));
    host.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    until_version(&host, "0.1.0");
    let after = texts(&host);
    assert!(after.iter().all(|line| !line.contains("0.2.0") && !line.starts_with("removed")), "{after:#?}");
}
