//! The servers of a run: the scripted provider, builds of the program, and nginx.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Connection, LoadRequest};
use crate::process::{Processes, in_path};

/// How long a server may take to start, to compile its plugins or to end.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(100);
/// The name under which a program reaches the TLS listener of the scripted provider.
pub(crate) const API: &str = "api.test";

/// A build of the program, written `NAME=PATH`.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl std::str::FromStr for Build {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) =
            text.split_once('=').ok_or("write NAME=PATH, such as dist=target/dist/cofferdam")?;
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        if !path.is_file() {
            return Err(format!("{} does not exist; `just dist` builds the program", path.display()));
        }
        Ok(Self { name: name.to_owned(), path })
    }
}

/// A model of the configuration, and the script that its endpoints answer with.
#[derive(Clone)]
pub(crate) struct ModelScript {
    pub(crate) id: String,
    /// The scripts of its endpoints, in turn.
    pub(crate) scripts: Vec<String>,
    pub(crate) endpoints: usize,
}

impl ModelScript {
    /// The model `bench/SCRIPT` at two endpoints, so that the router has something to decide.
    pub(crate) fn new(script: &str) -> Self {
        Self { id: format!("bench/{script}"), scripts: vec![script.to_owned()], endpoints: 2 }
    }
}

/// The scripted provider and the folder of a run.
pub(crate) struct Site {
    /// Ended when it is dropped, with its standard input.
    _upstream: Child,
    plain: u16,
    tls: u16,
    pub(crate) folder: TempDir,
}

impl Site {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("cofferdam-bench-").tempdir()?;
        let mut upstream = Command::new(std::env::current_exe()?)
            .arg("upstream")
            .arg("--roots")
            .arg(folder.path().join("roots.pem"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let line = first_line(&mut upstream).await.context("the scripted provider did not start")?;
        let addresses: Value = serde_json::from_str(&line)?;
        let port = |name: &str| {
            let port = addresses.get(name).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
            port.ok_or_else(|| anyhow!("the scripted provider named no port: {line}"))
        };
        Ok(Self { plain: port("plain")?, tls: port("tls")?, _upstream: upstream, folder })
    }

    /// A configuration with these models, after tables that are given as they are. Guests may reach the TLS listener
    /// of the scripted provider as [`API`].
    pub(crate) fn config(&self, tables: &str, models: &[ModelScript]) -> String {
        let (tls, roots) = (self.tls, self.folder.path().join("roots.pem"));
        let mut config = format!(
            "{tables}\n[egress]\nallow_plaintext_loopback = true\nroots = [\"{}\"]\nports = [{tls}]\n\
             allow_private = [\"127.0.0.0/8\"]\nresolve = {{ \"{API}\" = [\"127.0.0.1\"] }}\n",
            roots.display()
        );
        let mut providers = BTreeMap::new();
        let mut tables = String::new();
        for ModelScript { id, scripts, endpoints } in models {
            let is_embedding = scripts.iter().any(|script| script.starts_with("embedding"));
            let kind = if is_embedding { "embeddings" } else { "responses" };
            let list: Vec<String> = (0..*endpoints)
                .zip(scripts.iter().cycle())
                .map(|(number, script)| {
                    let provider = format!("{script}-{}", number % 2);
                    let endpoint = format!(
                        "{{ provider = \"{provider}\", model = \"m{number}\", input = 1.0, output = 2.0 }}"
                    );
                    providers.insert(provider, script.as_str());
                    endpoint
                })
                .collect();
            tables +=
                &format!("[[models]]\nid = \"{id}\"\nkind = \"{kind}\"\nendpoints = [{}]\n", list.join(", "));
        }
        for (name, script) in providers {
            let origin = match script.strip_prefix("tls-") {
                None => format!("http://127.0.0.1:{}/{script}", self.plain),
                Some(script) => format!("https://{API}:{tls}/{script}"),
            };
            config += &format!(
                "[[providers]]\nname = \"{name}\"\nadapter = \"openai-responses\"\nkey = \"env:BENCH_KEY\"\n\
                 base_url = \"{origin}/v1\"\n"
            );
        }
        config + &tables
    }

    /// Starts nginx as a plain proxy to the scripted provider, if it is installed.
    pub(crate) async fn nginx(&self) -> anyhow::Result<Option<Nginx>> {
        let Some(path) = in_path("nginx") else { return Ok(None) };
        Nginx::start(&path, &self.folder.path().join("nginx"), self.plain).await.map(Some)
    }
}

/// nginx with a worker for each processor.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) processes: Processes,
}

impl Nginx {
    async fn start(path: &Path, folder: &Path, upstream: u16) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        // nginx cannot say which port it got, so it is given one that was free a moment ago.
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        std::fs::write(folder.join("nginx.conf"), nginx_config(address, upstream))?;
        let mut child = Command::new(path)
            .arg("-p")
            .arg(folder)
            .args(["-c", "nginx.conf", "-e", "stderr"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log"))?)
            .spawn()
            .with_context(|| format!("cannot start {}", path.display()))?;
        let pid = child.id().context("nginx ended")?;
        let until = Instant::now() + PATIENCE;
        while Connection::open(address).await.is_err() {
            if let Some(status) = child.try_wait()? {
                bail!("nginx ended with {status}: {}", std::fs::read_to_string(folder.join("log"))?);
            }
            pause(until, "nginx does not answer").await?;
        }
        Ok(Self { processes: Processes::children_of(pid)?, child, address })
    }
}

impl Drop for Nginx {
    /// The signal goes to the master, which ends its workers.
    fn drop(&mut self) {
        if let Some(pid) = self.child.id().and_then(pid) {
            kill_process(pid, Signal::TERM).ok();
        }
    }
}

fn nginx_config(address: SocketAddr, upstream: u16) -> String {
    format!(
        "daemon off;
worker_processes auto;
pid nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 100000000;
  client_max_body_size 64m;
  upstream scripted {{ server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 100000000; }}
  server {{
    listen {address};
    location / {{
      proxy_pass http://scripted;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
      proxy_request_buffering off;
    }}
  }}
}}
"
    )
}

/// A running build of the program with a data folder of its own.
pub(crate) struct Program {
    pub(crate) name: String,
    path: PathBuf,
    folder: PathBuf,
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// A key of the workspace `default`, from the first start on this folder.
    pub(crate) key: String,
    pub(crate) processes: Processes,
}

impl Program {
    /// Starts it on a new data folder. It compiles all its plugins, ends, and starts again, because compiling takes
    /// memory that a program with compiled plugins does not have.
    pub(crate) async fn start(build: &Build, site: &Site, config: &str) -> anyhow::Result<Self> {
        let folder = site.folder.path().join(&build.name);
        let compiled = Self::start_new(build, &folder, config, &[]).await?;
        compiled.until_compiled().await?;
        let key = compiled.key.clone();
        compiled.end().await?;
        let program = Self::start_on(build, &folder, &key, &[]).await?;
        program.until_compiled().await?;
        Ok(program)
    }

    /// Starts it on a new data folder, with these variables in its environment.
    pub(crate) async fn start_new(
        build: &Build,
        folder: &Path,
        config: &str,
        variables: &[(&str, &Path)],
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("cofferdam.toml"), config)?;
        Self::start_on(build, folder, "", variables).await
    }

    /// Starts it on a folder that may have been served before. `key` is used if this is not the first start.
    pub(crate) async fn start_on(
        build: &Build,
        folder: &Path,
        key: &str,
        variables: &[(&str, &Path)],
    ) -> anyhow::Result<Self> {
        Self::start_under(&[], build, folder, key, variables).await
    }

    /// The same, run by a tool such as `valgrind`.
    pub(crate) async fn start_under(
        tool: &[String],
        build: &Build,
        folder: &Path,
        key: &str,
        variables: &[(&str, &Path)],
    ) -> anyhow::Result<Self> {
        let log = std::fs::File::options().append(true).create(true).open(folder.join("log"))?;
        let mut child = command_under(tool, &build.path, folder)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .env("BENCH_KEY", "sk-bench")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", build.path.display()))?;
        let line = first_line(&mut child).await.with_context(|| {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            format!("{} did not start: {}", build.path.display(), log.lines().last().unwrap_or_default())
        })?;
        let banner: Value = serde_json::from_str(&line)?;
        let text = |name: &str| banner.get(name).and_then(Value::as_str);
        let address = |name: &str| anyhow::Ok(text(name).context("no address in the first line")?.parse()?);
        Ok(Self {
            name: build.name.clone(),
            path: build.path.clone(),
            folder: folder.to_owned(),
            address: address("listen")?,
            admin: address("admin")?,
            key: text("key").unwrap_or(key).to_owned(),
            processes: Processes::one(child.id().context("the program ended")?),
            child,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs a command on this program's data folder.
    pub(crate) async fn command(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        self.command_with(arguments, "").await
    }

    /// The same with this standard input.
    pub(crate) async fn command_with(&self, arguments: &[&str], input: &str) -> anyhow::Result<Value> {
        run_command(&self.path, &self.folder, arguments, input).await
    }

    pub(crate) async fn until_compiled(&self) -> anyhow::Result<()> {
        self.until_compiled_within(PATIENCE).await
    }

    pub(crate) async fn until_compiled_within(&self, patience: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        loop {
            let listed = self.command(&["plugin", "list"]).await?;
            let states =
                listed.as_array().into_iter().flatten().filter_map(|plugin| plugin.get("state")?.as_str());
            if states.clone().all(|state| state.starts_with("compiled") || state == "not granted") {
                return Ok(());
            }
            pause(until, "the plugins are not compiled").await?;
        }
    }

    /// The page of the admin listener, such as `/metrics`.
    pub(crate) async fn admin_page(&self, path: &str) -> anyhow::Result<String> {
        let mut connection = Connection::open(self.admin).await?;
        let reply = connection.ask_well(&LoadRequest::get(path, "")).await?;
        Ok(String::from_utf8_lossy(&reply.body).into_owned())
    }

    /// The value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let page = self.admin_page("/metrics").await?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("/metrics has no {name}"))?.parse()?)
    }

    /// The same as [`Program::reload`], and waits until the program uses the configuration.
    pub(crate) async fn reload_and_wait(&self, config: &str) -> anyhow::Result<()> {
        const RELOADS: &str = "cofferdam_reloads_total";
        let before = self.metric(RELOADS).await?;
        self.reload(config)?;
        let until = Instant::now() + PATIENCE;
        while self.metric(RELOADS).await? <= before {
            pause(until, "the configuration is not used").await?;
        }
        Ok(())
    }

    /// Changes the configuration and has the program read it.
    pub(crate) fn reload(&self, config: &str) -> anyhow::Result<()> {
        std::fs::write(self.folder.join("cofferdam.toml"), config)?;
        self.signal(Signal::HUP)
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = pid(self.id()?).with_context(|| format!("{} has an invalid id", self.name))?;
        Ok(kill_process(pid, signal)?)
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.name))
    }

    /// Ends it with SIGTERM.
    pub(crate) async fn end(mut self) -> anyhow::Result<ExitStatus> {
        self.end_here().await
    }

    /// The same, where another program takes its place.
    pub(crate) async fn end_here(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        Ok(ended.with_context(|| format!("{} does not end", self.name))??)
    }
}

/// Runs a command of the program at this path on a folder with a configuration.
pub(crate) async fn run_command(
    path: &Path,
    folder: &Path,
    arguments: &[&str],
    input: &str,
) -> anyhow::Result<Value> {
    let mut child = command(path, folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input.as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        bail!("{arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn command(path: &Path, folder: &Path) -> Command {
    command_under(&[], path, folder)
}

fn command_under(tool: &[String], path: &Path, folder: &Path) -> Command {
    let mut command = match tool {
        [] => Command::new(path),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(path);
            command
        }
    };
    command.arg("--json").arg("--data").arg(folder.join("data"));
    command.arg("--config").arg(folder.join("cofferdam.toml"));
    // Compiled plugins belong into the data folder of the run.
    command.env_remove("COFFERDAM_CACHE").env_remove("XDG_CACHE_HOME");
    command
}

async fn first_line(child: &mut Child) -> anyhow::Result<String> {
    let output = child.stdout.take().context("no standard output")?;
    let mut line = String::new();
    let mut reader = BufReader::new(output);
    tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await.context("it printed nothing")??;
    if line.is_empty() {
        bail!("it ended with {}", child.wait().await?);
    }
    // Read on, so that a later line does not fail.
    tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
    Ok(line)
}

async fn pause(until: Instant, error: &'static str) -> anyhow::Result<()> {
    if Instant::now() > until {
        bail!("{error} in time");
    }
    tokio::time::sleep(POLL).await;
    Ok(())
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}
