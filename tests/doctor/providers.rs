//! Findings about providers: names, certificates and credentials, against scripted servers.

use super::{FREE_PORTS, Found, doctor, doctor_of};
use crate::kit::host::{Setup, program};
use crate::kit::names::Names;
use crate::kit::site::{Authority, Site};
use crate::kit::upstream::{Closed, Reply, Upstream};
use serde_json::json;
use std::io::Write;
use std::process::Stdio;

const NAME: &str = "provider.test";
const TOKEN: &str = "sk-doctor-31f0aa2c";

/// A provider at this base URL, with further keys.
fn provider(adapter: &str, base: &str, keys: &str) -> String {
    format!(
        "{FREE_PORTS}[egress]\nallow_plaintext_loopback = true\nresolve = {{ \"{NAME}\" = [\"127.0.0.1\"] }}\n\
         [[providers]]\nname = \"p\"\nadapter = \"{adapter}\"\nbase_url = \"{base}\"\n{keys}\n"
    )
}

/// `doctor` with a credential in its environment.
fn doctor_with(setup: &Setup, variable: &str, value: &str) -> Found {
    setup.write_config();
    let mut command = program();
    command.env(variable, value).args(["--json", "doctor", "--data"]).arg(setup.data());
    command.arg("--config").arg(setup.directory().join("cofferdam.toml"));
    Found::of(&command.output().unwrap())
}

fn models() -> Reply {
    Reply::json(200, json!({"object": "list", "data": []}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_tried_with_a_get_of_models() {
    let upstream = Upstream::start().await;
    let keys = "key = \"env:DOCTOR_KEY\"";
    let setup = Setup::new().config(&provider("openai-chat", &upstream.base, keys));
    upstream.reply(models());
    let found = doctor_with(&setup, "DOCTOR_KEY", TOKEN);
    found.assert("provider", "ok", &["provider p", "GET models with 200"]);
    let asked = upstream.asked_once();
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", "/v1/models"));
    assert_eq!(asked.headers["authorization"], format!("Bearer {TOKEN}").as_str());

    upstream.reply(Reply::json(401, json!({"error": format!("wrong key {TOKEN}")})));
    let found = doctor_with(&setup, "DOCTOR_KEY", TOKEN);
    found.assert("provider", "bad", &["with 401", "refuses the credential", "DOCTOR_KEY"]);
    assert!(!found.document.to_string().contains(TOKEN));
    upstream.reply(Reply::json(404, json!({})));
    doctor_with(&setup, "DOCTOR_KEY", TOKEN).assert(
        "provider",
        "warn",
        &["404", "not tried", "cofferdam.toml:"],
    );
    upstream.reply(Reply::json(503, json!({})));
    doctor_with(&setup, "DOCTOR_KEY", TOKEN).assert("provider", "warn", &["503"]);
    assert!(upstream.asked().iter().all(|asked| asked.method == "GET"));
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropics_list_is_asked_with_its_version() {
    let upstream = Upstream::start().await;
    let setup = Setup::new().config(&provider("anthropic", &upstream.base, "key = \"env:DOCTOR_KEY\""));
    upstream.reply(models());
    doctor_with(&setup, "DOCTOR_KEY", TOKEN).assert("provider", "ok", &["200"]);
    let asked = upstream.asked_once();
    assert_eq!(
        (&asked.headers["x-api-key"], &asked.headers["anthropic-version"]),
        (&TOKEN.parse().unwrap(), &"2023-06-01".parse().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_variable_is_named_and_other_providers_are_tried() {
    let upstream = Upstream::start().await;
    let keyless =
        format!("[[providers]]\nname = \"q\"\nadapter = \"openai-chat\"\nbase_url = \"{}\"", upstream.base);
    let config = provider("openai-chat", &upstream.base, "key = \"env:DOCTOR_ABSENT\"");
    let setup = Setup::new().config(&config).config(&keyless);
    upstream.always(|_| models());
    let found = doctor(&setup, &[]);
    found.assert("credential", "bad", &["cofferdam.toml:", "DOCTOR_ABSENT is not set"]);
    found.assert("provider", "bad", &["provider p", "cannot be used", "DOCTOR_ABSENT"]);
    found.assert("provider", "ok", &["provider q", "200"]);
    assert_eq!(upstream.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_host_tries_the_credential_that_it_has() {
    let upstream = Upstream::start().await;
    let config = provider("openai-chat", &upstream.base, "key = \"env:DOCTOR_KEY\"");
    let host = Setup::new().config(&config).environment("DOCTOR_KEY", TOKEN).start();
    upstream.always(|_| models());
    let found = doctor_of(&host, &[]);
    found.assert("provider", "ok", &["200"]);
    assert_eq!(upstream.asked_once().headers["authorization"], format!("Bearer {TOKEN}").as_str());
    doctor_of(&host, &["--offline"]);
    upstream.asked_once();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_operator_is_tried_and_its_release_recorded() {
    let upstream = Upstream::start().await;
    let base = upstream.base.replace("127.0.0.1", NAME);
    let setup = Setup::new().config(&provider("openai-chat", &base, "key = \"operator:p_key\""));
    upstream.always(|_| models());
    let put = format!("secret put p_key --operator --host {NAME}");
    doctor(&setup, &[]).assert("credential", "bad", &["not stored", &put]);
    let host = setup.start();
    doctor_of(&host, &[]).assert("credential", "bad", &[&put]);
    let mut command = program();
    command.arg("--data").arg(host.data()).args(put.split(' '));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(TOKEN.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let found = doctor_of(&host, &[]);
    found.assert("provider", "ok", &["200"]);
    assert!(found.all("credential").is_empty(), "{}", found.document);
    assert_eq!(upstream.asked().last().unwrap().headers["authorization"], format!("Bearer {TOKEN}").as_str());
    let audit = host.command(&["vault", "audit", "--action", "secret_released"]).to_string();
    assert!(audit.contains("doctor, provider p"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_wants_a_credential_is_found() {
    let upstream = Upstream::start().await;
    upstream.always(|_| Reply::json(401, json!({})));
    let keyless = Setup::new().config(&provider("openai-chat", &upstream.base, ""));
    doctor(&keyless, &[]).assert(
        "provider",
        "bad",
        &["wants a credential and none is configured", "set `key`"],
    );
    let base = upstream.base.replace("127.0.0.1", NAME);
    let callers = Setup::new().config(&provider("openai-chat", &base, "byok = \"own_key\""));
    doctor(&callers, &[]).assert("provider", "ok", &["the key of each caller"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_ports_and_certificates_that_do_not_work_are_found() {
    let closed = Closed::new();
    let refused = Setup::new().config(&provider("openai-chat", &closed.base, ""));
    doctor(&refused, &[]).assert("provider", "bad", &["no server listens on this port", "cofferdam.toml:"]);
    let names = Names::start().await;
    let server = format!("[egress]\nnameservers = [\"{}\"]\n", names.address);
    let config = provider("openai-chat", "https://nowhere.test/v1", "").replace("[egress]\n", &server);
    let unresolved = Setup::new().config(&config);
    doctor(&unresolved, &[]).assert(
        "provider",
        "bad",
        &["nowhere.test:443", "the name is unknown", "the DNS"],
    );

    let authority = Authority::new();
    let site = Site::start(&authority, &[NAME]).await;
    let base = format!("https://{NAME}:{}/v1", site.port);
    let untrusted = Setup::new().config(&provider("openai-chat", &base, ""));
    doctor(&untrusted, &[]).assert("provider", "bad", &["unknown root", "egress.roots"]);
    assert!(site.seen().is_empty());
    let config = provider("openai-chat", &base, "").replace("[egress]\n", "[egress]\nroots = [\"ca.pem\"]\n");
    let trusted = Setup::new().config(&config);
    std::fs::write(trusted.directory().join("ca.pem"), authority.pem()).unwrap();
    doctor(&trusted, &[]).assert("provider", "ok", &["200"]);
    let doctor_offline = doctor(&untrusted, &["--offline"]);
    assert!(doctor_offline.all("provider").is_empty(), "{}", doctor_offline.document);
}
