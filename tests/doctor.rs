//! `doctor`: what it finds in a good installation, and in one with each fault that it knows.

mod certificate;
mod providers;
mod store;

use crate::kit::admin::Admin;
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Listens on free ports, because a port of the defaults may be taken on this machine.
const FREE_PORTS: &str = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n";

/// What `doctor --json` found.
struct Found {
    document: Value,
    code: Option<i32>,
}

impl Found {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "one document: {output:?}");
        let found = Self { document: serde_json::from_str(&text).unwrap(), code: output.status.code() };
        let bad = found.document["bad"].as_u64().unwrap();
        assert_eq!(found.code, Some(i32::from(bad > 0)), "{}", found.document);
        for finding in found.document["findings"].as_array().unwrap() {
            let is_ok = finding["severity"] == "ok";
            assert_eq!(finding["remedy"].is_null(), is_ok, "what is not ok has a remedy: {finding}");
        }
        found
    }

    /// The severity and the text of the findings of a check, with the remedy of each.
    fn all(&self, id: &str) -> Vec<(String, String)> {
        let findings = self.document["findings"].as_array().unwrap();
        let text = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        let shown = |finding: &Value| {
            let [subject, found, remedy] = ["subject", "text", "remedy"].map(|name| text(finding, name));
            (text(finding, "severity"), format!("{subject}: {found} -> {remedy}"))
        };
        findings.iter().filter(|finding| finding["id"] == id).map(shown).collect()
    }

    /// Asserts that a check found this, with all these words.
    fn assert(&self, id: &str, severity: &str, words: &[&str]) {
        let all = self.all(id);
        let fits = |(found, text): &&(String, String)| {
            found == severity && words.iter().all(|word| text.contains(word))
        };
        assert!(
            all.iter().any(|finding| fits(&finding)),
            "no {severity} {id} with {words:?} in {}",
            self.document
        );
    }
}

fn doctor(setup: &Setup, arguments: &[&str]) -> Found {
    let mut all = vec!["doctor"];
    all.extend(arguments);
    Found::of(&setup.command_output(&all))
}

fn doctor_of(host: &Host, arguments: &[&str]) -> Found {
    let mut all = vec!["doctor"];
    all.extend(arguments);
    Found::of(&host.command_output(&all))
}

/// A directory with a store.
fn with_store() -> Setup {
    let setup = Setup::new().config(FREE_PORTS);
    assert!(setup.command_output(&["key", "create", "--workspace", "default"]).status.success());
    setup
}

/// `doctor` under a limit of the shell.
fn limited(setup: &Setup, limit: &str) -> Found {
    let program = setup.serve();
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]).arg(program.get_program());
    shell.args(["--json", "--data"]).arg(setup.data());
    shell.arg("--config").arg(setup.directory().join("cofferdam.toml")).arg("doctor");
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Found::of(&shell.output().unwrap())
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_root_key_of_the_environment_stays_known_after_a_reload() {
    let config = format!("{FREE_PORTS}[vault]\nroot_key = \"env:TEST_ROOT\"\n");
    let key = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let mut host = Setup::new().config(&config).environment("TEST_ROOT", key).start();
    doctor_of(&host, &["--offline"]).assert("root-key", "ok", &["env:TEST_ROOT"]);
    let admin = Admin::new(&host);
    host.signal("HUP");
    admin.until_metric("cofferdam_reloads_total", 1).await;
    doctor_of(&host, &["--offline"]).assert("root-key", "ok", &["env:TEST_ROOT"]);
    host.end();
    assert!(!host.log().contains("at the next start"), "{}", host.log());
}

#[test]
fn a_directory_without_a_store_has_nothing_bad() {
    let setup = Setup::new().config(FREE_PORTS);
    let found = doctor(&setup, &[]);
    assert_eq!((found.code, &found.document["bad"]), (Some(0), &0.into()), "{}", found.document);
    found.assert("store", "ok", &["there is none yet"]);
    found.assert("listener", "ok", &["server.listen", "is free"]);
    assert!(!setup.data().join("store").exists());
}

#[test]
fn a_store_without_its_lock_file_is_opened() {
    let setup = with_store();
    std::fs::remove_file(setup.data().join("lock")).unwrap();
    doctor(&setup, &[]).assert("store", "ok", &["is open"]);
}

#[test]
fn a_running_host_reports_its_own_state() {
    let host = Setup::new().start();
    let found = doctor_of(&host, &[]);
    assert_eq!(found.code, Some(0), "{}", found.document);
    let address = host.base.trim_start_matches("http://").trim_end_matches("/v1");
    found.assert("listener", "ok", &["server.listen", "this host listens on", address]);
    found.assert("store", "ok", &["is open"]);
    for id in ["clock", "open-files", "address-space", "compile-cache", "key-expiry", "plugin", "disk-space"]
    {
        assert!(!found.all(id).is_empty(), "{id} is not in {}", found.document);
    }
}

#[test]
fn text_has_a_line_for_each_finding_and_one_for_each_remedy() {
    let setup = with_store();
    allow(&setup.data().join("root.key"), 0o644);
    let mut command = crate::kit::host::program();
    command.arg("--data").arg(setup.data()).arg("--config").arg(setup.directory().join("cofferdam.toml"));
    let output = command.arg("doctor").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().position(|line| line.starts_with("bad   root key: ")).unwrap();
    let remedy = text.lines().nth(line + 1).unwrap();
    assert!(remedy.starts_with("      -> chmod 600 "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("ok    ")), "{text}");
    assert!(text.trim_end().lines().last().unwrap().ends_with(" 2 bad"), "{text}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "error: 2 findings are bad\n");
}

#[test]
fn files_that_other_users_can_change_or_read_are_found() {
    let setup = with_store();
    let found = doctor(&setup, &[]);
    found.assert("data-directory", "ok", &["0700"]);
    found.assert("root-key", "ok", &["0600"]);
    allow(&setup.data(), 0o755);
    doctor(&setup, &[]).assert("data-directory", "warn", &["look into", "chmod 700"]);
    allow(&setup.data(), 0o777);
    allow(&setup.directory().join("cofferdam.toml"), 0o666);
    allow(&setup.data().join("root.key"), 0o640);
    let found = doctor(&setup, &[]);
    found.assert("data-directory", "bad", &["change what is in it", "chmod 700"]);
    found.assert("configuration-file", "bad", &["0666", "chmod go-w"]);
    found.assert("root-key", "bad", &["0640", "chmod 600"]);
    found.assert("store", "bad", &["does not open"]);
}

#[test]
fn a_data_directory_that_is_opened_under_a_running_host_is_found() {
    let host = Setup::new().start();
    allow(&host.data(), 0o755);
    doctor_of(&host, &["--offline"]).assert("data-directory", "warn", &["0755"]);
}

#[test]
fn a_missing_root_key_is_found() {
    let setup = with_store();
    doctor(&setup, &[]).assert("root-key", "warn", &["beside the store"]);
    std::fs::rename(setup.data().join("root.key"), setup.directory().join("away")).unwrap();
    let found = doctor(&setup, &[]);
    found.assert("root-key", "bad", &["cannot be read"]);
    found.assert("store", "bad", &["does not open"]);
}

#[test]
fn an_operator_token_that_keeps_the_host_from_starting_is_found() {
    let setup = with_store();
    let token = setup.data().join("operator.token");
    std::fs::write(&token, "a token of at least thirty-two characters\n").unwrap();
    allow(&token, 0o644);
    doctor(&setup, &[]).assert("operator-token", "bad", &["mode 0644", "0600"]);
}

#[test]
fn a_variable_without_a_root_key_is_found() {
    let setup = with_store().config("[vault]\nroot_key = \"env:COFFERDAM_TEST_NO_KEY\"\n");
    doctor(&setup, &[]).assert("root-key", "bad", &["COFFERDAM_TEST_NO_KEY is not set"]);
}

#[test]
fn a_root_key_in_another_directory_is_no_warning() {
    let setup = Setup::new().config(FREE_PORTS).config("[vault]\nroot_key = \"file:keys/root.key\"\n");
    std::fs::create_dir(setup.directory().join("keys")).unwrap();
    assert!(setup.command_output(&["key", "create", "--workspace", "default"]).status.success());
    let found = doctor(&setup, &[]);
    assert_eq!(found.all("root-key").len(), 1, "{}", found.document);
    found.assert("root-key", "ok", &["keys/root.key"]);
}

#[test]
fn mistakes_of_the_configuration_are_findings_with_their_line() {
    let setup = Setup::new().config("[limits]\nstreems = 10\nconnections = \"many\"");
    let found = doctor(&setup, &[]);
    assert_eq!(found.document["bad"], 2, "{}", found.document);
    found.assert("configuration", "bad", &["cofferdam.toml:2:1", "did you mean `streams`?", "serve --check"]);
}

#[test]
fn a_file_that_a_reload_would_refuse_is_found_while_the_host_runs() {
    let host = Setup::new().config("[limits]\nstreams = 16").start();
    doctor_of(&host, &[]).assert("configuration", "ok", &[]);
    std::fs::write(host.directory().join("cofferdam.toml"), "[limits]\nstreems = 16\n").unwrap();
    doctor_of(&host, &[]).assert("configuration", "bad", &["cofferdam.toml:2:1", "streems"]);
}

#[test]
fn warnings_of_the_configuration_are_findings() {
    let setup = with_store().config(
        "[[workspaces]]\nname = \"nowhere\"\n[[providers]]\nname = \"p\"\nadapter = \"openai-chat\"\n\
         base_url = \"http://127.0.0.1:1\"\n",
    );
    let found = doctor(&setup, &["--offline"]);
    found.assert("configuration", "warn", &["base_url: it has no version in its path"]);
    found.assert("configuration", "warn", &["names `nowhere`", "workspace create nowhere"]);
    let open = Setup::new().config("[server]\nlisten = \"0.0.0.0:0\"\nadmin = \"0.0.0.0:0\"");
    let found = doctor(&open, &[]);
    found.assert("listener", "warn", &["server.listen", "unencrypted"]);
    found.assert("listener", "warn", &["server.admin", "open to all"]);
}

#[test]
fn a_port_that_another_program_has_is_found() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let setup = Setup::new().config(&format!("[server]\nlisten = \"{address}\"\nadmin = \"192.0.2.1:1\"\n"));
    let found = doctor(&setup, &[]);
    found.assert("listener", "bad", &["server.listen", &address.to_string(), "another program"]);
    found.assert("listener", "bad", &["server.admin", "of this machine"]);
}

#[test]
fn limits_of_the_process_that_are_too_small_are_found() {
    let setup = with_store();
    limited(&setup, "-n 512").assert("open-files", "bad", &["512 allowed", "11000", "LimitNOFILE"]);
    let found = limited(&setup, "-v 16000000");
    found.assert("address-space", "bad", &["sandboxes", "ulimit -v"]);
    found.assert("open-files", "ok", &[]);
}

#[test]
fn a_compile_cache_that_cannot_be_used_is_found() {
    let setup = Setup::new().config(FREE_PORTS);
    setup.write_config();
    let mut command = crate::kit::host::program();
    command.env("COFFERDAM_CACHE", "/dev/null/cache").args(["--json", "doctor", "--data"]).arg(setup.data());
    command.arg("--config").arg(setup.directory().join("cofferdam.toml"));
    Found::of(&command.output().unwrap()).assert(
        "compile-cache",
        "warn",
        &["/dev/null/cache", "COFFERDAM_CACHE"],
    );
}

#[test]
fn too_little_disk_is_found() {
    let setup = Setup::new().config(FREE_PORTS).config(&format!("[store]\nfree_bytes_min = {}", 1_u64 << 60));
    doctor(&setup, &[]).assert("disk-space", "bad", &["store.free_bytes_min", "make room"]);
}

#[test]
fn plugins_that_are_held_back_and_grants_without_use_are_found() {
    let guests = folder(&["hook-asker"]);
    let setup =
        Setup::new().config(FREE_PORTS).config("[plugins.tool-datetime]\nhosts = [\"api.example.com\"]");
    let found = doctor(&setup, &["--plugins", guests.path().to_str().unwrap()]);
    found.assert("plugin", "warn", &["plugin hook-asker", "held back", "plugin grant hook-asker"]);
    found.assert("grant", "warn", &["plugin tool-datetime", "api.example.com"]);
    // Built-in plugins without grants are not meant to be used.
    assert_eq!(found.all("plugin").len(), 1, "{}", found.document);
    let host = Setup::new().plugins(guests.path()).start();
    doctor_of(&host, &[]).assert("plugin", "warn", &["plugin hook-asker"]);
}

#[test]
fn plugin_that_asks_for_http_without_hosts_is_its_authors_to_mend() {
    let guests = folder(&["tool-probe"]);
    let manifest = guests.path().join("tool-probe.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let without =
        |line: &&str| !["hosts", "secrets", "placeholder_headers"].iter().any(|key| line.starts_with(key));
    std::fs::write(&manifest, text.lines().filter(without).collect::<Vec<_>>().join("\n")).unwrap();
    let remedy = "have its author name hosts in tool-probe.toml, or remove the plugin";
    let found = doctor(&Setup::new().config(FREE_PORTS), &["--plugins", guests.path().to_str().unwrap()]);
    found.assert("plugin", "warn", &["plugin tool-probe", "held back", &format!("-> {remedy}")]);
    let host = Setup::new().plugins(guests.path()).start();
    let listed = host.command(&["plugin", "list"]);
    let listed = listed.as_array().unwrap().iter().find(|plugin| plugin["name"] == "tool-probe").unwrap();
    assert_eq!(listed["denied"], serde_json::json!([remedy]));
}
