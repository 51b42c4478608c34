//! Secrets of the older format are imported.

use super::*;

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
