use cofferdam_egress::Placement;
use cofferdam_engine::catalog::ModelKind;
use cofferdam_engine::export::{DestinationKind, OtlpFormat};
use cofferdam_runtime::OnReflection;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_store::RootKeySource;

use super::{Broadcast, Config, ConfigError, KeySource, Problem, RateLimits, WorkspaceName, keys};

const FILE: &str = "/etc/cofferdam/cofferdam.toml";

fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    Config::parse(text, Path::new(FILE), Path::new("/data")).map_err(|error| match error {
        ConfigError::Invalid(problems) => problems,
        ConfigError::Unreadable { .. } => Vec::new(),
    })
}

/// Line, column, key and message of the only problem in a text.
fn problem(text: &str) -> (usize, usize, String, String) {
    let problems = parse(text).expect_err(text);
    assert_eq!(problems.len(), 1, "{text}: {problems:?}");
    let Problem { place, message } = problems.into_iter().next().unwrap();
    assert_eq!(place.file, Path::new(FILE));
    (place.line, place.column, place.key, message)
}

const WHOLE: &str = r#"
[server]
listen = "127.0.0.1:1"
admin = "[::1]:2"
regional_hosts = ["EU.api.example.com"]
region = "eu"

[timeouts]
connect_ms = 1
first_event_ms = 2
idle_ms = 3
total_ms = 4
body_idle_ms = 5
body_total_ms = 6
drain_ms = 7

[limits]
connections = 10
streams = 5
requests_per_minute = 20
tokens_per_minute = 21
workspace_requests_per_minute = 22
workspace_tokens_per_minute = 23
concurrent_per_key = 24

[vault]
enabled = true
root_key = "file:keys/root.key"
writes = false
rate_limit = { reads_per_minute = 6, writes_per_minute = 0 }

[egress]
ports = [443, 8443]
roots = []
allow_private = ["10.0.0.0/8"]
allow_plaintext_loopback = false
resolve = { "api.test" = ["127.0.0.1"] }
nameservers = ["127.0.0.1", "127.0.0.1:5353"]

[[providers]]
name = "ollama"
adapter = "openai-chat"
base_url = "http://127.0.0.1:11434/v1"

[[providers]]
name = "openai"
adapter = "openai-responses"
base_url = "https://api.openai.com/v1"
key = "env:OPENAI_API_KEY"
byok = "openai_api_key"

[[models]]
id = "meta/llama-3.2"
kind = "responses"
context_length = 131072
endpoints = [
  { provider = "ollama", model = "llama3.2", input = 0.15, output = 0.60 },
  { provider = "openai", model = "x", cached_input = 0.015, max_output = 4096, first_event_ms = 8, supports = ["tools"], tier = "flex", quantization = "fp8", zdr = true, data_collection = "deny", image = 0.04 },
]

[[models]]
id = "openai/embed"
kind = "embeddings"
endpoints = [{ provider = "openai", model = "embed" }]

[[prompts]]
id = "city"
version = "1"
text = "You know {{city}}."

[[prompts]]
id = "city"
version = "2"
messages = [{ role = "system", content = "x" }, { role = "user", content = "y" }]

[[broadcast]]
name = "hook"
kind = "webhook"
url = "https://hooks.example.com/in/requests/"
key = "env:HOOK_KEY"
key_header = "x-hook-key"
key_format = "{}"
headers = { x-team = "blue" }

[[broadcast]]
name = "otel"
kind = "otlp"
format = "protobuf"
url = "https://otel.example.com/base"
[[workspaces]]
name = "*"
plugins = [{ id = "moderation" }]

[[workspaces]]
name = "default"

[plugins.tool-http-request]
hosts = ["API.github.com", "*"]
secrets = ["github_token"]
injections = [{ secret = "github_token", host = "api.github.com", header = "Authorization", format = "token {}" }]
placeholder_headers = ["X-Key"]
on_reflection = "block"
memory_mib = 16
deadline_ms = 500
config = { answer = 42, list = ["a"] }
"#;

#[test]
fn every_section_is_read() {
    let config = parse(WHOLE).unwrap();
    assert_eq!(config.server.listen, "127.0.0.1:1".parse().unwrap());
    assert_eq!(config.server.admin, "[::1]:2".parse().unwrap());
    assert_eq!(config.server.regional_hosts, ["eu.api.example.com"]);
    assert_eq!(config.server.region.as_deref(), Some("eu"));
    assert_eq!(config.timeouts.connect, Duration::from_millis(1));
    assert_eq!(config.timeouts.drain, Duration::from_millis(7));
    assert_eq!((config.limits.connections, config.limits.streams), (10, 5));
    let rates = RateLimits {
        requests_per_minute: 20,
        tokens_per_minute: 21,
        workspace_requests_per_minute: 22,
        workspace_tokens_per_minute: 23,
        concurrent_per_key: 24,
    };
    assert_eq!(config.limits.rates, rates);
    assert_eq!(config.vault.root_key, RootKeySource::File(PathBuf::from("/etc/cofferdam/keys/root.key")));
    let vault = &config.vault;
    assert_eq!((vault.enabled, vault.writes), (true, false));
    assert_eq!((vault.reads_per_minute, vault.writes_per_minute), (6, 0));
    assert_eq!(config.egress.ports, [443, 8443]);
    assert_eq!(config.egress.nameservers.len(), 2);
    assert_eq!(config.egress.resolve["api.test"].len(), 1);
    assert_eq!(config.egress.connect_timeout, Duration::from_millis(1));
    let [ollama, openai] = config.providers.as_slice() else { panic!() };
    assert_eq!(ollama.origin.as_ref().unwrap().port(), 11434);
    assert!(matches!(&openai.key, Some((KeySource::Env(name), _)) if name == "OPENAI_API_KEY"));
    assert_eq!(openai.byok.as_ref().unwrap().as_str(), "openai_api_key");
    let [llama, embed] = config.models.as_slice() else { panic!() };
    assert_eq!(embed.kind, ModelKind::Embeddings);
    let [first, second] = llama.endpoints.as_slice() else { panic!() };
    let of_first = (first.prices.input.0, first.prices.output.0, first.prices.cached_input.0);
    assert_eq!(of_first, (150_000, 600_000, 150_000));
    assert_eq!(second.prices.cached_input.0, 15_000);
    assert_eq!(second.prices.image.0, 40_000_000_000);
    assert_eq!((second.candidate.zdr, second.candidate.data_collection), (true, false));
    let [hook, otel] = config.broadcast.as_slice() else { panic!() };
    assert_eq!(
        (hook.kind, otel.kind),
        (DestinationKind::Webhook, DestinationKind::Otlp(OtlpFormat::Protobuf))
    );
    let url = |at: &Broadcast| at.origin.as_ref().unwrap().join(&at.path).unwrap().to_string();
    assert_eq!(url(hook), "https://hooks.example.com/in/requests/");
    assert_eq!(url(otel), "https://otel.example.com/base/v1/traces");
    assert!(matches!(&hook.key, Some((KeySource::Env(name), _)) if name == "HOOK_KEY"));
    assert_eq!(hook.headers[0].1, "blue");
    let [everyone, default] = config.workspaces.as_slice() else { panic!() };
    assert_eq!(everyone.name, WorkspaceName::Everyone);
    let (entry, place) = &everyone.plugins[0];
    assert_eq!(entry, &serde_json::json!({"id": "moderation"}));
    assert_eq!(place.key, "workspaces[0].plugins[0]");
    assert_eq!(default.name, WorkspaceName::One("default".to_owned()));
    assert!(default.plugins.is_empty());
    let plugin = &config.plugins["tool-http-request"];
    assert_eq!(plugin.config, serde_json::json!({"answer": 42, "list": ["a"]}));
    assert_eq!((plugin.memory_mib, plugin.deadline_ms), (Some(16), Some(500)));
    assert_eq!(plugin.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["api.github.com"]);
    assert!(plugin.any_host && plugin.placeholder_headers.contains("x-key"));
    assert_eq!(plugin.secrets.len(), 1);
    assert_eq!(plugin.injections[0].placement, Placement::header("authorization", "token {}").unwrap());
    assert_eq!(plugin.on_reflection, OnReflection::Block);
}

#[test]
fn empty_file_is_the_demo_with_all_defaults() {
    let config = parse("").unwrap();
    assert!(config.is_demo());
    let (providers, models) = super::demo();
    assert_eq!((providers.len(), models.len()), (1, 2));
    assert_eq!(config.server.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(config.server.admin, "127.0.0.1:8081".parse().unwrap());
    assert_eq!(config.timeouts.response.first_event, Duration::from_secs(300));
    assert_eq!(config.timeouts.response.idle, Duration::from_secs(300));
    assert_eq!(config.timeouts.response.total, Duration::from_secs(600));
    assert_eq!((config.limits.connections, config.limits.streams), (10_000, 1_000));
    assert_eq!(config.limits.rates, RateLimits::UNLIMITED);
    assert_eq!(config.vault.root_key, RootKeySource::File(PathBuf::from("/data/root.key")));
    assert!(config.vault.enabled && config.vault.writes);
    assert_eq!((config.vault.reads_per_minute, config.vault.writes_per_minute), (600, 60));
    assert_eq!(config.egress.ports, [443]);
}

#[test]
fn mistakes_are_reported_with_their_position() {
    let table = [
        ("[server]\nlisten = 8080", (2, 10, "server.listen"), "expected a text, found a whole number"),
        ("[server]\nlisten = \"localhost\"", (2, 10, "server.listen"), "expected an address with a port"),
        ("[server]\nlistn = \"x\"", (2, 1, "server.listn"), "unknown key, did you mean `listen`?"),
        ("[sever]\n", (1, 2, "sever"), "unknown key, did you mean `server`?"),
        ("server = 1", (1, 10, "server"), "expected a table, found a whole number"),
        ("[timeouts]\nidle_ms = 0", (2, 11, "timeouts.idle_ms"), "0 is outside 1 to 86400000"),
        ("[timeouts]\nidle_ms = -5", (2, 11, "timeouts.idle_ms"), "-5 is outside"),
        ("[timeouts]\nidle_ms = 1.5", (2, 11, "timeouts.idle_ms"), "expected a whole number, found a number"),
        (
            "[timeouts]\n  idle_ms = \"1s\"",
            (2, 13, "timeouts.idle_ms"),
            "expected a whole number, found a text",
        ),
        (
            "[timeouts]\ndrain_ms = 1000\nunready_ms = 1001",
            (3, 14, "timeouts.unready_ms"),
            "must not be more than drain_ms",
        ),
        ("[limits]\nconnections = 0", (2, 15, "limits.connections"), "0 is outside"),
        (
            "[limits]\nrequests_per_minute = -5",
            (2, 23, "limits.requests_per_minute"),
            "-5 is outside 0 to 4294967295",
        ),
        (
            "[vault]\nrate_limit = { reads_per_minute = -1 }",
            (2, 35, "vault.rate_limit.reads_per_minute"),
            "-1 is outside 0 to 4294967295",
        ),
        ("[vault]\nrate_limit = 60", (2, 14, "vault.rate_limit"), "expected a table"),
        ("[vault]\nroot_key = \"secret\"", (2, 12, "vault.root_key"), "expected file:PATH"),
        ("[egress]\nports = [0]", (2, 10, "egress.ports[0]"), "expected a port"),
        ("[egress]\nallow_private = [\"10.0.0.0/33\"]", (2, 18, "egress.allow_private[0]"), "address range"),
        ("[egress]\nresolve = { a = [\"x\"] }", (2, 18, "egress.resolve.a[0]"), "expected an IP address"),
        ("[egress]\nroots = [\"missing.pem\"]", (2, 10, "egress.roots[0]"), "cannot read missing.pem"),
        ("[plugins.x]\nhost = [\"a\"]", (2, 1, "plugins.x.host"), "did you mean `hosts`?"),
        ("[plugins.x]\nimports = [\"clock\"]", (2, 12, "plugins.x.imports[0]"), "expected `model`"),
        (
            "[plugins.x]\nhosts = [\"a.b\", \"127.0.0.1\"]",
            (2, 17, "plugins.x.hosts[1]"),
            "an exact host name",
        ),
        ("[plugins.x]\nhosts = [\"*.a.b\"]", (2, 10, "plugins.x.hosts[0]"), "an exact host name"),
        ("[plugins.x]\nsecrets = [\"*\"]", (2, 12, "plugins.x.secrets[0]"), "name each secret"),
        ("[plugins.x]\nsecrets = [\"K\"]", (2, 12, "plugins.x.secrets[0]"), "the name of a secret"),
        (
            "[plugins.x]\nsecrets = [\"k\"]\noperator_secrets = [\"k\"]",
            (3, 21, "plugins.x.operator_secrets[0]"),
            "`secrets` names it too",
        ),
        (
            "[plugins.x]\nplaceholder_headers = [\"Host\"]",
            (2, 24, "plugins.x.placeholder_headers[0]"),
            "a header that may carry a secret",
        ),
        (
            "[plugins.x]\non_reflection = \"ignore\"",
            (2, 17, "plugins.x.on_reflection"),
            "`redact` or `block`",
        ),
        ("[[providers]]\nname = \"a\"", (1, 1, "providers[0]"), "`adapter` is missing"),
        ("a = ", (1, 5, ""), ""),
    ];
    assert_told(&table);
}

#[test]
fn mistakes_in_files_names_and_listeners_are_reported() {
    assert_told(&[
        (
            "[egress]\nroots = [\"/proc/self/comm\"]",
            (2, 10, "egress.roots[0]"),
            "/proc/self/comm is not a PEM file of root certificates",
        ),
        (
            "[egress]\nresolve = { \"a.test:80\" = [\"127.0.0.1\"] }",
            (2, 13, "egress.resolve.a.test:80"),
            "expected a host name without scheme and port",
        ),
        (
            "[server]\nregional_hosts = [\"bücher.example\"]",
            (2, 19, "server.regional_hosts[0]"),
            "in their `xn--` form",
        ),
        (
            "[server]\nadmin_hosts = [\"a..example\"]",
            (2, 16, "server.admin_hosts[0]"),
            "expected a host name",
        ),
        (
            "[server]\nlisten = \"127.0.0.1:80\"\nadmin = \"127.0.0.1:80\"",
            (3, 9, "server.admin"),
            "`listen` has this address already",
        ),
        ("[limits]\nstreams = 1\nstreams = 2", (3, 1, "streams"), "duplicate key"),
        (
            "[[broadcast]]\nname = \"a\"\nkind = \"webhook\"\nurl = \"https://a.test/b\"\nkey_format = \"x\"",
            (5, 14, "broadcast[0].key_format"),
            "exactly one {}",
        ),
    ]);
}

/// For texts with one mistake each: checks its line, column, key and a part of the message.
#[track_caller]
fn assert_told(table: &[(&str, (usize, usize, &str), &str)]) {
    for &(text, (line, column, key), message) in table {
        let (found_line, found_column, found_key, found) = problem(text);
        assert_eq!((found_line, found_column, found_key.as_str()), (line, column, key), "{text}: {found}");
        assert!(found.contains(message), "{text}: {found}");
    }
}

#[test]
fn providers_and_models_must_fit_together() {
    let provider = "[[providers]]\nname = \"p\"\nadapter = \"a\"\n";
    let model = "[[models]]\nid = \"v/m\"\nendpoints = [{ provider = \"p\", model = \"m\" }]\n";
    parse(&format!("{provider}{model}")).unwrap();
    let table = [
        (format!("{provider}{provider}"), "providers[1].name", "a provider named `p` exists already"),
        (format!("{provider}{model}{model}"), "models[1].id", "a model `v/m` exists already"),
        (
            model.to_owned(),
            "models[0].endpoints[0].provider",
            "no provider is named `p`; known: there is none",
        ),
        (format!("{provider}base_url = \"ftp://x/\""), "providers[0].base_url", "scheme must be http"),
        (
            format!("{provider}base_url = \"http://8.8.8.8/\""),
            "providers[0].base_url",
            "http:// is allowed to loopback",
        ),
        (
            format!("{provider}base_url = \"http://127.0.0.1/\"\nkey = \"env:K\""),
            "providers[0].base_url",
            "allow_plaintext_loopback",
        ),
        (
            format!("{provider}key = \"operator:K\""),
            "providers[0].key",
            "lower-case letters, digits and single underscores",
        ),
        (format!("{provider}key = \"sk-123\""), "providers[0].key", "does not belong in this file"),
        (
            format!("{provider}byok = \"k_\""),
            "providers[0].byok",
            "lower-case letters, digits and single underscores",
        ),
        (
            format!("{provider}base_url = \"https://203.0.113.1/\"\nbyok = \"k\""),
            "providers[0].base_url",
            "needs a host name",
        ),
        (format!("{provider}adapter2 = \"k\""), "providers[0].adapter2", "did you mean `adapter`?"),
        (
            "[[models]]\nid = \"v/m\"\nendpoints = []".to_owned(),
            "models[0].endpoints",
            "at least one endpoint",
        ),
        (format!("{provider}{}", model.replace("v/m", "m")), "models[0].id", "expected VENDOR/NAME"),
        (
            format!("{provider}{}", model.replace(" }]", ", input = -1 }]")),
            "models[0].endpoints[0].input",
            "must be 0 or more",
        ),
        (
            format!("{provider}{}", model.replace(" }]", ", zdr = 1 }]")),
            "models[0].endpoints[0].zdr",
            "expected true or false",
        ),
    ];
    for (text, key, message) in table {
        let (_, _, found_key, found) = problem(&text);
        assert_eq!(found_key, key, "{text}: {found}");
        assert!(found.contains(message), "{text}: {found}");
    }
}

#[test]
fn mistakes_in_injections_are_reported_with_their_position() {
    let granted = "[plugins.x]\nhosts = [\"a.b\"]\nsecrets = [\"k\"]\n";
    let rule = "[[plugins.x.injections]]\nsecret = \"k\"\nhost = \"a.b\"\n";
    let good = format!("{granted}{rule}header = \"X-Key\"\nformat = \"{{}}\"\n");
    let config = parse(&good).unwrap();
    assert_eq!(config.plugins["x"].injections.len(), 1);
    let table = [
        (format!("{granted}{rule}"), (5, "plugins.x.injections[0].secret"), "needs a place"),
        (
            format!("{granted}{rule}header = \"x-key\""),
            (7, "plugins.x.injections[0].header"),
            "needs a `format`",
        ),
        (
            format!("{granted}{rule}path = \"x\"\nquery = \"q\""),
            (7, "plugins.x.injections[0].path"),
            "unknown key",
        ),
        (
            format!("{granted}{rule}header = \"host\"\nformat = \"{{}}\""),
            (7, "plugins.x.injections[0].header"),
            "may carry a secret",
        ),
        (
            format!("{granted}{rule}query = \"q\"\njson = \"/a\""),
            (5, "plugins.x.injections[0].secret"),
            "one place only",
        ),
        (
            format!("{granted}{}query = \"q\"", rule.replace("\"k\"", "\"other\"")),
            (5, "plugins.x.injections[0].secret"),
            "neither `secrets` nor `operator_secrets` names this secret",
        ),
        (
            format!("{granted}{}query = \"q\"", rule.replace("a.b", "c.d")),
            (6, "plugins.x.injections[0].host"),
            "`hosts` does not name this host",
        ),
        (
            format!("{good}{rule}header = \"x-key\"\nformat = \"token {{}}\""),
            (9, "plugins.x.injections[1]"),
            "the same place",
        ),
        (
            format!("{granted}[[plugins.x.injections]]\nhost = \"a.b\"\nquery = \"q\""),
            (4, "plugins.x.injections[0]"),
            "`secret` is missing",
        ),
    ];
    for (text, (line, key), message) in table {
        let (found_line, _, found_key, found) = problem(&text);
        assert_eq!((found_line, found_key.as_str()), (line, key), "{text}: {found}");
        assert!(found.contains(message), "{text}: {found}");
    }
}

#[test]
fn all_mistakes_are_reported_together_in_the_order_of_the_file() {
    let problems = parse("[timeouts]\nidle_ms = 0\n[server]\nlisten = 1\nx = 2\n").unwrap_err();
    let lines: Vec<usize> = problems.iter().map(|problem| problem.place.line).collect();
    assert_eq!(lines, [2, 4, 5]);
    assert_eq!(
        problems[0].to_string(),
        "/etc/cofferdam/cofferdam.toml:2:11: timeouts.idle_ms: 0 is outside 1 to 86400000"
    );
}

#[test]
fn a_credential_in_the_wrong_place_is_not_repeated() {
    let text = "[[providers]]\nname = \"p\"\nadapter = \"a\"\nkey = \"sk-canary\"";
    assert!(!problem(text).3.contains("canary"));
}

#[test]
fn defaults_written_out_are_the_defaults() {
    let mut text = String::new();
    for key in keys::KEYS {
        let (table, name) = key.path.rsplit_once('.').unwrap();
        if let (keys::Default::Is(default), false) = (key.default, table.contains(['[', 'N'])) {
            text.push_str(&format!("{table}.{name} = {default}\n"));
        }
    }
    assert_eq!(format!("{:?}", parse(&text).unwrap()), format!("{:?}", parse("").unwrap()));
}
