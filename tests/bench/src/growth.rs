//! `growth`: how the cost of a request grows with each of its dimensions.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Connection, LoadRequest};
use crate::load::{Sample, percentile};
use crate::scene::{prompt, prompt_of, responses, streamed};
use crate::site::{API, Build, ModelScript, Program, Site};
use crate::table::{Against, Table, TableRow};

#[derive(clap::Args)]
pub(crate) struct GrowthOptions {
    /// The build of the program as NAME=PATH
    #[arg(long, default_value = "dist=target/dist/cofferdam")]
    program: Build,
    /// How long each burst lasts
    #[arg(long, default_value_t = 2.0)]
    secs: f64,
    /// Up to how many secrets the vault is filled, by the API
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    secrets: u32,
    /// Up to how many keys are made, by the command line; a workspace has at most 10,000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=9_000))]
    keys: u32,
    /// Only these dimensions
    #[arg(long = "dimension", value_name = "DIMENSION")]
    dimensions: Vec<String>,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

const TABLES: &str = "[vault]\nsecrets_max = 1000000\nbytes_max = 1099511627776\n\
    [vault.rate_limit]\nreads_per_minute = 0\nwrites_per_minute = 0\n\
    [plugins.tool-http-request]\nhosts = [\"api.test\"]\nsecrets = [\"growth_token\"]\n";
const DIMENSIONS: [&str; 7] = ["prompt", "candidates", "tools", "hooks", "streams", "secrets", "keys"];
const CANDIDATES: [usize; 4] = [1, 10, 100, 1_000];
/// Connections that store secrets at the same time.
const WRITERS: u32 = 64;

/// The program under load, and what was measured.
struct Growth {
    program: Program,
    during: Duration,
    rows: Vec<TableRow>,
}

pub(crate) async fn run(options: &GrowthOptions) -> anyhow::Result<()> {
    for name in &options.dimensions {
        if !DIMENSIONS.contains(&name.as_str()) {
            bail!("--dimension: there is no {name}; the dimensions are {}", DIMENSIONS.join(", "));
        }
    }
    if !(0.05..=600.0).contains(&options.secs) {
        bail!("--secs: {} is not between 0.05 and 600", options.secs);
    }
    let site = Site::start().await?;
    let candidates = CANDIDATES.map(|endpoints| ModelScript {
        id: format!("bench/candidates-{endpoints}"),
        scripts: vec!["whole".to_owned()],
        endpoints,
    });
    let models: Vec<ModelScript> =
        ["whole", "stream", "http-tool"].map(ModelScript::new).into_iter().chain(candidates).collect();
    let program = Program::start(&options.program, &site, &site.config(TABLES, &models)).await?;
    let during = Duration::from_secs_f64(options.secs);
    let mut growth = Growth { program, during, rows: Vec::new() };
    for name in DIMENSIONS {
        if !options.dimensions.is_empty() && !options.dimensions.iter().any(|chosen| chosen == name) {
            continue;
        }
        growth.measure_dimension(name, options).await.context(name)?;
        eprintln!("{name} done");
    }
    let columns = ["processor time, us", "to the end of the answer, p50, us"].map(str::to_owned).to_vec();
    let table = Table { servers: columns, has_proxy: false, rows: growth.rows };
    table.publish(options.json.as_deref())
}

impl Growth {
    async fn measure_dimension(&mut self, name: &str, options: &GrowthOptions) -> anyhow::Result<()> {
        match name {
            "prompt" => self.prompts().await,
            "candidates" => self.candidates().await,
            "tools" => self.tools().await,
            "hooks" => self.hooks().await,
            "streams" => self.streams().await,
            "secrets" => self.secrets(options.secrets).await,
            _ => self.keys(options.keys).await,
        }
    }

    async fn measure(&mut self, what: &str, connections: usize, request: &LoadRequest) -> anyhow::Result<()> {
        let Self { program, during, rows } = self;
        let sample = Sample::take(program.address, &program.processes, request, connections, *during)
            .await
            .context(what.to_owned())?;
        let p50 = percentile(&sample.burst.wholes, 0.5).as_secs_f64() * 1e6;
        rows.push(TableRow {
            title: what.to_owned(),
            unit: if connections == 1 { "alone" } else { "several at once" },
            against: Against::Nothing,
            target: None,
            samples: vec![vec![sample.cpu() / 1e3], vec![p50]],
        });
        Ok(())
    }

    fn ask(&self, body: &Value) -> LoadRequest {
        LoadRequest::post("/v1/responses", &self.program.key, body.to_string())
    }

    async fn prompts(&mut self) -> anyhow::Result<()> {
        for kib in [1, 10, 100, 1_024, 10_240] {
            let request = self.ask(&responses("whole", prompt_of(kib << 10)));
            self.measure(&format!("prompt of {kib} KiB"), if kib > 1_000 { 1 } else { 4 }, &request).await?;
        }
        Ok(())
    }

    async fn candidates(&mut self) -> anyhow::Result<()> {
        for count in CANDIDATES {
            let request = self.ask(&responses(&format!("candidates-{count}"), prompt()));
            self.measure(&format!("{count} endpoints of a model"), 16, &request).await?;
        }
        Ok(())
    }

    async fn tools(&mut self) -> anyhow::Result<()> {
        for count in [0, 8, 64, 512] {
            let tools: Vec<Value> = (0..count).map(function).collect();
            let body = json!({"model": "bench/whole", "input": prompt(), "tools": tools});
            self.measure(&format!("{count} functions of the client"), 16, &self.ask(&body)).await?;
        }
        Ok(())
    }

    async fn hooks(&mut self) -> anyhow::Result<()> {
        let hooks = ["response-healing", "file-parser", "context-compression"];
        for count in 0..=hooks.len() {
            let entries: Vec<Value> = hooks.iter().take(count).map(|id| json!({"id": id})).collect();
            let body = json!({"model": "bench/whole", "input": prompt(), "plugins": entries});
            self.measure(&format!("{count} hooks"), 16, &self.ask(&body)).await?;
        }
        Ok(())
    }

    async fn streams(&mut self) -> anyhow::Result<()> {
        let request = self.ask(&streamed("stream", prompt()));
        for count in [1, 4, 16, 64, 256] {
            self.measure(&format!("stream of 200 events, {count} streams"), count, &request).await?;
        }
        Ok(())
    }

    async fn secrets(&mut self, most: u32) -> anyhow::Result<()> {
        self.program
            .command_with(&["secret", "put", "growth_token", "--host", API], "token-of-the-measurement")
            .await?;
        let tool =
            json!({"model": "bench/http-tool", "input": "Ask.", "tools": [{"type": "service:http_request"}]});
        let key = self.program.key.clone();
        let mut have = 0;
        for count in steps(most) {
            self.fill(have..count).await?;
            have = count;
            let put = put_secret(&key, 0);
            self.measure(&format!("a secret is stored, {count} in the vault"), 16, &put).await?;
            let list = LoadRequest::get("/v1/vault/secrets", &key);
            self.measure(&format!("100 secrets are listed, {count} in the vault"), 4, &list).await?;
            let call = self.ask(&tool);
            self.measure(&format!("a tool sends a secret, {count} in the vault"), 4, &call).await?;
        }
        Ok(())
    }

    /// Stores secrets over several connections, which the store commits in groups.
    async fn fill(&self, numbers: std::ops::Range<u32>) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            let (address, key, numbers) = (self.program.address, self.program.key.clone(), numbers.clone());
            tasks.spawn(put_all(address, key, numbers.filter(move |number| number % WRITERS == writer)));
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn keys(&mut self, most: u32) -> anyhow::Result<()> {
        let body = responses("whole", prompt());
        let mut have = 1;
        for count in steps(most) {
            for _ in have..count {
                let made = self.program.command(&["key", "create", "--workspace", "default"]).await?;
                made.get("key")
                    .and_then(Value::as_str)
                    .context("no key was made")?
                    .clone_into(&mut self.program.key);
            }
            have = have.max(count);
            let request = self.ask(&body);
            self.measure(&format!("whole answer, {have} keys"), 16, &request).await?;
        }
        Ok(())
    }
}

/// 0, then powers of ten up to this number.
fn steps(most: u32) -> impl Iterator<Item = u32> {
    std::iter::once(0).chain((1..=6).map(|power| 10_u32.pow(power)).filter(move |count| *count <= most))
}

async fn put_all(
    address: SocketAddr,
    key: String,
    numbers: impl Iterator<Item = u32> + Send,
) -> anyhow::Result<()> {
    let mut connection = Connection::open(address).await?;
    for number in numbers {
        connection.ask_well(&put_secret(&key, number)).await?;
    }
    Ok(())
}

fn put_secret(key: &str, number: u32) -> LoadRequest {
    let body = json!({"hosts": ["api.example.com"], "value": "sk-0123456789abcdefghijklmnopqrstuvwxyz"});
    let path = format!("/v1/vault/secrets/growth_n{number:07}");
    LoadRequest::new(Method::PUT, &path, key, body.to_string())
}

fn function(number: usize) -> Value {
    json!({"type": "function", "name": format!("lookup_{number}"), "description": "Looks one thing up by its name.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}})
}
