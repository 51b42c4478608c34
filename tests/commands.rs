//! Operators' commands: every command without a host and against a running host, mistakes and their
//! exit codes, and the data directory itself.

mod credits;
mod first_start;
mod lists;

use crate::kit::host::{Host, Setup, program};
use crate::kit::store;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

/// How commands run: in their own process, or sent to the running host.
type Run<'r> = &'r dyn Fn(&[&str]) -> Output;

fn in_both_ways(scenario: impl Fn(Run<'_>)) {
    let free = Setup::new();
    store::prepare(&free, |_| ());
    scenario(&|arguments| free.command_output(arguments));
    let served = Setup::new().start();
    scenario(&|arguments| served.command_output(arguments));
}

fn done(run: Run<'_>, line: &str) -> Value {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    assert!(output.stderr.is_empty(), "{line}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{line}: one document: {text}");
    serde_json::from_str(&text).unwrap()
}

fn failed(run: Run<'_>, line: &str, code: i32) -> String {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
    assert!(output.stdout.is_empty(), "{line}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn names(document: &Value) -> Vec<&str> {
    document.as_object().unwrap().keys().map(String::as_str).collect()
}

fn text<'v>(document: &'v Value, name: &str) -> &'v str {
    document[name].as_str().unwrap_or_else(|| panic!("no {name} in {document}"))
}

fn find<'v>(list: &'v Value, name: &str, value: &str) -> &'v Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|document| document[name] == value)
        .unwrap_or_else(|| panic!("no {name} = {value} in {list}"))
}

fn assert_uuid(text: &str) {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{text}");
    assert!(text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')), "{text}");
}

fn assert_time(text: &str) {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z");
}

#[test]
fn a_new_store_has_a_workspace_with_an_owner() {
    in_both_ways(|run| {
        let workspaces = done(run, "workspace list");
        let default = find(&workspaces, "name", "default");
        assert_eq!(names(default), ["id", "name", "programme", "vault_writes", "created_at"]);
        assert_eq!((&default["programme"], &default["vault_writes"]), (&true.into(), &true.into()));
        assert_uuid(text(default, "id"));
        assert_time(text(default, "created_at"));
        let members = done(run, "member list");
        let owner = find(&members, "name", "owner");
        assert_eq!(names(owner), ["id", "name", "workspace_id", "role", "created_at"]);
        assert_eq!((text(owner, "role"), &owner["workspace_id"]), ("admin", &default["id"]));
        assert_eq!(done(run, "intern list"), Value::Array(Vec::new()));
    });
}

#[test]
fn workspaces_are_created_listed_and_set_by_name_or_id() {
    in_both_ways(|run| {
        let made = done(run, "workspace create acme --no-programme --no-vault-writes");
        assert_eq!((&made["programme"], &made["vault_writes"]), (&false.into(), &false.into()));
        let set = done(run, "workspace set acme --programme on");
        assert_eq!((&set["programme"], &set["vault_writes"]), (&true.into(), &false.into()));
        let set =
            done(run, &format!("workspace set {} --vault-writes on --programme off", text(&made, "id")));
        assert_eq!((&set["programme"], &set["vault_writes"]), (&false.into(), &true.into()));
        assert_eq!(find(&done(run, "workspace list"), "name", "acme"), &set);
        let members = done(run, "member list");
        let owner = find(&members, "workspace_id", text(&made, "id"));
        assert_eq!((text(owner, "name"), text(owner, "role")), ("owner", "admin"));
        assert!(failed(run, "workspace create acme", 1).contains("acme"));
    });
}

#[test]
fn members_are_created_listed_and_given_roles() {
    in_both_ways(|run| {
        let made = done(run, "member create ada --workspace default");
        assert_eq!(text(&made, "role"), "member");
        assert_uuid(text(&made, "id"));
        let admin = done(run, "member create eve --workspace default --role admin");
        assert_eq!(text(&admin, "role"), "admin");
        assert_eq!(text(&done(run, "member set ada --role admin"), "role"), "admin");
        let set = done(run, &format!("member set {} --role member", text(&made, "id")));
        assert_eq!(text(&set, "role"), "member");
        assert_eq!(find(&done(run, "member list"), "name", "ada"), &set);
        done(run, "workspace create other");
        done(run, "member create ada --workspace other");
        // Two workspaces have a member `ada` now, so the name alone is not enough.
        assert!(failed(run, "member set ada --role admin", 1).contains("ada"));
    });
}

#[test]
fn interns_are_created_listed_and_deleted() {
    in_both_ways(|run| {
        let ada = done(run, "member create ada --workspace default");
        let made = done(run, "intern create scout --workspace default --member ada");
        assert_eq!(names(&made), ["id", "name", "workspace_id", "created_by"]);
        assert_uuid(text(&made, "id"));
        assert_eq!((text(&made, "name"), &made["created_by"]), ("scout", &ada["id"]));
        let by_owner = done(run, "intern create second --workspace default");
        let owner = done(run, "member list");
        assert_eq!(by_owner["created_by"], find(&owner, "name", "owner")["id"]);
        assert_eq!(find(&done(run, "intern list"), "name", "scout")["id"], made["id"]);
        let key = done(run, "key create --workspace default --intern scout");
        assert_eq!(done(run, "intern delete scout")["id"], made["id"]);
        done(run, &format!("intern delete {}", text(&by_owner, "id")));
        assert_eq!(done(run, "intern list"), Value::Array(Vec::new()));
        assert!(failed(run, "intern delete scout", 1).contains("scout"));
        // A deleted intern can get no key.
        assert!(failed(run, "key create --workspace default --intern scout", 1).contains("scout"));
        assert!(key["intern_id"] == made["id"]);
    });
}

#[test]
fn keys_of_each_kind_are_created_listed_and_revoked() {
    const FIELDS: [&str; 8] =
        ["id", "key", "kind", "workspace_id", "member_id", "intern_id", "created_at", "expires_at"];
    in_both_ways(|run| {
        let workspace = done(run, "workspace list")[0]["id"].clone();
        let owner = find(&done(run, "member list"), "name", "owner")["id"].clone();
        let ada = done(run, "member create ada --workspace default")["id"].clone();
        let intern = done(run, "intern create scout --workspace default")["id"].clone();
        let null = Value::Null;
        let by_id = format!(
            "key create --workspace {} --member {}",
            workspace.as_str().unwrap(),
            ada.as_str().unwrap()
        );
        let table = [
            ("key create --workspace default", "member", &workspace, &owner, &null),
            ("key create --workspace default --member ada --name laptop", "member", &workspace, &ada, &null),
            (&by_id, "member", &workspace, &ada, &null),
            ("key create --workspace default --intern scout", "intern", &workspace, &null, &intern),
            ("key create --provisioning --workspace default", "provisioning", &workspace, &owner, &null),
            ("key create --no-scope", "unscoped", &null, &null, &null),
        ];
        for (line, kind, workspace_id, member_id, intern_id) in table {
            let key = done(run, line);
            assert_eq!(names(&key), FIELDS, "{line}");
            assert_eq!(text(&key, "kind"), kind, "{line}");
            let owners = [&key["workspace_id"], &key["member_id"], &key["intern_id"]];
            assert_eq!(owners, [workspace_id, member_id, intern_id], "{line}");
            assert!(text(&key, "key").starts_with("cfd_"), "{line}");
            assert_time(text(&key, "created_at"));
            assert_eq!(key["expires_at"], Value::Null);
            let revoked = done(run, &format!("key revoke {}", text(&key, "id")));
            assert_time(text(&revoked, "revoked_at"));
            let listed = done(run, "key list");
            let listed = find(&listed, "id", text(&key, "id"));
            assert_eq!(listed["revoked_at"], revoked["revoked_at"]);
            assert!(listed.get("key").is_none());
        }
        let expiring = done(run, "key create --workspace default --expires-days 2");
        assert_time(text(&expiring, "expires_at"));
        assert!(text(&expiring, "expires_at") > text(&expiring, "created_at"));
    });
}

#[test]
fn missing_objects_are_named() {
    in_both_ways(|run| {
        for (line, named) in [
            ("workspace set nowhere --programme on", "nowhere"),
            ("member create m --workspace nowhere", "nowhere"),
            ("member set nobody --role admin", "nobody"),
            ("intern create i --workspace nowhere", "nowhere"),
            ("intern create i --workspace default --member nobody", "nobody"),
            ("intern delete nobody", "nobody"),
            ("key create --workspace nowhere", "nowhere"),
            ("key create --workspace default --member nobody", "nobody"),
            ("key create --workspace default --intern nobody", "nobody"),
            ("key revoke nothing", "nothing"),
        ] {
            let complaint = failed(run, line, 1);
            assert_eq!(complaint.lines().count(), 1, "{line}: {complaint}");
            let document: Value = serde_json::from_str(&complaint).unwrap();
            assert!(text(&document, "error").contains(named), "{line}: {complaint}");
        }
    });
}

#[test]
fn invalid_command_lines_are_usage_errors() {
    let free = Setup::new();
    for line in [
        "nonsense",
        "workspace",
        "workspace set default",
        "member create m --workspace default --role boss",
        "key create",
        "key create --workspace default --provisioning --no-scope",
        "key create --workspace default --expires-days 0",
        "serve --listen nowhere",
        "secret put a",
        "vault rotate-root",
    ] {
        failed(&|arguments| free.command_output(arguments), line, 2);
    }
    assert!(!free.data().exists(), "a usage error made the data directory");
}

#[test]
fn options_stand_before_or_after_the_command() {
    let setup = Setup::new().config("[server]\nlisten = \"127.0.0.1:0\"");
    let (data, config) = (setup.data(), setup.directory().join("cofferdam.toml"));
    setup.write_config();
    store::prepare(&setup, |_| ());
    let (data, config) = (data.to_str().unwrap(), config.to_str().unwrap());
    let orders: [&[&str]; 3] = [
        &["--data", data, "--config", config, "--json", "workspace", "list"],
        &["workspace", "list", "--data", data, "--config", config, "--json"],
        &["--json", "workspace", "--data", data, "list", "--config", config],
    ];
    for arguments in orders {
        let output = program().args(arguments).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(text(&list[0], "name"), "default", "{arguments:?}");
    }
    let output =
        program().env("COFFERDAM_DATA", data).args(["--json", "workspace", "list"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn without_json_output_is_tables_and_sentences() {
    let setup = Setup::new();
    store::prepare(&setup, |_| ());
    let data = setup.data();
    let run = |line: &str| {
        let output = program().arg("--data").arg(&data).args(line.split_whitespace()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, out, _) = run("workspace list");
    assert_eq!(code, Some(0));
    assert!(out.starts_with("NAME") && out.contains("default"), "{out}");
    let (code, out, complaint) = run("key create --workspace nowhere");
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert_eq!(complaint, "error: no workspace `nowhere`\n");
    let (_, out, _) = run("key create --workspace default");
    assert!(out.contains("cfd_"), "{out}");
}

#[test]
fn commands_about_the_configuration_create_no_store() {
    for line in ["models", "plugin list", "serve --check"] {
        let setup = Setup::new();
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let output = program()
            .env_remove("COFFERDAM_CACHE")
            .env_remove("XDG_CACHE_HOME")
            .arg("--data")
            .arg(setup.data())
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(!setup.data().join("root.key").exists(), "{line}");
        if setup.data().exists() {
            assert_eq!(mode(&setup.data()), 0o700, "{line}");
        }
        setup.start();
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_owner_can_read_the_data_directory() {
    let host = Setup::new().start();
    assert_eq!(mode(&host.data()), 0o700);
    for file in ["root.key", "admin.sock"] {
        assert_eq!(mode(&host.data().join(file)), 0o600, "{file}");
    }
}

#[test]
fn serve_check_accepts_a_configuration_or_names_the_mistake() {
    let good = Setup::new().config("[server]\nregion = \"eu\"").argument("--check").fail();
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let document: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!((&document["ok"], &document["models"]), (&true.into(), &2.into()));
}

#[test]
fn serve_check_finds_a_root_key_that_cannot_be_read() {
    let check = |setup: &Setup| setup.serve().arg("--check").output().unwrap();
    let named = |source: &str| Setup::new().config(&format!("[vault]\nroot_key = \"{source}\""));
    let absent = named("env:COFFERDAM_TEST_NO_KEY");
    let short = named("passphrase:env:COFFERDAM_TEST_SHORT").environment("COFFERDAM_TEST_SHORT", "short");
    for (setup, says) in [(absent, "COFFERDAM_TEST_NO_KEY is not set"), (short, "this one has 5")] {
        setup.write_config();
        for refused in [check(&setup), setup.fail()] {
            assert_eq!(refused.status.code(), Some(78), "{refused:?}");
            let error = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(error.contains(says), "{error}");
        }
    }
    // The first start makes a file that does not exist; a descriptor belongs to the process that serves.
    for source in ["file:new.key", "fd:3"] {
        let setup = named(source);
        setup.write_config();
        let checked = check(&setup);
        assert!(checked.status.success(), "{source}: {checked:?}");
    }
}

/// Configurations with one mistake each, with the position and the message.
const MISTAKES: [(&str, &str, &str); 15] = [
    ("[server]\nlistn = \"127.0.0.1:0\"", ":2:1: server.listn", "did you mean `listen`"),
    ("[sever]\n", ":1:2: sever", "did you mean `server`"),
    ("[server]\nlisten = 8080", ":2:10: server.listen", "expected a text"),
    ("[limits]\nconnections = \"many\"", ":2:15: limits.connections", "expected a whole number"),
    ("[limits]\nstreams = 0", ":2:11: limits.streams", "outside"),
    (
        "[[models]]\nid = \"v/m\"\nendpoints = [{ provider = \"none\", model = \"m\" }]",
        ":3:27: models[0].endpoints[0].provider",
        "no provider is named `none`",
    ),
    (
        "[[providers]]\nname = \"p\"\nadapter = \"openai-chat\"\nbase_url = \"ftp://x/\"",
        ":4:12: providers[0].base_url",
        "scheme",
    ),
    (
        "[[providers]]\nname = \"p\"\nadapter = \"nonesuch\"\nbase_url = \"http://127.0.0.1:1/\"",
        "providers[0]",
        "provider-nonesuch",
    ),
    ("[limits]\nconcurrent_per_key = 0.5", ":2:22: limits.concurrent_per_key", "whole number"),
    ("[vault]\nwrites = 0", ":2:10: vault.writes", "expected true or false"),
    (
        "[plugins.tool-datetime]\nsecrets = [\"*\"]",
        ":2:12: plugins.tool-datetime.secrets[0]",
        "name each secret",
    ),
    ("[server\n", ":1:", ""),
    ("[server]\n[plugins.nothing]\nhosts = []", ":2:10: plugins.nothing", "no plugin of this name"),
    ("[egress]\nroots = [\"cofferdam.toml\"]", ":2:10: egress.roots[0]", "is not a PEM file"),
    ("[server]\nlisten = \"[::1]:5\"\nadmin = \"[::1]:5\"", ":3:9: server.admin", "has this address"),
];

#[test]
fn configuration_errors_have_file_line_column_and_key() {
    for (config, place, says) in MISTAKES {
        // A host that searches says so in a line of its own.
        let setup = Setup::new().config(config).without_canaries();
        let file = setup.directory().join("cofferdam.toml");
        let checked = setup.serve().arg("--check").output().unwrap();
        assert_eq!(checked.status.code(), Some(78), "{config}: {checked:?}");
        assert!(checked.stdout.is_empty());
        let complaint: Value = serde_json::from_slice(&checked.stderr).unwrap();
        let complaint = text(&complaint, "error");
        assert!(complaint.contains(file.to_str().unwrap()), "{config}: {complaint}");
        assert!(complaint.contains(place) && complaint.contains(says), "{config}: {complaint}");
        let served = setup.fail();
        assert_eq!(served.status.code(), Some(78), "{config}: {served:?}");
    }
}

#[test]
fn commands_need_a_valid_configuration_too() {
    let setup = Setup::new().config("[server]\nlistn = 1");
    store::prepare(&setup, |_| ());
    let complaint = failed(&|arguments| setup.command_output(arguments), "workspace list", 78);
    assert!(complaint.contains(":2:1: server.listn"), "{complaint}");
}

#[test]
fn a_missing_configuration_file_is_named() {
    let setup = Setup::new();
    let missing = setup.directory().join("missing.toml");
    let output = program()
        .arg("--data")
        .arg(setup.data())
        .arg("--config")
        .arg(&missing)
        .arg("models")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("missing.toml"));
}

#[test]
fn a_second_host_on_one_directory_ends_with_the_pid_of_the_first() {
    let host = Setup::new().start();
    let output = host.command_output(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let complaint = String::from_utf8(output.stderr).unwrap();
    let last: Value = serde_json::from_str(complaint.lines().last().unwrap()).unwrap();
    assert!(text(&last, "error").contains(&format!("process {}", host.pid())), "{complaint}");
    host.command(&["status"]);
}

#[test]
fn a_leftover_socket_does_not_disturb() {
    let mut host = Setup::new().start();
    host.kill();
    assert!(host.data().join("admin.sock").exists());
    // No host holds the store: the command opens it itself.
    assert_eq!(host.command(&["status"])["serving"], Value::Null);
    let pid = host.pid();
    let mut host = host.restart();
    assert_ne!(host.pid(), pid);
    assert_eq!(host.command(&["status"])["serving"]["pid"], host.pid());
    host.signal("TERM");
    assert_eq!(host.wait().code(), Some(0));
    assert!(!host.data().join("admin.sock").exists());
}

#[test]
fn a_data_directory_with_a_long_path_works() {
    let path = format!("{}/{}", "d".repeat(100), "e".repeat(100));
    let host = Setup::new().data_at(&path).start();
    assert_eq!(mode(&host.data().join("admin.sock")), 0o600);
    assert_served(&host);
    let host = host.restart();
    assert_served(&host);
}

fn assert_served(host: &Host) {
    assert_eq!(host.command(&["status"])["serving"]["pid"], host.pid());
    host.command(&["key", "create", "--no-scope"]);
}

#[test]
fn another_root_key_is_refused_with_both_ids() {
    let (ours, theirs) = (Setup::new(), Setup::new());
    let id = |setup: &Setup| {
        store::prepare(setup, |_| ());
        let status = done(&|arguments| setup.command_output(arguments), "status");
        text(&status["store"], "root_key_id").to_owned()
    };
    let (needed, given) = (id(&ours), id(&theirs));
    std::fs::copy(theirs.data().join("root.key"), ours.data().join("root.key")).unwrap();
    let complaint = failed(&|arguments| ours.command_output(arguments), "workspace list", 78);
    assert!(complaint.contains(&needed) && complaint.contains(&given), "{complaint}");
    let output = ours.fail();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
}

#[test]
fn status_models_and_plugins_work_with_and_without_a_host() {
    in_both_ways(|run| {
        let status = done(run, "status");
        assert_uuid(text(&status["store"], "id"));
        assert_eq!(status["store"]["writable"], true);
        let models = done(run, "models");
        assert_eq!(find(&models, "id", "local/demo")["kind"], "responses");
        assert_eq!(find(&models, "id", "local/embed")["kind"], "embeddings");
        let plugins = done(run, "plugin list");
        for name in ["router", "provider-demo", "provider-openai-chat", "tool-datetime"] {
            let plugin = find(&plugins, "name", name);
            assert_eq!(text(plugin, "origin"), "embedded");
            assert_eq!(text(plugin, "digest").len(), 64);
        }
    });
}
