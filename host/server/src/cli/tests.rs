use clap::{CommandFactory, Parser};

use super::{Action, Cli};
use crate::command::{Command, KeyCommand, WorkspaceCommand};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("cofferdam").chain(line.split_whitespace()))
}

#[test]
fn definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_of_the_contract_is_accepted() {
    for line in [
        "",
        "serve",
        "serve --listen 127.0.0.1:0 --admin [::1]:0 --plugins p --check --accept-rollback 7",
        "workspace create w",
        "workspace create w --no-programme --no-vault-writes",
        "workspace list",
        "workspace set w --programme on",
        "workspace set w --vault-writes off",
        "workspace set w --programme off --vault-writes on",
        "member create m --workspace w",
        "member create m --workspace w --role admin",
        "member list",
        "member set m --role member",
        "intern create i --workspace w",
        "intern create i --workspace w --member m",
        "intern list",
        "intern list --workspace w --limit 5",
        "intern delete i",
        "key create --workspace w",
        "key create --workspace w --member m --name n --expires-days 30",
        "key create --workspace w --intern i",
        "key create --provisioning --workspace w",
        "key create --no-scope",
        "key create --no-scope --name n",
        "key list",
        "key list --limit 5 --workspace w",
        "key show abc",
        "key revoke abc",
        "secret put a --host api.example.com",
        "secret put a --host h1 --host h2 --workspace w",
        "secret put a --host h1 h2 --intern i",
        "secret put --operator a --host h",
        "secret list",
        "secret list --workspace w",
        "secret delete a --operator",
        "vault verify",
        "vault backup f",
        "vault restore f",
        "vault rotate-root --new file:k",
        "vault rotate-keys",
        "vault import-legacy f --workspace w",
        "vault audit",
        "vault audit --since 7",
        "vault recovery new",
        "store create",
        "status",
        "models",
        "plugin logs tool-x",
        "plugin logs tool-x --lines 200 --json",
        "plugin list",
        "completions bash",
        "man pages",
        "tour",
        "doctor",
        "doctor --offline --plugins p",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn invalid_command_lines_are_usage_errors() {
    for line in [
        "nonsense",
        "serve --listen localhost",
        "workspace set w",
        "workspace set w --programme maybe",
        "workspace create",
        "member create m",
        "member create m --workspace w --role owner",
        "member set m",
        "key create --name n",
        "key create --workspace w --member m --intern i",
        "key create --workspace w --provisioning --member m",
        "key create --no-scope --workspace w",
        "key create --no-scope --provisioning",
        "key create --workspace w --expires-days 0",
        "secret put a",
        "secret put --host h",
        "secret put a --host h --operator --workspace w",
        "secret delete",
        "vault",
        "store",
        "vault backup",
        "vault restore",
        "vault rotate-root",
        "vault import-legacy f",
        "vault audit --since x",
        "vault recovery",
        "credits",
        "credits add w",
        "credits add w -1",
        "usage --by w",
        "key create --workspace w --limit-day x",
        "completions",
        "completions csh",
        "man",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn options_may_stand_before_or_after_the_command() {
    for line in [
        "--data d --config c --json workspace list",
        "workspace list --data d --config c --json",
        "--data d workspace --json list --config c",
    ] {
        let cli = parse(line).unwrap();
        assert_eq!(cli.options.data.to_str(), Some("d"), "{line}");
        assert_eq!(cli.options.config.as_deref().and_then(|path| path.to_str()), Some("c"), "{line}");
        assert!(cli.options.json, "{line}");
        assert!(matches!(cli.action, Some(Action::Command(Command::Workspace(WorkspaceCommand::List(_))))));
    }
}

#[test]
fn a_command_survives_being_sent() {
    let cli = parse("key create --workspace w --intern i --name n --expires-days 3").unwrap();
    let Some(Action::Command(command)) = cli.action else { panic!() };
    let sent = serde_json::to_string(&command).unwrap();
    let Command::Key(KeyCommand::Create(received)) = serde_json::from_str(&sent).unwrap() else { panic!() };
    assert_eq!(received.intern.as_deref(), Some("i"));
    assert_eq!(received.expires_days, Some(3));
}
