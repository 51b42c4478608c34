//! Every key of `cofferdam.toml` with its default and unit. The reader takes the defaults from this
//! list, `docs/configuration.md` is generated from it, and a key that is not in it is an error.

/// The part of a path that stands for a name chosen by the operator.
pub const ANY_NAME: &str = "NAME";

/// The default of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    Is(&'static str),
    /// No value; what the key configures does not happen.
    Absent,
    /// The key must be given.
    Required,
    /// A description, because the value depends on the data directory.
    Described(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// The full name: `[]` stands for any element, `NAME` for any name.
    pub path: &'static str,
    pub default: Default,
    /// The unit or kind of the value.
    pub unit: &'static str,
    /// The meaning, as a sentence without a final period.
    pub about: &'static str,
}

const fn key(
    path: &'static str,
    default: &'static str,
    unit: &'static str,
    about: &'static str,
) -> ConfigKey {
    ConfigKey { path, default: Default::Is(default), unit, about }
}

const fn optional(path: &'static str, unit: &'static str, about: &'static str) -> ConfigKey {
    ConfigKey { path, default: Default::Absent, unit, about }
}

const fn required(path: &'static str, unit: &'static str, about: &'static str) -> ConfigKey {
    ConfigKey { path, default: Default::Required, unit, about }
}

const PRICE: &str = "dollars per million tokens";

/// All keys, in the order of the documentation.
pub const KEYS: &[ConfigKey] = &[
    key("server.listen", "\"127.0.0.1:8080\"", "address", "Where clients connect; port 0 takes a free one"),
    key(
        "server.admin",
        "\"127.0.0.1:8081\"",
        "address",
        "Where `/healthz`, `/readyz`, `/metrics`, the console and the admin API are",
    ),
    key(
        "server.admin_hosts",
        "[]",
        "host names",
        "Names in `Host` for the console and the admin API besides the bound address and `localhost`",
    ),
    key("server.regional_hosts", "[]", "host names", "Vault requests with one of these `Host`s are refused"),
    optional("server.region", "text", "Reported in `service_metadata`, else null"),
    key(
        "server.trusted_proxies",
        "[]",
        "address ranges",
        "Proxies whose `Forwarded` or `X-Forwarded-For` tells the address of the client",
    ),
    key(
        "server.recorder",
        "512",
        "requests",
        "How many finished requests are kept with their steps, at most 4096; 0 keeps none",
    ),
    required(
        "server.tls.certificate",
        "PEM file",
        "The certificate, then those of its issuers; with `[server.tls]` both listeners speak TLS only",
    ),
    required("server.tls.key", "PEM file", "Its private key, not encrypted: PKCS#8, PKCS#1 or SEC1"),
    key("timeouts.connect_ms", "5000", "ms", "To open a connection to a provider"),
    key(
        "timeouts.first_event_ms",
        "300000",
        "ms",
        "From sending a streamed request upstream to its first event",
    ),
    key("timeouts.idle_ms", "300000", "ms", "Between two reads from a provider"),
    key("timeouts.total_ms", "600000", "ms", "For a whole response, all attempts together"),
    key("timeouts.body_idle_ms", "10000", "ms", "Between two reads of a client's request body"),
    key("timeouts.body_total_ms", "30000", "ms", "For a client's whole request body"),
    key(
        "timeouts.drain_ms",
        "30000",
        "ms",
        "From the signal to stop on, for running requests to end, `unready_ms` included",
    ),
    key(
        "timeouts.unready_ms",
        "0",
        "ms",
        "From the signal to stop on, `/readyz` is 503 while connections are still accepted",
    ),
    key("limits.connections", "10000", "connections", "Open at once; further ones wait to be accepted"),
    key(
        "limits.connections_per_address",
        "256",
        "connections",
        "Open at once from one address, loopback and `server.trusted_proxies` not counted; 0 is no limit",
    ),
    key("limits.streams", "1000", "responses", "Running at once; sizes the pool of sandboxes"),
    key("limits.items_max", "10000", "items", "In the `input` of one request; a body with more is a 400"),
    key("limits.requests_per_minute", "0", "requests per minute", "Per key; 0 is no limit"),
    key("limits.tokens_per_minute", "0", "tokens per minute", "Per key, input and output; 0 is no limit"),
    key("limits.workspace_requests_per_minute", "0", "requests per minute", "Per workspace; 0 is no limit"),
    key(
        "limits.workspace_tokens_per_minute",
        "0",
        "tokens per minute",
        "Per workspace, input and output; 0 is no limit",
    ),
    key("limits.concurrent_per_key", "0", "requests", "Per key at the same time; 0 is no limit"),
    key(
        "routing.eject",
        "true",
        "flag",
        "False: endpoints that fail, are limited or do far worse than their peers are not tried last for it",
    ),
    key("routing.retry", "true", "flag", "False: a request that every endpoint failed is not tried again"),
    key("vault.enabled", "true", "flag", "False: every vault route answers 503"),
    ConfigKey {
        path: "vault.root_key",
        default: Default::Described("`file:` and `root.key` in the data directory"),
        unit: "source",
        about: "Where the root key comes from: `file:PATH`, `env:NAME`, `fd:N` or `passphrase:SOURCE`",
    },
    optional(
        "vault.root_key_previous",
        "source",
        "The root key before: with both, a start begins or finishes the rotation to `root_key`; of a store in a database, `vault rotate-root` does",
    ),
    key("vault.writes", "true", "flag", "False: clients cannot store, copy or delete secrets"),
    key("vault.rate_limit.reads_per_minute", "600", "requests per minute", "Per key; 0 is no limit"),
    key("vault.rate_limit.writes_per_minute", "60", "requests per minute", "Per key; 0 is no limit"),
    key(
        "vault.secrets_max",
        "10000",
        "secrets",
        "In one vault, of a workspace or of an intern; a workspace with its interns holds ten times that",
    ),
    key(
        "vault.bytes_max",
        "67108864",
        "bytes",
        "Of names, hosts and values in one vault; a workspace with its interns holds ten times that",
    ),
    optional(
        "store.url",
        "URL",
        "The PostgreSQL database of the store, for several hosts, without a password: \
         `postgres://USER@HOST[,HOST...]/DATABASE`; absent: the store is in the data directory",
    ),
    optional("store.password", "source", "Its user's password: `file:PATH`, `env:NAME` or `fd:N`"),
    key("store.roots", "[]", "PEM files", "Root certificates to accept for it beside the system's"),
    optional(
        "store.backup_url",
        "URL",
        "A standby of the database, from which `vault backup` reads, in the form of `store.url`; `store.password` and \
         `store.roots` hold for it too",
    ),
    key(
        "store.ledger",
        "\"exact\"",
        "`exact` or `leased`",
        "How requests of prepaid workspaces and limited keys reserve credit: `exact` with a commit before each turn, \
         `leased` out of what the host has reserved ahead; only with `url`, the same on all hosts",
    ),
    key(
        "store.stale_ms",
        "0",
        "ms",
        "How long a host that has lost contact with the database serves requests of models with the keys and the \
         secrets of the operator that it knows, also revoked or deleted ones, at most 3600000; 0: requests are refused \
         with 503",
    ),
    key(
        "store.cache_mib",
        "256",
        "MiB",
        "Rows of secrets in memory, with encrypted values; 0: read at each use",
    ),
    key(
        "store.free_bytes_min",
        "268435456",
        "bytes",
        "With less of the disk free, changes by tenants, other than deleting a secret or a key or switching a key off, and \
         requests of prepaid workspaces are refused with 503; 0 refuses nothing and keeps no reserve; without effect with `url`",
    ),
    key("egress.ports", "[443]", "ports", "Which ports guests may reach"),
    key("egress.roots", "[]", "PEM files", "Root certificates to accept beside the system's"),
    key("egress.allow_private", "[]", "address ranges", "Private ranges that are reachable all the same"),
    key(
        "egress.allow_plaintext_loopback",
        "false",
        "flag",
        "True: credentials may go over `http://` to loopback",
    ),
    key("egress.resolve", "{}", "addresses by name", "Fixed answers; address rules still apply"),
    key("egress.nameservers", "[]", "addresses", "Name servers to ask in place of the system's"),
    required("providers[].name", "text", "What models and metadata call this provider"),
    required("providers[].adapter", "text", "The dialect it speaks: the plugin `provider-ADAPTER`"),
    optional("providers[].base_url", "URL", "Its origin and base path; only a local adapter goes without"),
    optional("providers[].key", "source", "Its credential: `env:NAME`, or `operator:NAME` from the vault"),
    optional("providers[].byok", "secret name", "The workspace's or intern's secret that wins over `key`"),
    key(
        "providers[].options",
        "[]",
        "names",
        "Fields that clients may set by `provider.options`, beside those that the adapter's manifest lists",
    ),
    key("providers[].betas", "[]", "names", "Values of its field `betas` that clients may set, likewise"),
    required("models[].id", "vendor/name", "What clients ask for"),
    key("models[].kind", "\"responses\"", "`responses` or `embeddings`", "What the model is asked for"),
    optional("models[].context_length", "tokens", "The longest input and output together"),
    required("models[].endpoints", "list", "Where it is served, in order of preference"),
    required("models[].endpoints[].provider", "provider name", "Who serves it"),
    required("models[].endpoints[].model", "text", "What this provider calls it"),
    key("models[].endpoints[].input", "0", PRICE, "Price of input"),
    key("models[].endpoints[].output", "0", PRICE, "Price of output"),
    optional("models[].endpoints[].cached_input", PRICE, "Price of input read from the cache, else `input`"),
    optional("models[].endpoints[].cache_write", PRICE, "Price of input written to the cache, else `input`"),
    optional("models[].endpoints[].reasoning", PRICE, "Price of reasoning, else `output`"),
    optional("models[].endpoints[].image", "dollars per image", "Price of an image that is made"),
    optional("models[].endpoints[].max_output", "tokens", "The longest output"),
    optional(
        "models[].endpoints[].first_event_ms",
        "ms",
        "To its first event of a stream, and to the head of an answer in one body; then the next endpoint is asked",
    ),
    key(
        "models[].endpoints[].supports",
        "[]",
        "abilities",
        "Such as `tools`, `images` or `temperature`, for clients that choose by it; empty: not stated. `custom_tools`: also tools of the type `custom`",
    ),
    key(
        "models[].endpoints[].hosted_tools",
        "[]",
        "tool types",
        "Tools of the provider's own, such as `web_search` or `mcp`, that clients may use on the operator's key",
    ),
    key(
        "models[].endpoints[].hosted_tool_prices",
        "{}",
        "dollars per call, by tool type",
        "What a call of one of them costs, else nothing",
    ),
    key(
        "models[].endpoints[].hosted_tool_ids",
        "[]",
        "ids",
        "Vector stores, containers, files and whatever else is stored at the provider that clients may name on the operator's key",
    ),
    optional("models[].endpoints[].tier", "service tier", "The tier this endpoint is, else `default`"),
    optional("models[].endpoints[].quantization", "text", "Such as `fp8`, for clients that choose by it"),
    key("models[].endpoints[].zdr", "false", "flag", "True: the provider retains nothing"),
    key(
        "models[].endpoints[].data_collection",
        "\"allow\"",
        "`allow` or `deny`",
        "`deny`: the provider does not collect what it is sent",
    ),
    required("prompts[].id", "text", "What requests name it by, in `prompt.id`"),
    optional("prompts[].version", "text", "Of several versions the last in the file is the current one"),
    optional("prompts[].text", "text", "One developer message; `{{name}}` is a variable"),
    required(
        "prompts[].messages[].role",
        "role",
        "Or several messages: `system`, `developer`, `user`, `assistant`",
    ),
    required("prompts[].messages[].content", "text", "Of each; `{{name}}` is a variable"),
    required("broadcast[].name", "text", "What metrics and logs call this destination of finished requests"),
    required(
        "broadcast[].kind",
        "`webhook` or `otlp`",
        "One POST a request, or spans to a collector of OpenTelemetry",
    ),
    key(
        "broadcast[].format",
        "\"json\"",
        "`json` or `protobuf`",
        "For `otlp`: the encoding; every collector takes `protobuf`, not every one `json`",
    ),
    key(
        "broadcast[].spans",
        "\"request\"",
        "`request` or `steps`",
        "For `otlp`: one span a request, or also one for each step of it",
    ),
    required("broadcast[].url", "URL", "The webhook, or the collector's base URL without `/v1/traces`"),
    optional("broadcast[].key", "source", "Its credential: `env:NAME`, or `operator:NAME` from the vault"),
    key("broadcast[].key_header", "\"authorization\"", "header", "Where the credential goes"),
    key("broadcast[].key_format", "\"Bearer {}\"", "text", "The header's value around `{}`"),
    key("broadcast[].headers", "{}", "texts by name", "Further headers, none of them secret"),
    required("workspaces[].name", "name or id", "Whose requests this is about; `*` is every workspace"),
    key(
        "workspaces[].plugins",
        "[]",
        "plugin entries",
        "As in a request: what its requests have without asking, before what `*` has",
    ),
    key(
        "workspaces[].prevent_overrides",
        "[]",
        "plugin ids",
        "Which of these entries requests cannot change: one that tries is a 403",
    ),
    key(
        "plugins.NAME.hosts",
        "[]",
        "host names",
        "Where the plugin may send requests; `*` is every public host, but never with a secret",
    ),
    key(
        "plugins.NAME.secrets",
        "[]",
        "secret names",
        "Which secrets may go along to hosts given by name; without an injection as `authorization: Bearer`",
    ),
    key(
        "plugins.NAME.operator_secrets",
        "[]",
        "secret names",
        "The same of the operator's vault: whatever caller the plugin works for, it is sent along",
    ),
    required("plugins.NAME.injections[].secret", "secret name", "A secret that goes along always"),
    required("plugins.NAME.injections[].host", "host name", "To this host"),
    optional("plugins.NAME.injections[].header", "header", "In this header"),
    optional("plugins.NAME.injections[].format", "text", "The header's value around `{}`"),
    optional("plugins.NAME.injections[].query", "parameter", "Or in this query parameter"),
    optional("plugins.NAME.injections[].json", "JSON pointer", "Or in the JSON body, where nothing is yet"),
    key(
        "plugins.NAME.placeholder_headers",
        "[]",
        "headers",
        "In whose value the plugin may write `{{secret:NAME}}` for a granted secret",
    ),
    key(
        "plugins.NAME.on_reflection",
        "\"redact\"",
        "`redact` or `block`",
        "When a host sends a secret back: its name stands there, or the plugin gets an error",
    ),
    key(
        "plugins.NAME.imports",
        "[]",
        "`model`, `tool-call`, `request`",
        "Imports that cost money or show content, which it may use if its manifest asks",
    ),
    optional(
        "plugins.NAME.memory_mib",
        "MiB",
        "Memory in place of its manifest's, at most 256; without it long requests get more, up to 256",
    ),
    optional(
        "plugins.NAME.deadline_ms",
        "ms",
        "Processor time of a call, in place of its manifest's; without it long requests and answers get more",
    ),
    key("plugins.NAME.config", "{}", "table", "Settings that the plugin reads"),
    optional(
        "plugins.NAME.sha256",
        "hexadecimal digest",
        "The component must have it; `plugin list` shows it",
    ),
    key(
        "plugins.NAME.replaces",
        "false",
        "flag",
        "True: the plugin of this name in `--plugins DIR` takes the place of the built-in one",
    ),
    key(
        "plugins.NAME.compile",
        "\"background\"",
        "`background` or `start`",
        "`start`: before the host is ready, as the router and the configured providers; else after it, one at a time",
    ),
    optional(
        "plugins.NAME.record",
        "1 to 1000",
        "The last failing calls that are recorded for `plugin replay`, with their content, in `recordings` in the data directory",
    ),
];

#[must_use]
pub fn find(path: &str) -> Option<&'static ConfigKey> {
    KEYS.iter().find(|key| key.path == path)
}

/// Whether this is a table that contains keys, such as `models[]` or `plugins.NAME`.
pub(super) fn is_table(pattern: &str) -> bool {
    KEYS.iter().any(|key| {
        let rest = key.path.strip_prefix(pattern);
        rest.is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[].") || pattern.is_empty())
    }) || pattern.strip_prefix("plugins.").is_some_and(|name| !name.is_empty() && !name.contains('.'))
        || is_free(pattern)
}

/// Tables whose keys the operator chooses.
fn is_free(pattern: &str) -> bool {
    pattern.starts_with("egress.resolve.") || pattern.starts_with("models[].endpoints[].hosted_tool_prices.")
}

/// `table.key`, or `key` at the top level.
pub(super) fn join(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// The message for an unknown key. It suggests the most similar known key, or lists all.
pub(super) fn unknown(table: &str, name: &str) -> String {
    let mut nearest: Option<(usize, &str)> = None;
    for known in names_in(table) {
        let distance = distance(name, known);
        if distance <= 3 && nearest.is_none_or(|(best, _)| distance < best) {
            nearest = Some((distance, known));
        }
    }
    match nearest {
        Some((_, known)) => format!("unknown key, did you mean `{known}`?"),
        None => {
            let mut names = names_in(table);
            names.dedup();
            format!("unknown key, expected one of {}", names.join(", "))
        }
    }
}

fn names_in(table: &str) -> Vec<&'static str> {
    let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
    let rest = KEYS.iter().filter_map(|key| key.path.strip_prefix(prefix.as_str()));
    rest.filter_map(|rest| rest.split(['.', '[']).next()).collect()
}

/// The Levenshtein distance.
fn distance(left: &str, right: &str) -> usize {
    // Cell `n` is the distance from the part of `left` read so far to the first `n` letters of `right`.
    let mut row: Vec<usize> = (0..=right.chars().count()).collect();
    for (index, a) in left.chars().enumerate() {
        let mut diagonal = index;
        let mut before = index + 1;
        for (b, cell) in right.chars().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(a != b);
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(before + 1);
            before = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
