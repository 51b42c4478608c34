//! Plugin grants: how they are shown, written into the configuration file, and refused.

use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

/// A host with the probe, and its folder of plugins.
fn host(config: &str) -> (Host, tempfile::TempDir) {
    let guests = folder(&["tool-probe"]);
    (Setup::new().config(config).plugins(guests.path()).start(), guests)
}

fn file(host: &Host) -> PathBuf {
    host.directory().join("cofferdam.toml")
}

fn written(host: &Host) -> String {
    std::fs::read_to_string(file(host)).unwrap()
}

fn grant(host: &Host, line: &str) -> Output {
    let mut arguments = vec!["plugin", "grant"];
    arguments.extend(line.split_whitespace());
    host.command_output(&arguments)
}

fn granted(host: &Host, line: &str) -> Value {
    let output = grant(host, line);
    assert!(output.status.success(), "{line}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(host: &Host, line: &str, code: i32) -> String {
    let output = grant(host, line);
    assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_plugin_shows_what_it_asks_for_and_what_would_grant_it() {
    let (host, _guests) = host("[plugins.tool-probe]\nhosts = [\"api.test\"]\n");
    let shown = granted(&host, "tool-probe");
    assert_eq!(shown["asks"]["hosts"], serde_json::json!(["*"]));
    assert_eq!(shown["asks"]["secrets"], serde_json::json!(["*"]));
    assert_eq!(shown["granted"]["hosts"], serde_json::json!(["api.test"]));
    assert_eq!(shown["granted"]["secrets"], serde_json::json!([]));
    let line = r#"[plugins.tool-probe] placeholder_headers = ["authorization", "x-key"]"#;
    assert_eq!(shown["denied"], serde_json::json!([line]));
    let listed = host.command(&["plugin", "list"]);
    let probe = listed.as_array().unwrap().iter().find(|plugin| plugin["name"] == "tool-probe").unwrap();
    // The compilation state may change in the background between the two commands.
    let settled = |plugin: &Value| {
        let mut plugin = plugin.as_object().unwrap().clone();
        plugin.remove("state").unwrap();
        plugin
    };
    assert_eq!(settled(probe), settled(&shown));
}

#[test]
fn a_grant_is_written_into_the_file_and_the_host_reads_it_again() {
    let (host, _guests) = host("# kept\n[limits]\nstreams = 50 # this too\n");
    std::fs::set_permissions(file(&host), std::fs::Permissions::from_mode(0o640)).unwrap();
    let before = written(&host);
    let done = granted(&host, "tool-probe --host API.test. --secret github_token");
    let lines = "[plugins.tool-probe]\nhosts = [\"api.test\"]\nsecrets = [\"github_token\"]\n";
    assert_eq!(
        (&done["lines"], &done["written"], &done["reloading"]),
        (&lines.into(), &true.into(), &true.into())
    );
    assert_eq!(written(&host), format!("{before}{lines}"));
    assert_eq!(std::fs::metadata(file(&host)).unwrap().permissions().mode() & 0o777, 0o640);
    host.until_logged("configuration and plugins were read again");
    assert_eq!(granted(&host, "tool-probe")["granted"]["secrets"], serde_json::json!(["github_token"]));
    let again = granted(&host, "tool-probe --host api.test");
    assert_eq!((&again["lines"], &again["written"]), (&"".into(), &false.into()));
    granted(&host, "tool-probe --host b.test");
    assert!(written(&host).contains("hosts = [\"api.test\", \"b.test\"]"));
    let files = std::fs::read_dir(host.directory()).unwrap().count();
    assert_eq!(files, 2, "the data directory and the configuration");
}

#[test]
fn lines_can_be_printed_only() {
    let (host, _guests) = host("[limits]\nstreams = 50\n");
    let before = written(&host);
    let printed = granted(&host, "tool-probe --host * --print");
    assert_eq!(printed["lines"], "[plugins.tool-probe]\nhosts = [\"*\"]\n");
    assert_eq!((&printed["written"], written(&host)), (&false.into(), before));
}

#[test]
fn what_a_plugin_does_not_ask_for_is_not_granted() {
    let (host, _guests) = host("[limits]\nstreams = 50\n");
    let before = written(&host);
    for (line, code, says) in [
        ("tool-nothing --host a.test", 1, "there is no plugin tool-nothing; installed: "),
        ("tool-datetime --host a.test", 1, "does not ask for the host a.test: its manifest has hosts = []"),
        ("tool-datetime --secret k", 1, "does not ask for the secret k"),
        (
            "tool-probe --import model",
            1,
            "does not ask for the import model: its manifest has imports = [\\\"http\\\"]",
        ),
        ("tool-probe --import clock", 2, "possible values"),
        ("tool-probe --host 127.0.0.1", 2, "an exact host name"),
        ("tool-probe --host *.a.test", 2, "an exact host name"),
        ("tool-probe --secret *", 2, "a secret's name"),
        ("tool-probe --secret Key", 2, "a secret's name"),
    ] {
        let complaint = refused(&host, line, code);
        assert!(complaint.contains(says), "{line}: {complaint}");
    }
    assert_eq!(written(&host), before);
    // Exit status 78, the same as without a running host: the file is wrong, not the command.
    std::fs::write(file(&host), format!("{before}[plugins.tool-nothing]\n")).unwrap();
    let complaint = refused(&host, "tool-probe --host a.test", 78);
    assert!(complaint.contains(":10: plugins.tool-nothing: no plugin of this name"), "{complaint}");
}

#[test]
fn grants_are_changed_without_a_host_too() {
    // The host is not running. `tool-datetime` asks for no host, so this grant is refused.
    let setup = Setup::new().config("[limits]\nstreams = 50\n");
    let refused = setup.command_output(&["plugin", "grant", "tool-datetime", "--host", "a.test"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let shown = setup.command_output(&["plugin", "grant", "tool-datetime"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    // Plugins in a folder are available only to commands that name the folder.
    let guests = folder(&["tool-probe"]);
    let setup = Setup::new().config("[plugins.tool-probe]\nhosts = [\"a.test\"]\n");
    assert_eq!(setup.command_output(&["plugin", "list"]).status.code(), Some(78));
    let there = ["--plugins", guests.path().to_str().unwrap()];
    for line in [&["models"][..], &["plugin", "list"], &["plugin", "grant", "tool-probe", "--host", "b.test"]]
    {
        let done = setup.command_output(&[line, &there].concat());
        assert_eq!(done.status.code(), Some(0), "{line:?}: {done:?}");
    }
    let written = std::fs::read_to_string(setup.directory().join("cofferdam.toml")).unwrap();
    assert!(written.contains("hosts = [\"a.test\", \"b.test\"]"), "{written}");
    let broken = Setup::new().config("[limits]\nstreams = 0\n");
    let refused = broken.command_output(&["plugin", "grant", "tool-datetime"]);
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    assert!(!broken.data().join("store").exists());
}
