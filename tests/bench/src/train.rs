//! `train`: a bounded load that reaches all parts of the program, for profile-guided optimisation.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Connection, LoadRequest};
use crate::load::OpenConnections;
use crate::scene::{prompt, prompt_of, responses, streamed, with_datetime};
use crate::site::{API, Build, ModelScript, Program, Site};

#[derive(clap::Args)]
pub(crate) struct TrainOptions {
    /// The instrumented build
    #[arg(long, value_name = "PATH")]
    program: PathBuf,
    /// How long the load lasts, apart from starting and compiling
    #[arg(long, default_value_t = 30.0)]
    secs: f64,
}

/// Part of the load.
struct Step {
    name: &'static str,
    connections: usize,
    /// Of the whole time, relative to other steps.
    weight: u32,
    /// Each connection sends them in turn.
    requests: Vec<LoadRequest>,
    is_http2: bool,
    /// Whether the admin listener is asked.
    is_admin: bool,
}

const TABLES: &str = "[limits]\nconnections = 2000\n[vault.rate_limit]\nreads_per_minute = 0\nwrites_per_minute = 0\n\
    [plugins.tool-http-request]\nhosts = [\"api.test\"]\nsecrets = [\"train_token\"]\n";
const SCRIPTS: [&str; 13] = [
    "whole",
    "stream",
    "embedding",
    "embedding-base64",
    "datetime-tool",
    "datetime-tool-stream",
    "function-tool",
    "function-tool-stream",
    "http-tool",
    "tls-stream",
    "refused",
    "limited",
    "cut",
];
const PDF: &[u8] = include_bytes!("../../../guests/pdf/fixtures/paper.pdf");
const RELOADS: u32 = 3;

/// Three programs run one after the other. The first one compiles all plugins, and its profile is thrown away: the
/// counts of the compiler would exceed those of requests by far. The second one compiles what a start waits for, the
/// third one takes the load.
pub(crate) async fn run(options: &TrainOptions) -> anyhow::Result<()> {
    if !(1.0..=600.0).contains(&options.secs) {
        bail!("--secs: {} is not between 1 and 600", options.secs);
    }
    let path = options.program.display();
    let build: Build = format!("train={path}").parse().map_err(anyhow::Error::msg)?;
    let site = Site::start().await?;
    let config = config(&site);
    let folder = site.folder.path().join("train");

    let unused = site.folder.path().join("unused.profraw");
    let compiling = Program::start_new(&build, &folder, &config, &[("LLVM_PROFILE_FILE", &unused)]).await?;
    compiling.until_compiled().await?;
    let key = compiling.key.clone();
    finish(compiling).await?;

    let empty = site.folder.path().join("empty-cache");
    let cold = Program::start_on(&build, &folder, &key, &[("COFFERDAM_CACHE", &empty)]).await?;
    let first = LoadRequest::post("/v1/responses", &key, responses("whole", prompt()).to_string());
    Connection::open(cold.address).await?.ask_well(&first).await?;
    finish(cold).await?;

    let program = Program::start_on(&build, &folder, &key, &[]).await?;
    program.until_compiled().await?;
    let manager = manager_key(&program).await?;
    change_keys(&program, &manager).await?;
    program.command_with(&["secret", "put", "train_token", "--host", API], "token-of-the-training").await?;
    let steps = [inference(&program.key), tools(&program.key), others(&program.key, &manager)]
        .into_iter()
        .flatten()
        .collect::<Vec<Step>>();
    let weights: u32 = steps.iter().map(|step| step.weight).sum();
    for step in &steps {
        let share = options.secs * f64::from(step.weight) / f64::from(weights);
        drive(&program, step, Duration::from_secs_f64(share)).await.context(step.name)?;
        eprintln!("{} done", step.name);
    }
    for command in [["usage", "--by=key"], ["key", "list"], ["vault", "verify"]] {
        program.command(&command).await?;
    }
    for number in 0..RELOADS {
        program.reload(&format!("# reload {number}\n{config}"))?;
        drive(&program, steps.first().context("no steps")?, Duration::from_millis(300)).await?;
    }
    finish(program).await?;
    println!("trained {path} for {} s", options.secs);
    Ok(())
}

fn config(site: &Site) -> String {
    let fallback = ModelScript {
        id: "bench/fallback".to_owned(),
        scripts: vec!["unavailable".to_owned(), "whole".to_owned()],
        endpoints: 2,
    };
    let models: Vec<ModelScript> = SCRIPTS.into_iter().map(ModelScript::new).chain([fallback]).collect();
    site.config(TABLES, &models)
}

/// Ends a program with SIGTERM. Only one that ends with status 0 has written its whole profile.
async fn finish(program: Program) -> anyhow::Result<()> {
    let folder = program.folder().to_owned();
    let status = program.end().await?;
    if !status.success() {
        let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        bail!("the program ended with {status}: {}", log.lines().last().unwrap_or_default());
    }
    Ok(())
}

async fn manager_key(program: &Program) -> anyhow::Result<String> {
    let made = program.command(&["key", "create", "--provisioning", "--workspace", "default"]).await?;
    Ok(made.get("key").and_then(Value::as_str).context("no key was made")?.to_owned())
}

/// Makes and changes some keys, fewer than the host allows in a minute.
async fn change_keys(program: &Program, manager: &str) -> anyhow::Result<()> {
    let create = LoadRequest {
        status: 201,
        ..LoadRequest::post("/v1/keys", manager, json!({"name": "train", "limit": 5.0}).to_string())
    };
    let mut connection = Connection::open(program.address).await?;
    for _ in 0..20 {
        let reply: Value = serde_json::from_slice(&connection.ask_well(&create).await?.body)?;
        let id = reply.pointer("/data/hash").and_then(Value::as_str).context("a key without an id")?;
        let path = format!("/v1/keys/{id}");
        let change = LoadRequest::new(Method::PATCH, &path, manager, json!({"limit": 6.0}).to_string());
        connection.ask_well(&change).await?;
    }
    Ok(())
}

async fn drive(program: &Program, step: &Step, during: Duration) -> anyhow::Result<()> {
    let address: SocketAddr = if step.is_admin { program.admin } else { program.address };
    let first = step.requests.first().context("no request")?;
    let connections = if step.is_http2 {
        OpenConnections::open_http2(address, step.connections, first).await?
    } else {
        OpenConnections::open(address, step.connections, first).await?
    };
    connections.load_with(&step.requests, during).await?.checked()?;
    Ok(())
}

impl Step {
    fn new(name: &'static str, connections: usize, weight: u32, requests: Vec<LoadRequest>) -> Self {
        Self { name, connections, weight, requests, is_http2: false, is_admin: false }
    }
}

fn inference(key: &str) -> Vec<Step> {
    let ask = |body: Value| LoadRequest::post("/v1/responses", key, body.to_string());
    let embed = |body: Value| LoadRequest::post("/v1/embeddings", key, body.to_string());
    let base64 = json!({"model": "bench/embedding-base64", "input": prompt(), "encoding_format": "base64"});
    let mixed = || vec![ask(responses("whole", prompt())), ask(streamed("stream", prompt()))];
    vec![
        Step::new("whole answers", 16, 6, vec![ask(responses("whole", prompt()))]),
        Step::new("streams", 16, 6, vec![ask(streamed("stream", prompt()))]),
        Step::new("embeddings", 16, 3, vec![embed(responses("embedding", prompt())), embed(base64)]),
        Step { is_http2: true, ..Step::new("HTTP/2", 8, 2, mixed()) },
        Step::new("a provider behind TLS", 8, 2, vec![ask(streamed("tls-stream", prompt()))]),
        Step::new("long prompts", 2, 2, vec![ask(responses("whole", prompt_of(100 << 10)))]),
        Step::new("fallbacks", 4, 1, vec![ask(responses("fallback", prompt()))]),
        Step::new("new connections", 64, 1, vec![ask(responses("whole", "Good morning."))]),
    ]
}

fn tools(key: &str) -> Vec<Step> {
    let ask = |body: Value| LoadRequest::post("/v1/responses", key, body.to_string());
    let function = json!([{"type": "function", "name": "get_weather", "strict": true, "description": "The weather now",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
            "additionalProperties": false}}]);
    let history = json!([
        {"role": "user", "content": "What is the weather in Paris?"},
        {"type": "function_call", "call_id": "call_bench", "name": "get_weather", "arguments": "{\"city\":\"Paris\"}"},
        {"type": "function_call_output", "call_id": "call_bench", "output": "18 degrees"}
    ]);
    let with = |mut request: Value, name: &str, value: Value| {
        if let Some(members) = request.as_object_mut() {
            members.insert(name.to_owned(), value);
        }
        request
    };
    let call = |script, input: &Value| {
        let request = if script == "function-tool" {
            responses(script, input.clone())
        } else {
            streamed(script, input.clone())
        };
        ask(with(request, "tools", function.clone()))
    };
    let loops = ["function-tool", "function-tool-stream"]
        .map(|script| [call(script, &json!("What is the weather in Paris?")), call(script, &history)]);
    let datetime = [
        ask(with_datetime(responses("datetime-tool", "What time is it?"))),
        ask(with_datetime(streamed("datetime-tool-stream", "What time is it?"))),
    ];
    let http =
        with(responses("http-tool", "Ask the service."), "tools", json!([{"type": "service:http_request"}]));
    let file = json!([{"role": "user", "content": [
        {"type": "input_text", "text": "Sum this up."},
        {"type": "input_file", "filename": "paper.pdf",
            "file_data": format!("data:application/pdf;base64,{}", STANDARD.encode(PDF))}]}]);
    let hooks = json!([{"id": "file-parser"}, {"id": "response-healing"}]);
    vec![
        Step::new("tool loops of clients", 8, 2, loops.concat()),
        Step::new("server tools", 8, 3, datetime.to_vec()),
        Step::new("requests of tools with secrets", 4, 2, vec![ask(http)]),
        Step::new("files and hooks", 4, 2, vec![ask(with(responses("whole", file), "plugins", hooks))]),
    ]
}

fn others(key: &str, manager: &str) -> Vec<Step> {
    let secret = json!({"hosts": ["api.example.com"], "value": "a value of the training"}).to_string();
    let put = LoadRequest::new(Method::PUT, "/v1/vault/secrets/train_put", key, secret);
    let refused = |path: &str, key: &str, body: &str, status| LoadRequest {
        status,
        ..LoadRequest::post(path, key, body.to_owned())
    };
    let ask = |body: Value, status| refused("/v1/responses", key, &body.to_string(), status);
    let admin = ["/healthz", "/readyz", "/metrics"].map(|path| LoadRequest::get(path, ""));
    vec![
        Step::new("secrets are stored", 8, 1, vec![put.clone()]),
        Step::new(
            "secrets are listed and deleted",
            1,
            1,
            vec![
                put,
                LoadRequest::get("/v1/vault/secrets", key),
                LoadRequest {
                    status: 204,
                    ..LoadRequest::new(Method::DELETE, "/v1/vault/secrets/train_put", key, "")
                },
            ],
        ),
        Step::new("keys", 4, 1, vec![LoadRequest::get("/v1/keys", manager)]),
        Step::new(
            "reads",
            8,
            1,
            ["/v1/models", "/v1/key", "/v1/credits"].map(|path| LoadRequest::get(path, key)).to_vec(),
        ),
        Step { is_admin: true, ..Step::new("admin", 2, 1, admin.to_vec()) },
        Step::new(
            "errors",
            8,
            2,
            vec![
                ask(json!({"model": "bench/whole", "input": 5}), 400),
                ask(responses("none", "x"), 404),
                refused("/v1/responses", "cfd_wrong", "{}", 401),
                refused("/v1/responses", key, "{", 400),
                refused("/v1/nothing", key, "{}", 404),
                ask(responses("refused", "x"), 400),
            ],
        ),
    ]
}
