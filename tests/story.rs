//! Runs the README's example of a secret word for word: it is stored, granted and used by a model
//! through a tool. The API that it is meant for receives it; the client never does.

use crate::kit::canary::{FORMS, written};
use crate::kit::client::Client;
use crate::kit::database::is_embedded;
use crate::kit::host::{Setup, program};
use crate::kit::site::{Authority, Site};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The heading of the example in the README.
const HEADING: &str = "### A secret that a model can use and nobody can see";
/// The API in the example.
const API: &str = "api.github.com";
/// The value of `$GITHUB_TOKEN`.
const TOKEN: &str = "ghp_4fQz81LmXw02TvRyKd57";

/// The commands of the example, each with its continuation lines.
fn commands() -> Vec<String> {
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let (_, story) = readme.split_once(HEADING).expect("the README tells the story");
    let (_, block) = story.split_once("```console\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let mut commands: Vec<String> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push(command.to_owned()),
            (None, Some(command)) => {
                command.push('\n');
                command.push_str(line);
            }
            (None, None) => panic!("the story begins with output: {line}"),
        }
    }
    commands
}

#[tokio::test]
async fn the_readmes_example_of_a_secret_works() {
    if !is_embedded("the store of a database is made before the first command") {
        return;
    }
    let authority = Authority::new();
    let site = Site::start(&authority, &[API]).await;
    let setup = Setup::new().config(&format!(
        "[egress]\nports = [{}]\nroots = [\"ca.pem\"]\nallow_private = [\"127.0.0.0/8\"]\n\
         resolve = {{ \"{API}\" = [\"127.0.0.1\"] }}",
        site.port
    ));
    std::fs::write(setup.directory().join("ca.pem"), authority.pem()).unwrap();

    let commands = commands();
    let [put, grant, serve, ask] = commands.as_slice() else { panic!("{commands:#?}") };
    assert!(
        put.contains("cofferdam secret put") && grant.contains("cofferdam plugin grant"),
        "{commands:#?}"
    );
    setup.write_config();
    run(&setup, put);
    run(&setup, grant);
    assert_eq!(serve, "cofferdam serve");
    let mut host = setup.reread_config().start();

    let (_, body) = ask.split_once("-d '").unwrap();
    let body = body.strip_suffix('\'').unwrap().replace(API, &format!("{API}:{}", site.port));
    let request: Value = serde_json::from_str(&body).unwrap();
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);

    let seen = site.last();
    assert_eq!(seen.sni.as_deref(), Some(API));
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    let item = &answer.body["output"][0];
    assert_eq!(
        (item["type"].as_str(), item["status"].as_str()),
        (Some("service:http_request"), Some("completed"))
    );
    // The server echoes what it received. The model and the client get the name of the secret
    // instead of its value.
    assert!(answer.text.contains("[secret:github_token]"), "{}", answer.text);

    host.end();
    let log = host.log();
    for form in FORMS {
        let value = written(form, TOKEN);
        let within = |text: &[u8]| text.windows(value.len()).any(|window| window == value);
        assert!(!within(answer.text.as_bytes()), "{form:?} in the answer");
        assert!(!within(log.as_bytes()), "{form:?} in the log");
    }
    let released = host.command(&["vault", "audit"]).to_string();
    assert!(released.contains("secret_released") && released.contains("github_token"), "{released}");
}

/// Runs one command of the example in a shell, on the directory of the test.
fn run(setup: &Setup, command: &str) {
    let program = program();
    let cofferdam = format!(
        "'{}' --data '{}' --config '{}'",
        program.get_program().display(),
        setup.data().display(),
        setup.directory().join("cofferdam.toml").display()
    );
    let mut shell = Command::new("sh");
    shell.arg("-euc").arg(command.replace("cofferdam ", &format!("{cofferdam} "))).env("GITHUB_TOKEN", TOKEN);
    let output = shell.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}
