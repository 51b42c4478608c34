//! `soak`: mixed load for a long time, with cancels, failures, tool loops and reloads.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::client::{Connection, LoadRequest, within};
use crate::scene::{prompt, prompt_of, responses, streamed, with_datetime};
use crate::site::{API, Build, ModelScript, Program, Site};
use crate::table::{Against, Table, TableRow};
use crate::trend::Trend;

#[derive(clap::Args)]
pub(crate) struct SoakOptions {
    /// The build of the program as NAME=PATH
    #[arg(long, default_value = "dist=target/dist/cofferdam")]
    program: Build,
    /// How long the load lasts
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Requests in a second, all kinds together
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Also write samples and figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

const WORKERS: u32 = 24;
const RELOADS: Duration = Duration::from_secs(30);
/// How many samples are taken at the most, and their least distance.
const SAMPLES: u32 = 720;
const SAMPLED_AT_LEAST: Duration = Duration::from_secs(1);
/// The share of the samples that count as warm-up.
const WARM_UP: f64 = 0.25;
/// The most that memory may grow in an hour, as a share.
const GROWTH: f64 = 0.01;
/// The least time in hours, warm-up not counted, that tells a slope.
const SLOPE_HOURS: f64 = 0.5;
/// The most that memory may grow over a shorter run, as a share.
const GROWTH_OF_SHORT_RUN: f64 = 0.1;
/// How long the program may take to give everything back after the load. Connections to providers are kept for a
/// while.
const IDLE_PATIENCE: Duration = Duration::from_secs(150);
/// How long a client that cancels waits for the first piece.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);
/// Gauges that are 0 without load.
const GAUGES: [&str; 3] = ["cofferdam_requests_running", "cofferdam_streams_running", "cofferdam_instances"];
const TABLES: &str = "[vault.rate_limit]\nreads_per_minute = 0\nwrites_per_minute = 0\n\
    [plugins.tool-http-request]\nhosts = [\"api.test\"]\nsecrets = [\"soak_token\"]\n";
const SCRIPTS: [&str; 10] = [
    "whole",
    "stream",
    "embedding",
    "datetime-tool",
    "datetime-tool-stream",
    "function-tool",
    "http-tool",
    "unavailable",
    "cut",
    "paced-50-20",
];

/// A request, and whether its client leaves after the head of the answer.
struct SoakRequest {
    request: LoadRequest,
    is_cancelled: bool,
}

/// What was seen at one moment.
struct Observation {
    at: Duration,
    resident_kib: u64,
    descriptors: usize,
    gauges: [f64; 3],
}

pub(crate) async fn run(options: &SoakOptions) -> anyhow::Result<()> {
    if !(0.1..=10_000.0).contains(&options.minutes) {
        bail!("--minutes: {} is not between 0.1 and 10000", options.minutes);
    }
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    let site = Site::start().await?;
    let fallback = ModelScript {
        id: "bench/fallback".to_owned(),
        scripts: vec!["unavailable".to_owned(), "whole".to_owned()],
        endpoints: 2,
    };
    let models: Vec<ModelScript> = SCRIPTS.into_iter().map(ModelScript::new).chain([fallback]).collect();
    let config = site.config(TABLES, &models);
    let program = Program::start(&options.program, &site, &config).await?;
    program.command_with(&["secret", "put", "soak_token", "--host", API], "token-of-the-soak-run").await?;
    let requests: Arc<[SoakRequest]> = mixture(&program.key).into();
    // One round of every request comes first, so that what is kept from now on is not taken for a leak.
    for (number, request) in requests.iter().enumerate() {
        send(program.address, &mut None, request).await.with_context(|| format!("request {number}"))?;
    }
    let idle = settled(&program, usize::MAX).await?;

    let every = Duration::from_secs_f64(f64::from(WORKERS) / f64::from(options.rate));
    let until = Instant::now() + length;
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(worker(program.address, Arc::clone(&requests), number, every, until));
    }
    let observations = observe(&program, &config, length, &mut workers).await?;
    let mut sent = 0;
    while let Some(ended) = workers.join_next().await {
        sent += ended??;
    }
    // Connections of clients are closed by now; those to providers may be as many as before the load.
    let after = settled(&program, idle.descriptors).await?;
    publish(options, &program, sent, &[idle, after], &observations)?;
    let status = program.end().await?;
    if !status.success() {
        bail!("the program ended with {status}");
    }
    Ok(())
}

fn mixture(key: &str) -> Vec<SoakRequest> {
    let ask = |body: Value| LoadRequest::post("/v1/responses", key, body.to_string());
    let any = |body: Value| LoadRequest { status: 0, ..ask(body) };
    let function = json!([{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]);
    let with_function =
        |input: Value| json!({"model": "bench/function-tool", "input": input, "tools": function});
    let history = json!([
        {"role": "user", "content": "What is the weather in Paris?"},
        {"type": "function_call", "call_id": "call_bench", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_bench", "output": "18 degrees"}
    ]);
    let http =
        json!({"model": "bench/http-tool", "input": "Ask.", "tools": [{"type": "service:http_request"}]});
    let secret = json!({"hosts": ["api.example.com"], "value": "a value of the soak run"}).to_string();
    let requests = [
        ask(responses("whole", prompt())),
        ask(streamed("stream", prompt())),
        LoadRequest::post("/v1/embeddings", key, responses("embedding", prompt()).to_string()),
        ask(with_datetime(responses("datetime-tool", "What time is it?"))),
        ask(with_datetime(streamed("datetime-tool-stream", "What time is it?"))),
        ask(with_function("What is the weather in Paris?".into())),
        ask(with_function(history)),
        ask(http),
        ask(responses("fallback", prompt())),
        ask(responses("whole", prompt_of(100 << 10))),
        any(responses("unavailable", prompt())),
        any(streamed("cut", prompt())),
        any(json!({"model": "bench/whole", "input": 5})),
        LoadRequest::new(Method::PUT, "/v1/vault/secrets/soak_put", key, secret),
        LoadRequest::get("/v1/vault/secrets", key),
        LoadRequest::get("/v1/models", key),
    ];
    let cancelled = [ask(streamed("paced-50-20", prompt())), ask(streamed("stream", prompt()))];
    let kept = requests.into_iter().map(|request| SoakRequest { request, is_cancelled: false });
    kept.chain(cancelled.into_iter().map(|request| SoakRequest { request, is_cancelled: true })).collect()
}

/// Sends the requests in turn until this time; their number.
async fn worker(
    address: SocketAddr,
    requests: Arc<[SoakRequest]>,
    number: u32,
    every: Duration,
    until: Instant,
) -> anyhow::Result<u64> {
    let mut beat = tokio::time::interval(every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut connection, mut sent) = (None, 0);
    for request in requests.iter().cycle().skip(number as usize) {
        beat.tick().await;
        if Instant::now() >= until {
            break;
        }
        send(address, &mut connection, request).await?;
        sent += 1;
    }
    Ok(sent)
}

async fn send(
    address: SocketAddr,
    connection: &mut Option<Connection>,
    SoakRequest { request, is_cancelled }: &SoakRequest,
) -> anyhow::Result<()> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open(address).await?,
    };
    if *is_cancelled {
        let mut body = within(open.send(request), &request.path).await?.into_body();
        let _first = tokio::time::timeout(CANCEL_PATIENCE, body.frame()).await;
        // The connection ends here, in the middle of the stream.
        return Ok(());
    }
    match open.ask_well(request).await {
        Ok(_) => *connection = Some(open),
        // An answer may break off where any answer is accepted.
        Err(error) if request.status != 0 => return Err(error),
        Err(_) => {}
    }
    Ok(())
}

/// Looks at the program and reloads its configuration until the time is over, or until a worker fails.
async fn observe(
    program: &Program,
    config: &str,
    length: Duration,
    workers: &mut JoinSet<anyhow::Result<u64>>,
) -> anyhow::Result<Vec<Observation>> {
    let begun = Instant::now();
    let mut beat = tokio::time::interval((length / SAMPLES).max(SAMPLED_AT_LEAST));
    let (mut observations, mut reloads) = (Vec::new(), 0);
    while begun.elapsed() < length {
        beat.tick().await;
        if let Some(ended) = workers.try_join_next() {
            ended??;
            break;
        }
        observations.push(Observation { at: begun.elapsed(), ..Observation::take(program).await? });
        if begun.elapsed() > RELOADS * (reloads + 1) {
            reloads += 1;
            program.reload(&format!("# reload {reloads}\n{config}"))?;
        }
    }
    Ok(observations)
}

impl Observation {
    async fn take(program: &Program) -> anyhow::Result<Self> {
        let mut gauges = [0.0; GAUGES.len()];
        for (gauge, name) in gauges.iter_mut().zip(GAUGES) {
            *gauge = program.metric(name).await?;
        }
        // The store keeps its tables open, which become more with each usage row.
        let store = program.folder().join("data/store");
        let descriptors = program.processes.descriptors_outside(&store)?;
        let resident_kib = program.processes.resident()?;
        Ok(Self { at: Duration::ZERO, resident_kib, descriptors, gauges })
    }
}

/// Waits until all gauges are 0 and at most so many descriptors are open; what was seen last.
async fn settled(program: &Program, descriptors: usize) -> anyhow::Result<Observation> {
    let until = Instant::now() + IDLE_PATIENCE;
    loop {
        let seen = Observation::take(program).await?;
        let is_idle = seen.gauges.iter().all(|gauge| *gauge == 0.0);
        if (is_idle && seen.descriptors <= descriptors) || Instant::now() > until {
            return Ok(seen);
        }
        tokio::time::sleep(SAMPLED_AT_LEAST).await;
    }
}

/// A short run cannot tell a slope from warm-up. There the growth over the run is judged.
fn memory_fault(trend: &Trend) -> Option<String> {
    if trend.span < SLOPE_HOURS {
        let grown = trend.growth() * trend.span;
        return (grown > GROWTH_OF_SHORT_RUN)
            .then(|| format!("resident memory grew by {:.1} % after warm-up", grown * 100.0));
    }
    (trend.growth() - trend.uncertainty() > GROWTH)
        .then(|| format!("resident memory grows by {:.1} % an hour", trend.growth() * 100.0))
}

fn publish(
    options: &SoakOptions,
    program: &Program,
    sent: u64,
    [idle, after]: &[Observation; 2],
    observations: &[Observation],
) -> anyhow::Result<()> {
    let warm = observations.get((observations.len() as f64 * WARM_UP) as usize..).unwrap_or_default();
    let points: Vec<[f64; 2]> = warm
        .iter()
        .map(|seen| [seen.at.as_secs_f64() / 3_600.0, seen.resident_kib as f64 / 1_024.0])
        .collect();
    let trend = Trend::of(&points).context("too few samples: give more --minutes")?;
    let row = |title: &str, unit, target, figure| TableRow {
        title: title.to_owned(),
        unit,
        against: Against::Nothing,
        target,
        samples: vec![vec![figure]],
    };
    let mib = |kib: u64| kib as f64 / 1_024.0;
    let mut rows = vec![
        row("requests sent", "requests", None, sent as f64),
        row("resident memory after warm-up, mean", "MiB", None, trend.mean),
        row("growth of resident memory", "% an hour", Some(GROWTH * 100.0), trend.growth() * 100.0),
        row("uncertainty of it (three standard errors)", "% an hour", None, trend.uncertainty() * 100.0),
        row("resident memory without load, before", "MiB", None, mib(idle.resident_kib)),
        row("resident memory without load, after", "MiB", None, mib(after.resident_kib)),
        row("descriptors without load, before", "descriptors", None, idle.descriptors as f64),
        row(
            "descriptors without load, after",
            "descriptors",
            Some(idle.descriptors as f64),
            after.descriptors as f64,
        ),
    ];
    rows.extend(
        GAUGES.iter().zip(after.gauges).map(|(name, gauge)| row(name, "without load", Some(0.0), gauge)),
    );
    let table = Table { servers: vec![program.name.clone()], has_proxy: false, rows };
    table.publish(None)?;
    if let Some(file) = &options.json {
        let samples: Vec<Value> = observations
            .iter()
            .map(|seen| json!({"seconds": seen.at.as_secs_f64(), "resident_kib": seen.resident_kib, "descriptors": seen.descriptors}))
            .collect();
        std::fs::write(file, format!("{:#}\n", json!({"table": table.json(), "samples": samples})))?;
    }
    let mut faults = Vec::new();
    faults.extend(memory_fault(&trend));
    if after.descriptors > idle.descriptors {
        faults.push(format!(
            "{} descriptors more than before the load are open",
            after.descriptors - idle.descriptors
        ));
    }
    faults.extend(
        GAUGES
            .iter()
            .zip(after.gauges)
            .filter(|(_, gauge)| *gauge != 0.0)
            .map(|(name, _)| format!("{name} is not 0")),
    );
    if !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(())
}
