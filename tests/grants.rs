//! Grants of plugins: how they are shown, written into the configuration file and refused.

use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::shim::{Action, Call, Rule, Shim};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

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
    // The plugin is compiled in the background meanwhile, and only the list counts its calls.
    let settled = |plugin: &Value| {
        let mut plugin = plugin.as_object().unwrap().clone();
        plugin.retain(|member, _| !["state", "calls", "busy_s", "errors"].contains(&member.as_str()));
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

/// The host checks a grant before it writes the file, which takes a while.
#[test]
fn a_change_of_the_file_during_the_check_of_a_grant_is_kept() {
    let guests = folder(&["tool-probe"]);
    let setup = Setup::new().config("[limits]\nstreams = 50\n").plugins(guests.path());
    let shim = Shim::new(setup.directory());
    let host = shim.on(setup).start();
    shim.rules(&[Rule::new(Call::Create, "cofferdam.toml", Action::Freeze)]);
    let changed = written(&host) + "# changed by hand\n";
    let complaint = std::thread::scope(|scope| {
        let refused = scope.spawn(|| refused(&host, "tool-probe --host api.test", 1));
        shim.until_frozen();
        std::fs::write(file(&host), &changed).unwrap();
        shim.rules(&[]);
        refused.join().unwrap()
    });
    assert!(complaint.contains("was changed meanwhile"), "{complaint}");
    assert_eq!(written(&host), changed);
    let files = std::fs::read_dir(host.directory()).unwrap().count();
    assert_eq!(files, 2, "the data directory and the configuration");
    granted(&host, "tool-probe --host api.test");
    assert!(written(&host).starts_with(&changed));
}

#[test]
fn grant_lines_can_be_printed_without_a_change() {
    let (host, _guests) = host("[limits]\nstreams = 50\n");
    let before = written(&host);
    let printed = granted(&host, "tool-probe --host * --print");
    assert_eq!(printed["lines"], "[plugins.tool-probe]\nhosts = [\"*\"]\n");
    assert_eq!((&printed["written"], written(&host)), (&false.into(), before));
}

#[test]
fn grants_that_a_plugin_does_not_ask_for_are_refused() {
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
    // The same exit status as without a host: the file is wrong, not the command.
    std::fs::write(file(&host), format!("{before}[plugins.tool-nothing]\n")).unwrap();
    let complaint = refused(&host, "tool-probe --host a.test", 78);
    assert!(complaint.contains(":10: plugins.tool-nothing: no plugin of this name"), "{complaint}");
}

#[test]
fn grants_can_be_changed_without_a_host() {
    // No built-in plugin asks for such a host. The refusal shows that the configuration was read
    // and checked.
    let setup = Setup::new().config("[limits]\nstreams = 50\n");
    let refused = setup.command_output(&["plugin", "grant", "tool-datetime", "--host", "a.test"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let shown = setup.command_output(&["plugin", "grant", "tool-datetime"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    // Plugins of a folder exist only for commands that name the folder.
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
