//! Installing plugins: which are refused, when they are compiled, and what is logged.

use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::names::Names;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The last line of the error of a start that fails.
fn refused(setup: Setup) -> String {
    let output = setup.fail();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap().lines().last().unwrap().to_owned()
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_folder_or_file_that_every_user_may_write_is_refused() {
    for (name, mode) in [("", 0o777), ("provider-own.toml", 0o666), ("provider-own.wasm", 0o602)] {
        let guests = folder(&["provider-own"]);
        let path = guests.path().join(name);
        allow(&path, mode);
        let complaint = refused(Setup::new().plugins(guests.path()));
        assert!(complaint.contains("every user may write it"), "{complaint}");
        assert!(complaint.contains(path.to_str().unwrap().trim_end_matches('/')), "{complaint}");
    }
}

#[test]
fn the_name_of_a_built_in_is_free_where_the_configuration_says_so() {
    let guests = folder(&["router"]);
    let complaint = refused(Setup::new().plugins(guests.path()));
    assert!(complaint.contains("router is built in"), "{complaint}");
    assert!(complaint.contains("`replaces = true` in [plugins.router]"), "{complaint}");
    let manifest = guests.path().join("router.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, format!("{text}replaces = true\n")).unwrap();
    let complaint = refused(Setup::new().plugins(guests.path()));
    assert!(complaint.contains("unknown field `replaces`"), "{complaint}");
    std::fs::write(&manifest, text).unwrap();
    Setup::new().config("[plugins.router]\nreplaces = true\n").plugins(guests.path()).start();
}

#[test]
fn a_third_party_tool_cannot_take_the_type_of_another() {
    let guests = folder(&["tool-rogue"]);
    let manifest = guests.path().join("tool-rogue.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("type = \"rogue\"", "type = \"datetime\"")).unwrap();
    let complaint = refused(Setup::new().plugins(guests.path()));
    assert!(complaint.contains("the tool type `datetime` is taken by plugin tool-datetime"), "{complaint}");
}

#[test]
fn a_hook_does_not_take_an_id_for_which_it_would_never_be_called() {
    let guests = folder(&["hook-caller"]);
    let manifest = guests.path().join("hook-caller.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    for id in ["web", "auto-router"] {
        std::fs::write(&manifest, text.replace("id = \"caller\"", &format!("id = \"{id}\""))).unwrap();
        let complaint = refused(Setup::new().plugins(guests.path()));
        assert!(complaint.contains(&format!("the id `{id}` is taken by the host itself")), "{complaint}");
    }
}

#[test]
fn a_pinned_component_is_that_and_no_other() {
    let guests = folder(&["provider-own"]);
    let pin = |digest: &str| {
        let config = format!("[plugins.provider-own]\nsha256 = \"{digest}\"\n");
        Setup::new().config(&config).plugins(guests.path())
    };
    let complaint = refused(pin(&"0".repeat(64)));
    assert!(complaint.contains(":1:") && complaint.contains("sha256 does not fit"), "{complaint}");
    let complaint = refused(pin("abc"));
    assert!(complaint.contains("64 hexadecimal digits"), "{complaint}");
    let host = Setup::new().plugins(guests.path()).start();
    let digest = listed(&host, "provider-own")["digest"].as_str().unwrap().to_ascii_uppercase();
    pin(&digest).start();
}

fn listed(host: &Host, name: &str) -> Value {
    let listed = host.command(&["plugin", "list"]);
    listed.as_array().unwrap().iter().find(|plugin| plugin["name"] == name).unwrap().clone()
}

#[tokio::test]
async fn plugins_are_compiled_at_the_start_or_behind_it() {
    // Background compilation goes by name and would reach this plugin last.
    let config = "[plugins.tool-web-search]\nhosts = [\"api.test\"]\ncompile = \"start\"\n";
    let host = Setup::new().config(config).start();
    Admin::new(&host).until_ready().await;
    let state = listed(&host, "tool-web-search")["state"].as_str().unwrap().to_owned();
    assert!(state.starts_with("compiled"), "{state}");
    // No request is sent here, so all plugins are compiled in the background.
    host.until_all_compiled();
}

#[test]
fn what_a_reload_makes_usable_is_compiled_behind_it() {
    let guests = folder(&["hook-asker"]);
    let host = Setup::new().config("[limits]\nstreams = 50\n").plugins(guests.path()).start();
    host.until_logged("\"ready\"");
    let granted = "[limits]\nstreams = 50\n[plugins.hook-asker]\nimports = [\"model\"]\n";
    std::fs::write(host.directory().join("cofferdam.toml"), granted).unwrap();
    host.signal("HUP");
    host.until_logged("\"plugin compiled\",\"plugin\":\"hook-asker\"");
}

#[test]
fn a_component_without_a_manifest_is_logged() {
    let guests = folder(&["provider-own"]);
    std::fs::copy(guests.path().join("provider-own.wasm"), guests.path().join("other.wasm")).unwrap();
    let host = Setup::new().plugins(guests.path()).start();
    host.until_logged("no manifest names it");
    let line = host.log().lines().find(|line| line.contains("no manifest names it")).unwrap().to_owned();
    assert!(line.contains("/other.wasm") && line.contains("/other.toml"), "{line}");
    std::fs::rename(guests.path().join("provider-own.toml"), guests.path().join("other.toml")).unwrap();
    let complaint = refused(Setup::new().plugins(guests.path()));
    assert!(complaint.contains("but the file is named"), "{complaint}");
}

/// The one line of the log with this text.
fn the_line(host: &Host, text: &str) -> Value {
    host.until_logged(text);
    let log = host.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(text)).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    serde_json::from_str(lines[0]).unwrap()
}

#[tokio::test]
async fn a_failing_guest_is_logged_with_its_function_and_its_last_log_line() {
    let guests = folder(&["provider-rogue"]);
    let config = "[[providers]]\nname = \"rogue\"\nadapter = \"rogue\"\nbase_url = \"http://127.0.0.1:9/v1\"\n\
        [[models]]\nid = \"rogue/trap\"\nendpoints = [{ provider = \"rogue\", model = \"trap-prepare\" }]\n\
        [[models]]\nid = \"rogue/log\"\nendpoints = [{ provider = \"rogue\", model = \"log-prepare\" }]\n";
    let host = Setup::new().config(config).plugins(guests.path()).start();
    let client = Client::new(&host);
    assert_eq!(client.post("/responses", &json!({"model": "rogue/trap", "input": "x"})).await.status, 502);
    let line = the_line(&host, "guest call failed: broke (unreachable)");
    assert_eq!(
        (&line["plugin"], &line["function"]),
        (&json!("provider-rogue"), &json!("generation.prepare"))
    );
    assert_eq!(line["last_words"], "");
    assert_eq!(client.post("/responses", &json!({"model": "rogue/log", "input": "x"})).await.status, 502);
    let log = the_line(&host, "\"last_words\":\"\\\\u{1b}[31mrogue");
    assert_eq!(log["function"], "generation.prepare", "{log}");
}

#[tokio::test]
async fn a_plugin_without_a_grant_is_logged_with_the_line_that_grants_it() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let request = json!({"model": "local/demo", "input": "x", "tools": [{"type": "service:web_fetch"}]});
    for _ in 0..3 {
        let answer = client.post("/responses", &request).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
    }
    let line = the_line(&host, "tool-web-fetch");
    assert_eq!(line["level"], "WARN", "{line}");
    assert!(line.to_string().contains("[plugins.tool-web-fetch] hosts = [\\\"*\\\"]"), "{line}");
    let online = json!({"model": "local/demo:online", "input": "x"});
    assert_eq!(client.post("/responses", &online).await.status, 400);
    let line = the_line(&host, "tool-web-search");
    assert!(line.to_string().contains("[plugins.tool-web-search] hosts = "), "{line}");
}

#[tokio::test]
async fn an_unreachable_provider_is_logged_with_host_port_and_cause() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let names = Names::start().await;
    let config = format!(
        "[egress]\nnameservers = [\"{}\"]\n[routing]\nretry = false\n\
         [[providers]]\nname = \"closed\"\nadapter = \"openai-chat\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\n\
         [[providers]]\nname = \"gone\"\nadapter = \"openai-chat\"\nbase_url = \"https://gone.test/v1\"\n\
         [[models]]\nid = \"a/closed\"\nendpoints = [{{ provider = \"closed\", model = \"m\" }}]\n\
         [[models]]\nid = \"a/gone\"\nendpoints = [{{ provider = \"gone\", model = \"m\" }}]\n",
        names.address
    );
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    for model in ["a/closed", "a/gone", "a/closed", "a/gone"] {
        let answer = client.post("/responses", &json!({"model": model, "input": "x"})).await;
        assert_eq!(answer.status, 502, "{}", answer.text);
        assert!(!answer.text.contains("refused, no server"), "{}", answer.text);
    }
    let line = the_line(&host, "no server listens on this port");
    assert_eq!((&line["level"], &line["provider"]), (&json!("WARN"), &json!("closed")), "{line}");
    assert_eq!((&line["host"], &line["port"]), (&json!("127.0.0.1"), &json!(port)), "{line}");
    let line = the_line(&host, "the name is unknown");
    assert_eq!(
        (&line["provider"], &line["host"], &line["port"]),
        (&json!("gone"), &json!("gone.test"), &json!(443))
    );
}

#[tokio::test]
async fn a_request_for_a_removed_built_in_model_gets_the_lines_that_keep_it() {
    let config = "[[providers]]\nname = \"own\"\nadapter = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9\"\n\
        [[models]]\nid = \"own/m\"\nendpoints = [{ provider = \"own\", model = \"m\" }]\n";
    let host = Setup::new().config(config).start();
    let client = Client::new(&host);
    let answer = client.post("/responses", &json!({"model": "local/demo", "input": "x"})).await;
    assert_eq!(answer.status, 404);
    let (_, lines) = answer.message().split_once("these lines keep it:\n").unwrap();
    assert!(lines.contains("[[models]]\nid = \"local/demo\""), "{lines}");
    assert!(client.get("/models/local/embed").await.message().contains("kind = \"embeddings\""));
    assert!(the_line(&host, "\\\"local/demo\\\"").to_string().contains("these lines keep it"));
    host.until_logged("it has no version in its path");
    let host = Setup::new().config(&format!("{config}{lines}\n")).start();
    let answer = Client::new(&host).post("/responses", &json!({"model": "local/demo", "input": "x"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[test]
fn a_check_warns_of_base_addresses_that_were_probably_not_meant() {
    let config =
        "[[providers]]\nname = \"own\"\nadapter = \"openai-chat\"\nbase_url = \"http://api.example.com\"\n";
    let output = Setup::new().config(config).argument("--check").serve().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let log = String::from_utf8(output.stderr).unwrap();
    for says in [":1:", "it has no version in its path", "write https://"] {
        assert!(log.contains(says), "{says}: {log}");
    }
}

#[tokio::test]
async fn a_model_router_with_the_name_of_another_is_logged() {
    let guests = folder(&["router-picky"]);
    let manifest = std::fs::read_to_string(guests.path().join("router-picky.toml")).unwrap();
    let second = manifest.replace("router-picky", "router-second").replace("picky-router", "second-router");
    std::fs::write(guests.path().join("router-second.toml"), second).unwrap();
    std::fs::copy(guests.path().join("router-picky.wasm"), guests.path().join("router-second.wasm")).unwrap();
    let host = Setup::new().plugins(guests.path()).start();
    let request = json!({"model": "service/picky", "input": "x", "models": ["local/demo"]});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let line = the_line(&host, "a model router answers to a name that another has");
    assert_eq!((&line["plugin"], &line["by"]), (&json!("router-second"), &json!("router-picky")), "{line}");
}
