//! Operators' commands for the vault: secrets, verification, backups, key rotation; without a host
//! and against a running host.

mod audit;
mod deletion;

use crate::kit::database::is_embedded;
use crate::kit::host::{Host, Setup, program, program_at};
use crate::kit::store;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const CANARY: &str = "canary-7f3a-value";

/// A data directory with or without a host.
enum Place {
    Free(Box<Setup>),
    Served(Box<Host>),
}

impl Place {
    fn data(&self) -> PathBuf {
        match self {
            Place::Free(setup) => setup.data(),
            Place::Served(host) => host.data(),
        }
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.data().parent().unwrap().join(name)
    }

    fn run_with(&self, line: &str, input: &[u8]) -> Output {
        run(&self.data(), line, input)
    }

    fn done(&self, line: &str) -> Value {
        done(&self.run_with(line, b""), line)
    }

    fn failed(&self, line: &str, code: i32) -> String {
        failed(&self.run_with(line, b""), line, code)
    }

    fn put(&self, name: &str, value: &str, of: &str) -> Value {
        let line = format!("secret put {name} --host api.example.com b.example {of}");
        done(&self.run_with(&line, value.as_bytes()), &line)
    }
}

fn run(data: &Path, line: &str, input: &[u8]) -> Output {
    let mut command = program_at(data);
    command.arg("--json").args(line.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The command may have ended without reading its input.
    child.stdin.take().unwrap().write_all(input).unwrap_or_default();
    child.wait_with_output().unwrap()
}

fn done(output: &Output, line: &str) -> Value {
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    assert!(output.stderr.is_empty(), "{line}: {output:?}");
    let text = std::str::from_utf8(&output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{line}: one document: {text}");
    serde_json::from_str(text).unwrap()
}

fn failed(output: &Output, line: &str, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
    assert!(output.stdout.is_empty(), "{line}: {output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn in_both_ways(scenario: impl Fn(&Place)) {
    let free = Setup::new();
    store::prepare(&free, |_| ());
    scenario(&Place::Free(Box::new(free)));
    scenario(&Place::Served(Box::new(Setup::new().start())));
}

fn text<'v>(document: &'v Value, name: &str) -> &'v str {
    document[name].as_str().unwrap_or_else(|| panic!("no {name} in {document}"))
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| text(entry, "name")).collect()
}

#[test]
fn secrets_are_put_listed_and_deleted_and_values_never_shown() {
    in_both_ways(|place| {
        let made = place.put("token", &format!("{CANARY}\n"), "");
        let fields: Vec<&str> = made.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            ["name", "hosts", "fingerprint", "created_at", "scope", "workspace_id", "intern_id"]
        );
        assert_eq!(made["hosts"], serde_json::json!(["api.example.com", "b.example"]));
        assert_eq!(text(&made, "scope"), "workspace");
        // One final line end is dropped; a second one would be part of the value.
        let again = place.put("token", CANARY, "--workspace default");
        assert_eq!(
            (&again["fingerprint"], &again["created_at"]),
            (&made["fingerprint"], &made["created_at"])
        );
        let of_windows = place.put("token", &format!("{CANARY}\r\n"), "");
        assert_eq!(of_windows["fingerprint"], made["fingerprint"]);
        let other = place.put("token", &format!("{CANARY}\n\n"), "");
        assert_ne!(other["fingerprint"], made["fingerprint"]);
        place.done("intern create scout --workspace default");
        place.put("for_intern", CANARY, "--intern scout");
        place.put("openai_key", CANARY, "--operator");
        assert_eq!(names(&place.done("secret list")), ["openai_key", "token", "for_intern"]);
        assert_eq!(names(&place.done("secret list --operator")), ["openai_key"]);
        assert_eq!(names(&place.done("secret list --intern scout")), ["for_intern"]);
        place.done("secret delete openai_key --operator");
        let gone = place.failed("secret delete openai_key --operator", 1);
        assert!(gone.contains("the operator has no `openai_key` with hosts"), "{gone}");
        assert_eq!(place.done("secret list --operator"), Value::Array(Vec::new()));
        place.done("workspace create second");
        assert!(place.failed("secret delete token", 1).contains("--workspace"));
        let whole = place.run_with("vault audit", b"");
        assert!(!String::from_utf8_lossy(&whole.stdout).contains(CANARY));
    });
}

#[test]
fn an_invalid_secret_is_refused_without_its_value() {
    in_both_ways(|place| {
        let long = CANARY.repeat(65_537 / CANARY.len() + 1);
        for (line, input, says) in [
            ("secret put Token --host a.example", CANARY.as_bytes(), "is not a secret's name"),
            (
                "secret put token --host a..example --operator",
                CANARY.as_bytes(),
                "`a..example` is not an exact host name",
            ),
            (
                "secret put token --host a.example *.b.example",
                CANARY.as_bytes(),
                "`*.b.example` is not an exact host name",
            ),
            ("secret put token --host a.example", b"".as_slice(), "1 to 65536"),
            ("secret put token --host a.example", b"\n", "1 to 65536"),
            ("secret put token --host a.example", long.as_bytes(), "1 to 65536"),
            ("secret put token --host a.example", b"canary-7f3a-value\xff", "UTF-8"),
            ("secret put token --host a.example --workspace nowhere", CANARY.as_bytes(), "nowhere"),
        ] {
            let output = place.run_with(line, input);
            let complaint = failed(&output, line, 1);
            assert!(complaint.contains(says), "{line}: {complaint}");
            assert!(!complaint.contains("canary"), "{line}: {complaint}");
        }
        assert_eq!(place.done("secret list"), Value::Array(Vec::new()));
    });
}

#[test]
fn the_longest_secret_fits_through_the_socket() {
    in_both_ways(|place| {
        // Each of these characters takes six bytes as a JSON escape.
        let value = "\u{1}".repeat(65_535) + "x";
        place.put("long", &value, "");
        place.put("wide", &"\u{1F600}".repeat(65_536), "");
        assert_eq!(place.done("vault verify")["secrets"], 2);
    });
}

#[test]
fn verify_reports_what_it_checked() {
    in_both_ways(|place| {
        place.put("a", CANARY, "");
        place.put("b", CANARY, "--operator");
        let checked = place.done("vault verify");
        assert_eq!(checked["ok"], true);
        assert_eq!((&checked["vaults"], &checked["secrets"]), (&2.into(), &2.into()));
        assert!(checked["audit_records"].as_u64().unwrap() >= 3);
        assert_eq!(checked["problems"], Value::Array(Vec::new()));
    });
}

#[test]
fn the_audit_log_is_printed_completely_or_from_a_number_on() {
    if !is_embedded("the numbers of the records of a database are of several chains") {
        return;
    }
    in_both_ways(|place| {
        place.put("a", CANARY, "");
        let all = place.done("vault audit");
        let all = all.as_array().unwrap();
        assert_eq!(all[0]["entries"][0]["action"], "store_created");
        assert!(all.iter().any(|record| record["entries"][0]["action"] == "secret_stored"));
        let since = place.done(&format!("vault audit --since {}", all.len() - 1));
        assert_eq!(since.as_array().unwrap().as_slice(), &all[all.len() - 1..]);
        let output = program_at(&place.data()).args(["vault", "audit"]).output().unwrap();
        let lines: Vec<Value> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines, *all);
    });
}

#[test]
fn a_backup_is_restored_into_a_directory_with_only_the_key() {
    if !is_embedded("it uses the files of a data directory") {
        return;
    }
    in_both_ways(|place| {
        place.put("a", CANARY, "");
        let backup = place.beside("backup");
        let line = format!("vault backup {}", backup.display());
        let made = place.done(&line);
        assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(place.failed(&line, 1).contains("exists already"));
        place.put("later", CANARY, "");

        let data = place.beside("restored");
        let restore = format!("vault restore {}", backup.display());
        // Without the root key, then with another one, then with the right one.
        let complaint = failed(&run(&data, &restore, b""), &restore, 78);
        assert!(complaint.contains(text(&made, "root_key_id")), "{complaint}");
        std::fs::copy(place.data().join("root.key"), data.join("root.key")).unwrap();
        // A host leaves its disk reserve in the directory when an operator moves the store away.
        std::fs::write(data.join("reserve"), [0; 4_096]).unwrap();
        let restored = done(&run(&data, &restore, b""), &restore);
        assert_eq!((&restored["seq"], &restored["secrets"]), (&made["seq"], &1.into()));
        assert_eq!(restored["root_key_id"], made["root_key_id"]);
        assert_eq!(names(&done(&run(&data, "secret list", b""), "list")), ["a"]);
        assert_eq!(done(&run(&data, "vault verify", b""), "verify")["ok"], true);
        assert!(failed(&run(&data, &restore, b""), &restore, 1).contains("nothing else"));

        let damaged = place.beside("damaged");
        let mut content = std::fs::read(&backup).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        std::fs::write(&damaged, content).unwrap();
        let data = place.beside("other");
        std::fs::create_dir(&data).unwrap();
        std::fs::copy(place.data().join("root.key"), data.join("root.key")).unwrap();
        let restore = format!("vault restore {}", damaged.display());
        assert!(failed(&run(&data, &restore, b""), &restore, 1).contains("cannot be restored"));
        assert!(!data.join("store").exists() && !data.join("anchor").exists());
    });
}

#[test]
fn the_root_key_of_a_directory_is_replaced_in_place() {
    if !is_embedded("the root key of a database is replaced on all hosts") {
        return;
    }
    in_both_ways(|place| {
        place.put("a", CANARY, "");
        let old = text(&place.done("status")["store"], "root_key_id").to_owned();
        let new = place.beside("new.key");
        let line = format!("vault rotate-root --new file:{}", new.display());
        let done = place.done(&line);
        assert_eq!(std::fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            (text(&done, "previous_root_key_id"), &done["configure_root_key"]),
            (old.as_str(), &false.into())
        );
        assert_eq!(std::fs::read(&new).unwrap(), std::fs::read(place.data().join("root.key")).unwrap());
        assert!(place.data().join(format!("root.key.{old}")).exists());
        assert_eq!(place.done("status")["store"]["root_key_id"], done["root_key_id"]);
        place.put("b", CANARY, "");
        assert_eq!(place.done("vault verify")["ok"], true);
        // Repeating the command changes nothing.
        assert_eq!(place.done(&line)["records"], 0);
        assert!(place.failed("vault rotate-root --new fd:9", 1).contains("descriptor 9"));
        place.failed("vault rotate-root --new nonsense", 2);
    });
}

#[test]
fn requests_work_during_root_key_rotation_and_after_a_restart() {
    if !is_embedded("the root key of a database is replaced on all hosts") {
        return;
    }
    let host = Setup::new().start();
    let place = Place::Served(Box::new(host));
    for number in 0..5 {
        place.done(&format!("workspace create w{number}"));
        place.put("a", CANARY, &format!("--workspace w{number}"));
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..10).for_each(|number| drop(place.put("b", CANARY, &format!("--workspace w{}", number % 5))))
        });
        for round in 0..3 {
            let new = place.beside(&format!("key{round}"));
            place.done(&format!("vault rotate-root --new file:{}", new.display()));
        }
        writer.join().unwrap();
    });
    let Place::Served(host) = place else { panic!() };
    let host = host.restart();
    assert_eq!(host.command(&["vault", "verify"])["secrets"], 10);
    assert!(!host.log().contains(CANARY));
}

#[test]
fn rotating_a_configured_root_key_leaves_the_configuration_to_the_operator() {
    if !is_embedded("the root key of a database is replaced on all hosts") {
        return;
    }
    let setup = Setup::new().config("[vault]\nroot_key = \"file:keys/first\"");
    std::fs::create_dir(setup.directory().join("keys")).unwrap();
    let second = setup.directory().join("keys/second");
    let new = format!("file:{}", second.display());
    assert!(setup.command_output(&["workspace", "create", "first"]).status.success());
    let output = setup.command_output(&["vault", "rotate-root", "--new", &new]);
    let done = done(&output, "rotate-root");
    assert_eq!(done["configure_root_key"], true);
    let complaint = failed(&setup.command_output(&["status"]), "status", 78);
    for word in [text(&done, "root_key_id"), text(&done, "previous_root_key_id"), "root_key"] {
        assert!(complaint.contains(word), "{complaint}");
    }
    // With both keys configured, the start works whatever happened before.
    let config = format!("[vault]\nroot_key = {new:?}\nroot_key_previous = \"file:keys/first\"\n");
    std::fs::write(setup.directory().join("both.toml"), config).unwrap();
    let both = setup.directory().join("both.toml");
    let output = program()
        .args(["--json", "--data"])
        .arg(setup.data())
        .arg("--config")
        .arg(both)
        .arg("status")
        .output();
    assert!(output.unwrap().status.success());
}

#[test]
fn the_recovery_key_opens_a_store_whose_root_key_is_lost() {
    if !is_embedded("it uses the files of a data directory") {
        return;
    }
    in_both_ways(|place| {
        assert_eq!(place.done("status")["store"]["has_recovery_key"], false);
        place.put("a", CANARY, "");
        let made = place.done("vault recovery new");
        let key = text(&made, "recovery_key").to_owned();
        assert_eq!(place.done("status")["store"]["has_recovery_key"], true);
        assert!(!String::from_utf8(place.run_with("vault audit", b"").stdout).unwrap().contains(&key));
        let backup = place.beside("backup");
        place.done(&format!("vault backup {}", backup.display()));
        let data = place.beside("drill");
        std::fs::create_dir(&data).unwrap();
        // The documented recovery: the recovery key on standard input, then a new root key.
        std::fs::write(data.join("cofferdam.toml"), "[vault]\nroot_key = \"fd:0\"\n").unwrap();
        let restore = format!("vault restore {}", backup.display());
        // Each of these commands warns that a new root key is needed.
        let warned = |line: &str| -> Value {
            let output = run(&data, line, key.as_bytes());
            assert!(output.status.success(), "{line}: {output:?}");
            assert!(String::from_utf8(output.stderr).unwrap().contains("vault rotate-root"), "{line}");
            serde_json::from_slice(&output.stdout).unwrap()
        };
        warned(&restore);
        assert_eq!(warned("status")["store"]["opened_with_recovery_key"], true);
        let rotate = format!("vault rotate-root --new file:{}", data.join("root.key").display());
        warned(&rotate);
        std::fs::remove_file(data.join("cofferdam.toml")).unwrap();
        let status = done(&run(&data, "status", b""), "status");
        assert_eq!(status["store"]["opened_with_recovery_key"], false);
        assert_eq!(names(&done(&run(&data, "secret list", b""), "list")), ["a"]);
    });
}

#[test]
fn the_keys_of_vaults_are_rotated() {
    in_both_ways(|place| {
        let made = place.put("a", CANARY, "");
        place.put("b", CANARY, "--operator");
        let rotated = place.done("vault rotate-keys");
        assert_eq!((&rotated["vaults"], &rotated["secrets"]), (&2.into(), &2.into()));
        assert_eq!(place.done("vault verify")["ok"], true);
        assert_eq!(place.put("a", CANARY, "")["fingerprint"], made["fingerprint"]);
    });
}

#[test]
fn legacy_secrets_are_imported_or_the_line_is_named() {
    in_both_ways(|place| {
        place.put("kept", CANARY, "");
        let file = place.beside("legacy.jsonl");
        let line = |name: &str| {
            format!(
                "{{\"name\":\"{name}\",\"value\":\"{CANARY}\",\"created_at\":\"2024-01-02T03:04:05Z\"}}\n"
            )
        };
        let import = format!("vault import-legacy {} --workspace default", file.display());
        std::fs::write(&file, line("old") + "{\"name\":\"canary-7f3a-value\"}\n" + &line("new")).unwrap();
        let complaint = place.failed(&import, 1);
        assert!(complaint.contains("line 2") && !complaint.contains("canary"), "{complaint}");
        assert_eq!(names(&place.done("secret list")), ["kept"]);
        std::fs::write(&file, line("old") + &line("kept")).unwrap();
        let audited = || place.done("vault audit --action legacy_imported");
        for (imported, kept) in [(1, 1), (0, 2)] {
            let done = place.done(&import);
            assert_eq!((&done["imported"], &done["kept"]), (&imported.into(), &kept.into()));
            assert_eq!(audited().to_string().matches("legacy_imported").count(), 1);
        }
        let listed = place.done("secret list");
        assert_eq!(names(&listed), ["kept", "old"]);
        assert_eq!((&listed[1]["hosts"], &listed[1]["fingerprint"]), (&Value::Null, &Value::Null));
        assert_eq!(text(&listed[1], "created_at"), "2024-01-02T03:04:05.000Z");
        assert!(listed[0]["hosts"].is_array());
    });
}

/// The host would wait for the writer of a pipe, and has another standard input than the command.
#[test]
fn legacy_secrets_come_from_a_regular_file() {
    in_both_ways(|place| {
        let pipe = place.beside("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for file in ["/dev/stdin", "/dev/null", place.data().to_str().unwrap(), pipe.to_str().unwrap()] {
            let complaint = place.failed(&format!("vault import-legacy {file} --workspace default"), 1);
            assert!(complaint.contains(&format!("{file} is not a regular file")), "{complaint}");
        }
        let line = format!("{{\"name\":\"old\",\"value\":\"{CANARY}\"}}\n");
        let file = place.beside("legacy.jsonl");
        std::fs::write(&file, line).unwrap();
        let mut import = program_at(&place.data());
        import.args(["--json", "vault", "import-legacy", "/dev/stdin", "--workspace", "default"]);
        let imported = import.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
        assert_eq!(done(&imported, "import-legacy of a file as standard input")["imported"], 1);
    });
}

#[test]
fn thousands_of_legacy_secrets_are_imported() {
    in_both_ways(|place| {
        let file = place.beside("many.jsonl");
        let lines: String =
            (0..3000).map(|i| format!("{{\"name\":\"old_{i}\",\"value\":\"v\"}}\n")).collect();
        std::fs::write(&file, lines).unwrap();
        let done = place.done(&format!("vault import-legacy {} --workspace default", file.display()));
        assert_eq!((&done["imported"], &done["kept"]), (&3000.into(), &0.into()));
    });
}

#[test]
fn text_output_is_readable() {
    if !is_embedded("the root key of a database is replaced on all hosts") {
        return;
    }
    let setup = Setup::new();
    store::prepare(&setup, |_| ());
    let say = |line: &str, input: &str| {
        let mut command = program_at(&setup.data());
        command.args(line.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap_or_default();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(say("status", "").contains("no, `vault recovery new` makes one"));
    assert_eq!(say("secret put a --host a.example", "x\n"), "Stored secret a of workspace default.\n");
    assert!(say("secret list", "").starts_with("NAME  OF"));
    assert!(say("vault verify", "").ends_with("All is well.\n"));
    assert_eq!(say("vault remove-orphans", ""), "Removed 0 vaults with 0 secrets.\n");
    let backup = setup.directory().join("b");
    assert!(say(&format!("vault backup {}", backup.display()), "").contains("Restoring it takes root key"));
    assert!(say("vault recovery new", "").contains("shown this once"));
    assert!(say("vault rotate-keys", "").contains("30 days"));
    let new = setup.directory().join("k");
    assert!(
        say(&format!("vault rotate-root --new file:{}", new.display()), "")
            .contains("nothing is left to configure")
    );
}

#[test]
fn a_host_killed_during_root_key_rotation_starts_again() {
    if !is_embedded("the root key of a database is replaced on all hosts") {
        return;
    }
    let mut host = Setup::new().start();
    for number in 0..8 {
        host.command(&["workspace", "create", &format!("w{number}")]);
        let line = format!("secret put a --host a.example --workspace w{number}");
        done(&run(&host.data(), &line, CANARY.as_bytes()), &line);
    }
    for round in 0..4 {
        let new = host.directory().join(format!("key{round}"));
        let line = format!("vault rotate-root --new file:{}", new.display());
        let data = host.data();
        std::thread::scope(|scope| {
            let rotation = scope.spawn(|| run(&data, &line, b"").status.code());
            // Kill later in each round: from before the first commit to after the last.
            for _ in 0..round {
                host.command(&["status"]);
            }
            host.kill();
            assert!(matches!(rotation.join().unwrap(), Some(0 | 1)));
        });
        host = host.restart();
        let status = host.command(&["status"]);
        assert_eq!(status["store"]["next_root_key_id"], Value::Null, "{status}");
        assert_eq!(host.command(&["vault", "verify"])["secrets"], 8);
        // Repeating the command succeeds in either case.
        let done = done(&run(&data, &line, b""), &line);
        assert_eq!(host.command(&["status"])["store"]["root_key_id"], done["root_key_id"]);
    }
}
