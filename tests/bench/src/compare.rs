//! `compare`: the same short bursts of requests against nginx and builds of the program, in turn.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::client::{Connection, LoadRequest};
use crate::consoles::Consoles;
use crate::load::{Sample, percentile};
use crate::process::Processes;
use crate::scene::{prompt, prompt_of, responses, streamed, with_datetime};
use crate::script::DELTAS;
use crate::site::{Build, ModelScript, Nginx, Program, Site};
use crate::table::{Against, Table, TableRow};

#[derive(clap::Args)]
pub(crate) struct CompareOptions {
    /// A build of the program as NAME=PATH, several times for several builds
    #[arg(long = "program", default_value = "dist=target/dist/cofferdam")]
    programs: Vec<Build>,
    /// Processes of each build, which are loaded in turn. Two processes of one build differ by several percent
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    processes: u32,
    /// How often each process of a build is loaded with each scene
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// How long each burst lasts
    #[arg(long, default_value_t = 2.0)]
    secs: f64,
    /// Only these scenes
    #[arg(long = "scene", value_name = "SCENE")]
    scenes: Vec<String>,
    /// Streams of events that are open at each program while it is loaded, as open consoles have them
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    consoles: u32,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The scripts of the provider that the scenes ask for.
pub(crate) const SCRIPTS: [&str; 6] =
    ["whole", "stream", PACED, "embedding", "embedding-base64", "datetime-tool"];

/// A kind of load.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    script: &'static str,
    path: &'static str,
    body: String,
    connections: usize,
    /// What the plain proxy could not do is not asked of it.
    is_proxied: bool,
    expected: &'static [u8],
    figures: Vec<Figure>,
}

/// What a scene is measured for.
struct Figure {
    title: &'static str,
    unit: &'static str,
    against: Against,
    target: Option<f64>,
    of: fn(&Sample) -> f64,
}

/// A server of the table.
struct Server {
    name: String,
    /// At least one.
    processes: Vec<Loaded>,
}

impl Server {
    fn is_proxy(&self) -> bool {
        self.processes.iter().any(|process| process.is_proxy)
    }

    /// The process that is loaded in this round. Processes take turns.
    fn in_round(&self, round: usize) -> Option<&Loaded> {
        self.processes.get(round % self.processes.len())
    }
}

/// A process, or those of the proxy, under load.
pub(crate) struct Loaded {
    name: String,
    address: SocketAddr,
    key: String,
    processes: Processes,
    is_proxy: bool,
}

impl From<&Program> for Loaded {
    fn from(program: &Program) -> Self {
        Self {
            name: program.name.clone(),
            address: program.address,
            key: program.key.clone(),
            processes: program.processes.clone(),
            is_proxy: false,
        }
    }
}

impl Loaded {
    fn request(&self, scene: &Scene) -> LoadRequest {
        let path = match self.is_proxy {
            true => format!("/{}/v1/{}", scene.script, scene.path),
            false => format!("/v1/{}", scene.path),
        };
        LoadRequest { expected: scene.expected, ..LoadRequest::post(&path, &self.key, scene.body.clone()) }
    }

    pub(crate) async fn burst(&self, scene: &Scene, during: Duration) -> anyhow::Result<Sample> {
        let request = self.request(scene);
        Sample::take(self.address, &self.processes, &request, scene.connections, during)
            .await
            .with_context(|| format!("{} at {}", scene.name, self.name))
    }
}

/// All servers of a run. They end when this is dropped.
struct Servers {
    _nginx: Option<Nginx>,
    /// Those of one build after those of another.
    programs: Vec<Program>,
    servers: Vec<Server>,
}

impl Servers {
    async fn start(site: &Site, builds: &[Build], processes: u32) -> anyhow::Result<Self> {
        let config = site.config("", &SCRIPTS.map(ModelScript::new));
        let nginx = site.nginx().await?;
        let mut servers: Vec<Server> = nginx.iter().map(Server::from).collect();
        let mut programs = Vec::new();
        for build in builds {
            let started = Self::start_build(site, build, processes, &config, &programs).await?;
            let (name, processes) = (build.name.clone(), started.iter().map(Loaded::from).collect());
            servers.push(Server { name, processes });
            programs.extend(started);
        }
        Ok(Self { servers, _nginx: nginx, programs })
    }

    /// Starts the processes of one build, beside those of other ones.
    async fn start_build(
        site: &Site,
        build: &Build,
        processes: u32,
        config: &str,
        others: &[Program],
    ) -> anyhow::Result<Vec<Program>> {
        let mut started = Vec::new();
        for number in 1..=processes {
            let name = if number == 1 { build.name.clone() } else { format!("{}-{number}", build.name) };
            if name == "nginx" || others.iter().any(|program| program.name == name) {
                bail!("--program: two servers are called {name}");
            }
            started.push(Program::start(&Build { name, ..build.clone() }, site, config).await?);
        }
        Ok(started)
    }

    fn resident(&self) -> anyhow::Result<Vec<Vec<f64>>> {
        let mebibytes = |loaded: &Loaded| Ok(loaded.processes.resident()? as f64 / 1_024.0);
        self.servers.iter().map(|server| server.processes.iter().map(mebibytes).collect()).collect()
    }
}

impl From<&Nginx> for Server {
    fn from(nginx: &Nginx) -> Self {
        let name = "nginx".to_owned();
        let loaded = Loaded {
            name: name.clone(),
            address: nginx.address,
            key: "sk-bench".to_owned(),
            processes: nginx.processes.clone(),
            is_proxy: true,
        };
        Self { name, processes: vec![loaded] }
    }
}

pub(crate) async fn run(options: &CompareOptions) -> anyhow::Result<()> {
    let scenes = chosen(&options.scenes, &[PROMPTS, START])?;
    if !(0.05..=600.0).contains(&options.secs) {
        bail!("--secs: {} is not between 0.05 and 600", options.secs);
    }
    let during = Duration::from_secs_f64(options.secs);
    let site = Site::start().await?;
    let servers = Servers::start(&site, &options.programs, options.processes).await?;
    let rounds = options.rounds.saturating_mul(options.processes);
    let consoles = Consoles::open(&servers.programs, options.consoles).await?;
    let is_chosen =
        |name: &str| options.scenes.is_empty() || options.scenes.iter().any(|chosen| chosen == name);
    let mut rows = vec![memory_row("resident memory before the load", Some(35.0), servers.resident()?)];
    for scene in &scenes {
        rows.extend(measure(scene, &servers.servers, rounds, during).await?);
    }
    if is_chosen(PROMPTS) {
        rows.extend(prompts(&servers.servers, rounds, during).await?);
    }
    drop(consoles);
    rows.push(memory_row("resident memory after the load", Some(60.0), servers.resident()?));
    let mut table = Table {
        servers: servers.servers.iter().map(|server| server.name.clone()).collect(),
        has_proxy: servers.servers.first().is_some_and(Server::is_proxy),
        rows,
    };
    if is_chosen(START) {
        let offset = usize::from(table.has_proxy);
        table.rows.extend(starts(servers.programs, options, offset).await?);
    }
    table.publish(options.json.as_deref())
}

fn memory_row(title: &str, target: Option<f64>, samples: Vec<Vec<f64>>) -> TableRow {
    TableRow { title: title.to_owned(), unit: "MiB", against: Against::Nothing, target, samples }
}

/// The samples of each server. Where the scene cannot be asked of a server, it has none.
async fn sampled(
    scene: &Scene,
    servers: &[Server],
    rounds: u32,
    during: Duration,
) -> anyhow::Result<Vec<Vec<Sample>>> {
    let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds as usize {
        for (server, samples) in servers.iter().zip(&mut samples) {
            let asked = scene.is_proxied || !server.is_proxy();
            if let Some(process) = server.in_round(round).filter(|_| asked) {
                samples.push(process.burst(scene, during).await?);
            }
        }
    }
    Ok(samples)
}

async fn measure(
    scene: &Scene,
    servers: &[Server],
    rounds: u32,
    during: Duration,
) -> anyhow::Result<Vec<TableRow>> {
    let samples = sampled(scene, servers, rounds, during).await?;
    eprintln!("{} done", scene.name);
    let row = |figure: &Figure| TableRow {
        title: figure.title.to_owned(),
        unit: figure.unit,
        against: figure.against,
        target: figure.target,
        samples: samples.iter().map(|samples| samples.iter().map(figure.of).collect()).collect(),
    };
    Ok(scene.figures.iter().map(row).collect())
}

/// The scene of long prompts, which is compared with a short one.
const PROMPTS: &str = "prompts";
/// The scene that starts programs in place of loading them.
const START: &str = "start";

/// The scenes with these names; all of them if there are none. The caller runs those with the names `besides` itself.
pub(crate) fn chosen(names: &[String], besides: &[&'static str]) -> anyhow::Result<Vec<Scene>> {
    let mut scenes = all_scenes();
    let known: Vec<&str> = scenes.iter().map(|scene| scene.name).chain(besides.iter().copied()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("--scene: there is no {name}; the scenes are {}", known.join(", "));
    }
    if !names.is_empty() {
        scenes.retain(|scene| names.iter().any(|name| name == scene.name));
    }
    Ok(scenes)
}

/// What every whole answer contains.
pub(crate) const OUTPUT: &[u8] = b"lorem";
const VECTOR: &[u8] = b"embedding";
/// A stream whose second event comes 4 ms after the first one, so that nothing else arrives with that.
const PACED: &str = "paced-3-4";
/// The last event of a stream.
pub(crate) const END: &[u8] = b"event: response.completed";

fn all_scenes() -> Vec<Scene> {
    let responses_scene = |name, connections, figures| Scene {
        name,
        script: "whole",
        path: "responses",
        body: responses("whole", prompt()).to_string(),
        connections,
        is_proxied: true,
        expected: OUTPUT,
        figures,
    };
    let mut base64 = responses("embedding-base64", prompt());
    if let Some(members) = base64.as_object_mut() {
        members.insert("encoding_format".to_owned(), "base64".into());
    }
    let embeddings = |name, script, body: String, title| Scene {
        script,
        path: "embeddings",
        body,
        expected: VECTOR,
        ..responses_scene(name, 16, vec![cpu(title, Against::Ratio, Some(3.5))])
    };
    let stream = |name, connections, figures| Scene {
        script: "stream",
        body: streamed("stream", prompt()).to_string(),
        expected: END,
        ..responses_scene(name, connections, figures)
    };
    vec![
        responses_scene("whole-16", 16, vec![cpu("whole answer, 16 connections", Against::Ratio, Some(3.5))]),
        responses_scene("whole-64", 64, vec![cpu("whole answer, 64 connections", Against::Ratio, Some(3.5))]),
        embeddings(
            "embedding-json",
            "embedding",
            responses("embedding", prompt()).to_string(),
            "1,536 floats as JSON",
        ),
        embeddings("embedding-base64", "embedding-base64", base64.to_string(), "1,536 floats as base64"),
        stream("stream", 16, stream_figures()),
        responses_scene("latency", 1, latency_figures()),
        Scene {
            script: PACED,
            body: streamed(PACED, prompt()).to_string(),
            ..stream("first-event", 1, vec![first_event()])
        },
        Scene {
            script: "datetime-tool",
            body: with_datetime(responses("datetime-tool", "What time is it in Berlin?")).to_string(),
            is_proxied: false,
            ..responses_scene(
                "server-tool",
                16,
                vec![cpu("call of `datetime`, both turns", Against::Nothing, Some(250.0))],
            )
        },
    ]
}

fn cpu(title: &'static str, against: Against, target: Option<f64>) -> Figure {
    Figure { title, unit: "us of processor time", against, target, of: |sample| sample.cpu() / 1e3 }
}

fn stream_figures() -> Vec<Figure> {
    vec![
        cpu("stream of 200 events, 16 connections", Against::Ratio, None),
        Figure {
            title: "one event of them",
            unit: "us of processor time",
            against: Against::Beyond,
            target: Some(2.0),
            of: |sample| sample.cpu() / 1e3 / DELTAS as f64,
        },
    ]
}

fn latency_figures() -> Vec<Figure> {
    let latency =
        |title, target, of| Figure { title, unit: "us", against: Against::Beyond, target: Some(target), of };
    vec![
        latency("latency at one connection, p50", 100.0, |sample| {
            micros(percentile(&sample.burst.wholes, 0.5))
        }),
        latency("latency at one connection, p99", 250.0, |sample| {
            micros(percentile(&sample.burst.wholes, 0.99))
        }),
    ]
}

fn first_event() -> Figure {
    Figure {
        title: "first event of a stream at one connection, p50",
        unit: "us",
        against: Against::Beyond,
        target: Some(300.0),
        of: |sample| micros(percentile(&sample.burst.firsts, 0.5)),
    }
}

/// What a prompt of each size costs beyond one of the first size, for each byte.
async fn prompts(servers: &[Server], rounds: u32, during: Duration) -> anyhow::Result<Vec<TableRow>> {
    let scene = |bytes, connections| Scene {
        name: PROMPTS,
        script: "whole",
        path: "responses",
        body: responses("whole", prompt_of(bytes)).to_string(),
        connections,
        is_proxied: true,
        expected: OUTPUT,
        figures: Vec::new(),
    };
    let small = sampled(&scene(1 << 10, 4), servers, rounds, during).await?;
    let mut rows = Vec::new();
    for (title, bytes, connections) in
        [("prompt of 100 KiB", 100 << 10, 4), ("prompt of 10 MiB", 10 << 20, 1)]
    {
        let large = sampled(&scene(bytes, connections), servers, rounds, during).await?;
        let slope = |(large, small): (&Sample, &Sample)| {
            (large.cpu() - small.cpu()) / large.body_bytes.saturating_sub(small.body_bytes) as f64
        };
        rows.push(TableRow {
            title: title.to_owned(),
            unit: "ns of processor time for a byte",
            against: Against::Beyond,
            target: Some(3.0),
            samples: large
                .iter()
                .zip(&small)
                .map(|(large, small)| large.iter().zip(small).map(slope).collect())
                .collect(),
        });
        // With small bodies, connections and instances take more memory than the body.
        if bytes > 1 << 20 {
            let growth = |sample: &Sample| sample.memory_growth as f64 * 1_024.0 / sample.body_bytes as f64;
            rows.push(TableRow {
                title: format!("memory at the most, {title}"),
                unit: "times the body",
                against: Against::Nothing,
                target: Some(4.0),
                samples: large.iter().map(|samples| samples.iter().map(growth).collect()).collect(),
            });
        }
    }
    eprintln!("{PROMPTS} done");
    Ok(rows)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// The time from starting a program to its first answer, with its plugins compiled before and without.
async fn starts(
    programs: Vec<Program>,
    options: &CompareOptions,
    offset: usize,
) -> anyhow::Result<Vec<TableRow>> {
    let row = |title: &str, target| TableRow {
        title: title.to_owned(),
        unit: "ms",
        against: Against::Nothing,
        target: Some(target),
        samples: vec![Vec::new(); offset + options.programs.len()],
    };
    let mut warm = row("start to first answer, plugins compiled before", 100.0);
    let mut cold = row("start to first answer, nothing compiled before", 1_500.0);
    let processes = options.processes as usize;
    let builds = options.programs.iter().enumerate().flat_map(|build| std::iter::repeat_n(build, processes));
    let mut stopped = Vec::new();
    for (program, (place, build)) in programs.into_iter().zip(builds) {
        stopped.push((place, program.folder().to_owned(), program.key.clone(), build));
        program.end().await?;
    }
    for round in 0..options.rounds {
        for (place, folder, key, build) in &stopped {
            let (full, empty) = (folder.join("data/cache"), folder.join(format!("empty-{round}")));
            for (row, cache) in [(&mut warm, full), (&mut cold, empty)] {
                let millis = start(build, folder, key, &cache).await?;
                row.samples.get_mut(offset + *place).into_iter().for_each(|samples| samples.push(millis));
            }
        }
    }
    Ok(vec![warm, cold])
}

/// Milliseconds from starting a program to its first answer.
async fn start(build: &Build, folder: &Path, key: &str, cache: &Path) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let program = Program::start_on(build, folder, key, &[("COFFERDAM_CACHE", cache)]).await?;
    let request = LoadRequest::post("/v1/responses", key, responses("whole", prompt()).to_string());
    Connection::open(program.address).await?.ask_well(&request).await?;
    let millis = begun.elapsed().as_secs_f64() * 1e3;
    program.end().await?;
    Ok(millis)
}
