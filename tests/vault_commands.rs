//! Operators' commands for the vault: secrets, verification, backups, key rotation; without a host
//! and against a running host.

mod audit;
mod deletion;
mod import;
mod rotation;

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
