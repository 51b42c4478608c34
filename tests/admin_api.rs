//! The admin API: commands over HTTP, and who may use it.

mod access;
mod live;
mod openapi;

use crate::kit::admin::Admin;
use crate::kit::client::{Client, read};
use crate::kit::host::{Host, Setup, program};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;

/// What the API answers between two runs of a command that print the same. Hosts of other tests fill the shared cache
/// of compiled plugins meanwhile, so the printed state of a plugin may change between two questions.
async fn at_rest(host: &Host, admin: &Admin, path: &str, command: &[&str]) -> (Value, Value) {
    let mut printed = host.command(command);
    loop {
        let answer = admin.ask(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let before = std::mem::replace(&mut printed, host.command(command));
        if printed == before {
            return (answer.body, printed);
        }
    }
}

#[tokio::test]
async fn commands_give_the_document_that_the_command_line_prints() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    for (path, command) in [
        ("workspace/list", "workspace list"),
        ("member/list", "member list"),
        ("intern/list", "intern list"),
        ("key/list", "key list"),
        ("key/list?limit=1&workspace=default", "key list --limit 1 --workspace default"),
        ("models", "models"),
        ("plugin/list", "plugin list"),
        ("secret/list", "secret list"),
        ("vault/verify", "vault verify"),
        ("credits/show?workspace=default", "credits show default"),
        ("credits/show", "credits show"),
        ("credits/show?limit=1", "credits show --limit 1"),
        ("secret/list?limit=1", "secret list --limit 1"),
        ("usage?by=model&days=7", "usage --by model --days 7"),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let (answered, printed) = at_rest(&host, &admin, path, &words).await;
        assert_eq!(answered, printed, "{path}");
    }
    let status = admin.ask("status").await.body;
    assert_eq!(status["serving"]["pid"], host.pid(), "{status}");
}

#[tokio::test]
async fn key_made_over_the_api_works_until_it_is_revoked() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    let made = admin.change("workspace/create", &json!({"name": "lab", "no-programme": true})).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let made = admin
        .change(
            "key/create",
            &json!({"workspace": "lab", "name": "ci", "limit-day": 5, "expires-days": "30"}),
        )
        .await;
    assert_eq!((made.status, &made.body["kind"]), (200, &json!("member")), "{}", made.text);
    assert_eq!(made.headers["cache-control"], "no-store");
    assert_eq!(made.body["limits"], json!({"day": 5}));
    let client = Client::with_key(&host, made.body["key"].as_str().unwrap());
    let asked = json!({"model": "local/demo", "input": "x"});
    assert_eq!(client.post("/responses", &asked).await.status, 200);

    let id = made.body["id"].as_str().unwrap();
    assert_eq!(admin.change("key/revoke", &json!({"id": id})).await.status, 200);
    assert_eq!(client.post("/responses", &asked).await.status, 401);
    let changed = host.command(&["vault", "audit"]);
    let last = changed.as_array().unwrap().last().unwrap().to_string();
    assert!(last.contains("key_revoked") && last.contains("operator"), "{last}");
}

#[tokio::test]
async fn invalid_arguments_are_named() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    for (path, members, status, message) in [
        (
            "key/create",
            json!({}),
            400,
            "the following required arguments were not provided: --workspace <WORKSPACE>",
        ),
        (
            "key/create",
            json!({"workspce": "x"}),
            400,
            "unknown member `workspce`; known: `workspace`, `member`,",
        ),
        ("key/create", json!({"workspace": {"a": 1}}), 400, "`workspace` must be a text or a number"),
        (
            "key/create",
            json!({"workspace": "default", "provisioning": "on"}),
            400,
            "`provisioning` must be true or false",
        ),
        (
            "key/create",
            json!({"workspace": "default", "expires-days": 0}),
            400,
            "invalid value '0' for '--expires-days <D>'",
        ),
        ("key/create", json!({"workspace": "--no-scope"}), 404, "no workspace `--no-scope`"),
        ("key/create", json!({"workspace": "default", "data": "/tmp"}), 400, "unknown member `data`"),
        ("key/revoke", json!({"id": "--help"}), 404, "no key `--help`"),
        ("workspace/create", json!({"name": "default"}), 409, "the name `default` is taken"),
        ("workspace/delete", json!({"workspace": "default"}), 400, "set `yes` to true"),
        ("plugin/grant", json!({"name": "nothing", "host": ["api.example.com"]}), 422, "nothing"),
        ("plugin/grant", json!({"name": "router", "plugins": "/tmp"}), 400, "unknown member `plugins`"),
        ("member/delete", json!({"member": "owner"}), 422, "deleted with its workspace only"),
        ("key/create", json!([]), 400, "the body must be a JSON object"),
    ] {
        let answer = admin.change(path, &members).await;
        let told = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(answer.status == status && told.contains(message), "{path} {members}: {}", answer.text);
        assert_eq!(answer.body["error"]["code"], status);
        assert!(!told.contains("Usage") && !told.contains('\n'), "{told}");
    }
    for (path, message) in [
        ("usage?days=93", "93 is not in 1..=92"),
        ("usage?by=colour", "invalid value 'colour'"),
        ("usage?by=%ff", "the query is not UTF-8"),
        ("status?x", "unknown member `x`; known: none"),
        ("vault/audit?since=-1", "invalid value '-1'"),
    ] {
        let answer = admin.ask(path).await;
        assert!(answer.status == 400 && answer.text.contains(message), "{path}: {}", answer.text);
    }
    let cut = admin.request(Method::POST, "/admin/v1/key/create").header("content-type", "application/json");
    let cut = read(cut.body("{\"workspace\": ").send().await.unwrap()).await;
    assert_eq!(
        (cut.status, cut.body["error"]["message"].as_str()),
        (400, Some("the body is not JSON: line 1, column 14"))
    );
    let long = admin.change("key/create", &json!({"workspace": "w".repeat(70_000)})).await;
    assert_eq!(long.status, 413, "{}", long.text);
    let form = admin.request(Method::POST, "/admin/v1/key/create").body("workspace=default");
    assert_eq!(form.send().await.unwrap().status(), 400);
}

/// Commands that must stay on the machine of the host, with any arguments.
const LOCAL: &[&str] = &[
    "completions",
    "console",
    "doctor",
    "health",
    "man",
    "plugin/build",
    "plugin/check",
    "plugin/dev",
    "plugin/examine",
    "plugin/inspect",
    "plugin/install",
    "plugin/new",
    "plugin/remove",
    "plugin/replay",
    "plugin/rerun",
    "plugin/test",
    "plugin/update",
    "plugin/wit",
    "secret/put",
    "serve",
    "store/create",
    "store/migrate",
    "store/upgrade",
    "tour",
    "usage/drop",
    "vault/backup",
    "vault/import-legacy",
    "vault/recovery/new",
    "vault/remove-orphans",
    "vault/restore",
    "vault/rotate-keys",
    "vault/rotate-root",
];

/// The remote commands, with the method of each.
const REMOTE: &[(&str, &str)] = &[
    ("GET", "credits/show"),
    ("GET", "intern/list"),
    ("GET", "key/list"),
    ("GET", "key/show"),
    ("GET", "member/list"),
    ("GET", "models"),
    ("GET", "plugin/list"),
    ("GET", "plugin/logs"),
    ("GET", "secret/list"),
    ("GET", "status"),
    ("GET", "usage"),
    ("GET", "vault/audit"),
    ("GET", "vault/verify"),
    ("GET", "workspace/list"),
    ("POST", "credits/add"),
    ("POST", "credits/unlimited"),
    ("POST", "intern/create"),
    ("POST", "intern/delete"),
    ("POST", "key/create"),
    ("POST", "key/disable"),
    ("POST", "key/enable"),
    ("POST", "key/limit"),
    ("POST", "key/revoke"),
    ("POST", "member/create"),
    ("POST", "member/delete"),
    ("POST", "member/set"),
    ("POST", "plugin/grant"),
    ("POST", "plugin/rollback"),
    ("POST", "secret/delete"),
    ("POST", "workspace/create"),
    ("POST", "workspace/delete"),
    ("POST", "workspace/set"),
];

#[tokio::test]
async fn every_command_is_remote_or_local_as_listed() {
    let remote: BTreeSet<(String, String)> = cofferdam::command::remote::all()
        .iter()
        .map(|command| {
            let method = match command.remote {
                cofferdam::command::Remote::Reads => "GET",
                cofferdam::command::Remote::Changes => "POST",
            };
            (method.to_owned(), command.words.join("/"))
        })
        .collect();
    let listed = REMOTE.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(remote, listed);
    let mut all = BTreeSet::new();
    let definition = <cofferdam::cli::Cli as clap::CommandFactory>::command();
    leaves(&definition, "", &mut all);
    let both =
        LOCAL.iter().chain(REMOTE.iter().map(|(_, path)| path)).map(|path| (*path).to_owned()).collect();
    assert_eq!(all, both);

    let host = Setup::new().start();
    let admin = Admin::new(&host);
    for path in LOCAL {
        for method in [Method::GET, Method::POST] {
            let request = admin
                .request(method.clone(), &format!("/admin/v1/{path}"))
                .header("content-type", "application/json")
                .body(json!({}).to_string());
            assert_eq!(request.send().await.unwrap().status(), 404, "{method} {path}");
        }
    }
    for (method, path) in REMOTE {
        let other = if *method == "GET" { Method::POST } else { Method::GET };
        let answer = admin
            .request(other, &format!("/admin/v1/{path}"))
            .header("content-type", "application/json")
            .body(json!({}).to_string())
            .send()
            .await
            .unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["allow"].to_str().unwrap()),
            (405, *method),
            "{path}"
        );
    }
}

fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let path = if path.is_empty() {
            command.get_name().to_owned()
        } else {
            format!("{path}/{}", command.get_name())
        };
        leaves(command, &path, found);
    }
    // One that does something by itself may have subcommands too.
    if !command.has_subcommands() || command.is_args_conflicts_with_subcommands_set() {
        found.insert(path.to_owned());
    }
}

/// A secret that is stored through a command is listed and deleted over the API; its value is in no
/// answer.
#[tokio::test]
async fn secrets_are_listed_and_deleted_without_their_values() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    let value = "canary-value-of-an-operator";
    put_operator_secret(&host, "hidden", value);
    let listed = admin.ask("secret/list").await;
    assert!(listed.text.contains("hidden") && !listed.text.contains(value), "{}", listed.text);
    let scope = json!({"name": "hidden", "operator": true});
    assert_eq!(admin.change("secret/delete", &scope).await.status, 200);
    assert_eq!(admin.change("secret/delete", &scope).await.status, 404);
    assert_eq!(admin.ask("secret/list").await.body, Value::Array(Vec::new()));
}

#[tokio::test]
async fn credit_of_all_workspaces_is_one_answer() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    for name in ["red", "blue"] {
        let made = admin.change("workspace/create", &json!({"name": name})).await;
        assert_eq!(made.status, 200, "{}", made.text);
    }
    admin.change("credits/add", &json!({"workspace": "red", "dollars": "5"})).await;
    let listed = admin.ask("credits/show").await.body;
    let told: Vec<(&str, &Value)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["workspace"].as_str().unwrap(), &it["left"]))
        .collect();
    assert_eq!(told, [("default", &Value::Null), ("red", &json!(5)), ("blue", &Value::Null)]);
    let newest = admin.ask("credits/show?limit=2").await.body;
    assert_eq!(newest.as_array().unwrap(), &listed.as_array().unwrap()[1..]);
    let both = admin.ask("credits/show?workspace=red&limit=2").await;
    assert!(both.status == 400 && both.text.contains("cannot be used with"), "{}", both.text);
}

#[tokio::test]
async fn the_newest_secrets_of_all_vaults_are_listed_by_owner() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    admin.change("intern/create", &json!({"name": "nia", "workspace": "default"})).await;
    for (name, of) in [
        ("d", &["--workspace", "default"][..]),
        ("a", &["--intern", "nia"]),
        ("c", &["--operator"]),
        ("b", &["--workspace", "default"]),
    ] {
        put_secret(&host, name, "value", of);
    }
    let listed = async |query: &str| -> String {
        let answer = admin.ask(&format!("secret/list{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
    };
    assert_eq!(listed("").await, "cbda");
    for (query, names) in [("?limit=9", "cbda"), ("?limit=3", "cba"), ("?limit=2", "cb"), ("?limit=1", "b")] {
        assert_eq!(listed(query).await, names, "{query}");
    }
    assert_eq!(listed("?limit=1&workspace=default").await, "b");
    let refused = admin.ask("secret/list?limit=50001").await;
    assert_eq!(refused.status, 400, "{}", refused.text);
}

#[tokio::test]
async fn a_secret_without_an_owner_needs_one_workspace() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    let delete = async || -> String {
        let answer = admin.change("secret/delete", &json!({"name": "a"})).await;
        answer.body["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    assert!(delete().await.contains("no such secret"), "{}", delete().await);
    admin.change("workspace/create", &json!({"name": "second"})).await;
    assert!(delete().await.contains("more than one workspace"), "{}", delete().await);
    for name in ["default", "second"] {
        let gone = admin.change("workspace/delete", &json!({"workspace": name, "yes": true})).await;
        assert_eq!(gone.status, 200, "{}", gone.text);
    }
    let none = delete().await;
    assert!(none.contains("no workspace") && none.contains("cofferdam workspace create"), "{none}");
}

fn put_operator_secret(host: &Host, name: &str, value: &str) {
    put_secret(host, name, value, &["--operator"]);
}

fn put_secret(host: &Host, name: &str, value: &str, of: &[&str]) {
    let mut command = program();
    command
        .arg("--data")
        .arg(host.data())
        .args(["secret", "put", name, "--host", "api.example.com"])
        .args(of);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
