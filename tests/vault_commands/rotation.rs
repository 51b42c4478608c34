//! Root keys, the recovery key and the keys of vaults are replaced.

use super::*;

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
