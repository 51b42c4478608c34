//! Which commands create a store in a directory without one.

use super::{done, failed, mode, text};
use crate::kit::host::{Setup, program};
use serde_json::Value;
use std::process::Stdio;

const READING: [&str; 11] = [
    "status",
    "usage",
    "workspace list",
    "member list",
    "intern list",
    "key list",
    "credits show default",
    "secret list",
    "vault verify",
    "vault audit",
    "vault backup backup",
];

const WRITING: [&str; 6] = [
    "workspace create acme",
    "member create ada --workspace default",
    "intern create scout --workspace default",
    "credits add default 1",
    "key create --workspace default",
    "vault recovery new",
];

#[test]
fn reading_commands_create_nothing_and_name_the_directory() {
    for line in READING {
        let setup = Setup::new();
        let data = setup.data();
        let fails = || {
            let complaint = failed(&|arguments| setup.command_output(arguments), line, 1);
            let complaint: Value = serde_json::from_str(&complaint).unwrap();
            let expected = format!("no store in {}; serve makes one", data.display());
            assert_eq!(text(&complaint, "error"), expected, "{line}");
        };
        fails();
        assert!(!data.exists(), "{line} made the directory");
        std::fs::create_dir(&data).unwrap();
        fails();
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "{line} made a file");
        // A command that needs no store leaves a lock file behind.
        std::fs::write(data.join("lock"), "").unwrap();
        fails();
        assert!(!data.join("store").exists() && !data.join("root.key").exists(), "{line}");
    }
}

#[test]
fn writing_commands_create_a_store_and_name_its_full_path_once() {
    for line in WRITING {
        let setup = Setup::new();
        let run = || {
            let mut command = program();
            command.current_dir(setup.directory()).stdin(Stdio::null());
            command.args(["--json", "--data", "data"]).args(line.split_whitespace()).output().unwrap()
        };
        let first = run();
        assert_eq!(first.status.code(), Some(0), "{line}: {first:?}");
        let place = setup.directory().join("data");
        assert_eq!(
            String::from_utf8(first.stderr).unwrap(),
            format!("made a store in {}\n", place.display()),
            "{line}"
        );
        let document: Value = serde_json::from_slice(&first.stdout).unwrap();
        assert!(document.is_object(), "{line}: {document}");
        assert_eq!((mode(&place), mode(&place.join("root.key"))), (0o700, 0o600), "{line}");
        // The second run may fail because its name is taken, but the store exists.
        assert!(!String::from_utf8(run().stderr).unwrap().contains("made a store"), "{line}");
    }
}

#[test]
fn a_missing_store_beside_its_anchor_is_not_replaced() {
    let setup = Setup::new();
    assert!(setup.command_output(&["workspace", "create", "acme"]).status.success());
    std::fs::rename(setup.data().join("store"), setup.directory().join("away")).unwrap();
    for line in ["workspace list", "workspace create other"] {
        let complaint = failed(&|arguments| setup.command_output(arguments), line, 1);
        assert!(complaint.contains("anchor exists but"), "{line}: {complaint}");
    }
    assert!(!setup.data().join("store").exists());
}

#[test]
fn a_host_creates_a_key_in_a_store_that_a_command_created() {
    let setup = Setup::new();
    assert!(setup.command_output(&["key", "create", "--no-scope"]).status.success());
    let listed = done(&|arguments| setup.command_output(arguments), "key list");
    assert_eq!(text(&listed[0], "kind"), "unscoped");
    let host = setup.start();
    // The existing key has no workspace and cannot send requests, so the host creates another one.
    assert!(host.key.starts_with("cfd_"), "{}", host.banner);
}
